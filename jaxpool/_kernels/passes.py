"""One pass over an array: at each position, terms of the elements that meet there, joined.

All windowed kernels are this, with other terms and joins:

    maximum            (value, tap), joined by the winner           window   reads elements
    its transpose      the cotangent where the tap is ours, added   element  reads windows
    sum                the element, added                           window   reads elements
    its transpose      the cotangent, added                         element  reads windows

What exists at a position, `_geometry.access` knows; where the result is cut into regions and how
they read, the plan's `Layout` says: XLA for CPU vectorises where nothing is padded, and at the ends
of an axis alone something is missing. Where elements have phases (strides, transposed), each phase is
an expression of its own, and they are interleaved.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax import Array, lax

from jaxpool._geometry.access import Cut, Phases, length
from jaxpool._kernels import slices
from jaxpool._plan.layout import Layout

Grow = Callable[..., Array]  # (what exists of a term, fill=...) -> the term
T = TypeVar("T")  # an array, or some
Term = Callable[[int, Sequence[Array], Grow], T]  # (tap, a piece of each array, grow) -> a term


def added(terms: Sequence[Array]) -> Array:
    """The sum of terms, one after another."""
    return functools.reduce(lax.add, terms)


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
    joined: Callable[[Sequence[T]], Any],
) -> Any:
    """What `joined` makes of the terms at each position, in the order of the window, in a pass along `axes`.

    In a region where no tap of a window is inside the array, the term of tap 0 is returned, made of fillings alone.
    """
    minor_last = sorted(range(len(axes)), key=axes.__getitem__)
    order = minor_last if layout.minor_last else minor_last[::-1]

    def region(cuts: Sequence[Cut]) -> Any:
        """The positions of `cuts`: those of each phase, interleaved."""
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

            return slices.put_together(dict(zip(turns, phases, strict=True)), order, interleave)

        columns = zip(*[source.phases for source in sources], strict=True)
        turns = [*itertools.product(*map(_phases_that_read, columns, cuts))]
        return jax.tree.map(interleaved, *map(phase, turns))

    def cropped(x: Array) -> Array:
        sizes = [length(phases) for phases in sources[0].phases]
        sides = [(0, size - x.shape[axis], 0) for axis, size in zip(axes, sizes, strict=True)]
        return slices.pad(x, axes, sides, 0)

    def in_a_row(row: list[Any], which: int) -> Any:
        return jax.tree.map(lambda *parts: slices.concatenate(parts, axes[which]), *row)

    # The minor axis last, whatever the order of the axes: other orders vectorise less.
    places = itertools.product(*[range(len(column)) for column in layout.cuts])
    chosen = itertools.product(*layout.cuts)
    parts = {place: region(cuts) for place, cuts in zip(places, chosen, strict=True)}
    return jax.tree.map(cropped, slices.put_together(parts, minor_last, in_a_row))


def _phases_that_read(sources: Sequence[Phases], cut: Cut) -> range:
    """The phases that need an expression of their own: up to the last one that reads an element; the rest are zeros."""
    reading = [p for p in range(cut.phases) if any(phases[p].pairs for phases in sources)]
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
            grow = functools.partial(slices.pad, axes=axes, sides=sides)
            yield sum(tap for _, tap in chosen), parts, grow


def _padded(source: Source, axes: Sequence[int], cuts: Sequence[Cut]) -> Source:
    """The arrays along each axis that a region reaches beyond: what it reads, filled in where nothing exists.

    Along other axes they stay whole: what is cut out and read by many terms, XLA for CPU copies.
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
        phases.append(tuple(access.of_elements(begin, end) for access in every))
    return Source(arrays, source.fills, phases)
