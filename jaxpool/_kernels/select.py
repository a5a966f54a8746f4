"""Windowed selection: the maximum or minimum of each window, and its flat tap (its row-major index in the window).

y[o], index[o] = max over taps t of (x[stride * o - low + dilation * t], t), with the first t (or last) if tied

The index of the selected taps defines two linear maps, which are passes without a scatter:

    pick    y[o]  = x[element that window o selected]
    route   dx[i] = sum of dy[o] over the windows o that selected element i

`pick` maps tangents, and its transpose `route` maps cotangents. A plan splits a maximum into steps, unless windows
tile the array (`cpu/tiles.py`). An output of a step
selects one of a few pieces, which are runs of taps that earlier steps have reduced to one element each.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import dtypes
from jaxpool._kernels.clamped import run_clamped_pass
from jaxpool._kernels.cpu import tables, tiles
from jaxpool._kernels.dtypes import Candidate, DType, Kind, TieOrder, accumulator_dtype, cast
from jaxpool._kernels.passes import PadToRegion, Source, run_pass
from jaxpool._kernels.positions import IntArray, all_window_indices, int32_iota
from jaxpool._kernels.reduce_window import extrema_per_axis_group
from jaxpool._kernels.slices import add_terms, materialise, outer_broadcast, where_or_zero
from jaxpool._plan.max_pool import MaxPass, MaxPlan
from jaxpool._plan.problem import Step


def edge_taps_inside(
    window: Window,
    ndim: int,
    window_indices: Callable[[Axis], IntArray] = all_window_indices,
    *,
    take_last: bool,
) -> Array:
    """Flat tap of the first or last element of each window that is inside the input; broadcastable to the output."""
    dtype, vectors = dtypes.index_dtype(window.size), []
    # A unit (flat taps per tap of an axis) overflows the dtype only along an axis with one tap, which is tap 0.
    units = np.cumprod([1, *window.window_shape[:0:-1]])[::-1].astype(dtype)
    for dim, unit in zip(window.dims, units, strict=True):
        tap_inside = dim.last_tap_inside if take_last else dim.first_tap_inside
        tap = tap_inside(window_indices(dim) if dim.is_padded else int32_iota(1))
        vectors.append(tap.clip(0, dim.window - 1).astype(dtype) * unit)
    return outer_broadcast(jnp.add, vectors, window.axes, ndim)


def _as_taps(tap: int | Array, dtype: DType) -> Any:
    """A tap as a NumPy scalar, or the taps of a pass that differ by position as an array."""
    return np.asarray(tap, dtype) if isinstance(tap, int) else cast(tap, dtype)


def _run_select_passes(
    x: Array, kind: Kind, ties: TieOrder, plan: MaxPlan, *, with_index: bool
) -> tuple[Array, ...]:
    """Maximum or minimum of each window, and with `with_index` its flat tap, which may be in the padding."""
    # The passes read bits: XLA for CPU widens slices of bfloat16, and compiles a select of float16 to a branch.
    finds_nan_alone = plan.nan_mode == "alone"
    to_bits = dtypes.bitcast_half_to_uint16 if finds_nan_alone else lambda x: x
    bits = to_bits(x)
    fill = dtypes.reduction_identity(x.dtype, kind).view(bits.dtype)

    def join(candidates: Sequence[Candidate]) -> tuple[Array, ...]:
        key, *tap = dtypes.select_best_candidate(
            candidates, kind, ties, x.dtype, finds_nan_alone=finds_nan_alone
        )
        value = key if key.dtype == x.dtype else dtypes.from_comparison_dtype(key, x.dtype)
        return to_bits(value), *tap

    def run_select_pass(pass_: MaxPass, value: Array, *taps: Array) -> tuple[Array, ...]:
        step, dtype = pass_.step, dtypes.index_dtype(pass_.step.num_flat_taps)

        def candidate_at_tap(
            tap: int | Array, views: Sequence[Array], pad_to_region: PadToRegion
        ) -> Candidate:
            value = views[0] if pass_.repeats_ends else pad_to_region(views[0], fill=fill)
            key = dtypes.bitcast_uint16_to_half(value, x.dtype)
            if not (plan.has_16_bit_comparisons and dtypes.is_16_bit_float(x.dtype)):
                key = dtypes.to_comparison_dtype(key)
            if not with_index:
                return (key,)
            flat_tap = _as_taps(tap, dtype)
            if views[1:]:
                inner_tap = views[1] if pass_.repeats_ends else pad_to_region(views[1], fill=0)
                flat_tap = lax.add(flat_tap, inner_tap)
            elif not flat_tap.ndim:
                flat_tap = dtypes.full_like(key, flat_tap, dtype)
            return key, flat_tap

        arrays = [value, *[cast(tap, dtype) for tap in taps]]
        source = Source(arrays, [fill, 0][: len(arrays)], step.phases)
        if pass_.repeats_ends:
            return run_clamped_pass(step.axes, [source], candidate_at_tap, join, "repeated")
        return run_pass(pass_.layout, step.axes, [source], candidate_at_tap, join)

    outputs: tuple[Array, ...] = (bits,)
    passes = plan.forward if with_index else plan.value
    for pass_ in passes:
        kernel = functools.partial(run_select_pass, pass_)
        is_last = pass_ is passes[-1]
        outputs = kernel(*outputs) if is_last else materialise(plan.barrier, kernel, *outputs)
    return dtypes.bitcast_uint16_to_half(outputs[0], x.dtype), *outputs[1:]


def select_value(x: Array, kind: Kind, ties: TieOrder, plan: MaxPlan) -> Array:
    """Maximum or minimum of each window, without its tap."""
    if plan.tiles:
        return tiles.select_value(x, kind, plan.tiles)
    if plan.value_groups:
        return extrema_per_axis_group(x, kind, plan.value_groups)[-1]
    return _run_select_passes(x, kind, ties, plan, with_index=False)[0]


def select(
    x: Array, window: Window, kind: Kind, ties: TieOrder, plan: MaxPlan
) -> tuple[Array, Array]:
    """Maximum or minimum of each window, and its flat tap.

    Padding holds the identity, so padding is selected only if all elements of a window equal the identity. The tap is
    then replaced by the tap of the first or last element inside the input. Passes that repeat the elements at the ends
    of an axis never select padding.
    """
    # For "last_nan", the bits of the value are those of the element at the index, in a pass.
    if plan.tiles and ties != "last_nan":
        return tiles.select(x, kind, ties, plan.tiles)
    value, index = _run_select_passes(x, kind, ties, plan, with_index=True)
    if window.is_padded and not all(pass_.repeats_ends for pass_ in plan.forward):
        bound = edge_taps_inside(window, x.ndim, take_last=ties == "last")
        index = (jnp.minimum if ties == "last" else jnp.maximum)(index, bound)
    return value, index


def is_centre_selected(
    x: Array, centre_tap: int, kind: Kind, ties: TieOrder, step: Step, *, widens: bool
) -> Array:
    """Mask of the elements of x that their own windows select, by one comparison with each other element.

    An element of x has the flat tap `centre_tap` in its window. With `widens`, 16-bit floats are compared in float32.
    """
    key = dtypes.to_comparison_dtype(x) if widens or not dtypes.is_16_bit_float(x.dtype) else x

    def does_centre_win(
        tap: int | Array, views: Sequence[Array], pad_to_region: PadToRegion
    ) -> Array:
        if tap == centre_tap:
            return dtypes.full_like(views[0], True, np.bool_)
        if tap < centre_tap:
            wins = dtypes.challenger_wins(key, views[0], kind, ties)
        else:
            wins = lax.bitwise_not(dtypes.challenger_wins(views[0], key, kind, ties))
        return pad_to_region(wins, fill=True)

    def all_of(masks: Sequence[Array]) -> Array:
        return functools.reduce(lax.bitwise_and, masks)

    source = Source([key], [0], step.phases)
    return run_clamped_pass(step.axes, [source], does_centre_win, all_of)


def _is_piece_selected(piece_start: int | Array, index: Array, step: Step) -> Array:
    """Mask of flat taps in the piece that begins at `piece_start`; a tap in two pieces belongs to the first piece."""
    if not isinstance(piece_start, int):
        return _is_phase_piece_selected(piece_start, index, step)
    end = piece_start + step.piece_taps
    previous = [start for start in step.piece_starts if start < piece_start]
    first = previous[-1] + step.piece_taps if previous else 0
    if end == first + 1:
        return lax.eq(index, dtypes.scalar_like(index, first))
    is_after = lax.ge(index, dtypes.scalar_like(index, first))
    if end == step.num_flat_taps:
        return is_after
    is_before = lax.lt(index, dtypes.scalar_like(index, end))
    return is_before if first == 0 else lax.bitwise_and(is_after, is_before)


def _is_phase_piece_selected(piece_starts: Array, index: Array, step: Step) -> Array:
    """`_is_piece_selected` for the piece of each element's phase. Only the last piece may overlap another piece."""
    index = cast(index, np.int32)
    if step.piece_taps == 1:
        return lax.eq(index, piece_starts)
    *others, last = step.piece_starts
    first = max([last, *[start + step.piece_taps for start in others]])
    first_taps = jnp.where(piece_starts == last, np.int32(first), piece_starts)
    is_before = lax.lt(index, piece_starts + np.int32(step.piece_taps))
    return lax.bitwise_and(lax.ge(index, first_taps), is_before)


