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


def is_prng_key(x: Any) -> bool:
    """Whether x is a single PRNG key, typed or a raw key of the default implementation."""
    if not isinstance(x, (jax.Array, np.ndarray)):
        return False
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return bool(x.shape == ())
    is_uint32_array = x.dtype == np.uint32 and x.ndim > 0
    return is_uint32_array and x.shape == jax.eval_shape(jax.random.PRNGKey, 0).shape


def check_real_dtype(arg_name: str, x: Array) -> None:
    """Raise `ArgumentError` unless the dtype of x is a float, integer or bool."""
    is_real = (
        jnp.issubdtype(x.dtype, jnp.floating)
        or jnp.issubdtype(x.dtype, jnp.integer)
        or x.dtype == jnp.bool_
    )
    if not is_real:
        raise wrong_dtype_error(arg_name, "an array of floats, integers or bools", x)


def wrong_dtype_error(
    arg_name: str, rule: str, array: Any, hint: str = "Convert it first."
) -> ArgumentError:
    """The error for an array of the wrong dtype."""
    return ArgumentError(arg_name, rule, array.dtype, hint, TypeError, attribute="dtype")


def as_array(x: Any, arg_name: str = "x") -> Array:
    """x as a jax array of real numbers. Raises for lists, scalars, strings and None."""
    if not is_array(x):
        raise not_an_array_error(arg_name, x)
    return as_real_array(arg_name, x)


def not_an_array_error(arg_name: str, value: Any, rule: str = "an array") -> ArgumentError:
    """The error for a `value` that is not an array: a tensor of another library, a list, a string or None."""
    if callable(getattr(value, "numpy", None)):  # PyTorch, TensorFlow
        package = type(value).__module__.partition(".")[0]
        shown_value = f"{arg_name} of type {package}.{type(value).__name__}"
        detach_call = ".detach()" if getattr(value, "requires_grad", False) is True else ""
        hint = f"Pass jnp.asarray({arg_name}{detach_call}.numpy())."
        return ArgumentError(
            arg_name, rule, value, hint, TypeError, shown_value=shown_value, must_be_static=False
        )
    hint = (
        f"Pass jnp.asarray({arg_name})."
        if _is_numeric_array_like(value)
        else "Pass an array of jax or NumPy."
    )
    return ArgumentError(arg_name, rule, value, hint, TypeError, must_be_static=False)


def _is_numeric_array_like(value: Any) -> bool:
    """Whether `jnp.asarray(value)` would be an array of numbers or bools; True if `value` contains tracers."""
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except jax.errors.TracerArrayConversionError:
        return True
    except Exception:  # for example an object of a user's class, or lists of unequal lengths
        return False


def as_jax_array(arg_name: str, x: Any) -> Array:
    """x as a jax array. Raises if jax does not support the dtype of x or the result of `x.__jax_array__()`.

    A jax array is returned unchanged, because `jnp.asarray` of jax 0.10.0 changes its sharding under `jax.vmap`.
    """
    if isinstance(x, jax.Array):
        return x
    try:
        # `jnp.asarray` returns a NumPy array if `__jax_array__` returns a NumPy array of an unsupported dtype.
        array = jnp.asarray(x)
    except (TypeError, ValueError, OverflowError):
        array = None
    if not isinstance(array, jax.Array):
        hint = f"Pass jnp.asarray({arg_name}) of what jax can hold."
        rule = "an array that jax can hold"
        if isinstance(x, (np.ndarray, np.generic)):
            raise wrong_dtype_error(arg_name, rule, x, hint)
        raise ArgumentError(arg_name, rule, x, hint, TypeError, must_be_static=False)
    return array


def as_real_array(arg_name: str, x: Any) -> Array:
    """x as a jax array of floats, integers or bools."""
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind not in "biufV":
        raise wrong_dtype_error(arg_name, "an array of floats, integers or bools", x)
    array = as_jax_array(arg_name, x)
    check_real_dtype(arg_name, array)
    return array


def as_weakly_typed(x: Array) -> Array:
    """x with a weak type: in an operation with a strongly typed array, that array determines the result's dtype.

    JAX has no public function to make a type weak. JAX's own functions bind the same primitive.
    """
    if jax.typeof(x).weak_type:
        return x
    return lax.convert_element_type_p.bind(x, new_dtype=x.dtype, weak_type=True, sharding=None)


def varying_mesh_axes(aval: Any) -> frozenset[Any]:
    """The manual mesh axes of a `shard_map` over which an array of type `aval` varies (JAX's `vma`)."""
    aval = getattr(aval, "manual_axis_type", aval)
    axes: frozenset[Any] = getattr(aval, "varying", getattr(aval, "vma", frozenset()))
    return axes


def match_varying_mesh_axes(xs: Sequence[Array], *other_arrays: Array) -> tuple[Array, ...]:
    """`xs`, cast by `lax.pcast` to vary over each manual mesh axis over which an array of either argument varies.

    Custom derivatives require that a tangent or cotangent varies over the mesh axes of its array. The transpose of
    `lax.pcast` sums a cotangent over the mesh axes that it added.
    """
    axes_per_array = [varying_mesh_axes(jax.typeof(x)) for x in (*xs, *other_arrays)]
    axes = sorted(frozenset[Any]().union(*axes_per_array), key=str)
    axes_to_add = [
        tuple(axis for axis in axes if axis not in own) for own in axes_per_array[: len(xs)]
    ]
    return tuple(
        lax.pcast(x, missing_axes, to="varying") if missing_axes else x
        for x, missing_axes in zip(xs, axes_to_add, strict=True)
    )
