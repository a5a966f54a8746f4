"""Any pool of a shard together with its halo, the rows of neighbouring shards that its windows read.

The shard is copied with its halo. Halo rows beyond the ends of the global array are cropped and replaced by padding of
the window. Shards differ in the number of cropped rows, so `lax.switch` has a branch for each number.

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
from jaxpool._ops.masked import masked_soft
from jaxpool._ops.ranged import apply_ranged
from jaxpool._shards.halo import ShardGeometry

# Numbers of halo rows before and after the global array, one pair per sharded axis
PadRows = tuple[tuple[int, int], ...]


def pool_with_halo(
    geometry: ShardGeometry, pool: Callable[..., Array], op: Any, has_mask: bool, *xs: Array
) -> Array:
    """`pool(op, *xs)` of a shard and its halo; `xs[0]` is the shard, and `op.window` is replaced.

    If `has_mask`, `xs[1]` is the shard of a `where` mask, which is extended by its own halo.
    """
    num_extended = 2 if has_mask else 1
    extended = [geometry.extend(x, 0) for x in xs[:num_extended]]
    branch_index = jnp.zeros((), np.int32)
    padding_cases = [sorted(set(halo.pad_rows)) for halo in geometry.halos]
    for halo, cases in zip(geometry.halos, padding_cases, strict=True):
        case = np.asarray([cases.index(ends) for ends in halo.pad_rows], np.int32)
        branch_index = branch_index * np.int32(len(cases)) + jnp.asarray(case)[halo.shard_id()]

    def pool_cropped(pad_rows: PadRows, *xs: Array) -> Array:
        axes = [halo.dim.axis for halo in geometry.halos]
        padding = [(-low, -high, 0) for low, high in pad_rows]
        cropped = [slices.pad(x, axes, padding, 0) for x in xs[:num_extended]]
        cropped_op = dataclasses.replace(op, window=geometry.cropped_window(pad_rows))
        return pool(cropped_op, *cropped, *xs[num_extended:])

    branches = [functools.partial(pool_cropped, ends) for ends in itertools.product(*padding_cases)]
    switch: Callable[..., Any] = functools.partial(lax.switch, branch_index, branches)
    # Without a checkpoint, every branch saves a copy of x for the backward pass.
    if pool in (apply_ranged, masked_soft):
        switch = jax.checkpoint(switch)
    # Cast outside of the switch: the transpose of the cast sums over devices, which may take different branches.
    y: Array = switch(*match_varying_mesh_axes([*extended, *xs[num_extended:]]))
    return y
