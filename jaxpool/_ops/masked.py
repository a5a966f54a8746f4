"""Windowed pools of the elements that a mask counts: each is the pool without a mask, of an x in which the others lose.

    mask     1    0    0    1
    x        5    9   nan -inf
    max      5  -inf -inf -inf   of the three that are level, only the last may be chosen: its tap counts
    sum      5    0    0  -inf

Soft pools read what a maximum reads, averages what a sum does; ranks give what is left out keys that no float has.

Masks have the rank of x. Along pooled axes they are as long as x; along others they may have size 1, so that a mask
that all channels share is pooled once.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.dtypes import Kind, accumulator, losing
from jaxpool._kernels.materialise import materialise
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.op import Op
from jaxpool._ops.ranged import ranged
from jaxpool._ops.rank_pool import RankPool, ranked
from jaxpool._ops.reduction import Reduction
from jaxpool._ops.select_pool import LevelPool, SelectPool, pool_op
from jaxpool._ops.soft_pool import LogSumExpPool, SoftPool
from jaxpool._ops.sum_pool import CountedAverage, SumPool
from jaxpool._plan.problem import Platform, barrier_on
from jaxpool._plan.stages import OpPlan


def counting(x: Array, mask: Array, fill: Any) -> Array:
    """x where `mask` is True, `fill` elsewhere."""
    return lax.select(slices.broadcast_like(mask, x), x, lax.full_like(x, fill))


@dataclasses.dataclass(frozen=True)
class _HoldsSome(SelectPool):
    """The maximum of bools, computed once: else XLA pools the mask in every reader."""

    def value(self, platform: Platform, x: Array) -> Array:
        own = functools.partial(SelectPool.value, self, platform)
        y: Array = materialise(barrier_on(platform), own, x)
        return y


def holds_some(window: Window, mask: Array) -> Array:
    """Which windows hold an element that counts, broadcastable to the output."""
    return apply(_HoldsSome(window, "max", "first"), "jvp", mask)


@dataclasses.dataclass(frozen=True)
class MaskedSelect(Op):
    """A max or min pool of what counts; keeps what the pool keeps, and the mask.

    An element that is left out reads as the least value, and ties with one that counts and is as low. So the pool is
    given which taps are real, as it is for the padding that a shard holds as elements: the others are not chosen.
    """

    window: Window
    kind: Kind
    ties: Ties

    stores_inputs = True

    @property
    def stores_residual(self) -> bool:
        """Whether the pool does."""
        return bool(self._pool.stores_residual)

    @property
    def _pool(self) -> Any:
        """The pool without a mask. `extreme` gives windows of whole axes to `Reduction`, which takes the mask."""
        return pool_op(self.window, self.kind, self.ties, index=True)

    def plan(self, platform: Platform, x: Any, mask: Any) -> OpPlan:
        own = self._pool.plan(platform, x)
        return dataclasses.replace(own, why=(*own.why, "of the mask too: which taps count"))

    def value(self, platform: Platform, x: Array, mask: Array) -> Array:
        return self._pool.value(platform, counting(x, mask, losing(x.dtype, self.kind)))

    def primal(self, platform: Platform, x: Array, mask: Array) -> tuple[Array, Any]:
        pool = self._pool
        real: Any = mask
        if not isinstance(pool, LevelPool):  # the taps at which a maximum of bools is True
            real = dataclasses.replace(pool, kind="max").primal(platform, mask)[1]
        given = real if isinstance(real, tuple) else (real,)
        y, pool_residual = pool.primal(
            platform, counting(x, mask, losing(x.dtype, self.kind)), *given
        )
        return y, (pool_residual, mask)

    def linear(self, platform: Platform, residual: Any, x_dot: Array) -> Array:
        pool_residual, mask = residual
        return self._pool.linear(platform, pool_residual, counting(x_dot, mask, 0))

    def transpose(self, platform: Platform, residual: Any, dy: Array) -> tuple[Array]:
        pool_residual, mask = residual
        (dx,) = self._pool.transpose(platform, pool_residual, dy)
        return (counting(dx, mask, 0),)


def extreme(op: MaskedSelect, x: Array, mask: Array, autodiff: Autodiff = "jvp") -> Array:
    """The max or min pool of what counts."""
    whole = pool_op(op.window, op.kind, op.ties, index=True)
    return apply(whole if isinstance(whole, Reduction) else op, autodiff, x, mask)


def mean(op: CountedAverage, x: Array, mask: Array, autodiff: Autodiff = "jvp") -> Array:
    """The mean of what counts in each window, 0 of nothing."""
    count = apply(SumPool(op.window), "jvp", mask.astype(accumulator(x.dtype)))
    return apply(op, autodiff, counting(x, mask, 0), lax.max(count, lax.full_like(count, 1)))


def rank(op: RankPool, x: Array, mask: Array, autodiff: Autodiff = "jvp") -> Array:
    """The element of a rank, or the median, of what counts in each window; 0 where there is none."""
    y = ranked(op, x, mask, autodiff=autodiff)
    if isinstance(op.rank, str) or op.rank in (0, -1):
        return counting(y, holds_some(op.window, mask), 0)
    needed = op.rank + 1 if op.rank >= 0 else -op.rank
    count = apply(SumPool(op.window), "jvp", mask.astype(np.int32))
    return counting(y, lax.ge(count, lax.full_like(count, needed)), 0)


def soft(op: SoftPool, x: Array, mask: Array, *temperature: Array) -> Array:
    """What `op`, which is masked, makes of what counts in each window: of nothing its identity, or 0 for a mean."""
    some = holds_some(op.window, mask)
    nothing = jnp.logical_not(some)
    y = ranged(op, x, *temperature, nothing, mask)
    if not isinstance(op, LogSumExpPool):
        return y
    # Added to y, which is 0 there. The transpose of a select would be one more pass over the cotangents.
    return y + jnp.where(some, 0, losing(x.dtype, "max")).astype(x.dtype)
