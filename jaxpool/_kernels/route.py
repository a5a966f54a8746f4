"""The two linear maps defined by the index (flat tap) that each window selected, as passes without a scatter.

    pick    y[o]  = x[element that window o selected]
    route   dx[i] = sum of dy[o] over the windows o that selected element i

`pick` maps tangents, and its transpose `route` maps cotangents. A plan splits a maximum into steps. An output of a step
selects one of a few pieces, which are runs of taps that earlier steps have reduced to one element each.
"""

import functools
from collections.abc import Callable, Sequence

from jax import Array, lax

from jaxpool._kernels.cpu import tables
from jaxpool._kernels.dtypes import DType, accumulator_dtype, cast, index_dtype
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import PadToRegion, Source, add_terms, run_pass
from jaxpool._kernels.slices import where_or_zero
from jaxpool._plan.layout import single_region
from jaxpool._plan.max_pool import MaxPass, MaxPlan
from jaxpool._plan.steps import Step


def _is_piece_selected(piece_start: int, index: Array, step: Step) -> Array:
    """Mask of flat taps in the piece that begins at `piece_start`; a tap in two pieces belongs to the first piece."""
    end = piece_start + step.piece_taps
    first = max(
        (start + step.piece_taps for start in step.piece_starts if start < piece_start), default=0
    )
    if end == first + 1:
        return lax.eq(index, lax.full_like(index, first))
    is_after = lax.ge(index, lax.full_like(index, first))
    if end == step.num_flat_taps:
        return is_after
    is_before = lax.lt(index, lax.full_like(index, end))
    return is_before if first == 0 else lax.bitwise_and(is_after, is_before)


def _sum_dy_of_selecting_outputs(dy: Array, index: Array, pass_: MaxPass, dtype: DType) -> Array:
    """For each input element of a step, sum dy over the outputs that selected the piece beginning at the element."""
    if pass_.layout.read_mode == "tables":
        return tables.sum_dy_of_selecting_windows(dy, index, pass_.step, dtype)
    return sum_where_selected(
        lambda piece_start, index: _is_piece_selected(piece_start, index, pass_.step),
        dy,
        [index],
        pass_,
    )


def sum_where_selected(
    is_selected: Callable[..., Array], dy: Array, residual: Sequence[Array], pass_: MaxPass
) -> Array:
    """For each input element of a step, sum dy over the outputs whose selected piece begins at the element.

    `is_selected(piece_start, *residual)` is the mask of the outputs that selected the piece at tap `piece_start`.
    """

    def dy_term(piece_start: int, views: Sequence[Array], pad_to_region: PadToRegion) -> Array:
        dy, *residual = views
        return pad_to_region(where_or_zero(is_selected(piece_start, *residual), dy), fill=0)

    source = Source([dy, *residual], [0] * (1 + len(residual)), pass_.step.transposed_phases)
    dx: Array = run_pass(pass_.layout, pass_.step.axes, [source], dy_term, add_terms)
    return dx


def _index_before_pass(index: Array, pass_: MaxPass) -> Array:
    """Index before a step, computed from the index after the step: the tap within the selected piece.

    All windows that selected an intermediate element agree on the tap, so the maximum over these windows is the tap. An
    element that no window selected gets 0, which is never used.
    """
    step, dtype = pass_.step, index_dtype(pass_.step.piece_taps)
    if pass_.layout.read_mode == "tables":
        return tables.index_before_step(index, step)

    def tap_term(piece_start: int, views: Sequence[Array], pad_to_region: PadToRegion) -> Array:
        (index,) = views
        inner_tap = index - lax.full_like(index, piece_start)
        return pad_to_region(
            where_or_zero(_is_piece_selected(piece_start, index, step), inner_tap).astype(dtype),
            fill=0,
        )

    source = Source([index], [0], step.transposed_phases)
    layout = single_region(step.transposed_phases, extra_position=True)
    join_taps = functools.partial(functools.reduce, lax.max)
    return run_pass(layout, step.axes, [source], tap_term, join_taps)


def _gather_at_selected_pieces(x: Array, index: Array, pass_: MaxPass) -> Array:
    """For each output of a step, gather the element of x at the start of the piece that the output selected."""
    step = pass_.step

    def element_term(piece_start: int, views: Sequence[Array], pad_to_region: PadToRegion) -> Array:
        (part,) = views
        return where_or_zero(_is_piece_selected(piece_start, index, step), part)

    source = Source([x], [0], step.phases)
    return run_pass(pass_.layout, step.axes, [source], element_term, add_terms)


def route(dy: Array, index: Array, plan: MaxPlan) -> Array:
    """Add each element of dy to the input element that its window selected; other input elements get 0.

    If windows overlap, `index` must come from `select`.
    """
    dx = dy
    if plan.widen_mode != "never":
        widen = functools.partial(cast, dtype=accumulator_dtype(dy.dtype))
        dx = materialise(plan.barrier, widen, dx) if plan.widen_mode == "apart" else widen(dx)
    for pass_ in plan.backward:
        is_last = pass_ is plan.backward[-1]
        dtype = dy.dtype if is_last else accumulator_dtype(dy.dtype)
        kernel = functools.partial(_sum_dy_of_selecting_outputs, pass_=pass_, dtype=dtype)
        is_stored = not is_last or pass_.layout.read_mode == "tables"
        next_dx = materialise(plan.barrier, kernel, dx, index) if is_stored else kernel(dx, index)
        if not is_last:
            index = materialise(
                plan.barrier, functools.partial(_index_before_pass, pass_=pass_), index
            )
        dx = next_dx
    return cast(dx, dy.dtype)


def pick(x: Array, index: Array, plan: MaxPlan) -> Array:
    """Gather the element of x at the flat tap `index` of each window."""
    indices = [index]
    for pass_ in plan.tangent[:-1]:
        index_kernel = functools.partial(_index_before_pass, pass_=pass_)
        indices.append(materialise(plan.barrier, index_kernel, indices[-1]))
    y = cast(x, accumulator_dtype(x.dtype))
    for pass_, pass_index in zip(reversed(plan.tangent), reversed(indices), strict=True):
        kernel = functools.partial(_gather_at_selected_pieces, pass_=pass_)
        is_last = pass_ is plan.tangent[0]
        y = kernel(y, pass_index) if is_last else materialise(plan.barrier, kernel, y, pass_index)
    return cast(y, x.dtype)
