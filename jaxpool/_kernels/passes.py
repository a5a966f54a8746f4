"""One pass over an array: at each output position, join one term per tap.

All dense windowed kernels are passes with different terms and joins:

    maximum            (value, tap), joined by the winner           window   reads elements
    its transpose      the cotangent if the tap matches, added      element  reads windows
    sum                the element, added                           window   reads elements
    its transpose      the cotangent, added                         element  reads windows

`_geometry.access` computes which elements exist at each position. The plan's `Layout` cuts the result into regions:
XLA for CPU vectorises regions without padding, and elements are missing only at the ends of an axis. The transpose
of a strided pass has phases. Each phase is an expression of its own, and the results are interleaved.
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

Grow = Callable[..., Array]  # (slice, fill=...) -> the slice padded to the region
T = TypeVar("T")  # an array or a tuple of arrays
Term = Callable[[int, Sequence[Array], Grow], T]  # (tap, a slice of each array, grow) -> a term


def added(terms: Sequence[Array]) -> Array:
    """Add terms one after another."""
    return functools.reduce(lax.add, terms)


class Source(NamedTuple):
    """Arrays with common accesses, the fill values of missing elements, and the phases along each axis."""

    arrays: Sequence[Array]
    fills: Sequence[Any]
    phases: Sequence[Phases]


def carry_out(
    layout: Layout,
    axes: Sequence[int],
    sources: Sequence[Source],
    term: Term[T],
    joined: Callable[[Sequence[T]], Any],
) -> Any:
    """Carry out a pass along `axes`: `joined(terms)` at each position, with the terms in the order of the taps.

    In a region without any element of the array, the only term has tap 0 and consists of fill values.
    """
    minor_last = sorted(range(len(axes)), key=axes.__getitem__)
    order = minor_last if layout.minor_last else minor_last[::-1]

    def region(cuts: Sequence[Region]) -> Any:
        """Positions of the region `cuts`, with the phases interleaved."""
        padded = layout.reading == "padded"
        read = [_padded(source, axes, cuts) for source in sources] if padded else sources

        def phase(turn: tuple[int, ...]) -> Any:
            pieces = itertools.chain(*[_pieces(source, axes, cuts, turn) for source in read])
            terms = [term(*piece) for piece in pieces]
            return joined(terms or [nothing()])

        def nothing() -> T:
            parts = [slices.empty_along(x, axes) for x in sources[0].arrays]
            sides = [(0, cut.stop - cut.first, 0) for cut in cuts]
            return term(0, parts, functools.partial(slices.pad, axes=axes, sides=sides))

        def interleaved(*phases: Array) -> Array:
            def interleave(row: list[Array], which: int) -> Array:
                return slices.interleaved(row, axes[which], cuts[which].phases)

            return slices.put_together(dict(zip(indices, phases, strict=True)), order, interleave)

        columns = zip(*[source.phases for source in sources], strict=True)
        indices = [*itertools.product(*map(_phases_that_read, columns, cuts))]
        return jax.tree.map(interleaved, *map(phase, indices))

    def cropped(x: Array) -> Array:
        sizes = [total_positions(phases) for phases in sources[0].phases]
        sides = [(0, size - x.shape[axis], 0) for axis, size in zip(axes, sizes, strict=True)]
        return slices.pad(x, axes, sides, 0)

    def in_a_row(row: list[Any], which: int) -> Any:
        return jax.tree.map(lambda *parts: slices.concatenate(parts, axes[which]), *row)

    # Join the minor axis last for every order of `axes`: XLA vectorises other orders less.
    places = itertools.product(*[range(len(column)) for column in layout.cuts])
    chosen = itertools.product(*layout.cuts)
    parts = {place: region(cuts) for place, cuts in zip(places, chosen, strict=True)}
    return jax.tree.map(cropped, slices.put_together(parts, minor_last, in_a_row))


def _phases_that_read(sources: Sequence[Phases], cut: Region) -> range:
    """Phases up to the last phase that reads an element; all later phases are zeros."""
    reading = [p for p in range(cut.phases) if any(phases[p].pairs for phases in sources)]
    return range(max(reading, default=0) + 1)


def _pieces(
    source: Source, axes: Sequence[int], cuts: Sequence[Region], turn: tuple[int, ...]
) -> Iterator[tuple[int, list[Array], Grow]]:
    """Arguments of each term of a phase that reads an element, in the order of the taps."""
    accesses = [phases[which] for phases, which in zip(source.phases, turn, strict=True)]
    strides = [access.stride for access in accesses]
    for chosen in itertools.product(*[access.pairs for access in accesses]):
        starts, outs, sides = [], [], []
        for access, (offset, _), cut in zip(accesses, chosen, cuts, strict=True):
            first, stop = access.inside(offset, cut.first, cut.stop)
            starts.append(access.stride * first + offset)
            outs.append(stop - first)
            sides.append((first - cut.first, cut.stop - stop, 0))
        if min(outs) > 0:
            parts = [slices.view(x, axes, starts, outs, strides) for x in source.arrays]
            grow = functools.partial(slices.pad, axes=axes, sides=sides)
            yield sum(tap for _, tap in chosen), parts, grow


def _padded(source: Source, axes: Sequence[int], cuts: Sequence[Region]) -> Source:
    """Pad the arrays along each axis that the region exceeds, and slice them to the elements that it reads.

    Other axes are not sliced, because XLA for CPU copies a slice that many terms read.
    """
    arrays, phases = source.arrays, []
    for axis, every, cut in zip(axes, source.phases, cuts, strict=True):
        used = [(access.stride, offset) for access in every for offset, _ in access.pairs]
        begin = min((stride * cut.first + offset for stride, offset in used), default=0)
        end = max((stride * (cut.stop - 1) + offset + 1 for stride, offset in used), default=0)
        size = arrays[0].shape[axis]
        if begin >= 0 and end <= size:
            phases.append(every)
            continue
        first = min(max(begin, 0), size)
        stop = max(first, min(end, size))
        sides = [(first - begin, end - stop, 0)]
        arrays = [
            slices.pad(lax.slice_in_dim(x, first, stop, axis=axis), [axis], sides, fill)
            for x, fill in zip(arrays, source.fills, strict=True)
        ]
        phases.append(tuple(access.sliced(begin, end) for access in every))
    return Source(arrays, source.fills, phases)
