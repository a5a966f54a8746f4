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
    pieces = _padded_pieces if layout.reading == "padded" else _existing_pieces
    readers = [pieces(source, axes, cuts) for source in sources]

    def none(tap: int = absent) -> Any:
        sides = [(0, cut.stop - cut.first, 0) for cut in cuts]
        arrays = [slices.empty_along(x, axes) for x in sources[0].arrays]
        return term(tap, arrays, lambda x, fill: slices.pad(x, axes, sides, fill))

    def phase(turn: tuple[int, ...]) -> Any:
        found = itertools.chain(*[read(turn) for read in readers])
        terms = [term(tap, parts, grow) for tap, parts, grow in found]
        return functools.reduce(join, terms) if terms else none()

    turns = list(itertools.product(*[range(cut.phases) for cut in cuts]))
    if not turns:  # an axis without positions
        return none()
    return jax.tree.map(
        lambda *leaves: slices.interleave(
            dict(zip(turns, leaves, strict=True)), axes, layout.order
        ),
        *map(phase, turns),
    )


Reader = Callable[[tuple[int, ...]], Iterator[tuple[int, list[Array], Grow]]]


def _taps(accesses: Sequence[Access]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The flat tap and the offsets of each element that a position reads, in the order of the window."""
    pairs = [zip(access.offsets, access.taps, strict=True) for access in accesses]
    for chosen in itertools.product(*pairs):
        yield sum(tap for _, tap in chosen), tuple(offset for offset, _ in chosen)


def _existing_pieces(source: Source, axes: Sequence[int], cuts: Sequence[Cut]) -> Reader:
    """Of each term what exists, read where it is."""

    def read(turn: tuple[int, ...]) -> Iterator[tuple[int, list[Array], Grow]]:
        accesses = [phases[one] for phases, one in zip(source.phases, turn, strict=True)]
        strides = [access.stride for access in accesses]
        for tap, offsets in _taps(accesses):
            inside = [
                access.inside(offset, cut.first, cut.stop)
                for access, offset, cut in zip(accesses, offsets, cuts, strict=True)
            ]
            if any(first >= stop for first, stop in inside):
                continue
            starts = [
                stride * first + offset
                for stride, offset, (first, _) in zip(strides, offsets, inside, strict=True)
            ]
            outs = [stop - first for first, stop in inside]
            sides = [
                (first - cut.first, cut.stop - stop, 0)
                for cut, (first, stop) in zip(cuts, inside, strict=True)
            ]
            parts = [slices.view(x, axes, starts, outs, strides) for x in source.arrays]
            yield tap, parts, functools.partial(_grown, axes=axes, sides=sides)

    return read


def _grown(x: Array, fill: Any, axes: Sequence[int], sides: Sequence[slices.Sides]) -> Array:
    return slices.pad(x, axes, sides, fill)


def _padded_pieces(source: Source, axes: Sequence[int], cuts: Sequence[Cut]) -> Reader:
    """Each term as a plain slice of arrays that are padded once, as far as the region reaches."""
    begins, ends = [], []
    for phases, cut in zip(source.phases, cuts, strict=True):
        reached = [
            (access.stride * cut.first + offset, access.stride * (cut.stop - 1) + offset + 1)
            for access in phases[: cut.phases]
            for offset in access.offsets
        ]
        begins.append(min((begin for begin, _ in reached), default=0))
        ends.append(max((end for _, end in reached), default=0))

    def extent(x: Array, fill: Any) -> Array:
        sides = []
        for axis, begin, end in zip(axes, begins, ends, strict=True):
            first = min(max(begin, 0), x.shape[axis])
            stop = max(first, min(end, x.shape[axis]))
            x = lax.slice_in_dim(x, first, stop, axis=axis)
            sides.append((first - begin, end - stop, 0))
        return slices.pad(x, axes, sides, fill)

    arrays = [extent(x, fill) for x, fill in zip(source.arrays, source.fills, strict=True)]

    def read(turn: tuple[int, ...]) -> Iterator[tuple[int, list[Array], Grow]]:
        accesses = [phases[one] for phases, one in zip(source.phases, turn, strict=True)]
        strides, outs = [a.stride for a in accesses], [cut.stop - cut.first for cut in cuts]
        for tap, offsets in _taps(accesses):
            starts = [
                stride * cut.first + offset - begin
                for stride, cut, offset, begin in zip(strides, cuts, offsets, begins, strict=True)
            ]
            parts = [slices.view(x, axes, starts, outs, strides) for x in arrays]
            yield tap, parts, lambda x, fill: x

    return read
