"""One pass over an array: at each output position, join one term per tap (offset in the window).

All dense windowed kernels are passes with different terms and joins:

    maximum            (value, tap), joined by the winner           window   reads elements
    its transpose      the cotangent if the tap matches, added      element  reads windows
    sum                the element, added                           window   reads elements
    its transpose      the cotangent, added                         element  reads windows

`_geometry.access` computes which elements each position reads. The plan's `Layout` cuts the result into regions: XLA
for CPU vectorises regions without padding, and only the ends of an axis read padding. The transpose of a pass with
stride s has s phases: phase p computes every s-th position from p on. The results of the phases are interleaved.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax import Array, lax

from jaxpool._geometry.access import Phases, Region, total_positions
from jaxpool._kernels import slices
from jaxpool._plan.layout import Layout

PadToRegion = Callable[..., Array]  # (slice, fill=...) -> the slice padded to the region
T = TypeVar("T")  # an array or a tuple of arrays
TermFunction = Callable[
    [int, Sequence[Array], PadToRegion], T
]  # (tap, a slice of each array, pad_to_region) -> a term


def add_terms(terms: Sequence[Array]) -> Array:
    """Add terms one after another."""
    return functools.reduce(lax.add, terms)


class Source(NamedTuple):
    """Arrays that a pass reads at the same positions, their fill values for padding, and the phases along each axis."""

    arrays: Sequence[Array]
    fill_values: Sequence[Any]
    phases: Sequence[Phases]


def run_pass(
    layout: Layout,
    axes: Sequence[int],
    sources: Sequence[Source],
    term_at_tap: TermFunction[T],
    join_terms: Callable[[Sequence[T]], Any],
) -> Any:
    """Run a pass along `axes`: `join_terms(terms)` at each output position, with the terms in the order of the taps.

    In a region that reads only padding, there is a single term: it has tap 0 and consists of fill values.
    """
    region_order = sorted(range(len(axes)), key=axes.__getitem__)
    phase_order = region_order if layout.minor_axis_last else region_order[::-1]

    def compute_region(cuts: Sequence[Region]) -> Any:
        """Results at the output positions of one region, with the phases interleaved."""
        is_padded = layout.read_mode == "padded"
        inputs = [_pad_source(s, axes, cuts) for s in sources] if is_padded else sources

        def compute_phase(phase_per_axis: tuple[int, ...]) -> Any:
            term_args = itertools.chain(
                *[_term_args(s, axes, cuts, phase_per_axis) for s in inputs]
            )
            terms = [term_at_tap(*args) for args in term_args]
            return join_terms(terms or [fill_value_term()])

        def fill_value_term() -> T:
            empty_parts = [slices.empty_along_axes(x, axes) for x in sources[0].arrays]
            padding = [(0, region.stop - region.start, 0) for region in cuts]
            return term_at_tap(
                0, empty_parts, functools.partial(slices.pad, axes=axes, configs=padding)
            )

        def interleave_phases(*phase_results: Array) -> Array:
            def interleave_along_axis(parts: list[Array], axis_index: int) -> Array:
                return slices.interleave(parts, axes[axis_index], cuts[axis_index].num_phases)

            return slices.join_parts(
                dict(zip(indices, phase_results, strict=True)), phase_order, interleave_along_axis
            )

        phases_of_axes = zip(*[s.phases for s in sources], strict=True)
        indices = [*itertools.product(*map(_phases_that_read, phases_of_axes, cuts))]
        return jax.tree.map(interleave_phases, *map(compute_phase, indices))

    def crop_to_output(x: Array) -> Array:
        sizes = [total_positions(phases) for phases in sources[0].phases]
        padding = [(0, size - x.shape[axis], 0) for axis, size in zip(axes, sizes, strict=True)]
        return slices.pad(x, axes, padding, 0)

    def concatenate_regions(results: list[Any], axis_index: int) -> Any:
        return jax.tree.map(lambda *parts: slices.concatenate(parts, axes[axis_index]), *results)

    # Concatenate regions along the minor axis last for every order of `axes`: XLA vectorises other orders less.
    indices = itertools.product(*[range(len(column)) for column in layout.axis_regions])
    choices = itertools.product(*layout.axis_regions)
    parts = {index: compute_region(cuts) for index, cuts in zip(indices, choices, strict=True)}
    return jax.tree.map(crop_to_output, slices.join_parts(parts, region_order, concatenate_regions))


def _phases_that_read(source_phases: Sequence[Phases], region: Region) -> range:
    """Phases of a region up to the last phase that reads an element; all later phases hold zeros."""
    readers = [
        p
        for p in range(region.num_phases)
        if any(phases[p].tap_offsets for phases in source_phases)
    ]
    return range(max(readers, default=0) + 1)


def _term_args(
    source: Source, axes: Sequence[int], regions: Sequence[Region], phase_per_axis: tuple[int, ...]
) -> Iterator[tuple[int, list[Array], PadToRegion]]:
    """Arguments of the term function for each tap of a phase that reads an element, in the order of the taps."""
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
            parts = [slices.strided_slice(x, axes, starts, outs, strides) for x in source.arrays]
            pad_to_region = functools.partial(slices.pad, axes=axes, configs=padding)
            yield sum(tap for _, tap in pairs), parts, pad_to_region


def _pad_source(source: Source, axes: Sequence[int], regions: Sequence[Region]) -> Source:
    """Pad the arrays along each axis where the region reads padding, and crop elements that the region does not read.

    Axes without padding are not cropped, because XLA for CPU copies a slice that many terms read.
    """
    arrays, phases = source.arrays, []
    for axis, accesses, region in zip(axes, source.phases, regions, strict=True):
        reads = [(access.stride, offset) for access in accesses for offset, _ in access.tap_offsets]
        begin = min((stride * region.start + offset for stride, offset in reads), default=0)
        end = max((stride * (region.stop - 1) + offset + 1 for stride, offset in reads), default=0)
        size = arrays[0].shape[axis]
        if begin >= 0 and end <= size:
            phases.append(accesses)
            continue
        first = min(max(begin, 0), size)
        stop = max(first, min(end, size))
        padding = [(first - begin, end - stop, 0)]
        arrays = [
            slices.pad(lax.slice_in_dim(x, first, stop, axis=axis), [axis], padding, fill)
            for x, fill in zip(arrays, source.fill_values, strict=True)
        ]
        phases.append(tuple(access.slice_elements(begin, end) for access in accesses))
    return Source(arrays, source.fill_values, phases)
