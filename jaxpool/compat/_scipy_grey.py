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
class WrappedSums:
    """The maximum or minimum over the `taps` of each window of the element plus the number of a structure."""

    window: Window
    taps: tuple[int, ...]
    kind: Kind


def wrapped(op: WrappedSums, x: Array, steps: Array) -> Array:
    """The result of `op` for integers x, in the dtype of `steps` from `steps_of`.

    All sums except the first are sums of x and truncated structure numbers, and wrap around in the dtype of x. The
    first sum is truncated after the addition. It may exceed the dtype of x, and wraps in the cast of the result.
    """

    def term(row: int, tap: int, dtype: Any) -> Array:
        view = slices.tap_of(x, op.window, tap).astype(dtype)
        return view + slices.broadcast_like(steps[row].astype(dtype), view)

    first = term(op.window.size, op.taps[0], steps.dtype)
    fraction = slices.broadcast_like(steps[op.window.size + 1], first)
    first = lax.select(first < 0, first + fraction, first)
    others = (term(tap, tap, x.dtype).astype(steps.dtype) for tap in op.taps[1:])
    return functools.reduce(lax.max if op.kind == "max" else lax.min, others, first)


def steps_of(structure: Any, first: int, kind: Kind, x: Array) -> Array:
    """The truncated number to add at each tap, then the number at tap `first` rounded down, and whether it changed.

    The entries are along a first axis in front of the axes of x, in int32 or a wider dtype of x.
    """
    dtype = np.dtype(np.int32) if x.dtype.itemsize < 4 else x.dtype
    xp: Any = np if isinstance(structure, (tuple, list, np.ndarray)) else jnp
    flat = xp.ravel(xp.asarray(structure))
    flat = flat[::-1] if kind == "max" else flat
    if is_float(flat.dtype):
        flat = flat if kind == "max" else -flat
        whole, low = xp.trunc(flat), xp.floor(flat[first])
        changed = low != flat[first]
        wide = np.int64 if xp is np else dtype if x.dtype.itemsize > 4 else np.int32
        whole, low = whole.astype(wide).astype(dtype), low.astype(wide).astype(dtype)
    else:
        whole = flat.astype(dtype)
        whole = whole if kind == "max" else -whole
        low, changed = whole[first], xp.zeros((), bool)
    rows = xp.concatenate([whole, xp.stack([low, changed.astype(dtype)])])
    return jnp.asarray(rows.reshape((-1,) + (1,) * x.ndim))
