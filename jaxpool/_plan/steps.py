"""Steps of a windowed maximum: one step over all elements (taps) of a window, or a few short steps per axis.

A step takes the maximum of a few pieces of a window. Each piece is a shifted view of the previous step's result. Pieces
may overlap, because a maximum is idempotent. For example, a window of 13 taps takes two steps:

    step 1   pieces of 4 taps      [a a a a]
    step 2   4 such pieces         [a a a a][b b b b][c c c c]
             the last overlaps                 [d d d d]          taps 0-3, 4-7, 8-11, 9-12

With 8 pieces per step, a window takes about log8(taps) steps. Each step also returns the flat index of the selected
tap. From this index, the backward pass derives the piece that each step selected.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from jaxpool._geometry.access import AxisAccess, Phases, window_access
from jaxpool._geometry.window import Axis, Window, replace_sizes
from jaxpool._plan.problem import Shape
from jaxpool._plan.tuning import Tuning


@dataclasses.dataclass(frozen=True)
class Step:
    """One pass of a maximum along `axes`. Each piece of the window has `piece_taps` consecutive flat window indices."""

    axes: tuple[int, ...]
    accesses: tuple[AxisAccess, ...]
    piece_taps: int

    @property
    def piece_starts(self) -> tuple[int, ...]:
        """The first flat window index of each piece of the window, in ascending order."""
        choices = itertools.product(*[access.tap_offsets for access in self.accesses])
        return tuple(sum(tap for _, tap in pairs) for pairs in choices)

    @property
    def num_flat_taps(self) -> int:
        """Number of flat window indices that the argmax may have after this step."""
        return self.piece_starts[-1] + self.piece_taps

    def output_shape(self, shape: Shape) -> Shape:
        """Output shape of the step for an input of `shape`."""
        return replace_sizes(shape, self.axes, [access.out for access in self.accesses])

    def input_shape(self, shape: Shape) -> Shape:
        """Input shape of the step for an output of `shape`."""
        return replace_sizes(shape, self.axes, [access.size for access in self.accesses])

    @property
    def phases(self) -> tuple[Phases, ...]:
        """Along each axis, the input elements that each output of the step reads."""
        return tuple((access,) for access in self.accesses)

    @property
    def transposed_phases(self) -> tuple[Phases, ...]:
        """Along each axis, the outputs of the step that read each input element."""
        return tuple(access.transposed() for access in self.accesses)


def make_step(dims: Sequence[Axis], piece_taps: int = 1) -> Step:
    """One step over whole windows along `dims`. Each element along `dims` is a piece of `piece_taps` flat indices."""
    accesses: list[AxisAccess] = []
    tap_stride = piece_taps
    for dim in reversed(dims):
        accesses.insert(0, window_access(dim, tap_stride))
        tap_stride *= dim.window
    return Step(tuple(dim.axis for dim in dims), tuple(accesses), piece_taps)


def _axis_steps(dim: Axis, tap_stride: int, tuning: Tuning) -> list[Step]:
    """The steps along one axis; `tap_stride` is the difference in flat index between adjacent window elements.

    Windows with little overlap take one step with `dim.window` terms per output, because several steps would compute up
    to `dim.stride` pieces per output. For other windows, each step combines pieces into longer pieces. Pieces are
    computed only at the positions that the next step reads.
    """
    num_steps = next(n for n in itertools.count(1) if tuning.pieces_per_step**n >= dim.window)
    num_pieces = next(n for n in range(1, tuning.pieces_per_step + 1) if n**num_steps >= dim.window)
    if dim.window <= min(num_steps * num_pieces * dim.stride, tuning.max_pass_taps):
        return [make_step([dim], tap_stride)]
    all_starts, lengths = [], [1]
    while (length := lengths[-1]) < dim.window:
        span = min(num_pieces * length, dim.window)
        all_starts.append([min(start, span - length) for start in range(0, span, length)])
        lengths.append(span)
    grids = [dim.stride]
    for each in reversed(all_starts[1:]):
        grids.insert(0, math.gcd(grids[0], *[start * dim.dilation for start in each]))
    grids.insert(0, 1)
    steps, size, low = [], dim.size, dim.low
    for each, length, grid, apart in zip(all_starts, lengths, grids, grids[1:], strict=False):
        piece_span = (each[-1] + length - 1) * dim.dilation + 1
        out = (dim.covered_size - piece_span) // apart + 1
        pairs = tuple((start * dim.dilation // grid - low, start * tap_stride) for start in each)
        access = AxisAccess(pairs, apart // grid, size, out)
        steps.append(Step((dim.axis,), (access,), length * tap_stride))
        size, low = out, 0
    return steps


def plan_steps(window: Window, tuning: Tuning, *, is_forward: bool) -> tuple[Step, ...]:
    """The steps of a max or min pool, from the input to the output.

    Steps pool the last axis first, so that the first of tied elements is the first in row-major order.
    The backward steps may differ from the forward steps, because the index saved for the backward pass
    identifies a window element independently of the steps.
    """
    few, dims = tuning.max_overlapping_taps, list(window.dims)
    computes_all_pieces = is_forward and window.has_overlap
    if computes_all_pieces:
        strides = math.prod(dim.stride for dim in dims)
        max_taps = max(
            few, min(tuning.overlapping_taps_per_element * strides, tuning.max_pass_taps)
        )
    else:
        max_taps = tuning.max_one_pass_taps
    # One strided step over three axes would have many regions with many terms, so the last two axes are pooled first.
    minor = dims[-2:]
    minor_fits = window.size > few >= math.prod(dim.window for dim in minor)
    splits_minor = computes_all_pieces and minor_fits and any(dim.stride > 1 for dim in minor)
    if window.size <= max_taps and not splits_minor:
        return (make_step(dims),)
    steps = []
    if splits_minor:
        steps.append(make_step(minor))
        dims = dims[:-2]
    for which in reversed(range(len(dims))):
        if not dims[which].is_identity:
            tap_stride = math.prod(window.window_shape[which + 1 :])
            steps += _axis_steps(dims[which], tap_stride, tuning)
    return tuple(steps)
