"""Grey morphology of integers with a structure, as `scipy.ndimage` wraps the sums."""

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
    """The maximum or the minimum of the sums of the `taps` of each window with the numbers of a structure."""

    window: Window
    taps: tuple[int, ...]
    kind: Kind


def wrapped(op: WrappedSums, x: Array, steps: Array) -> Array:
    """What `op` computes of integers, in the type of the `steps` that `steps_of` gives.

    All sums but the first wrap round in the type of x, after the structure's numbers are cut off.
    The first is exact, and then cut off: it may leave the type of x, and wraps at the end.
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
    """What is added at each tap, cut off to integers; the first number rounded down; whether it was cut.

    They lie along the first axis, before those of x, in int32 or a wider type of x.
    """
    dtype = np.dtype(np.int32) if x.dtype.itemsize < 4 else x.dtype
    xp: Any = np if isinstance(structure, (tuple, list, np.ndarray)) else jnp
    flat = xp.ravel(xp.asarray(structure))
    flat = flat[::-1] if kind == "max" else flat
    if is_float(flat.dtype):
        flat = flat if kind == "max" else -flat
        whole, low = xp.trunc(flat), xp.floor(flat[first])
        cut = low != flat[first]
        long = np.int64 if xp is np else dtype if x.dtype.itemsize > 4 else np.int32
        whole, low = whole.astype(long).astype(dtype), low.astype(long).astype(dtype)
    else:
        whole = flat.astype(dtype)
        whole = whole if kind == "max" else -whole
        low, cut = whole[first], xp.zeros((), bool)
    rows = xp.concatenate([whole, xp.stack([low, cut.astype(dtype)])])
    return jnp.asarray(rows.reshape((-1,) + (1,) * x.ndim))