def _sum_dy_of_selecting_outputs(dy: Array, index: Array, pass_: MaxPass, dtype: DType) -> Array:
    """For each input element of a step, sum dy over the outputs that selected the piece beginning at the element."""
    if pass_.layout.read_mode == "tables":
        return tables.sum_dy_of_selecting_windows(dy, index, pass_.step, dtype)
    is_selected = functools.partial(_is_piece_selected, step=pass_.step)
    if pass_.layout.read_mode != "clamped":
        return sum_where_selected(is_selected, dy, [index], pass_)

    def dy_term(piece_start: int | Array, views: Sequence[Array], _: PadToRegion) -> Array:
        dy, index = views
        return where_or_zero(is_selected(piece_start, index), dy)

    step, source = pass_.step, Source([dy, index], [0, 0], pass_.step.transposed_phases)
    return run_clamped_pass(step.axes, [source], dy_term, add_terms, "marked")


def sum_where_selected(
    is_selected: Callable[..., Array], dy: Array, residual: Sequence[Array], pass_: MaxPass
) -> Array:
    """For each element of a step, sum dy over the outputs with `is_selected(tap of the element, *residual)`."""
    zeros: dict[tuple[int, ...], Array] = {}  # by shape; terms of equal shape share one trace

    def dy_term(piece_start: int, views: Sequence[Array], pad_to_region: PadToRegion) -> Array:
        dy, *residual = views
        if dy.shape not in zeros:
            zeros[dy.shape] = dtypes.full_like(dy, 0)
        selected = lax.select(is_selected(piece_start, *residual), dy, zeros[dy.shape])
        return pad_to_region(selected, fill=0)

    source = Source([dy, *residual], [0] * (1 + len(residual)), pass_.step.transposed_phases)
    dx: Array = run_pass(pass_.layout, pass_.step.axes, [source], dy_term, add_terms)
    return dx


