"""How a window is walked: in one step over all of its taps, or axis by axis in a few short steps.

A step combines a few pieces of the array before it, shifted and strided views, into one element
each. The maximum is idempotent, so pieces may overlap; 13 taps along an axis are two steps:

    4 taps each        [a a a a]
    4 of those         [a a a a][b b b b][c c c c]
    overlapping                    [d d d d]          taps 0-3, 4-7, 8-11, 9-12

and any number of taps costs about log8(taps) steps an axis. The flat index of the chosen tap is
carried along, and read backwards it tells which piece every element came from.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

from jaxpool._geometry.access import Access, Phases, windows_to_elements
from jaxpool._geometry.window import Axis, Window
from jaxpool._plan.problem import Shape
from jaxpool._plan.tuning import Tuning


@dataclasses.dataclass(frozen=True)
class Step:
    """One pass of a maximum along `axes` of the array; each piece covers `reach` flat taps of the window."""

    axes: tuple[int, ...]
    accesses: tuple[Access, ...]
    reach: int

    @property
    def starts(self) -> tuple[int, ...]:
        """The flat tap that each piece begins with, ascending."""
        every = itertools.product(*[access.taps for access in self.accesses])
        return tuple(sum(taps) for taps in every)

    @property
    def count(self) -> int:
        """Flat taps that the index tells apart after this step."""
        return self.starts[-1] + self.reach

    def after(self, shape: Shape) -> Shape:
        """The shape of what the step gives, from that of what it takes."""
        outs = dict(zip(self.axes, [access.out for access in self.accesses], strict=True))
        return tuple(outs.get(axis, size) for axis, size in enumerate(shape))

    def before(self, shape: Shape) -> Shape:
        """The shape of what the step takes, from that of what it gives."""
        sizes = dict(zip(self.axes, [access.size for access in self.accesses], strict=True))
        return tuple(sizes.get(axis, size) for axis, size in enumerate(shape))

    @property
    def phases(self) -> tuple[Phases, ...]:
        """What each output reads, along each axis."""
        return tuple((access,) for access in self.accesses)

    @property
    def transposed(self) -> tuple[Phases, ...]:
        """Which outputs read each element, along each axis."""
        return tuple(access.transposed() for access in self.accesses)


@functools.lru_cache(maxsize=1024)
def flat_step(window: Window) -> Step:
    """All taps of a window in one step, from the input to the output."""
    units = [math.prod(window.window_shape[which + 1 :]) for which in range(len(window.dims))]
    accesses = [
        windows_to_elements(dim, unit) for dim, unit in zip(window.dims, units, strict=True)
    ]
    return Step(window.axes, tuple(accesses), 1)


def _steps_along(dim: Axis, unit: int, tuning: Tuning) -> list[Step]:
    """The steps along one axis, whose neighbouring taps are `unit` apart in the flat order.

    In one step where windows meet little: so many taps an output, against the sum of all pieces at
    each position before the last step's stride. Else the pieces of a step, `lengths` taps each, make
    those of the next. What no later step reads is not computed: pieces are found every `grid`
    positions.
    """
    count = next(n for n in itertools.count(1) if tuning.pieces**n >= dim.window)
    most = next(n for n in range(1, tuning.pieces + 1) if n**count >= dim.window)
    if dim.window <= min(count * most * dim.stride, tuning.longest_pass):
        return [Step((dim.axis,), (windows_to_elements(dim, unit),), unit)]
    starts, lengths = [], [1]
    while (length := lengths[-1]) < dim.window:
        reach = min(most * length, dim.window)
        starts.append([min(start, reach - length) for start in range(0, reach, length)])
        lengths.append(reach)
    grids = [dim.stride]
    for each in reversed(starts[1:]):
        grids.insert(0, math.gcd(grids[0], *[start * dim.dilation for start in each]))
    grids.insert(0, 1)
    steps, size, low = [], dim.size, dim.low
    for each, length, grid, apart in zip(starts, lengths, grids, grids[1:], strict=False):
        covered = (each[-1] + length - 1) * dim.dilation + 1
        out = (dim.needed - covered) // apart + 1
        offsets = tuple(start * dim.dilation // grid - low for start in each)
        access = Access(offsets, tuple(tap * unit for tap in each), apart // grid, size, out)
        steps.append(Step((dim.axis,), (access,), length * unit))
        size, low = out, 0
    return steps


def _in_one(window: Window, tuning: Tuning, *, forward: bool) -> bool:
    if not forward or not window.overlapping:
        return window.size <= tuning.pass_taps
    strides = math.prod(dim.stride for dim in window.dims)
    few = min(tuning.overlapping_taps_an_element * strides, tuning.longest_pass)
    return window.size <= max(few, tuning.overlapping_taps)


def _minor_axes_in_one(window: Window, tuning: Tuning) -> bool:
    """Whether, forwards, the last two of three or more axes are one step: they have strides and few taps.

    As one step, all taps of windows that overlap would be a program of many regions, each of many taps.
    """
    others, minor = window.dims[:-2], Window(window.dims[-2:])
    strided = any(dim.stride > 1 for dim in minor.dims)
    many = window.overlapping and window.size > tuning.overlapping_taps
    few = minor.size <= tuning.overlapping_taps
    return strided and many and few and not all(dim.idle for dim in others)


@functools.lru_cache(maxsize=1024)
def select_steps(window: Window, tuning: Tuning, *, forward: bool) -> tuple[Step, ...]:
    """The steps of a max or min pool, from the input to the output.

    Axis by axis, the minor one first, so that row-major order decides ties. The flat tap that steps
    find says nothing of them: backwards there may be others.
    """
    minor = forward and len(window.dims) > 2 and _minor_axes_in_one(window, tuning)
    if _in_one(window, tuning, forward=forward) and not minor:
        return (flat_step(window),)
    steps, rank = [], len(window.dims)
    if minor:
        steps.append(flat_step(Window(window.dims[-2:])))
        rank -= 2
    for which in reversed(range(rank)):
        if not window.dims[which].idle:
            unit = math.prod(window.window_shape[which + 1 :])
            steps += _steps_along(window.dims[which], unit, tuning)
    return tuple(steps)
