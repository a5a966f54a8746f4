"""Grey morphology with a structure, and means, of integers: with the overflow and the rounding of `scipy.ndimage`."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import Kind, is_float
from jaxpool._ops.apply import apply
from jaxpool._ops.sum_pool import SumPool


@dataclasses.dataclass(frozen=True)
class IntegerMorphology:
    """The maximum or minimum of element plus structure number, over the flat window indices `taps` of each window."""

    window: Window
    taps: tuple[int, ...]
    kind: Kind
    saves_x = False


def apply_integer_morphology(op: IntegerMorphology, x: Array, structure_rows: Array) -> Array:
    """The result of `op` for integers x, in the dtype of `structure_rows` from `addends_of_structure`.

    All sums except the first are sums of x and truncated structure numbers, and wrap around in the dtype of x. The
    first sum is truncated after the addition, may exceed the dtype of x, and wraps around when the result is cast.
    """

    def tap_sum(row: int, tap: int, dtype: Any) -> Array:
        elements = slices.elements_at_tap(x, op.window, tap).astype(dtype)
        return elements + slices.broadcast_like(structure_rows[row].astype(dtype), elements)

    first_sum = tap_sum(op.window.size, op.taps[0], structure_rows.dtype)
    has_fraction = slices.broadcast_like(structure_rows[op.window.size + 1], first_sum)
    first_sum = lax.select(first_sum < 0, first_sum + has_fraction, first_sum)
    other_sums = (tap_sum(tap, tap, x.dtype).astype(structure_rows.dtype) for tap in op.taps[1:])
    return functools.reduce(lax.max if op.kind == "max" else lax.min, other_sums, first_sum)


def addends_of_structure(structure: Any, first_tap: int, kind: Kind, x: Array) -> Array:
    """The truncated structure numbers, the number at index `first_tap` rounded down, and whether rounding changed it.

    The entries are along a new first axis in front of the axes of x, in int32 or in the dtype of x if it is wider.
    """
    dtype = np.dtype(np.int32) if x.dtype.itemsize < 4 else x.dtype
    is_numpy = isinstance(structure, (tuple, list, np.ndarray))
    if is_numpy:
        rows = _addend_rows(np.asarray(structure), np, first_tap, kind, dtype)
    else:
        rows = _jitted_addend_rows(structure, jnp, first_tap, kind, dtype)
    return jax.device_put(rows.reshape((-1,) + (1,) * x.ndim))


def _addend_rows(structure: Any, xp: Any, first_tap: int, kind: Kind, dtype: np.dtype) -> Any:
    addends = structure.ravel()
    addends = addends[::-1] if kind == "max" else addends
    if is_float(addends.dtype):
        addends = addends if kind == "max" else -addends
        ints, floor = xp.trunc(addends), xp.floor(addends[first_tap])
        has_fraction = floor != addends[first_tap]
        int_dtype = np.int64 if xp is np else dtype if dtype.itemsize > 4 else np.int32
        ints, floor = ints.astype(int_dtype).astype(dtype), floor.astype(int_dtype).astype(dtype)
    else:
        ints = addends.astype(dtype)
        ints = ints if kind == "max" else -ints
        floor, has_fraction = ints[first_tap], xp.zeros((), bool)
    return xp.concatenate([ints, xp.stack([floor, has_fraction.astype(dtype)])])


# Eagerly, jax would transfer numbers, which jax.transfer_guard("disallow") forbids.
_jitted_addend_rows = jax.jit(_addend_rows, static_argnums=(1, 2, 3, 4))


def check_window_size(window_size: int, dtype: np.dtype) -> None:
    """Raise if `window_size` is more integers of `dtype` than `integer_mean` can add."""
    max_size = math.isqrt(int(jnp.iinfo(_accumulator_dtype(dtype)).max))
    if window_size > max_size and not _sum_fits_int32(window_size, dtype):
        rule = f"at most {max_size} along an axis of {dtype}"
        raise ArgumentError("size", rule, window_size, "Convert input to float32 first.")


def integer_mean(op: SumPool, x: Array) -> Array:
    """The mean of the integers of each window of `op`, truncated towards 0, as int32 or wider.

    If the sum could overflow, each integer is divided by the number of elements. The sum of the quotients cannot
    overflow, and `check_window_size` bounds the sum of the remainders.
    """
    num_elements, wide_x = op.window.size, x.astype(_accumulator_dtype(x.dtype))
    count = np.asarray(num_elements, wide_x.dtype)
    if _sum_fits_int32(num_elements, x.dtype):
        total = apply(op, wide_x)
        return lax.div(total, lax.full_like(total, count))
    quotients = jnp.floor_divide(wide_x, count)
    remainders = apply(op, wide_x - quotients * count)
    correction = lax.div(remainders, lax.full_like(remainders, count))
    mean = apply(op, quotients) + correction  # the floor of the mean
    rounded_down = (mean < 0) & (remainders != correction * count)
    return mean + rounded_down.astype(mean.dtype)


def _accumulator_dtype(dtype: np.dtype) -> np.dtype:
    """The accumulator dtype for integers of `dtype`."""
    return np.dtype(np.int32) if dtype.itemsize < 4 else dtype


def _sum_fits_int32(num_elements: int, dtype: np.dtype) -> bool:
    """Whether int32 can represent the sum of any `num_elements` elements of `dtype`."""
    max_value = 1 if dtype == np.bool_ else int(jnp.iinfo(dtype).max)
    return dtype.itemsize < 4 and num_elements * (max_value + 1) < 2**31
