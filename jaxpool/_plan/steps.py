"""How a window is walked: in one step over all of its taps, or axis by axis in a few short steps.

A step combines a few pieces of the array before it, shifted and strided views, into one element
each. The maximum is idempotent, so pieces may overlap; 13 taps along an axis are two steps:

    4 taps each        [a a a a]
    4 of those         [a a a a][b b b b][c c c c]
    overlapping                    [d d d d]          taps 0-3, 4-7, 8-11, 9-12

and any number of taps costs about log8(taps) steps per axis. The flat index of the chosen tap is
carried along, and read backwards it tells which piece every element came from.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from jaxpool._geometry.access import Access, Phases, windows_to_elements
from jaxpool._geometry.window import Axis, Window, resized
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
        every = itertools.product(*[access.pairs for access in self.accesses])
        return tuple(sum(tap for _, tap in pairs) for pairs in every)

    @property
    def count(self) -> int:
        """Flat taps that the index tells apart after this step."""
        return self.starts[-1] + self.reach

    def after(self, shape: Shape) -> Shape:
        """The shape of what the step gives, from that of what it takes."""
        return resized(shape, self.axes, [access.out for access in self.accesses])

    def before(self, shape: Shape) -> Shape:
        """The shape of what the step takes, from that of what it gives."""
        return resized(shape, self.axes, [access.size for access in self.accesses])

    @property
    def phases(self) -> tuple[Phases, ...]:
        """What each output reads, along each axis."""
        return tuple((access,) for access in self.accesses)

    @property
    def transposed(self) -> tuple[Phases, ...]:
        """Which outputs read each element, along each axis."""
        return tuple(access.transposed() for access in self.accesses)


def step_over(dims: Sequence[Axis], reach: int = 1) -> Step:
    """All taps along `dims` in one step, each a piece of `reach` flat taps."""
    accesses: list[Access] = []
    unit = reach
    for dim in reversed(dims):
        accesses.insert(0, windows_to_elements(dim, unit))
        unit *= dim.window
    return Step(tuple(dim.axis for dim in dims), tuple(accesses), reach)


def _steps_along(dim: Axis, unit: int, tuning: Tuning) -> list[Step]:
    """The steps along one axis, whose neighbouring taps are `unit` apart in the flat order.

    Windows that hardly overlap are taken in one step, of `window` terms per output: in several, pieces
    would be found at every position, of which there are `stride` times as many. Else the pieces of a
    step, `lengths` taps each, make those of the next. What no later step reads is not computed: pieces
    are found every `grid` positions.
    """
    count = next(n for n in itertools.count(1) if tuning.pieces**n >= dim.window)
    most = next(n for n in range(1, tuning.pieces + 1) if n**count >= dim.window)
    if dim.window <= min(count * most * dim.stride, tuning.longest_pass):
        return [step_over([dim], unit)]
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
        pairs = tuple((start * dim.dilation // grid - low, start * unit) for start in each)
        access = Access(pairs, apart // grid, size, out)
        steps.append(Step((dim.axis,), (access,), length * unit))
        size, low = out, 0
    return steps


def select_steps(window: Window, tuning: Tuning, *, forward: bool) -> tuple[Step, ...]:
    """The steps of a max or min pool, from the input to the output.

    Axis by axis, the minor one first, so that the earlier of two taps that tie comes first in
    row-major order too. The steps backward need not be those forward: the flat tap that is kept
    names an element of the window, however it was found.
    """
    few, dims = tuning.overlapping_taps, list(window.dims)
    each_at_every_output = forward and window.overlapping
    if each_at_every_output:
        strides = math.prod(dim.stride for dim in dims)
        most = max(few, min(tuning.overlapping_taps_an_element * strides, tuning.longest_pass))
    else:
        most = tuning.pass_taps
    # Strided taps of three axes at once would be many regions of many taps each: the last two axes first.
    minor = dims[-2:]
    minor_fits = window.size > few >= math.prod(dim.window for dim in minor)
    in_two = each_at_every_output and minor_fits and any(dim.stride > 1 for dim in minor)
    if window.size <= most and not in_two:
        return (step_over(dims),)
    steps = []
    if in_two:
        steps.append(step_over(minor))
        dims = dims[:-2]
    for which in reversed(range(len(dims))):
        if not dims[which].idle:
            unit = math.prod(window.window_shape[which + 1 :])
            steps += _steps_along(dims[which], unit, tuning)
    return tuple(steps)
