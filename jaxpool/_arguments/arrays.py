"""Checks and conversions of arrays, and of coefficients, which are numbers or arrays that broadcast to the output."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeGuard

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import PartitionSpec, reshard
from jax.typing import DTypeLike

from jaxpool._arguments.errors import ArgumentError, check_nesting, is_nested_deeply
from jaxpool._arguments.sizes import Shape

# Limit for an object whose `__jax_array__` returns another such object, or itself.
MAX_NESTED_HOLDERS = 100


class SupportsJaxArray(Protocol):
    """An object that holds an array, such as a parameter of Flax NNX."""

    def __jax_array__(self) -> Array: ...


ArrayArgument = Array | np.ndarray | np.generic | SupportsJaxArray
MaskArgument = ArrayArgument | bool | None
PyTree = Any  # any nesting of containers, with arrays or other values as leaves


def is_array(x: object) -> bool:
    """Whether x is a jax or NumPy array, or an object with `__jax_array__`."""
    return isinstance(x, (jax.Array, np.ndarray, np.generic)) or hasattr(type(x), "__jax_array__")


def unwrap_array(x: Any) -> Any:
    """The array that an object with `__jax_array__` holds, such as a parameter of Flax NNX; any other x itself."""
    for _ in range(MAX_NESTED_HOLDERS):
        # In a tracer, `__jax_array__` is None.
        if not hasattr(type(x), "__jax_array__") or isinstance(x, jax.Array):
            break
        x = x.__jax_array__()
    return x


def is_prng_key(x: object, ndim: int = 0) -> bool:
    """Whether x is or holds a PRNG key, or keys along `ndim` axes; typed, or raw of the default implementation."""
    x = unwrap_array(x)
    if not isinstance(x, (jax.Array, np.ndarray)):
        return False
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return bool(x.ndim == ndim)
    # Words in another byte order get a clearer error from `as_jax_array`.
    is_word = x.dtype.newbyteorder("=") == np.uint32
    return bool(is_word and x.shape[ndim:] == _raw_key_shape(jax.config.jax_default_prng_impl))  # type: ignore[attr-defined]


@functools.lru_cache
def _raw_key_shape(default_prng_impl: str) -> Shape:
    """The shape of a raw PRNG key of the default implementation, whose name is here for the cache alone."""
    # `eval_shape` caches the result of a function too: pass a new function.
    shape: Shape = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))).shape
    return shape


def key_source_hint(x: object) -> str:
    """A hint for a batch of PRNG keys, or a source of keys such as `nnx.Rngs`, or its class; "" for other values."""
    if is_prng_key(x, ndim=1):
        return "Pass one of these keys, key[0], say."
    if x is jax.random.key or x is jax.random.PRNGKey:
        return f"Call it: pass jax.random.{x.__name__}(0), say."
    source = x if isinstance(x, type) else type(x)
    if not issubclass(source, (Callable, Iterator)):  # type: ignore[arg-type]
        return ""
    call = "next(rngs)" if issubclass(source, Iterator) else "rngs()"
    return f"Pass {call}{f' with rngs an instance of {source.__name__}' if x is source else ' of a source of keys'}."


def wrong_dtype_error(arg_name: str, rule: str, array: Any, hint: str = "") -> ArgumentError:
    """The error for an array of the wrong dtype. The default `hint` depends on the dtype."""
    hint = hint or _dtype_conversion_hint(arg_name, array.dtype)
    return ArgumentError(arg_name, rule, array.dtype, hint, TypeError, attribute="dtype")


def _dtype_conversion_hint(arg_name: str, dtype: Any) -> str:
    """A hint for converting an array of a dtype that no function takes."""
    if getattr(dtype, "names", None):
        return f"It has fields: pass one of them, {arg_name}[{dtype.names[0]!r}]."
    hints = {
        "f": f"Pass {arg_name}.astype(numpy.float64).",
        "c": f"Pass {arg_name}.real or abs({arg_name}).",
        **dict.fromkeys("Mm", f"Pass {arg_name}.astype(numpy.int64), a count of time units."),
        "O": f"It holds Python objects: convert them with {arg_name}.astype or numpy.stack.",
    }
    return hints.get(getattr(dtype, "kind", ""), "Convert it first.")


def concrete_values(x: Any) -> np.ndarray | None:
    """The values of an array, if this process knows them; None if x is traced or on other processes too.

    Pass the user's argument unconverted: inside a trace, the values of a NumPy array are known, but not after
    `jnp.asarray`.
    """
    x = unwrap_array(x)
    if not isinstance(x, (jax.Array, np.ndarray, np.generic)):
        x = jnp.asarray(x)  # a list or a number from `__jax_array__`
    if isinstance(x, jax.core.Tracer):
        return None
    if isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated):
        return None
    # jax raises where it reads an array without elements that a program has sharded (0.10 to 0.12).
    # An explicit transfer, which jax.transfer_guard("disallow") permits.
    return np.asarray(jax.device_get(x)) if x.size else np.empty(x.shape, x.dtype)


def as_array(x: object, arg_name: str = "x") -> Array:
    """x as a jax array of real numbers. Raises for lists, scalars, strings and None."""
    if not is_array(x):
        raise not_an_array_error(arg_name, x)
    return as_real_array(arg_name, x)


def not_an_array_error(arg_name: str, value: object, rule: str = "an array") -> ArgumentError:
    """The error for a `value` that is not an array: a tensor of another library, a list, a string or None."""
    shown_value = ""
    if callable(getattr(type(value), "numpy", None)):  # PyTorch, TensorFlow
        package = type(value).__module__.partition(".")[0]
        shown_value = f"{arg_name} of type {package}.{type(value).__name__}"
        detach_call = ".detach()" if getattr(value, "requires_grad", False) is True else ""
        hint = f"Pass jnp.asarray({arg_name}{detach_call}.numpy())."
    elif _is_numeric_array_like(value):
        hint = f"Pass jnp.asarray({arg_name})."
    else:
        hint = "Pass an array of jax or NumPy."
    return ArgumentError(
        arg_name, rule, value, hint, TypeError, shown_value=shown_value, must_be_static=False
    )


def _is_numeric_array_like(value: object) -> bool:
    """Whether `jnp.asarray(value)` is an array of real numbers or bools."""
    try:
        return not is_nested_deeply(value) and np.isrealobj(
            jax.eval_shape(lambda: jnp.asarray(value))
        )
    except Exception:  # for example an object of a user's class, or lists of unequal lengths
        return False


def as_jax_array(arg_name: str, x: object) -> Array:
    """x as a jax array; raises if jax does not support its dtype, its mask or the result of `x.__jax_array__()`."""
    array = unwrap_array(x)
    if isinstance(array, jax.Array):
        return array  # `jnp.asarray` of jax 0.10.0 changes its sharding under `jax.vmap`
    if isinstance(array, np.ma.MaskedArray):
        raise masked_array_error(arg_name, array)
    is_numpy = isinstance(array, (np.ndarray, np.generic))
    if is_numpy and array.dtype.kind == "c":  # which callers refuse, also in another byte order
        array = array.astype(array.dtype.newbyteorder("="))
    if is_numpy and array.dtype.kind in "biuf" and not array.dtype.isnative:
        hint = f"Pass {arg_name}.astype({arg_name}.dtype.newbyteorder('='))."
        raise wrong_dtype_error(arg_name, "in the byte order of this machine", array, hint)
    check_nesting(arg_name, array)
    try:
        with np.errstate(over="ignore"):  # large numbers become infinite, as in a cast by jax
            return jnp.asarray(array)
    except (TypeError, ValueError, OverflowError):
        rule = "an array that jax can hold"
        hint = f"Pass jnp.asarray({arg_name}) of what jax can hold."
        if is_numpy:
            raise wrong_dtype_error(arg_name, rule, array) from None
        raise ArgumentError(arg_name, rule, x, hint, TypeError, must_be_static=False) from None


def masked_array_error(arg_name: str, array: np.ma.MaskedArray) -> ArgumentError:
    """The error for a masked array of NumPy."""
    hint = f"Pass {arg_name}.filled(value)."
    if arg_name in ("x", "input"):
        mask = f"where=~numpy.ma.getmaskarray({arg_name})"
        hint = f"Pass {arg_name}.data with {mask} to a function with `where`, or {arg_name}.filled(value)."
    text = f"a masked array, {array.dtype}{list(array.shape)}"
    rule = "an array without a mask"
    return ArgumentError(arg_name, rule, array, hint, TypeError, shown_value=text)


def as_real_array(arg_name: str, x: object) -> Array:
    """x as a jax array of floats, integers or bools."""
    rule = "an array of floats, integers or bools"
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind not in "biufV":
        raise wrong_dtype_error(arg_name, rule, x)
    array = as_jax_array(arg_name, x)
    if not _is_dtype_of_kind(array.dtype, jnp.floating, jnp.integer, jnp.bool_):
        raise wrong_dtype_error(arg_name, rule, array)
    return array


def as_integer_array(
    arg_name: str, value: object, shape: Sequence[int], limit: int | None, hint: str, like: str = ""
) -> Array:
    """`value` as an array of integers of `shape`, the shape of the argument `like` if this is given.

    Raises also if a value that this process knows is not in `range(limit)`.
    """
    if not is_array(value):
        raise not_an_array_error(arg_name, value, "an array of integers")
    array = as_jax_array(arg_name, value)
    if not _is_dtype_of_kind(array.dtype, jnp.integer):
        raise wrong_dtype_error(arg_name, "an array of integers", array, hint)
    if array.shape != tuple(shape):
        rule = f"of the shape of {like}" if like else f"of shape {tuple(shape)}"
        raise ArgumentError(arg_name, rule, array.shape, hint, attribute="shape")
    values = concrete_values(value)
    if values is not None and limit is not None:
        invalid_values = values[(values < 0) | (values >= limit)]
        if invalid_values.size:
            rule = f"ints from 0 to {limit - 1}" if limit else "empty where x is"
            raise ArgumentError(arg_name, rule, int(invalid_values[0]), hint)
    return array


def _is_dtype_of_kind(dtype: DTypeLike, *kinds: DTypeLike) -> bool:
    return any(jnp.issubdtype(dtype, kind) for kind in kinds)


def as_weakly_typed(x: Array) -> Array:
    """x with a weak type. JAX has no public function for it; its own functions bind the same primitive."""
    if jax.typeof(x).weak_type:
        return x
    return lax.convert_element_type_p.bind(x, new_dtype=x.dtype, weak_type=True, sharding=None)


def replicated(x: Array) -> Array:
    """x without explicit mesh axes in its type."""
    sharding = jax.typeof(x).sharding
    return reshard(x, sharding.update(spec=PartitionSpec())) if any(sharding.spec) else x


def varying_mesh_axes(aval: object) -> frozenset[str]:
    """The manual mesh axes of a `shard_map` over which an array of type `aval` varies (JAX's `vma`)."""
    aval = getattr(aval, "manual_axis_type", aval)
    axes: frozenset[str] = getattr(aval, "varying", getattr(aval, "vma", frozenset()))
    return axes


def match_varying_mesh_axes(xs: Sequence[Array], *other_arrays: Array) -> tuple[Array, ...]:
    """`xs`, cast by `lax.pcast` to vary over the manual mesh axes of all arrays, as custom derivatives require.

    The transpose of `lax.pcast` sums a cotangent over the mesh axes that it added.
    """
    axes_per_array = [varying_mesh_axes(jax.typeof(x)) for x in (*xs, *other_arrays)]
    all_axes = frozenset[str]().union(*axes_per_array)

    def vary_over_all_axes(x: Array) -> Array:
        missing_axes = sorted(all_axes - varying_mesh_axes(jax.typeof(x)), key=str)
        return lax.pcast(x, tuple(missing_axes), to="varying") if missing_axes else x

    return tuple(map(vary_over_all_axes, xs))


FloatPredicate = Callable[[float], bool]


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a real Python or NumPy number; bools and ints that overflow a float are excluded."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    number_types = (int, float, np.integer, np.floating)
    return isinstance(value, number_types) and not isinstance(value, bool)


def checked_float(
    arg_name: str,
    value: object,
    rule: str,
    hint: str,
    is_valid: FloatPredicate,
    *,
    must_be_static: bool = True,
) -> float:
    """`value` as a float. Raises unless `value` is a number for which `is_valid` is True; a bool is not a number."""
    if not is_number(value):
        raise ArgumentError(arg_name, rule, value, hint, TypeError, must_be_static=must_be_static)
    if math.isnan(value) or not is_valid(float(value)):
        raise ArgumentError(arg_name, rule, value, hint)
    return float(value)


def as_coefficient(
    arg_name: str, value: object, rule: str, is_valid: FloatPredicate, output_shape: Shape
) -> tuple[float | None, tuple[Array, ...]]:
    """`value` as (number, ()), or (None, (array,)) with the rank of `output_shape`; elements are not checked."""
    if not is_array(value) or isinstance(value, np.generic):
        hint = f"Pass a number, or an array that broadcasts against the output, {output_shape}."
        return checked_float(arg_name, value, rule, hint, is_valid, must_be_static=False), ()
    array = as_jax_array(arg_name, value)
    if not _is_dtype_of_kind(array.dtype, jnp.floating, jnp.integer):
        raise wrong_dtype_error(arg_name, "of floats or integers", array)
    padded_shape = (1,) * (len(output_shape) - array.ndim) + array.shape
    pairs = zip(padded_shape, output_shape, strict=False)
    if array.ndim > len(output_shape) or any(size not in (1, other) for size, other in pairs):
        hint = "An array of shape (C,) is one number per channel where channels come last."
        rule = f"of a shape that broadcasts against the output, {output_shape}"
        raise ArgumentError(arg_name, rule, array.shape, hint, attribute="shape")
    if array.dtype == jnp.float8_e8m0fnu:
        # The cotangents of the shards are added in this dtype. float8_e8m0fnu has no zero.
        array = array.astype(np.float32)
    return None, (array.reshape(padded_shape),)


def as_broadcast_mask(
    where: object, shape: Shape, arg_name: str = "where", output_shape: Shape = ()
) -> Array:
    """The mask `where` as a boolean array that broadcasts to `shape`, the shape of x, and has its rank.

    `output_shape` is the shape of pooled x, for an error hint.
    """
    if not is_array(where) and not isinstance(where, bool):
        raise not_an_array_error(arg_name, where, "an array of bools")
    is_float = isinstance(where, np.ndarray) and where.dtype.kind in "fc"
    is_plain_float = is_float and not isinstance(where, np.ma.MaskedArray)
    mask: Any = where if is_plain_float else as_jax_array(arg_name, where)
    if mask.dtype != jnp.bool_:
        hint = _bool_conversion_hint(arg_name, mask.dtype)
        raise wrong_dtype_error(arg_name, "an array of bools", mask, hint)
    if not _broadcasts_to(mask.shape, shape):
        rule = "of a shape that broadcasts to that of x"
        hint = _mask_shape_hint(arg_name, mask.shape, shape, tuple(output_shape))
        raise ArgumentError(arg_name, rule, mask.shape, hint, attribute="shape")
    return lax.expand_dims(mask, range(len(shape) - mask.ndim))


def _broadcasts_to(shape: Shape, target_shape: Shape) -> bool:
    try:
        return bool(jnp.broadcast_shapes(tuple(shape), tuple(target_shape)) == tuple(target_shape))
    except ValueError:
        return False


def _mask_shape_hint(arg_name: str, mask_shape: Shape, shape: Shape, output_shape: Shape) -> str:
    """A hint for a mask that does not broadcast to x, of the given `shape`."""
    axes: list[Any] = _matching_axes(mask_shape, shape)
    if mask_shape == output_shape or (
        None in axes and None not in _matching_axes(mask_shape, output_shape)
    ):
        fit = "It has the shape" if mask_shape == output_shape else "Its sizes fit axes"
        return f"{fit} of the output. Pass a mask of the elements of x."
    if None in axes:
        return "Align it with the last axes of x: each size is that of x or 1."
    # Axes of x of equal sizes can match in another order: search from the last axis of the mask, and of x.
    mirrored: list[Any] = [_matching_axes(mask_shape[::-1], shape[::-1])[::-1]]
    if axes != sorted(axes):
        mirrored.append(_matching_axes(mask_shape, shape[::-1]))
    others = [tuple(len(shape) - 1 - axis for axis in each) for each in mirrored]
    choices = dict.fromkeys([tuple(axes), *others])
    codes = dict.fromkeys(_aligned_mask(arg_name, each, len(shape)) for each in choices)
    which = "; sizes do not tell which" if len(codes) > 1 else ""
    if which and any(size != 1 and tuple(shape).count(size) > 2 for size in mask_shape):
        which += ", and others match too"
    text = " or ".join(map(str, choices))
    return f"Its axes would match axes {text} of x: pass {' or '.join(codes)}{which}."


def _aligned_mask(arg_name: str, axes: Sequence[int], ndim: int) -> str:
    """Code that moves the axes of a mask to `axes`, and adds axes of size 1, for an x of rank `ndim`."""
    order = tuple(sorted(range(len(axes)), key=lambda n: axes[n]))
    is_sorted = order == tuple(range(len(axes)))
    transposed = arg_name if is_sorted else f"{arg_name}.transpose{order}"
    index = ", ".join(":" if axis in axes else "None" for axis in range(min(axes), ndim))
    return f"{transposed}[{index}]" if "None" in index else transposed


def _matching_axes(mask_shape: Shape, shape: Shape) -> list[int | None]:
    """The first axes of an array with the sizes of a mask, in the order of the mask if possible; None: no such axis."""
    axes = iter(range(len(shape)))
    matches = [next((axis for axis in axes if n in (1, shape[axis])), None) for n in mask_shape]
    if None in matches:
        matches = [None] * len(mask_shape)
        # Size 1 matches every axis, so it comes last.
        for i in sorted(range(len(mask_shape)), key=lambda i: mask_shape[i] == 1):
            free = (axis for axis in range(len(shape)) if axis not in matches)
            matches[i] = next((axis for axis in free if mask_shape[i] in (1, shape[axis])), None)
    return matches


def _bool_conversion_hint(arg_name: str, dtype: DTypeLike) -> str:
    """A hint for converting numbers to bools. For integers that are episode ids or lengths, `!= 0` would be wrong."""
    if not jnp.issubdtype(dtype, jnp.integer):
        return f"Pass {arg_name} != 0."
    if arg_name == "reset":
        return "For episode ids pass jnp.diff(ids, prepend=ids[:1] - 1) != 0, for flags reset != 0."
    return "For lengths pass jnp.arange(T) < lengths[:, None], for flags where != 0."
