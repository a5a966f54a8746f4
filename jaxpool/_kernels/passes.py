"""Passes over arrays along pooled axes: maxima, sums, blurs and their transposes, written as slices that are joined.

A pass joins one term per tap (offset in the window) at each output position. Passes differ in their terms and joins:

    maximum            (value, tap), joined by the winner           window   reads elements
    its transpose      the cotangent if the tap matches, added      element  reads windows
    sum                the element, added                           window   reads elements
    its transpose      the cotangent, added                         element  reads windows

The plan's `Layout` cuts the output into regions: XLA for CPU vectorises regions without padding, and only the ends of
an axis read padding. The transpose of a pass with stride s has s phases: phase p computes every s-th position from p
on. Stride 2 along an axis of 7 positions, with a region at each end:

    region      | 0 |      1      | 2 |
    position    | 0   1 | 2  3  4  5 | 6     even positions are phase 0, odd positions are phase 1
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.access import Phases, Region, total_positions
from jaxpool._kernels.clamped import T, Y, run_clamped_pass
from jaxpool._kernels.slices import (
    Ints,
    concatenate,
    empty_along_axes,
    materialise,
    pad,
    strided_slice,
)
from jaxpool._plan.problem import Layout, ReadMode

# The fill value of a source whose padding mirrors its elements, as in `jnp.pad(mode="reflect")`
REFLECTED = "reflected"
Fill = Any  # a number of any library, or REFLECTED
PadToRegion = Callable[..., Array]  # (slice, fill=...) -> the slice padded to the region
# (tap, a slice of each array, pad_to_region) -> a term
TermFunction = Callable[[int, Sequence[Array], PadToRegion], T]


class Source(NamedTuple):
    """Arrays that a pass reads at the same positions, their fill values for padding, and the phases along each axis."""

    arrays: Sequence[Array]
    fill_values: Sequence[Fill]
    phases: Sequence[Phases]


def run_pass(
    layout: Layout,
    axes: Ints,
    sources: Sequence[Source],
    term_at_tap: TermFunction[T],
    join_terms: Callable[[Sequence[T]], Y],
) -> Y:
    """Run a pass along `axes`: `join_terms(terms)` at each output position, with the terms in the order of the taps.

    Each phase of each region is computed on its own, from slices of the sources. Phases are then interleaved to a
    region, regions are concatenated, and surplus positions are cropped. A phase that reads only padding has a single
    term: it has tap 0 and consists of fill values.
    """
    if layout.read_mode == "clamped":
        return run_clamped_pass(axes, sources, term_at_tap, join_terms)
    axis_order = sorted(range(len(axes)), key=axes.__getitem__)
    phase_order = axis_order if layout.minor_axis_last else axis_order[::-1]

    def compute_region(regions: Sequence[Region]) -> Y:
        inputs = [_prepare_source(each, axes, regions, layout.read_mode) for each in sources]
        phases_of_axes = zip(*[source.phases for source in sources], strict=True)
        phases = itertools.product(*map(_phases_up_to_last_read, phases_of_axes, regions))
        parts = {phase: compute_phase(inputs, regions, phase) for phase in phases}
        periods = [region.num_phases for region in regions]
        return _join_grid(parts, phase_order, lambda xs, i: interleave(xs, axes[i], periods[i]))

    def compute_phase(
        inputs: Sequence[Source], regions: Sequence[Region], phase_per_axis: tuple[int, ...]
    ) -> Y:
        term_args = [_term_args(source, axes, regions, phase_per_axis) for source in inputs]
        terms = [term_at_tap(*args) for args in itertools.chain(*term_args)]
        return join_terms(terms or [term_at_tap(*_fill_value_args(sources[0], axes, regions))])

    def crop_to_output(x: Array) -> Array:
        sizes = [total_positions(phases) for phases in sources[0].phases]
        padding = [(0, size - x.shape[axis], 0) for axis, size in zip(axes, sizes, strict=True)]
        return pad(x, axes, padding, 0)

    # Concatenate regions along the minor axis last for every order of `axes`: XLA vectorises other orders less.
    parts = {
        tuple(index for index, _ in pairs): compute_region([region for _, region in pairs])
        for pairs in itertools.product(*map(enumerate, layout.axis_regions))
    }
    y = _join_grid(parts, axis_order, lambda xs, i: concatenate(xs, axes[i]))
    return jax.tree.map(crop_to_output, y)


def _join_grid(
    part_at_index: Mapping[tuple[int, ...], T],
    axis_order: Ints,
    join_along_axis: Callable[[Sequence[Array], int], Array],
) -> T:
    """Join the arrays of a grid along one axis after another; keys are the grid indices of the parts."""
    for axis in axis_order:
        rows: dict[tuple[int, ...], list[T]] = {}
        for index, part in part_at_index.items():
            rows.setdefault((*index[:axis], 0, *index[axis + 1 :]), []).append(part)
        part_at_index = {
            index: jax.tree.map(lambda *xs, axis=axis: join_along_axis(xs, axis), *row)
            for index, row in rows.items()
        }
    (whole,) = part_at_index.values()
    return whole


def interleave(parts: Sequence[Array], axis: int, period: int) -> Array:
    """Interleave parts along an axis: part p gets the positions p, p + period, ... Missing parts are zeros."""
    if period == 1:
        return parts[0]
    padding = (0, period - len(parts), 0)
    return lax.collapse(pad(jnp.stack(parts, axis + 1), [axis + 1], [padding], 0), axis, axis + 2)


def _phases_up_to_last_read(source_phases: Sequence[Phases], region: Region) -> range:
    """Phases of a region up to the last phase that reads an element; all later phases hold zeros."""
    last = 0
    for phase in range(region.num_phases):
        if any(phases[phase].tap_offsets for phases in source_phases):
            last = phase
    return range(last + 1)


def _term_args(
    source: Source, axes: Ints, regions: Sequence[Region], phase_per_axis: tuple[int, ...]
) -> Iterator[tuple[int, list[Array], PadToRegion]]:
    """For one phase: the arguments of the term function for each tap that reads an element, in the order of taps."""
    accesses = [phases[phase] for phases, phase in zip(source.phases, phase_per_axis, strict=True)]
    strides = [access.stride for access in accesses]
    for pairs in itertools.product(*[access.tap_offsets for access in accesses]):
        starts, outs, padding = [], [], []
        for access, (offset, _), region in zip(accesses, pairs, regions, strict=True):
            first, stop = access.valid_range(offset, region.start, region.stop)
            starts.append(access.stride * first + offset)
            outs.append(stop - first)
            padding.append((first - region.start, region.stop - stop, 0))
        if min(outs) > 0:
            parts = [strided_slice(x, axes, starts, outs, strides) for x in source.arrays]
            pad_to_region = functools.partial(pad, axes=axes, configs=padding)
            yield sum(tap for _, tap in pairs), parts, pad_to_region


def _fill_value_args(
    source: Source, axes: Ints, regions: Sequence[Region]
) -> tuple[int, list[Array], PadToRegion]:
    """Arguments of the term function for a region that reads only padding."""
    empty_parts = [empty_along_axes(x, axes) for x in source.arrays]
    padding = [(0, region.stop - region.start, 0) for region in regions]
    return 0, empty_parts, functools.partial(pad, axes=axes, configs=padding)


Range = tuple[int, int]  # first element along an axis, and end; both may be in the padding


def _read_range(accesses: Phases, region: Region) -> Range:
    """The elements that a region reads along an axis."""
    reads = [(access.stride, offset) for access in accesses for offset, _ in access.tap_offsets]
    begin = min((stride * region.start + offset for stride, offset in reads), default=0)
    end = max((stride * (region.stop - 1) + offset + 1 for stride, offset in reads), default=0)
    return begin, end


def _prepare_source(
    source: Source, axes: Ints, regions: Sequence[Region], read_mode: ReadMode
) -> Source:
    """The source with arrays that contain all elements that `regions` read, or itself in read mode "bounded".

    An axis is copied only if the region reads padding: XLA for CPU copies a slice that many terms read.
    """
    if read_mode == "bounded":
        return source
    whole = [(0, source.arrays[0].shape[axis]) for axis in axes]
    reads = [*map(_read_range, source.phases, regions)]
    ranges = [
        size if begin >= 0 and end <= size[1] else (begin, end)
        for (begin, end), size in zip(reads, whole, strict=True)
    ]
    is_deinterleaved, last = read_mode == "deinterleaved", axes.index(max(axes))
    stride = source.phases[last][0].stride
    if is_deinterleaved:
        begin, end = reads[last]
        ranges[last] = begin, end + (begin - end) % stride

    def prepare_arrays(*arrays: Array) -> list[Array]:
        pairs = zip(arrays, source.fill_values, strict=True)
        padded = [_pad_to_ranges(x, axes, ranges, fill) for x, fill in pairs]
        return [_deinterleave_last_axis(x, stride) for x in padded] if is_deinterleaved else padded

    phases = [
        tuple(access.slice_elements(*ends) for access in accesses)
        for accesses, ends in zip(source.phases, ranges, strict=True)
    ]
    if is_deinterleaved:
        phases[last] = tuple(access.deinterleaved() for access in phases[last])
    # A reflection that is not stored in memory would be computed again in each term.
    is_reflected = source.fill_values[0] is REFLECTED and ranges != whole
    arrays: Sequence[Array]
    if is_reflected or is_deinterleaved:
        arrays = materialise("call", prepare_arrays, *source.arrays)
    else:
        arrays = prepare_arrays(*source.arrays)
    return Source(arrays, source.fill_values, phases)


def _pad_to_ranges(x: Array, axes: Ints, ranges: Sequence[Range], fill: Fill) -> Array:
    """The elements of x in `ranges`, which may include padding. Reflected padding must be shorter than its axis."""
    for axis, (begin, end) in zip(axes, ranges, strict=True):
        size = x.shape[axis]
        if (begin, end) == (0, size):
            continue
        first = min(max(begin, 0), size)
        stop = max(first, min(end, size))
        inside, low, high = lax.slice_in_dim(x, first, stop, axis=axis), first - begin, end - stop
        if fill is REFLECTED:
            before = lax.slice_in_dim(x, 1, 1 + low, axis=axis)
            after = lax.slice_in_dim(x, size - 1 - high, size - 1, axis=axis)
            x = concatenate([lax.rev(before, [axis]), inside, lax.rev(after, [axis])], axis)
        else:
            x = pad(inside, [axis], [(low, high, 0)], fill)
    return x


def _deinterleave_last_axis(x: Array, stride: int) -> Array:
    """The elements 0, stride, ... of the last axis, then 1, stride + 1, ...; see `AxisAccess.deinterleaved`."""
    rows = lax.reshape(x, (*x.shape[:-1], x.shape[-1] // stride, stride))
    return lax.collapse(jnp.swapaxes(rows, -1, -2), x.ndim - 1, x.ndim + 1)
