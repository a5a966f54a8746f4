"""The two linear maps defined by the indices of a selection, as dense passes without a scatter.

    pick    y[o]  = x[element that window o selected]
    route   dx[i] = sum of dy[o] over the windows o that selected element i

`pick` maps tangents, and its transpose `route` maps cotangents.
"""

import functools
from collections.abc import Callable, Sequence

from jax import Array, lax

from jaxpool._kernels.cpu import tables
from jaxpool._kernels.dtypes import DType, accumulator, cast, index_dtype
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import Grow, Source, added, carry_out
from jaxpool._kernels.slices import where_or_zero
from jaxpool._plan.layout import in_one_region
from jaxpool._plan.max_pool import MaxPlan, Pass
from jaxpool._plan.steps import Step


def _chose(piece: int, index: Array, step: Step) -> Array:
    """Mask of indices in the piece that begins at tap `piece`; an index in two pieces belongs to the first."""
    end = piece + step.reach
    first = max((start + step.reach for start in step.starts if start < piece), default=0)
    if end == first + 1:
        return lax.eq(index, lax.full_like(index, first))
    after = lax.ge(index, lax.full_like(index, first))
    if end == step.count:
        return after
    before = lax.lt(index, lax.full_like(index, end))
    return before if first == 0 else lax.bitwise_and(after, before)


def _sent(dy: Array, index: Array, pass_: Pass, dtype: DType) -> Array:
    """Sum of dy over the outputs that selected a piece beginning at each input element of a step."""
    if pass_.layout.reading == "tables":
        return tables.sent(dy, index, pass_.step, dtype)
    return sum_where(lambda piece, index: _chose(piece, index, pass_.step), dy, [index], pass_)


def sum_where(
    chose: Callable[..., Array], dy: Array, residual: Sequence[Array], pass_: Pass
) -> Array:
    """Sum of dy over the outputs that cover each input element of a step by a piece with `chose(piece, *residual)`."""

    def term(piece: int, parts: Sequence[Array], grow: Grow) -> Array:
        dy, *residual = parts
        return grow(where_or_zero(chose(piece, *residual), dy), fill=0)

    source = Source([dy, *residual], [0] * (1 + len(residual)), pass_.step.transposed)
    dx: Array = carry_out(pass_.layout, pass_.step.axes, [source], term, added)
    return dx


def _lowered(index: Array, pass_: Pass) -> Array:
    """Index before a step from the index after it: the tap within the selected piece.

    All windows that selected an intermediate element agree on its tap, so their maximum is exact. Elements that no
    window selected get 0, and no value is read from them or added to them.
    """
    step, dtype = pass_.step, index_dtype(pass_.step.reach)
    if pass_.layout.reading == "tables":
        return tables.lowered(index, step)

    def term(piece: int, parts: Sequence[Array], grow: Grow) -> Array:
        (index,) = parts
        within = index - lax.full_like(index, piece)
        return grow(where_or_zero(_chose(piece, index, step), within).astype(dtype), fill=0)

    source = Source([index], [0], step.transposed)
    layout = in_one_region(step.transposed, extra_position=True)
    joined = functools.partial(functools.reduce, lax.max)
    return carry_out(layout, step.axes, [source], term, joined)


def _picked(x: Array, index: Array, pass_: Pass) -> Array:
    """Element at the start of the piece that each output of a step selected."""
    step = pass_.step

    def term(piece: int, parts: Sequence[Array], grow: Grow) -> Array:
        (part,) = parts
        return where_or_zero(_chose(piece, index, step), part)

    source = Source([x], [0], step.phases)
    return carry_out(pass_.layout, step.axes, [source], term, added)


def route(dy: Array, index: Array, plan: MaxPlan) -> Array:
    """Add each element of dy to the element that its window selected; zeros elsewhere.

    `index` must come from `select` unless the windows are disjoint.
    """
    dx = dy
    if plan.widen != "never":
        wide = functools.partial(cast, dtype=accumulator(dy.dtype))
        dx = materialise(plan.barrier, wide, dx) if plan.widen == "apart" else wide(dx)
    for pass_ in plan.backward:
        last = pass_ is plan.backward[-1]
        dtype = dy.dtype if last else accumulator(dy.dtype)
        send = functools.partial(_sent, pass_=pass_, dtype=dtype)
        stored = not last or pass_.layout.reading == "tables"
        sent = materialise(plan.barrier, send, dx, index) if stored else send(dx, index)
        if not last:
            index = materialise(plan.barrier, functools.partial(_lowered, pass_=pass_), index)
        dx = sent
    return cast(dx, dy.dtype)


def pick(x: Array, index: Array, plan: MaxPlan) -> Array:
    """Element of x at the tap `index` of each window."""
    indices = [index]
    for pass_ in plan.tangent[:-1]:
        lower = functools.partial(_lowered, pass_=pass_)
        indices.append(materialise(plan.barrier, lower, indices[-1]))
    y = cast(x, accumulator(x.dtype))
    for pass_, chosen in zip(reversed(plan.tangent), reversed(indices), strict=True):
        kernel = functools.partial(_picked, pass_=pass_)
        last = pass_ is plan.tangent[0]
        y = kernel(y, chosen) if last else materialise(plan.barrier, kernel, y, chosen)
    return cast(y, x.dtype)
