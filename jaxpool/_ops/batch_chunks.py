"""A part of the batch after the other, of what holds many arrays as large as what it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.slices import is_sharded
from jaxpool._ops.op import partitioned
from jaxpool._plan.others import turns_of_batch
from jaxpool._plan.problem import Platform


def map_in_chunks(
    platform: Platform,
    window: Window,
    f: Callable[..., tuple[Array, ...]],
    arrays: Sequence[Array],
    likes: Sequence[Array],
) -> tuple[Array, ...]:
    """`f(*arrays)`, of a part of the batch after the other where that saves memory.

    Each result is as long as its like along the first axis; one as short as 1 is a sum over the batch.
    """
    first = arrays[0]
    shape = tuple(int(n) if is_int(n) else None for n in first.shape)
    # XLA would gather a batch that it divides among devices, for a loop along it.
    whole = 0 in window.axes or is_sharded(first) or partitioned.value
    turns = 1 if whole else turns_of_batch(shape, platform)
    if turns == 1:
        return f(*arrays)
    length = first.shape[0] // turns

    def part(turn: Array) -> tuple[Array, ...]:
        start = turn * np.int32(length)
        return f(*[_part(x, start, length) if x.shape[0] == first.shape[0] else x for x in arrays])

    found = lax.map(part, jnp.arange(turns, dtype=np.int32))
    return tuple(
        jnp.sum(y, axis=0) if like.shape[0] == 1 else lax.collapse(y, 0, 2)
        for y, like in zip(found, likes, strict=True)
    )


def _part(x: Array, start: Array, length: int) -> Array:
    """`length` examples of x. 16 bits are cut out as integers: XLA for CPU would first widen all floats of x."""
    if x.dtype.itemsize != 2:
        return lax.dynamic_slice_in_dim(x, start, length)
    bits = lax.bitcast_convert_type(x, np.uint16)
    return lax.bitcast_convert_type(lax.dynamic_slice_in_dim(bits, start, length), x.dtype)
