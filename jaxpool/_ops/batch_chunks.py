"""Evaluation of a memory-hungry function in chunks along the batch axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import from_words, to_words
from jaxpool._kernels.slices import is_sharded
from jaxpool._ops.op import partitioned
from jaxpool._plan.others import batch_chunks_of
from jaxpool._plan.problem import Platform


def map_in_chunks(
    platform: Platform,
    window: Window,
    f: Callable[..., tuple[Array, ...]],
    arrays: Sequence[Array],
    likes: Sequence[Array],
) -> tuple[Array, ...]:
    """`f(*arrays)`, evaluated in chunks along the first axis if that saves memory.

    Each result has the length of its `likes` entry along the first axis. Length 1 means a sum over the batch.
    """
    first = arrays[0]
    shape = tuple(int(n) if is_int(n) else None for n in first.shape)
    # A loop along a partitioned batch would make XLA gather it on every device.
    whole = 0 in window.axes or is_sharded(first) or partitioned.value
    chunks = 1 if whole else batch_chunks_of(shape, platform)
    if chunks == 1:
        return f(*arrays)
    length = first.shape[0] // chunks

    def part(turn: Array) -> tuple[Array, ...]:
        start = turn * np.int32(length)
        return f(*[_part(x, start, length) if x.shape[0] == first.shape[0] else x for x in arrays])

    results = lax.map(part, jnp.arange(chunks, dtype=np.int32))
    return tuple(
        jnp.sum(y, axis=0) if like.shape[0] == 1 else lax.collapse(y, 0, 2)
        for y, like in zip(results, likes, strict=True)
    )


def _part(x: Array, start: Array, length: int) -> Array:
    """`length` examples of x. 16-bit floats are sliced as integers: XLA for CPU would widen all of x first."""
    return from_words(lax.dynamic_slice_in_dim(to_words(x), start, length), x.dtype)
