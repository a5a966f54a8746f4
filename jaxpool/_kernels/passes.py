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
from typing import Any, NamedTuple

import jax
from jax import Array, lax

from jaxpool._geometry.access import Access, Cut, Phases, length
from jaxpool._kernels import slices
from jaxpool._kernels.cpu import regions
from jaxpool._plan.layout import Layout

Grow = Callable[[Array, Any], Array]  # (what exists of a term, filling) -> the term
Term = Callable[[int, Sequence[Array], Grow], Any]  # (tap, a piece of each array, grow) -> arrays
Join = Callable[[Any, Any], Any]


class Source(NamedTuple):
    """Arrays that are read alike, what each holds where nothing exists, and what a position reads along each axis."""

    arrays: Sequence[Array]
    fills: Sequence[Any]
    phases: Sequence[Phases]


def carry_out(
    layout: Layout,
    axes: Sequence[int],
    sources: Sequence[Source],
    term: Term,
    join: Join,
    *,
    absent: int = 0,
) -> Any:
    """The result of a pass along `axes`; where nothing exists, the term of tap `absent` of nothing but fillings."""
    evaluate = functools.partial(_region, layout, axes, sources, term, join, absent)
    if layout.regions > 1:
        result = regions.concatenated(axes, layout.cuts, evaluate)
    else:
        result = evaluate([column[0] for column in layout.cuts])

    def cropped(x: Array) -> Array:
        phases = zip(axes, sources[0].phases, strict=True)
        return slices.pad(x, axes, [(0, length(p) - x.shape[axis], 0) for axis, p in phases], 0)

    return jax.tree.map(cropped, result)


def _region(
    layout: Layout,
    axes: Sequence[int],
    sources: Sequence[Source],
    term: Term,
    join: Join,
    absent: int,
    cuts: Sequence[Cut],
) -> Any:
    """The positions of `cuts`: those of each phase, interleaved."""
    if layout.reading == "padded":
        read = [_padded(source, axes, cuts) for source in sources]
    else:
        read = [(source, cuts) for source in sources]

    def none(tap: int = absent) -> Any:
        sides = [(0, cut.stop - cut.first, 0) for cut in cuts]
        arrays = [slices.empty_along(x, axes) for x in sources[0].arrays]
        return term(tap, arrays, lambda x, fill: slices.pad(x, axes, sides, fill))

    def phase(turn: tuple[int, ...]) -> Any:
        found = itertools.chain(*[_pieces(*each, axes, turn) for each in read])
        terms = [term(tap, parts, grow) for tap, parts, grow in found]
        return functools.reduce(join, terms) if terms else none()

    counts = [cut.phases for cut in cuts]
    every = zip(*[source.phases for source in sources], strict=True)
    used = [_used(columns, cut) for columns, cut in zip(every, cuts, strict=True)]
    turns = list(itertools.product(*map(range, used)))
    if 0 in counts:  # an axis without positions
        return none()

    def whole(*leaves: Array) -> Array:
        parts = dict(zip(turns, leaves, strict=True))
        return slices.interleave(parts, axes, counts, layout.order)

    return jax.tree.map(whole, *map(phase, turns))


def _used(columns: Sequence[Phases], cut: Cut) -> int:
    """How many phases are an expression each: after the last that reads anything only zeros follow."""
    turn = range(cut.phases)
    reading = [which for which in turn if any(phases[which].offsets for phases in columns)]
    return max(reading, default=0) + 1


def _taps(accesses: Sequence[Access]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The flat tap and the offsets of each element that a position reads, in the order of the window."""
    pairs = [zip(access.offsets, access.taps, strict=True) for access in accesses]
    for chosen in itertools.product(*pairs):
        yield sum(tap for _, tap in chosen), tuple(offset for offset, _ in chosen)


def _pieces(
    source: Source, cuts: Sequence[Cut], axes: Sequence[int], turn: tuple[int, ...]
) -> Iterator[tuple[int, list[Array], Grow]]:
    """What exists of each term of a phase, read where it is."""
    accesses = [phases[one] for phases, one in zip(source.phases, turn, strict=True)]
    strides = [access.stride for access in accesses]
    for tap, offsets in _taps(accesses):
        triples = list(zip(accesses, offsets, cuts, strict=True))
        inside = [access.inside(offset, cut.first, cut.stop) for access, offset, cut in triples]
        if any(first >= stop for first, stop in inside):
            continue
        starts = [
            access.stride * first + offset
            for (access, offset, _), (first, _) in zip(triples, inside, strict=True)
        ]
        outs = [stop - first for first, stop in inside]
        sides = [
            (first - cut.first, cut.stop - stop, 0)
            for cut, (first, stop) in zip(cuts, inside, strict=True)
        ]
        parts = [slices.view(x, axes, starts, outs, strides) for x in source.arrays]
        yield tap, parts, functools.partial(_grown, axes=axes, sides=sides)


def _grown(x: Array, fill: Any, axes: Sequence[int], sides: Sequence[slices.Sides]) -> Array:
    return slices.pad(x, axes, sides, fill)


def _padded(
    source: Source, axes: Sequence[int], cuts: Sequence[Cut]
) -> tuple[Source, Sequence[Cut]]:
    """What a region reads of each array, padded once, and the region seen from there: every element exists."""
    arrays, phases = list(source.arrays), []
    for axis, every, cut in zip(axes, source.phases, cuts, strict=True):
        used = [(access.stride, offset) for access in every for offset in access.offsets]
        begin = min((stride * cut.first + offset for stride, offset in used), default=0)
        end = max((stride * (cut.stop - 1) + offset + 1 for stride, offset in used), default=0)
        size, outs = arrays[0].shape[axis], cut.stop - cut.first
        first = min(max(begin, 0), size)
        stop = max(first, min(end, size))
        for which, fill in enumerate(source.fills):
            x = lax.slice_in_dim(arrays[which], first, stop, axis=axis)
            arrays[which] = slices.pad(x, [axis], [(first - begin, end - stop, 0)], fill)
        phases.append(tuple(access.moved(cut.first, begin, end - begin, outs) for access in every))
    return Source(arrays, source.fills, phases), [
        Cut(0, cut.stop - cut.first, cut.phases) for cut in cuts
    ]
