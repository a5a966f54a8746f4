"""Any pool of a shard extended by its halo, with the rows beyond the ends of the array as padding of the window.

The shard is copied with its halo, cropped by the rows beyond the array, and pooled by a window with padding in their
place. The number of such rows differs between shards: `lax.switch` has a branch for each.

    3 windows per shard, window 3, one row of padding    first . [a b c d]    between [c d e f g]    last [f g h i] .
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._kernels import slices
from jaxpool._ops.masked import soft
from jaxpool._ops.ranged import ranged
from jaxpool._shards.halo import Shards

Ends = tuple[
    tuple[int, int], ...
]  # numbers of rows before and after the array, one pair per sharded axis


def pool_extended(
    shards: Shards, pool: Callable[..., Array], op: Any, masked: bool, *xs: Array
) -> Array:
    """`pool(op, *xs)` of a shard, the first of `xs`; `op` has a window, and jax differentiates the result.

    If `masked`, the second of `xs` is a `where` mask of the first, and is extended by a halo too.
    """
    count = 2 if masked else 1
    xs = *(shards.extend(x, 0) for x in xs[:count]), *xs[count:]
    which = jnp.zeros((), np.int32)
    every = [sorted(set(halo.beyond)) for halo in shards.halos]
    for halo, kinds in zip(shards.halos, every, strict=True):
        kind = np.asarray([kinds.index(ends) for ends in halo.beyond], np.int32)
        which = which * np.int32(len(kinds)) + jnp.asarray(kind)[halo.shard()]

    def pool_cropped(ends: Ends, *xs: Array) -> Array:
        axes = [halo.dim.axis for halo in shards.halos]
        sides = [(-low, -high, 0) for low, high in ends]
        cropped = [slices.pad(x, axes, sides, 0) for x in xs[:count]]
        return pool(dataclasses.replace(op, window=shards.cropped(ends)), *cropped, *xs[count:])

    branches = [functools.partial(pool_cropped, ends) for ends in itertools.product(*every)]
    switch: Callable[..., Any] = functools.partial(lax.switch, which, branches)
    if pool in (ranged, soft):  # otherwise the residuals hold a copy of x for each branch
        switch = jax.checkpoint(switch)
    # Outside of the switch: its transpose sums over devices, which may take different branches.
    y: Array = switch(*match_varying_mesh_axes(xs))
    return y
