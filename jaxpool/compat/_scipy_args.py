"""What the filters of `scipy.ndimage` take: checks of their arguments."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import is_array, real_array
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int, is_sequence, per_axis
from jaxpool._kernels.dtypes import is_float

MODES = {  # SciPy's names of borders, and NumPy's
    **{"reflect": "symmetric", "grid-mirror": "symmetric", "nearest": "edge", "mirror": "reflect"},
    **{"wrap": "wrap", "grid-wrap": "wrap", "constant": "constant", "grid-constant": "constant"},
}
LARGEST = 2**20  # elements of a window
REPEATED = 64  # times that a border may repeat the input: jax writes each of them into the program


def check_known(x: Array, axes: Sequence[int]) -> None:
    """Raises unless the sizes of `axes` are known."""
    for axis in axes:
        if not is_int(x.shape[axis]):
            rule, hint = f"of a known size along axis {axis}", "Name the others in axes."
            raise ArgumentError("input", rule, x.shape, hint, of="shape")


def without_axes(given: dict[str, Any], ndim: int) -> dict[str, Any]:
    """The arguments of a filter along no axis, for one of size 1 behind those of input."""
    one = {**given, "axes": (ndim,), "origin": 0}
    per_axis("origin", given["origin"], 0, least=-(2**31))
    if given["size"] is not None:
        per_axis("size", given["size"], 0)
        one["size"] = 1
    if is_sequence(given["mode"]) and not given["mode"]:
        one["mode"] = "nearest"
    for name in ("footprint", "structure"):
        if given.get(name) is not None and np.ndim(given[name]) == 0:
            one[name] = given[name].reshape(1) if is_array(given[name]) else [given[name]]
    return one


def check_held(cval: Any, dtype: Any) -> None:
    """Raises unless integers or bools of `dtype` can hold `cval`: SciPy would compare it in float64."""
    if jnp.issubdtype(dtype, jnp.floating):
        return
    low, high = (0, 1) if dtype == np.bool_ else (jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)
    if not low - 1 < float(cval) < high + 1:
        rule = f"a number from {low} to {high}, which {dtype} can hold"
        raise ArgumentError("cval", rule, cval, "Convert input to float32 first.")


def output_dtype(output: Any, x: Array) -> np.dtype:
    """The dtype of the result."""
    rule, hint = "a dtype or None: arrays do not change", "Use the result."
    dtype, known = (
        x.dtype,
        not is_array(output),
    )  # NumPy would take the dtype of an array or a number
    if known and output is not None:
        try:
            dtype = jnp.dtype(output)
            known = bool(jnp.issubdtype(dtype, jnp.number) or dtype == np.bool_)
        except Exception:  # what NumPy says of what is no dtype
            known = False
    if not known:
        got = type(output) if is_array(output) else output
        raise ArgumentError("output", rule, got, hint, TypeError)
    return dtype


def numbers(argument: str, value: Any) -> Array:
    """An array of numbers, or a list of them."""
    if is_sequence(value):
        with contextlib.suppress(
            Exception
        ):  # of traced numbers, or of what jax tells to be no array
            value = np.asarray(value)
    elif not is_array(value):
        raise ArgumentError(argument, "an array", value, "Pass np.zeros((3, 3)), say.", TypeError)
    return real_array(argument, value)


def bools(mask: Any) -> np.ndarray:
    """A footprint as an array."""
    try:
        return np.asarray(mask, bool)
    except Exception:  # traced, or nothing that NumPy makes an array of
        hint = "Pass np.ones((3, 3), bool), say."
        raise ArgumentError("footprint", "an array of bools", mask, hint, TypeError) from None


def cut_off(y: Array, dtype: np.dtype) -> Array:
    """y as `dtype`, as C casts it: what an integer does not hold wraps round, floats as well, which XLA would clip.

    A bool is a byte to SciPy: 256 and 0.5 are False.
    """
    if dtype == np.bool_ and y.dtype != np.bool_:
        return cut_off(y, np.dtype(np.uint8)).astype(dtype)
    if is_float(y.dtype) and dtype == np.uint32:
        return jnp.where(y < 0, y.astype(np.int32).astype(dtype), y.astype(dtype))
    small = not is_float(dtype) and dtype.itemsize < 4 and dtype != np.bool_
    return y.astype(np.int32).astype(dtype) if small and is_float(y.dtype) else y.astype(dtype)


def keeps_order(source: np.dtype, target: np.dtype) -> bool:
    """Whether a greater number of `source` is never a smaller one as `target`."""
    if is_float(target) or source == target:
        return True
    return not is_float(source) and np.can_cast(source, target)
