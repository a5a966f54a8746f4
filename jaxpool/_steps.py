"""How a window is walked: as one step over all of its taps, or axis by axis in a few short steps. Pure Python, no jax.

A step takes a few shifted, strided views ("pieces") of the array before it and combines them into
one element each. The maximum is idempotent, so pieces may overlap: a window of 13 is four windows of
4, which are four elements each, and a window of any length costs about log8(length) steps an axis.
The flat index of the chosen tap is carried along, and read backwards it tells which piece every
element came from.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from jaxpool._window import Axis, Window

FLAT_TAPS = (
    16  # a window of up to so many taps is one step: fewer passes over memory than axis by axis
)
PIECES = 8  # of a step along an axis, where windows overlap much: fewer, longer steps pass over memory less often
LITTLE = 0.125  # of an axis: padding of so much is done in one pass with that of the others
LONGEST = 32  # pieces of any step: the program grows with them


@dataclasses.dataclass(frozen=True)
class Step:
    """Combines a few pieces of an array whose pooled axes have `sizes`; each covers `reach` flat taps of the window."""

    shifts: tuple[tuple[int, ...], ...]  # of each piece, the first position along each pooled axis
    starts: tuple[int, ...]  # of each piece, the flat row-major tap of the window it begins with
    reach: int
    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    outs: tuple[int, ...]
    sides: tuple[tuple[int, int], ...]  # padding, or cropping where negative, that gives `sizes`

    @property
    def count(self) -> int:
        """Flat taps that the index tells apart after this step."""
        return self.starts[-1] + self.reach

    @property
    def tiles(self) -> bool:
        """Whether the pieces of different outputs never meet, one block of `strides` positions an output."""
        last = tuple(max(column) for column in zip(*self.shifts, strict=True))
        return all(end < stride for end, stride in zip(last, self.strides, strict=True))


def _axis_step(
    window: Window,
    which: int,
    before: list[int],
    padded: list[bool],
    pieces: tuple[int, ...],
    length: int,
    stride: int,
) -> Step:
    """A step along pooled axis `which` from pieces that begin at taps `pieces`, each `length` taps long.

    The axes that are `padded` are so from sizes `before`.
    """
    dim = window.dims[which]
    unit = math.prod(window.window_shape[which + 1 :])
    shifts = tuple(
        tuple(tap * dim.dilation if i == which else 0 for i in range(len(before))) for tap in pieces
    )
    strides = tuple(stride if i == which else 1 for i in range(len(before)))
    sides = tuple(
        (dim.low, dim.tail) if pads else (0, 0)
        for dim, pads in zip(window.dims, padded, strict=True)
    )
    sizes = [size + low + tail for size, (low, tail) in zip(before, sides, strict=True)]
    outs = list(sizes)
    outs[which] = dim.out if stride > 1 else sizes[which] - pieces[-1] * dim.dilation
    starts = tuple(tap * unit for tap in pieces)
    return Step(shifts, starts, length * unit, strides, tuple(sizes), tuple(outs), sides)


def _lengthenings(dim: Axis) -> list[tuple[tuple[int, ...], int, int]]:
    """Steps along an axis, first to last, as (pieces, length of a piece, stride)."""
    count = 1
    while PIECES**count < dim.window:
        count += 1
    most = next(n for n in range(1, PIECES + 1) if n**count >= dim.window)
    if dim.window <= min(count * most * dim.stride, LONGEST):
        return [(tuple(range(dim.window)), 1, dim.stride)]
    steps: list[tuple[tuple[int, ...], int, int]] = []
    length = 1
    while length < dim.window:
        pieces = min(most, -(-dim.window // length))
        longer = min(pieces * length, dim.window)
        starts = tuple(min(n * length, longer - length) for n in range(pieces))
        steps.append((starts, length, dim.stride if longer == dim.window else 1))
        length = longer
    return steps


@functools.lru_cache(maxsize=1024)
def flat_step(window: Window) -> Step:
    """All taps of a window in one step, from the padded input (`needed` positions an axis) to the output."""
    dilation = [dim.dilation for dim in window.dims]
    shifts = tuple(
        tuple(t * apart for t, apart in zip(tap, dilation, strict=True)) for tap in window.taps()
    )
    sizes = tuple(dim.needed for dim in window.dims)
    strides = tuple(dim.stride for dim in window.dims)
    sides = tuple((dim.low, dim.tail) for dim in window.dims)
    return Step(shifts, tuple(range(window.size)), 1, strides, sizes, window.output_shape, sides)


@functools.lru_cache(maxsize=1024)
def select_steps(window: Window) -> tuple[Step, ...]:
    """The steps of a max or min pool, from the input to the output; each pads what it begins with.

    Axis by axis, the minor one first, so that row-major order decides ties. Little padding is done
    at once, much of it when the turn of its axis comes, so that steps before pass over less.
    """
    if window.size <= FLAT_TAPS:
        return (flat_step(window),)
    rank = len(window.dims)
    at_once = all(dim.needed <= (1 + LITTLE) * dim.size for dim in window.dims)
    unpadded = [True] * rank
    sizes = list(window.input_shape)
    steps = []
    for which in reversed(range(rank)):
        for pieces, length, stride in _lengthenings(window.dims[which]):
            padded = [unpadded[i] and (at_once or i == which) for i in range(rank)]
            unpadded = [un and not now for un, now in zip(unpadded, padded, strict=True)]
            step = _axis_step(window, which, sizes, padded, pieces, length, stride)
            steps.append(step)
            sizes = list(step.outs)
    return tuple(steps)
