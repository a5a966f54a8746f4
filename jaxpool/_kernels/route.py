"""The two linear maps that the index of a selection defines: dense, no scatter.

    pick    y[o]  = x[element that window o chose]
    route   dx[i] = sum of dy[o] over the windows o that chose element i

`pick` is the derivative of a selection, `route` its transpose.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from jax import Array, lax

from jaxpool._kernels.compare import Order
from jaxpool._kernels.cpu import tables
from jaxpool._kernels.dtypes import accumulator, cast, index_dtype
from jaxpool._kernels.keep import keep
from jaxpool._kernels.passes import Grow, Source, carry_out
from jaxpool._plan.layout import in_one_region
from jaxpool._plan.max_pool import MaxPlan, Pass
from jaxpool._plan.steps import Step


class _Pieces:
    """Which flat taps belong to each piece of a step: where two pieces overlap, to the one that `ties` picks."""

    def __init__(self, step: Step, ties: Order) -> None:
        starts, ends = step.starts, [start + step.reach for start in step.starts]
        last = ties == "last"
        self._first = dict(zip(starts, starts if last else [0, *ends[:-1]], strict=True))
        self._end = dict(zip(starts, [*starts[1:], ends[-1]] if last else ends, strict=True))
        self._count = step.count

    def chosen(self, piece: int, index: Array) -> Array:
        """Where `index` lies in the piece that begins with tap `piece`."""
        first, end = self._first[piece], self._end[piece]
        if end == first + 1:
            return lax.eq(index, lax.full_like(index, first))
        after = lax.ge(index, lax.full_like(index, first))
        if end == self._count:
            return after
        before = lax.lt(index, lax.full_like(index, end))
        return before if first == 0 else lax.bitwise_and(after, before)


def _sent(dy: Array, index: Array, pass_: Pass, ties: Order) -> Array:
    """What each element before a step gets from the outputs that chose a piece that begins with it."""
    pieces = _Pieces(pass_.step, ties)

    def term(piece: int, parts: Sequence[Array], grow: Grow) -> Array:
        dy, index = parts
        return grow(lax.select(pieces.chosen(piece, index), dy, lax.full_like(dy, 0)), 0)

    source = Source([dy, index], [0, 0], pass_.step.transposed)
    sum_: Array = carry_out(pass_.layout, pass_.step.axes, [source], term, lax.add)
    return sum_


def _lowered(index: Array, pass_: Pass, ties: Order) -> Array:
    """The index before a step from the index after it: what each intermediate element was chosen as.

    All windows that chose an intermediate element agree on where it came from, so joining them by
    max loses nothing; an element that none chose gets 0, and nothing is read from it or sent to it.
    """
    pieces, dtype = _Pieces(pass_.step, ties), index_dtype(pass_.step.reach)

    def term(piece: int, parts: Sequence[Array], grow: Grow) -> Array:
        (index,) = parts
        within = index - lax.full_like(index, piece)
        kept = lax.select(pieces.chosen(piece, index), within, lax.full_like(index, 0))
        return grow(kept.astype(dtype), 0)

    layout = pass_.lower or pass_.layout
    source = Source([index], [0], pass_.step.transposed)
    joined: Array = carry_out(layout, pass_.step.axes, [source], term, lax.max)
    return joined


def route(dy: Array, index: Array, ties: Order, plan: MaxPlan) -> Array:
    """Each element of dy added to the position its window chose, zeros elsewhere.

    `index` is one that `select` gave, or any of windows that do not meet.
    """
    dx = dy
    if plan.widen != "never":
        wide = functools.partial(cast, dtype=accumulator(dy.dtype))
        dx = keep(plan.keep, wide, dx) if plan.widen == "apart" else wide(dx)
    for pass_ in plan.backward:
        last = pass_ is plan.backward[-1]
        in_tables = pass_.layout.reading == "tables"
        if in_tables:
            dtype = dy.dtype if last else accumulator(dy.dtype)
            send = functools.partial(tables.sent, step=pass_.step, dtype=dtype)
            lower = functools.partial(tables.lowered, step=pass_.step)
        else:
            send = functools.partial(_sent, pass_=pass_, ties=ties)
            lower = functools.partial(_lowered, pass_=pass_, ties=ties)
        sent = keep(plan.keep, send, dx, index) if in_tables or not last else send(dx, index)
        index = index if last else keep(plan.keep, lower, index)
        dx = sent
    return cast(dx, dy.dtype)


def pick(x: Array, index: Array, ties: Order, plan: MaxPlan) -> Array:
    """The elements of x at the taps `index`."""
    indices = [index]
    for pass_ in plan.tangent[:-1]:
        lowered = functools.partial(_lowered, pass_=pass_, ties=ties)
        indices.append(keep(plan.keep, lowered, indices[-1]))

    def picked(x: Array, index: Array, pass_: Pass) -> Array:
        pieces, step = _Pieces(pass_.step, ties), pass_.step

        def term(piece: int, parts: Sequence[Array], grow: Grow) -> Array:
            (part,) = parts
            return lax.select(pieces.chosen(piece, index), part, lax.full_like(part, 0))

        layout = in_one_region(step.axes, step.phases)
        y: Array = carry_out(layout, step.axes, [Source([x], [0], step.phases)], term, lax.add)
        return y

    y = cast(x, accumulator(x.dtype))
    for pass_, chosen in zip(reversed(plan.tangent), reversed(indices), strict=True):
        kernel = functools.partial(picked, pass_=pass_)
        last = pass_ is plan.tangent[0]
        y = kernel(y, chosen) if last else keep(plan.keep, kernel, y, chosen)
    return cast(y, x.dtype)
