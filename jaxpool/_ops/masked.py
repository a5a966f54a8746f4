"""Windowed pools with a `where` mask: unmasked pools of an x whose masked elements (`where` False) are replaced.

Averages replace masked elements by 0, soft pools by -inf. Rank pools give masked elements keys that no float has.
A mask has the rank of x, and the size of x along pooled axes. Along other axes, the size of a mask may be 1.
"""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._geometry.window import Window
from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import (
    Kind,
    Ties,
    accumulator_dtype,
    reduction_identity,
    scalar_like,
    where,
)
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.op import Op, Residual
from jaxpool._ops.ranged import apply_ranged
from jaxpool._ops.rank_pool import RankPool, apply_rank_pool
from jaxpool._ops.reduction import Reduction
from jaxpool._ops.select_pool import FindTiesPool, SelectPool, pool_op
from jaxpool._ops.soft_pool import LogSumExpPool, SoftPool
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, barrier_of


@functools.partial(jax.jit, static_argnums=2, inline=True)
def fill_masked(x: Array, mask: Array, fill: ArrayLike) -> Array:
    """Return x where `mask` is True, the number `fill` elsewhere."""
    return where(slices.broadcast_like(mask, x), x, fill)


@dataclasses.dataclass(frozen=True)
class _AnyUnmaskedPool(SelectPool):
    """Maximum of bools with its result stored in memory; otherwise XLA would pool the mask again for every use."""

    def value(self, platform: Platform, x: Array, *_: Array) -> Array:
        pool_value = functools.partial(SelectPool.value, self, platform)
        return slices.materialise(barrier_of(platform), pool_value, x)


def any_unmasked(window: Window, mask: Array) -> Array:
    """True where a window has an element with `mask` True. The result broadcasts to the output of the pool."""
    return apply(_AnyUnmaskedPool(window, "max", "first"), mask)


@dataclasses.dataclass(frozen=True)
class MaskedSelect(Op):
    """Max or min pool with a `where` mask. Residual: the residual of the pool without a mask, and the mask.

    Masked elements become the identity of the pool (-inf for a maximum), which may tie with unmasked elements. The pool
    never selects a masked element, because the last argument of its `primal` marks the unmasked elements.
    """

    window: Window
    kind: Kind
    ties: Ties
    materialises_inputs = True

    @property
    def materialises_residual(self) -> bool:
        return self.unmasked_pool.materialises_residual

    @property
    def unmasked_pool(self) -> Any:
        """The pool without a mask. `masked_extremum` passes the mask directly to a `Reduction`."""
        return pool_op(self.window, self.kind, self.ties, saves_index=True)

    def _fill(self, x: Array, mask: Array) -> Array:
        return fill_masked(x, mask, reduction_identity(x.dtype, self.kind)[()])

    def value(self, platform: Platform, x: Array, mask: Array) -> Array:
        return self.unmasked_pool.value(platform, self._fill(x, mask))

    def primal(self, platform: Platform, x: Array, mask: Array) -> tuple[Array, Residual]:
        pool = self.unmasked_pool
        unmasked_taps: Residual = mask
        # The max pool of the mask selects an unmasked element, or marks all unmasked elements.
        if not isinstance(pool, FindTiesPool):
            unmasked_taps = dataclasses.replace(pool, kind="max").primal(platform, mask)[1]
        unmasked_args = unmasked_taps if isinstance(unmasked_taps, tuple) else (unmasked_taps,)
        y, pool_residual = pool.primal(platform, self._fill(x, mask), *unmasked_args)
        return y, (pool_residual, mask)

    def linear(self, platform: Platform, residual: Residual, x_dot: Array) -> Array:
        pool_residual, mask = residual
        return self.unmasked_pool.linear(platform, pool_residual, fill_masked(x_dot, mask, 0))

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array]:
        pool_residual, mask = residual
        (dx,) = self.unmasked_pool.transpose(platform, pool_residual, dy)
        return (fill_masked(dx, mask, 0),)


def masked_extremum(op: MaskedSelect, x: Array, mask: Array, autodiff: Autodiff = "jvp") -> Array:
    """Max or min pool of the elements with `mask` True."""
    pool = op.unmasked_pool
    return apply(pool if isinstance(pool, Reduction) else op, x, mask, autodiff=autodiff)


def masked_mean(op: SumPool, x: Array, mask: Array, autodiff: Autodiff = "jvp") -> Array:
    """Mean of the elements with `mask` True. A window without such elements gives 0."""
    count = apply(op, mask.astype(accumulator_dtype(x.dtype)))
    count = lax.max(count, scalar_like(count, 1))
    return apply(op, fill_masked(x, mask, 0), count, autodiff=autodiff)


def masked_rank(op: RankPool, x: Array, mask: Array, autodiff: Autodiff = "jvp") -> Array:
    """Element of a rank, or the median, of the elements with `mask` True. A window with too few elements gives 0."""
    y = apply_rank_pool(op, x, mask, autodiff=autodiff)
    if isinstance(op.rank, str) or op.rank in (0, -1):
        return fill_masked(y, any_unmasked(op.window, mask), 0)
    min_count = op.rank + 1 if op.rank >= 0 else -op.rank
    count = apply(SumPool(op.window), mask.astype(np.int32))
    return fill_masked(y, lax.ge(count, scalar_like(count, min_count)), 0)


# Jitted, because an eager `jnp.where` of a constant transfers it to the device.
@functools.partial(jax.jit, static_argnums=0)
def masked_soft(op: SoftPool, x: Array, mask: Array, *temperature: Array) -> Array:
    """Apply `op` with a mask. A window whose elements are all masked gives 0, or the least value for log-sum-exp."""
    has_elements = any_unmasked(op.window, mask)
    y = apply_ranged(op, x, *temperature, jnp.logical_not(has_elements), mask)
    if not isinstance(op, LogSumExpPool):
        return y
    # y is 0 if all elements are masked. Adding is cheaper than a select, whose transpose reads the cotangents again.
    return y + jnp.where(has_elements, 0, reduction_identity(x.dtype, "max")).astype(x.dtype)
