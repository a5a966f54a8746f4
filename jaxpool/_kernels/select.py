"""Windowed selection: the maximum or minimum of each window, and its flat tap (its row-major index in the window).

y[o], index[o] = max over taps t of (x[stride * o - low + dilation * t], t), with the first t (or last) if tied
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.compare import Candidate, TieOrder, select_best_candidate, to_comparison_dtype
from jaxpool._kernels.dtypes import (
    DType,
    Kind,
    bitcast_half_to_uint16,
    bitcast_uint16_to_half,
    cast,
    index_dtype,
    reduction_identity,
)
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.passes import PadToRegion, Source, run_pass
from jaxpool._kernels.positions import IntArray, int32_iota
from jaxpool._kernels.reduce_window import extrema_per_axis_group
from jaxpool._plan.max_pool import MaxPass, MaxPlan


def first_or_last_tap_inside(dim: Axis, *, take_last: bool) -> IntArray:
    """First or last tap inside the input for each window along an axis; a single entry if the axis has no padding."""
    tap_inside = dim.last_tap_inside if take_last else dim.first_tap_inside
    return tap_inside(int32_iota(dim.out if dim.is_padded else 1)).clip(0, dim.window - 1)


def first_taps_inside(window: Window, ndim: int) -> Array:
    """Flat tap of the first element of each window that is inside the input, broadcastable to the output."""
    return ravel_taps(
        [first_or_last_tap_inside(dim, take_last=False) for dim in window.dims], window, ndim
    )


def ravel_taps(taps_per_axis: Sequence[Any], window: Window, ndim: int) -> Array:
    """Row-major flat tap of each window from its tap along each axis; broadcastable to the output."""
    dtype = index_dtype(window.size)
    # A unit (flat taps per tap of an axis) overflows the dtype only along an axis with one tap, which is tap 0.
    units = np.cumprod([1, *window.window_shape[:0:-1]])[::-1].astype(dtype)
    vectors = [taps.astype(dtype) * unit for taps, unit in zip(taps_per_axis, units, strict=True)]
    return slices.outer_broadcast(jnp.add, vectors, window.axes, ndim)


def _run_select_pass(
    pass_: MaxPass,
    kind: Kind,
    ties: TieOrder,
    value_dtype: DType,
    *value_and_tap: Array,
    with_index: bool,
    separate_nan_chain: bool,
) -> tuple[Array, ...]:
    """Winning value at each output of a pass, in the dtype of the pass's input, and with `with_index` its flat tap.

    With `separate_nan_chain`, a separate chain of comparisons looks for NaN.
    """
    step, held = pass_.step, value_and_tap[0].dtype
    dtype, fill = (
        index_dtype(step.num_flat_taps),
        reduction_identity(value_dtype, kind).view(held),
    )
    nan = np.asarray(np.nan, value_dtype).view(held) if separate_nan_chain else None
    arrays = [value_and_tap[0], *(cast(tap, dtype) for tap in value_and_tap[1:])]

    def candidate_at_tap(tap: int, views: Sequence[Array], pad_to_region: PadToRegion) -> Candidate:
        value = pad_to_region(views[0], fill=fill)
        key = to_comparison_dtype(bitcast_uint16_to_half(value, value_dtype))
        if not with_index:
            return key, value
        flat_tap = lax.full_like(value, tap, dtype)
        return (key, value, flat_tap + pad_to_region(views[1], fill=0) if views[1:] else flat_tap)

    source = Source(arrays, [fill, 0][: len(arrays)], step.phases)
    join_candidates = functools.partial(select_best_candidate, kind=kind, ties=ties, nan_value=nan)
    return run_pass(pass_.layout, step.axes, [source], candidate_at_tap, join_candidates)


def _run_select_passes(
    x: Array, kind: Kind, ties: TieOrder, plan: MaxPlan, *, with_index: bool
) -> tuple[Array, ...]:
    """Maximum or minimum of each window, and with `with_index` its flat tap, which may be in the padding."""
    separate_nan_chain = plan.nan_mode == "alone"
    # The passes read bits: XLA for CPU widens slices of bfloat16, and compiles a select of float16 to a branch.
    outputs: tuple[Array, ...] = (bitcast_half_to_uint16(x) if separate_nan_chain else x,)
    for pass_ in plan.forward:
        kernel = functools.partial(
            _run_select_pass,
            pass_,
            kind,
            ties,
            x.dtype,
            with_index=with_index,
            separate_nan_chain=separate_nan_chain,
        )
        is_last = pass_ is plan.forward[-1]
        outputs = kernel(*outputs) if is_last else materialise(plan.barrier, kernel, *outputs)
    return bitcast_uint16_to_half(outputs[0], x.dtype), *outputs[1:]


def select_value(x: Array, kind: Kind, ties: TieOrder, plan: MaxPlan) -> Array:
    """Maximum or minimum of each window, without its tap."""
    if plan.value_groups:
        return extrema_per_axis_group(x, kind, plan.value_groups)[-1]
    return _run_select_passes(x, kind, ties, plan, with_index=False)[0]


def select(
    x: Array, window: Window, kind: Kind, ties: TieOrder, plan: MaxPlan
) -> tuple[Array, Array]:
    """Maximum or minimum of each window, and its flat tap.

    Padding holds the identity, so padding is selected only if all elements of a window equal the identity. The tap is
    then replaced by the tap of the first or last element inside the input.
    """
    value, index = _run_select_passes(x, kind, ties, plan, with_index=True)
    if window.is_padded:
        taps = [first_or_last_tap_inside(dim, take_last=ties == "last") for dim in window.dims]
        flat_bound = ravel_taps(taps, window, x.ndim)
        index = (jnp.minimum if ties == "last" else jnp.maximum)(index, flat_bound)
    return value, index
