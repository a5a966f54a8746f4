"""The two linear maps defined by the indices of a selection, as dense passes without a scatter.

    pick    y[o]  = x[element that window o selected]
    route   dx[i] = sum of dy[o] over the windows o that selected element i

`pick` maps tangents, and its transpose `route` maps cotangents.
"""

import functools
from collections.abc import Callable, Sequence

from jax import Array, lax

from jaxpool._kernels.cpu import tables
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast, index_dtype
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import PadToRegion, Source, add_terms, run_pass
from jaxpool._kernels.slices import where_or_zero
from jaxpool._plan.layout import in_one_region
from jaxpool._plan.max_pool import MaxPlan, Pass
from jaxpool._plan.steps import Step


def _is_piece_selected(piece_start: int, index: Array, step: Step) -> Array:
    """Mask of indices in the piece that begins at tap `piece_start`; an index in two pieces belongs to the first."""
    end = piece_start + step.reach
    first = max((start + step.reach for start in step.starts if start < piece_start), default=0)
    if end == first + 1:
        return lax.eq(index, lax.full_like(index, first))
    after = lax.ge(index, lax.full_like(index, first))
    if end == step.count:
        return after
    before = lax.lt(index, lax.full_like(index, end))
    return before if first == 0 else lax.bitwise_and(after, before)


def _sum_dy_of_selecting_outputs(dy: Array, index: Array, pass_: Pass, dtype: DType) -> Array:
    """Sum of dy over the outputs that selected a piece beginning at each input element of a step."""
    if pass_.layout.reading == "tables":
        return tables.sum_dy_of_selecting_windows(dy, index, pass_.step, dtype)
    return sum_where_selected(
        lambda piece_start, index: _is_piece_selected(piece_start, index, pass_.step),
        dy,
        [index],
        pass_,
    )


def sum_where_selected(
    is_selected: Callable[..., Array], dy: Array, residual: Sequence[Array], pass_: Pass
) -> Array:
    """Sum of dy over the outputs that cover each input element of a step by a selected piece.

    `is_selected(piece_start, *residual)` is the mask of the outputs that selected the piece.
    """

    def cotangent_term(
        piece_start: int, array_slices: Sequence[Array], pad_to_region: PadToRegion
    ) -> Array:
        dy, *residual = array_slices
        return pad_to_region(where_or_zero(is_selected(piece_start, *residual), dy), fill=0)

    source = Source([dy, *residual], [0] * (1 + len(residual)), pass_.step.transposed)
    dx: Array = run_pass(pass_.layout, pass_.step.axes, [source], cotangent_term, add_terms)
    return dx


def _index_before_pass(index: Array, pass_: Pass) -> Array:
    """Index before a step from the index after it: the tap within the selected piece.

    All windows that selected an intermediate element agree on its tap, so their maximum is exact. Elements that no
    window selected get 0, and no value is read from them or added to them.
    """
    step, dtype = pass_.step, index_dtype(pass_.step.reach)
    if pass_.layout.reading == "tables":
        return tables.index_before_step(index, step)

    def tap_within_piece_term(
        piece_start: int, array_slices: Sequence[Array], pad_to_region: PadToRegion
    ) -> Array:
        (index,) = array_slices
        within = index - lax.full_like(index, piece_start)
        return pad_to_region(
            where_or_zero(_is_piece_selected(piece_start, index, step), within).astype(dtype),
            fill=0,
        )

    source = Source([index], [0], step.transposed)
    layout = in_one_region(step.transposed, extra_position=True)
    joined = functools.partial(functools.reduce, lax.max)
    return run_pass(layout, step.axes, [source], tap_within_piece_term, joined)


def _gather_at_selected_pieces(x: Array, index: Array, pass_: Pass) -> Array:
    """Element at the start of the piece that each output of a step selected."""
    step = pass_.step

    def selected_element_term(
        piece_start: int, array_slices: Sequence[Array], pad_to_region: PadToRegion
    ) -> Array:
        (part,) = array_slices
        return where_or_zero(_is_piece_selected(piece_start, index, step), part)

    source = Source([x], [0], step.phases)
    return run_pass(pass_.layout, step.axes, [source], selected_element_term, add_terms)


def route(dy: Array, index: Array, plan: MaxPlan) -> Array:
    """Add each element of dy to the element that its window selected; zeros elsewhere.

    `index` must come from `select` unless the windows are disjoint.
    """
    dx = dy
    if plan.widen != "never":
        wide = functools.partial(cast, dtype=accumulator_dtype(dy.dtype))
        dx = materialise(plan.barrier, wide, dx) if plan.widen == "apart" else wide(dx)
    for pass_ in plan.backward:
        last = pass_ is plan.backward[-1]
        dtype = dy.dtype if last else accumulator_dtype(dy.dtype)
        send = functools.partial(_sum_dy_of_selecting_outputs, pass_=pass_, dtype=dtype)
        stored = not last or pass_.layout.reading == "tables"
        sent = materialise(plan.barrier, send, dx, index) if stored else send(dx, index)
        if not last:
            index = materialise(
                plan.barrier, functools.partial(_index_before_pass, pass_=pass_), index
            )
        dx = sent
    return cast(dx, dy.dtype)


def pick(x: Array, index: Array, plan: MaxPlan) -> Array:
    """Element of x at the tap `index` of each window."""
    indices = [index]
    for pass_ in plan.tangent[:-1]:
        lower = functools.partial(_index_before_pass, pass_=pass_)
        indices.append(materialise(plan.barrier, lower, indices[-1]))
    y = cast(x, accumulator_dtype(x.dtype))
    for pass_, chosen in zip(reversed(plan.tangent), reversed(indices), strict=True):
        kernel = functools.partial(_gather_at_selected_pieces, pass_=pass_)
        last = pass_ is plan.tangent[0]
        y = kernel(y, chosen) if last else materialise(plan.barrier, kernel, y, chosen)
    return cast(y, x.dtype)
