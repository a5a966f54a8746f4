"""Checks and conversions of the arguments of the `scipy.ndimage` filters."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import as_real_array, is_array, masked_array_error, unwrap_array
from jaxpool._arguments.errors import ArgumentError, check_nesting, is_nested_deeply
from jaxpool._arguments.sizes import ints_per_axis, is_int, is_tuple_or_list
from jaxpool._kernels.dtypes import is_float

JNP_PAD_MODES = {  # from SciPy's border modes to those of `jnp.pad`
    **{"reflect": "symmetric", "grid-mirror": "symmetric", "nearest": "edge", "mirror": "reflect"},
    **{"wrap": "wrap", "grid-wrap": "wrap", "constant": "constant", "grid-constant": "constant"},
}
MAX_WINDOW_ELEMENTS = 2**20  # elements of a window
# Repeats of the input by a border: `jnp.pad` adds operations for each repeat.
MAX_BORDER_REPEATS = 64


def check_static_sizes(x: Array, axes: Sequence[int]) -> None:
    """Raise unless the sizes of `axes` are known."""
    for axis in axes:
        if not is_int(x.shape[axis]):
            rule, hint = f"of a known size along axis {axis}", "Name the others in axes."
            raise ArgumentError("input", rule, x.shape, hint, attribute="shape")


def add_axis_of_size_1(arguments: dict[str, Any], ndim: int) -> dict[str, Any]:
    """The arguments of a filter along no axis, changed to filter along an added last axis of size 1."""
    new_arguments = {**arguments, "axes": (ndim,), "origin": 0}
    ints_per_axis("origin", arguments["origin"], 0, min_value=-(2**31))
    if arguments["size"] is not None:
        ints_per_axis("size", arguments["size"], 0)
        new_arguments["size"] = 1
    if is_tuple_or_list(arguments["mode"]) and not arguments["mode"]:
        new_arguments["mode"] = "nearest"
    for name in ("footprint", "structure"):
        if arguments.get(name) is not None and np.ndim(arguments[name]) == 0:
            new_arguments[name] = (
                arguments[name].reshape(1) if is_array(arguments[name]) else [arguments[name]]
            )
    return new_arguments


def check_cval_fits_dtype(cval: Any, dtype: Any) -> None:
    """Raise unless an integer or bool `dtype` can represent `cval`. SciPy compares `cval` in float64."""
    if jnp.issubdtype(dtype, jnp.floating):
        return
    low, high = (0, 1) if dtype == np.bool_ else (jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)
    if not low - 1 < float(cval) < high + 1:
        rule = f"a number from {low} to {high}, which {dtype} can hold"
        raise ArgumentError("cval", rule, cval, "Convert input to float32 first.")


def output_dtype(output: Any, x: Array) -> np.dtype:
    """The dtype that the argument `output` names; None is the dtype of x."""
    rule, hint = "a dtype or None: arrays do not change", "Use the result."
    # An array or a number is refused: NumPy would take its dtype.
    dtype, is_dtype = x.dtype, not (is_array(output) or is_nested_deeply(output))
    if is_dtype and output is not None:
        try:
            dtype = jnp.dtype(output)
            is_dtype = bool(jnp.issubdtype(dtype, jnp.number) or dtype == np.bool_)
        except Exception:  # NumPy raises exceptions of several types
            is_dtype = False
    if not is_dtype:
        got = type(output) if is_array(output) else output
        raise ArgumentError("output", rule, got, hint, TypeError)
    return dtype


def as_numeric_array(arg_name: str, value: Any) -> Array:
    """`value`, an array of numbers or a list of numbers, as a jax array."""
    check_nesting(arg_name, value)
    if is_tuple_or_list(value):
        # NumPy cannot convert traced numbers. `as_real_array` raises for invalid entries.
        with contextlib.suppress(Exception):
            value = np.asarray(value)
    elif not is_array(value):
        hint = "Pass an array with an axis for each filtered axis of input."
        raise ArgumentError(arg_name, "an array", value, hint, TypeError)
    return as_real_array(arg_name, value)


def as_footprint(mask: Any) -> np.ndarray:
    """A footprint as a NumPy array of bools."""
    check_nesting("footprint", mask)
    try:
        mask = unwrap_array(mask)
        footprint = np.asarray(mask, bool)
    except Exception:  # traced, or not convertible to an array
        hint = "Pass an array of bools, with an axis for each filtered axis of input."
        raise ArgumentError("footprint", "an array of bools", mask, hint, TypeError) from None
    if isinstance(mask, np.ma.MaskedArray):
        raise masked_array_error("footprint", mask)
    return footprint


def cast_with_wraparound(y: Array, dtype: np.dtype) -> Array:
    """y cast to `dtype` as in C: values out of range wrap around, including floats, which XLA would clip.

    SciPy casts to bool through a byte: 256 and 0.5 become False.
    """
    if dtype == np.bool_ and y.dtype != np.bool_:
        return cast_with_wraparound(y, np.dtype(np.uint8)).astype(dtype)
    if is_float(y.dtype) and dtype == np.uint32:
        return jnp.where(y < 0, y.astype(np.int32).astype(dtype), y.astype(dtype))
    is_narrow = not is_float(dtype) and dtype.itemsize < 4 and dtype != np.bool_
    return y.astype(np.int32).astype(dtype) if is_narrow and is_float(y.dtype) else y.astype(dtype)


def cast_preserves_order(source_dtype: np.dtype, target_dtype: np.dtype) -> bool:
    """Whether a cast from `source_dtype` to `target_dtype` never reverses the order of two numbers."""
    if is_float(target_dtype) or source_dtype == target_dtype:
        return True
    return not is_float(source_dtype) and np.can_cast(source_dtype, target_dtype)
