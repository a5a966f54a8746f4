"""Any pool of a shard and its halo, with the rows beyond the ends of the array as padding of the window.

The shard is copied with its halo, cropped by the rows beyond the array, and pooled by a window with padding in their
place. The number of such rows differs between shards: `lax.switch` has a branch for each.

    3 windows per shard, window 3, one row of padding    first . [a b c d]    between [c d e f g]    last [f g h i] .
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
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


@dataclasses.dataclass(frozen=True)
class Ends:
    """`pool(op, x, *operands)` of a shard x; `op` has a window, and jax differentiates the result.

    If `masked`, the first operand after x is a `where` mask of x, and is extended by a halo too.
    """

    shards: Shards
    pool: Callable[..., Array]
    op: Any
    masked: bool = False

    def __call__(self, *xs: Array) -> Array:
        xs = self._each(lambda x: self.shards.extended(x, 0), xs)
        which = jnp.zeros((), np.int32)
        every = [sorted(set(halo.beyond)) for halo in self.shards.halos]
        for halo, kinds in zip(self.shards.halos, every, strict=True):
            kind = np.asarray([kinds.index(ends) for ends in halo.beyond], np.int32)
            which = which * np.int32(len(kinds)) + jnp.asarray(kind)[halo.shard()]
        runs = [functools.partial(self._ending, ends) for ends in itertools.product(*every)]
        switch: Callable[..., Any] = functools.partial(lax.switch, which, runs)
        if self.pool in (ranged, soft):  # otherwise the residuals hold a copy of x for each branch
            switch = jax.checkpoint(switch)
        # Outside of the switch: its transpose sums over devices, which may take different branches.
        y: Array = switch(*match_varying_mesh_axes(xs))
        return y

    def _each(self, change: Callable[[Array], Array], xs: Sequence[Array]) -> tuple[Array, ...]:
        """The arrays with `change` applied to x and its mask."""
        count = 2 if self.masked else 1
        return *map(change, xs[:count]), *xs[count:]

    def _ending(self, ends: tuple[tuple[int, int], ...], *xs: Array) -> Array:
        """The branch for `ends`: the numbers of rows before and after the array along each sharded axis."""
        axes = [halo.dim.axis for halo in self.shards.halos]
        sides = [(-low, -high, 0) for low, high in ends]
        window = self.shards.ending(ends)
        cropped = self._each(lambda x: slices.pad(x, axes, sides, 0), xs)
        return self.pool(dataclasses.replace(self.op, window=window), *cropped)
