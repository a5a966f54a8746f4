"""How a window is walked: as one step over all of its taps, or axis by axis in a few short steps. Pure Python, no jax.

A step takes a few shifted, strided views ("pieces") of the array before it and combines them into
one element each. The maximum is idempotent, so pieces may overlap: a window of 13 is two windows of
8, which are two of 4, and so on, and a window of any length costs about log2(length) steps an axis.
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
DIRECT_TAPS = 6  # along one axis, so many taps in one step cost no more than doubling


@dataclasses.dataclass(frozen=True)
class Step:
    """Combines a few pieces of an array whose pooled axes have `sizes`; each covers `reach` flat taps of the window."""

    shifts: tuple[tuple[int, ...], ...]  # of each piece, the first position along each pooled axis
    starts: tuple[int, ...]  # of each piece, the flat row-major tap of the window it begins with
    reach: int
    strides: tuple[int, ...]
    sizes: tuple[int, ...]
    outs: tuple[int, ...]

    @property
    def tiles(self) -> bool:
        """Whether the pieces of different outputs never meet, one block of `strides` positions an output."""
        last = tuple(max(column) for column in zip(*self.shifts, strict=True))
        return all(end < stride for end, stride in zip(last, self.strides, strict=True))


def _axis_step(
    window: Window, which: int, sizes: list[int], pieces: tuple[int, ...], length: int, stride: int
) -> Step:
    """A step along pooled axis `which` from pieces that begin at taps `pieces`, each `length` taps long."""
    dim = window.dims[which]
    unit = math.prod(window.window_shape[which + 1 :])
    shifts = tuple(
        tuple(tap * dim.dilation if i == which else 0 for i in range(len(sizes))) for tap in pieces
    )
    strides = tuple(stride if i == which else 1 for i in range(len(sizes)))
    outs = list(sizes)
    outs[which] = dim.out if stride > 1 else sizes[which] - pieces[-1] * dim.dilation
    starts = tuple(tap * unit for tap in pieces)
    return Step(shifts, starts, length * unit, strides, tuple(sizes), tuple(outs))


def _halvings(dim: Axis) -> list[tuple[tuple[int, ...], int, int]]:
    """Steps along an axis, first to last, as (pieces, length of a piece, stride)."""
    direct = dim.window / dim.stride
    doublings = (dim.window - 1).bit_length()
    if dim.window <= DIRECT_TAPS or direct <= doublings:
        return [(tuple(range(dim.window)), 1, dim.stride)]
    steps: list[tuple[tuple[int, ...], int, int]] = []
    length = 1
    while length < dim.window:
        longer = min(2 * length, dim.window)
        steps.append(((0, longer - length), length, dim.stride if longer == dim.window else 1))
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
    return Step(shifts, tuple(range(window.size)), 1, strides, sizes, window.output_shape)


@functools.lru_cache(maxsize=1024)
def select_steps(window: Window) -> tuple[Step, ...]:
    """The steps of a max or min pool, from the padded input to the output."""
    if window.size <= FLAT_TAPS:
        return (flat_step(window),)
    sizes = [dim.needed for dim in window.dims]
    steps = []
    for which in reversed(
        range(len(window.dims))
    ):  # the minor axis first, so that row-major order decides ties
        for pieces, length, stride in _halvings(window.dims[which]):
            step = _axis_step(window, which, sizes, pieces, length, stride)
            steps.append(step)
            sizes = list(step.outs)
    return tuple(steps)
