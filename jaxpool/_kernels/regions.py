"""Large arrays, region by region: what reaches over an end of an axis is computed apart from what does not.

Padding an array copies it, and padding each slice of it keeps the loops of XLA for CPU from
vectorising. Only at the ends of an axis something is missing: elsewhere the array is read as it is,
and the regions are put together in the result.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax

from jaxpool._geometry import taps as _taps
from jaxpool._geometry.taps import Cut, Taps
from jaxpool._geometry.window import Window
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.phases import Term, assemble
from jaxpool._plan.steps import flat_step

# Bytes from which a copy costs more than the longer program.
LARGE = 1 << 18


def large(x: Array) -> bool:
    """Whether a copy of x costs more than a longer program."""
    return LARGE <= kernels.bytes_of(x) < math.inf


def mostly_complete(taps: Sequence[Taps]) -> bool:
    """Whether something is missing at some positions, but at less than half of all."""
    inner, outs = _taps.complete_of_all(taps)
    return inner < outs < 2 * inner


Piece = tuple[tuple[int, ...], list[Array], list[tuple[int, int, int]]]


def pieces(
    arrays: Sequence[Array], axes: Sequence[int], taps: Sequence[Taps], cuts: Sequence[Cut]
) -> Iterator[Piece]:
    """What meets at the positions of a region: a tap along each axis, its part of each array, and what is missing."""
    for tap in itertools.product(*[range(len(each.offsets)) for each in taps]):
        offsets = [each.offsets[one] for each, one in zip(taps, tap, strict=True)]
        columns = list(zip(taps, offsets, cuts, strict=True))
        inside = [each.inside(offset, cut.first, cut.stop) for each, offset, cut in columns]
        if any(first >= stop for first, stop in inside):
            continue
        starts = [
            each.stride * first + offset
            for (each, offset, _), (first, _) in zip(columns, inside, strict=True)
        ]
        outs = [stop - first for first, stop in inside]
        strides = [each.stride for each in taps]
        around = [
            (first - cut.first, cut.stop - stop, 0)
            for cut, (first, stop) in zip(cuts, inside, strict=True)
        ]
        yield tap, [kernels.view(x, axes, starts, outs, strides) for x in arrays], around


def missing(x: Array, axes: Sequence[int], cuts: Sequence[Cut], fill: Any) -> Array:
    """A region at which x has nothing, sharded as x."""
    for axis in axes:
        x = lax.slice_in_dim(x, 0, 0, axis=axis)
    return kernels.pad(x, axes, [(0, cut.stop - cut.first, 0) for cut in cuts], fill)


def padded_part(
    x: Array, axes: Sequence[int], taps: Sequence[Taps], cuts: Sequence[Cut], fill: Any
) -> Array:
    """What a region reads of x, with `fill` for what is missing."""
    around = []
    for axis, each, cut in zip(axes, taps, cuts, strict=True):
        begin = each.stride * cut.first + min(each.offsets)
        end = each.stride * (cut.stop - 1) + max(each.offsets) + 1
        first, stop = min(max(begin, 0), each.size), max(min(end, each.size), 0)
        x = lax.slice_in_dim(x, first, max(first, stop), axis=axis)
        around.append((first - begin, end - max(first, stop), 0))
    return kernels.pad(x, axes, around, fill)


def within_part(taps: Sequence[Taps], cuts: Sequence[Cut]) -> tuple[list[Taps], list[Cut]]:
    """The taps of a region and its cuts, seen from `padded_part`."""
    own = []
    for each, cut in zip(taps, cuts, strict=True):
        least, outs = min(each.offsets), cut.stop - cut.first
        size = each.stride * (outs - 1) + max(each.offsets) - least + 1
        own.append(Taps(tuple(offset - least for offset in each.offsets), each.stride, size, outs))
    return own, [Cut(0, each.out, 1) for each in own]


def put_together(
    axes: Sequence[int], columns: Sequence[Sequence[Cut]], region: Callable[[list[Cut]], Any]
) -> Any:
    """One array, or a tuple, from `region(cuts)`, of every combination of the cuts of each axis.

    The minor axis is put together last, whatever the order of the axes: other orders vectorise less.
    """

    def parts_of(chosen: dict[int, Cut], rest: Sequence[int]) -> Any:
        if not rest:
            return region([chosen[which] for which in range(len(axes))])
        *others, which = rest
        parts = [parts_of({**chosen, which: cut}, others) for cut in columns[which]]
        return jax.tree.map(lambda *leaves: kernels.concatenate(leaves, axes[which]), *parts)

    return parts_of({}, sorted(range(len(axes)), key=lambda which: axes[which]))


def collect(term: Term, arrays: tuple[Array, ...], window: Window) -> Array:
    """The transpose of a pool in one step: at each input position the sum of what its windows send to it.

    `term(q, *arrays)` is what outputs send to their tap q. Without strides, large arrays are read
    where they are, and only at the ends of the axes it is tested which windows exist.
    """
    axes = window.axes
    if any(dim.stride > 1 for dim in window.dims) or not large(arrays[0]):
        return assemble(term, arrays, axes, flat_step(window), lax.add)
    phases = [_taps.of_inputs(dim) for dim in window.dims]
    taps = [each for (each,) in phases]

    def region(cuts: list[Cut]) -> Array:
        terms = []
        for tap, parts, around in pieces(arrays, axes, taps, cuts):
            sent = term(int(np.ravel_multi_index(tap, window.window_shape)), *parts)
            terms.append(kernels.pad(sent, axes, around, 0))
        return functools.reduce(lax.add, terms) if terms else missing(arrays[0], axes, cuts, 0)

    return put_together(axes, [_taps.cuts([each], 1) for each in phases], region)