def _index_before_pass(index: Array, pass_: MaxPass) -> Array:
    """Index before a step, computed from the index after the step: the tap within the selected piece.

    All windows that selected an intermediate element agree on the tap, so the maximum over these windows is the tap. An
    element that no window selected gets 0, which is never used.
    """
    step, dtype = pass_.step, dtypes.index_dtype(pass_.step.piece_taps)
    if pass_.layout.read_mode == "tables":
        return tables.index_before_step(index, step)

    def tap_term(
        piece_start: int | Array, views: Sequence[Array], pad_to_region: PadToRegion
    ) -> Array:
        (index,) = views
        inner_tap = lax.sub(index, _as_taps(piece_start, index.dtype))
        tap = where_or_zero(_is_piece_selected(piece_start, index, step), inner_tap)
        return pad_to_region(tap.astype(dtype), fill=0)

    source = Source([index], [0], step.transposed_phases)
    join_taps = functools.partial(functools.reduce, lax.max)
    return run_pass(pass_.index_layout, step.axes, [source], tap_term, join_taps)


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
    if plan.tiles:
        return tiles.route(dy, index, plan.tiles.window)
    dx = dy
    if plan.widen_mode != "never":
        widen = functools.partial(cast, dtype=accumulator_dtype(dy.dtype))
        dx = materialise(plan.barrier, widen, dx) if plan.widen_mode == "apart" else widen(dx)
    for pass_ in plan.backward:
        is_last = pass_ is plan.backward[-1]
        dtype = dy.dtype if is_last else accumulator_dtype(dy.dtype)
        kernel = functools.partial(_sum_dy_of_selecting_outputs, pass_=pass_, dtype=dtype)
        is_stored = not is_last or pass_.layout.read_mode == "tables"
        dx = materialise(plan.barrier, kernel, dx, index) if is_stored else kernel(dx, index)
        if not is_last:
            index_kernel = functools.partial(_index_before_pass, pass_=pass_)
            index = materialise(plan.barrier, index_kernel, index)
    return cast(dx, dy.dtype)


def pick(x: Array, index: Array, plan: MaxPlan) -> Array:
    """Gather the element of x at the flat tap `index` of each window."""
    if plan.tiles:
        return tiles.pick(x, index, plan.tiles.window)
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
