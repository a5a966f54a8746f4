"""Local maxima and minima: elements that are the extremum of the window around them, on one device or on shards."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal, get_args

from jax import Array, lax

from jaxpool._geometry.window import Window
from jaxpool._kernels.compare import decode, ties_with
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.materialise import store_arguments
from jaxpool._ops.apply import apply, apply_with_residual
from jaxpool._ops.linear_map import traced_for
from jaxpool._ops.select_pool import SelectPool, pool_op
from jaxpool._plan.problem import barrier_on
from jaxpool._shards.halo import Shards
from jaxpool._shards.ops import select_pool

Marked = Literal["first", "last", "all"]
MARKED: tuple[Marked, ...] = get_args(Marked)


def _own_tap(window: Window) -> int:
    """The flat tap of an element in the window around it."""
    flat = 0
    for dim in window.dims:
        flat = flat * dim.window + dim.low
    return flat


def _attained(pool: Callable[[Array], Array], x: Array) -> Array:
    """True for elements of x that equal the extremum of the window around them, computed by `pool`."""
    stored = store_arguments(
        barrier_on(traced_for()), lambda x: ties_with(decode(x), decode(pool(x)))
    )
    marks: Array = stored(x)
    return marks


def _is_own(tap: Array, window: Window) -> Array:
    return lax.eq(tap, lax.full_like(tap, _own_tap(window)))


def peaks(x: Array, window: Window, kind: Kind, ties: Marked) -> Array:
    """True for elements of x that are the extremum of their window of stride 1; `ties` selects among tied elements."""
    x = lax.stop_gradient(x)
    if ties == "all":
        pool = functools.partial(apply, pool_op(window, kind, "first"), "jvp")
        return _attained(pool, x)
    return _is_own(apply_with_residual(SelectPool(window, kind, ties), "jvp", x)[1], window)


@dataclasses.dataclass(frozen=True)
class Peaks:
    """Local maxima or minima of one shard."""

    shards: Shards
    kind: Kind
    ties: Marked

    def __call__(self, x: Array) -> Array:
        if self.shards.strips == ():
            return peaks(x, self.shards.inside, self.kind, self.ties)
        x = lax.stop_gradient(x)
        if self.ties == "all":
            return _attained(lambda x: select_pool(self.shards, x, self.kind, "first")[0], x)
        tap = select_pool(self.shards, x, self.kind, self.ties)[1]
        return _is_own(tap, self.shards.window)
