"""Grey morphology of integers with a structure, with the integer overflow of `scipy.ndimage`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import Kind, is_float


@dataclasses.dataclass(frozen=True)
class IntegerMorphology:
    """The maximum or minimum of element plus structure number, over the flat window indices `taps` of each window."""

    window: Window
    taps: tuple[int, ...]
    kind: Kind


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
    xp: Any = np if isinstance(structure, (tuple, list, np.ndarray)) else jnp
    addends = xp.ravel(xp.asarray(structure))
    addends = addends[::-1] if kind == "max" else addends
    if is_float(addends.dtype):
        addends = addends if kind == "max" else -addends
        ints, floor = xp.trunc(addends), xp.floor(addends[first_tap])
        has_fraction = floor != addends[first_tap]
        int_dtype = np.int64 if xp is np else dtype if x.dtype.itemsize > 4 else np.int32
        ints, floor = ints.astype(int_dtype).astype(dtype), floor.astype(int_dtype).astype(dtype)
    else:
        ints = addends.astype(dtype)
        ints = ints if kind == "max" else -ints
        floor, has_fraction = ints[first_tap], xp.zeros((), bool)
    rows = xp.concatenate([ints, xp.stack([floor, has_fraction.astype(dtype)])])
    return jnp.asarray(rows.reshape((-1,) + (1,) * x.ndim))
