"""Steps of a windowed maximum: one step over all taps of a window, or a few short steps per axis.

A step takes the maximum of a few pieces, shifted and strided views of the previous array. The maximum is idempotent,
so pieces may overlap. For example, 13 taps along an axis take two steps:

    pieces of 4 taps   [a a a a]
    4 such pieces      [a a a a][b b b b][c c c c]
    overlapping                    [d d d d]          taps 0-3, 4-7, 8-11, 9-12

With 8 pieces per step, an axis takes about log8(taps) steps. Each step carries the flat index of the selected tap, from
which the backward pass derives the piece that each step selected.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from jaxpool._geometry.access import Access, Phases, windows_to_elements
from jaxpool._geometry.window import Axis, Window, replace_sizes
from jaxpool._plan.problem import Shape
from jaxpool._plan.tuning import Tuning


@dataclasses.dataclass(frozen=True)
class Step:
    """One pass of a maximum along `axes`. Each piece covers `reach` consecutive flat taps of the window."""

    axes: tuple[int, ...]
    accesses: tuple[Access, ...]
    reach: int

    @property
    def starts(self) -> tuple[int, ...]:
        """The first flat tap of each piece, in ascending order."""
        choices = itertools.product(*[access.pairs for access in self.accesses])
        return tuple(sum(tap for _, tap in pairs) for pairs in choices)

    @property
    def count(self) -> int:
        """Number of flat taps that the index distinguishes after this step."""
        return self.starts[-1] + self.reach

    def after(self, shape: Shape) -> Shape:
        """Output shape of the step for an input of `shape`."""
        return replace_sizes(shape, self.axes, [access.out for access in self.accesses])

    def before(self, shape: Shape) -> Shape:
        """Input shape of the step for an output of `shape`."""
        return replace_sizes(shape, self.axes, [access.size for access in self.accesses])

    @property
    def phases(self) -> tuple[Phases, ...]:
        """The elements that each output reads, along each axis."""
        return tuple((access,) for access in self.accesses)

    @property
    def transposed(self) -> tuple[Phases, ...]:
        """The outputs that read each element, along each axis."""
        return tuple(access.transposed() for access in self.accesses)


def step_over(dims: Sequence[Axis], reach: int = 1) -> Step:
    """One step over all taps along `dims`. Each tap is a piece of `reach` flat taps."""
    accesses: list[Access] = []
    unit = reach
    for dim in reversed(dims):
        accesses.insert(0, windows_to_elements(dim, unit))
        unit *= dim.window
    return Step(tuple(dim.axis for dim in dims), tuple(accesses), reach)


def _steps_along(dim: Axis, unit: int, tuning: Tuning) -> list[Step]:
    """The steps along one axis. The flat numbers of neighbouring taps differ by `unit`.

    Windows with little overlap take one step with `window` terms per output. Several steps would compute pieces at up
    to `stride` times as many positions as outputs. Otherwise each step joins pieces of `length` taps into longer
    pieces, which are computed only every `grid` positions, where the next step reads.
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

    Steps take the minor axis first, so that the first of tied taps is the first in row-major order.
    The backward steps may differ from the forward steps: the flat tap saved for the backward pass
    identifies an element of the window, whichever steps selected it.
    """
    few, dims = tuning.overlapping_taps, list(window.dims)
    each_at_every_output = forward and window.overlapping
    if each_at_every_output:
        strides = math.prod(dim.stride for dim in dims)
        most = max(few, min(tuning.overlapping_taps_an_element * strides, tuning.longest_pass))
    else:
        most = tuning.pass_taps
    # One strided step over three axes would have many regions with many taps, so the last two axes go first.
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
