"""Checks and conversions of array arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError


def is_array(x: Any) -> bool:
    """Whether x is a jax or NumPy array, or an object with `__jax_array__`."""
    return isinstance(x, (jax.Array, np.ndarray, np.generic)) or hasattr(x, "__jax_array__")


def is_key(x: Any) -> bool:
    """Whether x is a single PRNG key, typed or a raw key of the default implementation."""
    if not isinstance(x, (jax.Array, np.ndarray)):
        return False
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return bool(x.shape == ())
    raw = x.dtype == np.uint32 and x.ndim > 0
    return raw and x.shape == jax.eval_shape(jax.random.PRNGKey, 0).shape


def check_real(argument: str, x: Array) -> None:
    """Raise unless x is an array of floats, integers or bools."""
    real = (
        jnp.issubdtype(x.dtype, jnp.floating)
        or jnp.issubdtype(x.dtype, jnp.integer)
        or x.dtype == jnp.bool_
    )
    if not real:
        raise wrong_dtype(argument, "an array of floats, integers or bools", x)


def wrong_dtype(
    argument: str, rule: str, array: Any, hint: str = "Convert it first."
) -> ArgumentError:
    """The error for an array of the wrong dtype."""
    return ArgumentError(argument, rule, array.dtype, hint, TypeError, of="dtype")


def as_array(x: Any, argument: str = "x") -> Array:
    """x as a jax array of real numbers. Raises for lists, scalars, strings and None."""
    if not is_array(x):
        raise not_an_array(argument, x)
    return real_array(argument, x)


def not_an_array(argument: str, value: Any, rule: str = "an array") -> ArgumentError:
    """The error for a `value` that is not an array: a tensor of another library, a list, a string or None."""
    if callable(getattr(value, "numpy", None)):  # PyTorch, TensorFlow
        package = type(value).__module__.partition(".")[0]
        got = f"{argument} of type {package}.{type(value).__name__}"
        detached = ".detach()" if getattr(value, "requires_grad", False) is True else ""
        hint = f"Pass jnp.asarray({argument}{detached}.numpy())."
        return ArgumentError(argument, rule, value, hint, TypeError, got=got, static=False)
    hint = (
        f"Pass jnp.asarray({argument})."
        if _has_numbers(value)
        else "Pass an array of jax or NumPy."
    )
    return ArgumentError(argument, rule, value, hint, TypeError, static=False)


def _has_numbers(value: Any) -> bool:
    """Whether `jnp.asarray(value)` would be an array of numbers or bools. Assumed if entries are traced."""
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except jax.errors.TracerArrayConversionError:
        return True
    except Exception:  # an object of a user's class, or lists of unequal lengths
        return False


def converted(argument: str, x: Any) -> Array:
    """x as a jax array. Raises if jax does not support its dtype or the result of its `__jax_array__`.

    A jax array is returned unchanged, because `jnp.asarray` of jax 0.10.0 changes its sharding under `jax.vmap`.
    """
    if isinstance(x, jax.Array):
        return x
    try:
        # A NumPy array if `__jax_array__` returns one that jax does not support.
        array = jnp.asarray(x)
    except (TypeError, ValueError, OverflowError):
        array = None
    if not isinstance(array, jax.Array):
        hint = f"Pass jnp.asarray({argument}) of what jax can hold."
        rule = "an array that jax can hold"
        if isinstance(x, (np.ndarray, np.generic)):
            raise wrong_dtype(argument, rule, x, hint)
        raise ArgumentError(argument, rule, x, hint, TypeError, static=False)
    return array


def real_array(argument: str, x: Any) -> Array:
    """x as a jax array of floats, integers or bools."""
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind not in "biufV":
        raise wrong_dtype(argument, "an array of floats, integers or bools", x)
    array = converted(argument, x)
    check_real(argument, array)
    return array


def weakly_typed(x: Array) -> Array:
    """x with a weak type, which does not determine the dtype of a result with a strongly typed array.

    jax has no public function for this. Its own functions bind the same primitive.
    """
    if jax.typeof(x).weak_type:
        return x
    return lax.convert_element_type_p.bind(x, new_dtype=x.dtype, weak_type=True, sharding=None)


def varying(x: Array) -> frozenset[Any]:
    """The manual axes of a `shard_map` over which the type of x varies."""
    kind = jax.typeof(x)
    kind = getattr(kind, "manual_axis_type", kind)
    axes: frozenset[Any] = getattr(kind, "varying", getattr(kind, "vma", frozenset()))
    return axes


def vary_together(xs: Sequence[Array], *others: Array) -> tuple[Array, ...]:
    """xs, cast by `lax.pcast` to vary over every manual mesh axis over which any of `xs` or `others` varies.

    Custom derivatives require that a tangent or cotangent varies over the mesh axes of its array. The transpose of
    `lax.pcast` sums a cotangent over the mesh axes that it added.
    """
    axes = sorted(frozenset[Any]().union(*map(varying, (*xs, *others))), key=str)
    missing = [tuple(axis for axis in axes if axis not in varying(x)) for x in xs]
    return tuple(
        lax.pcast(x, more, to="varying") if more else x for x, more in zip(xs, missing, strict=True)
    )
