"""One pass over an array: at each position, terms of the elements that meet there, joined.

All windowed kernels are this, with other terms and joins:

    maximum            (value, tap), joined by the winner           window   reads elements
    its transpose      the cotangent where the tap is ours, added   element  reads windows
    sum                the element, added                           window   reads elements
    its transpose      the cotangent, added                         element  reads windows

What exists at a position, `_geometry.access` knows; where the result is cut into regions and how
they read, the plan's `Layout` says. Where elements have phases (strides, transposed), each phase is
an expression of its own, and they are interleaved.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax import Array, lax

from jaxpool._geometry.access import Cut, Phases, length
from jaxpool._kernels import slices
from jaxpool._kernels.cpu import regions
from jaxpool._plan.layout import Layout

Grow = Callable[[Array, Any], Array]  # (what exists of a term, filling) -> the term
T = TypeVar("T")  # an array, or some
Term = Callable[[int, Sequence[Array], Grow], T]  # (tap, a piece of each array, grow) -> a term


class Source(NamedTuple):
    """Arrays that are read alike, what each holds where nothing exists, and what a position reads along each axis."""

    arrays: Sequence[Array]
    fills: Sequence[Any]
    phases: Sequence[Phases]


def carry_out(
    layout: Layout,
    axes: Sequence[int],
    sources: Sequence[Source],
    term: Term[T],
    join: Callable[[T, T], T],
) -> T:
    """The result of a pass along `axes`; where nothing exists, the term of tap 0 of nothing but fillings."""
    order = sorted(range(len(axes)), key=axes.__getitem__, reverse=not layout.minor_last)

    def region(cuts: Sequence[Cut]) -> Any:
        """The positions of `cuts`: those of each phase, interleaved."""
        padded = layout.reading == "padded"
        read = [_padded(source, axes, cuts) for source in sources] if padded else sources

        def phase(turn: tuple[int, ...]) -> T:
            pieces = itertools.chain(*[_pieces(source, axes, cuts, turn) for source in read])
            terms = [term(*piece) for piece in pieces]
            return functools.reduce(join, terms) if terms else nothing()

        def nothing() -> T:
            parts = [slices.empty_along(x, axes) for x in sources[0].arrays]
            sides = [(0, cut.stop - cut.first, 0) for cut in cuts]
            return term(0, parts, functools.partial(_grown, axes, sides))

        def interleaved(*phases: Array) -> Array:
            parts = dict(zip(turns, phases, strict=True))
            return slices.interleave(parts, axes, [cut.phases for cut in cuts], order)

        columns = zip(*[source.phases for source in sources], strict=True)
        turns = [*itertools.product(*map(_phases_that_read, columns, cuts))]
        return jax.tree.map(interleaved, *map(phase, turns))

    def cropped(x: Array) -> Array:
        sizes = [length(phases) for phases in sources[0].phases]
        sides = [(0, size - x.shape[axis], 0) for axis, size in zip(axes, sizes, strict=True)]
        return slices.pad(x, axes, sides, 0)

    result: T = jax.tree.map(cropped, regions.concatenated(axes, layout.cuts, region))
    return result


def _phases_that_read(sources: Sequence[Phases], cut: Cut) -> range:
    """The phases that are an expression each: after the last that reads anything only zeros follow."""
    reading = [p for p in range(cut.phases) if any(phases[p].offsets for phases in sources)]
    return range(max(reading, default=0) + 1)


def _pieces(
    source: Source, axes: Sequence[int], cuts: Sequence[Cut], turn: tuple[int, ...]
) -> Iterator[tuple[int, list[Array], Grow]]:
    """The arguments of each term of a phase, in the order of the window; none for terms of nothing."""
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
            yield sum(tap for _, tap in chosen), parts, functools.partial(_grown, axes, sides)


def _grown(axes: Sequence[int], sides: Sequence[slices.Sides], x: Array, fill: Any) -> Array:
    return slices.pad(x, axes, sides, fill)


def _padded(source: Source, axes: Sequence[int], cuts: Sequence[Cut]) -> Source:
    """The arrays along each axis that a region reaches beyond: what it reads, filled in where nothing exists.

    Along other axes they stay whole: what is cut out and read by many terms, XLA for CPU copies.
    """
    arrays, phases = source.arrays, []
    for axis, every, cut in zip(axes, source.phases, cuts, strict=True):
        used = [(access.stride, offset) for access in every for offset in access.offsets]
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
        phases.append(tuple(access.of_elements(begin, end) for access in every))
    return Source(arrays, source.fills, phases)
