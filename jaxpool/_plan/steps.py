"""How a window is walked: as one step over all of its taps, or axis by axis in a few short steps. Pure Python, no jax.

A step takes a few shifted, strided views ("pieces") of the array before it and combines them into
one element each. The maximum is idempotent, so pieces may overlap: 13 taps along an axis of a large
window are four pieces of 4, which are four elements each, and any number of taps costs about
log8(taps) steps an axis.
The flat index of the chosen tap is carried along, and read backwards it tells which piece every
element came from.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from jaxpool._geometry.window import Axis, Window

# A window of up to so many taps is one step: fewer passes over memory than axis by axis; forwards, if none meet.
FLAT_TAPS = 16
# Forwards, so is one that overlaps of so many taps, ...
FLAT_TAPS_OF_OVERLAPS = 9
# ... or, along two axes or without strides in the last two, of so many an input element and `LONGEST` in all.
FLAT_TAPS_AN_ELEMENT = 4
# Pieces of a step along an axis where windows overlap much: fewer, longer steps, fewer passes over memory.
PIECES = 8
# Of an axis: padding of so much is done in one pass with that of the others.
LITTLE = 0.125
# Pieces of a step where windows overlap little: the program grows with them.
LONGEST = 32


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
    def blocks(self) -> tuple[int, ...]:
        """Along each axis, how many blocks of `strides` positions hold what the step takes, before its padding."""
        axes = zip(self.unpadded, self.strides, strict=True)
        return tuple(-(-size // stride) for size, stride in axes)

    @property
    def unpadded(self) -> tuple[int, ...]:
        """The sizes of the pooled axes before the step pads them."""
        axes = zip(self.sizes, self.sides, strict=True)
        return tuple(size - low - high for size, (low, high) in axes)

    def placed(self, piece: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Along each axis, the block a piece begins in and the phase, its position there; before the padding."""
        axes = zip(self.shifts[piece], self.sides, self.strides, strict=True)
        pairs = [divmod(shift - low, stride) for shift, (low, _), stride in axes]
        return tuple(block for block, _ in pairs), tuple(phase for _, phase in pairs)

    @property
    def axis(self) -> int | None:
        """The pooled axis along which alone pieces differ and something is padded or left out; None: there are more."""
        columns = zip(zip(*self.shifts, strict=True), self.strides, self.sides, strict=True)
        taken = [any(column) or stride > 1 or any(side) for column, stride, side in columns]
        return taken.index(True) if sum(taken) == 1 else None

    def along(self, which: int) -> Step:
        """The step seen from one axis."""
        return dataclasses.replace(
            self,
            shifts=tuple((shift[which],) for shift in self.shifts),
            strides=(self.strides[which],),
            sizes=(self.sizes[which],),
            outs=(self.outs[which],),
            sides=(self.sides[which],),
        )

    def stretched(self, row: int) -> Step:
        """A step along one axis, without strides, in which each position is as many as a row has."""
        shifts = tuple((shift * row,) for (shift,) in self.shifts)
        ((low, high),) = self.sides
        sides = ((low * row, high * row),)
        sizes, outs = (self.sizes[0] * row,), (self.outs[0] * row,)
        return dataclasses.replace(self, shifts=shifts, sizes=sizes, outs=outs, sides=sides)

    @property
    def phases(self) -> tuple[int, ...]:
        """Along each axis, the phases in use: those after the last are no piece's."""
        used = [self.placed(piece)[1] for piece in range(len(self.starts))]
        return tuple(max(column) + 1 for column in zip(*used, strict=True))


@dataclasses.dataclass(frozen=True)
class _Lengthening:
    """Along one axis: pieces of `length` taps, found every `grid` positions, make a longer one every `apart`."""

    starts: tuple[int, ...]
    length: int
    grid: int
    apart: int


def _lengthenings(dim: Axis) -> list[_Lengthening]:
    """The steps along an axis, first to last.

    In one step, where windows overlap little: so many taps an output, against the sum of all pieces
    at each position before the last step's stride.
    """
    count = 1
    while PIECES**count < dim.window:
        count += 1
    most = next(n for n in range(1, PIECES + 1) if n**count >= dim.window)
    if dim.window <= min(count * most * dim.stride, LONGEST):
        return [_Lengthening(tuple(range(dim.window)), 1, 1, dim.stride)]
    longer: list[tuple[tuple[int, ...], int]] = []
    length = 1
    while length < dim.window:
        reach = min(min(most, -(-dim.window // length)) * length, dim.window)
        longer.append((tuple(min(n, reach - length) for n in range(0, reach, length)), length))
        length = reach
    steps: list[_Lengthening] = []
    apart = dim.stride
    for starts, length in reversed(longer):  # what is read nowhere is not computed
        grid = math.gcd(apart, *[start * dim.dilation for start in starts]) if length > 1 else 1
        steps.append(_Lengthening(starts, length, grid, apart))
        apart = grid
    return steps[::-1]


def _axis_step(
    window: Window, which: int, before: list[int], padded: list[bool], by: _Lengthening
) -> Step:
    """A step along pooled axis `which`. The axes that are `padded` are so from sizes `before`."""
    dim = window.dims[which]
    unit = math.prod(window.window_shape[which + 1 :])
    one = [i == which for i in range(len(before))]
    sides = tuple(
        (dim.low, dim.tail) if pads else (0, 0)
        for dim, pads in zip(window.dims, padded, strict=True)
    )
    sizes = [size + low + tail for size, (low, tail) in zip(before, sides, strict=True)]
    reach = (by.starts[-1] + by.length - 1) * dim.dilation + 1
    outs = list(sizes)
    outs[which] = (dim.needed - reach) // by.apart + 1
    return Step(
        shifts=tuple(
            tuple(start * dim.dilation // by.grid if here else 0 for here in one)
            for start in by.starts
        ),
        starts=tuple(start * unit for start in by.starts),
        reach=by.length * unit,
        strides=tuple(by.apart // by.grid if here else 1 for here in one),
        sizes=tuple(sizes),
        outs=tuple(outs),
        sides=sides,
    )


@functools.lru_cache(maxsize=1024)
def flat_step(window: Window) -> Step:
    """All taps of a window in one step, from the input to the output."""
    dilation = [dim.dilation for dim in window.dims]
    shifts = tuple(
        tuple(t * apart for t, apart in zip(tap, dilation, strict=True)) for tap in window.taps()
    )
    sizes = tuple(dim.needed for dim in window.dims)
    strides = tuple(dim.stride for dim in window.dims)
    sides = tuple((dim.low, dim.tail) for dim in window.dims)
    return Step(shifts, tuple(range(window.size)), 1, strides, sizes, window.output_shape, sides)


def _flat_forward(window: Window) -> bool:
    if not window.overlapping:
        return window.size <= FLAT_TAPS
    strides = math.prod(dim.stride for dim in window.dims)
    few_an_element = window.size <= min(FLAT_TAPS_AN_ELEMENT * strides, LONGEST)
    return few_an_element or window.size <= FLAT_TAPS_OF_OVERLAPS


def _first_step(window: Window) -> Step | None:
    """Forwards, of three axes and more the last two in one step, if they have strides and few taps.

    As one step, all taps of windows that overlap would be a program of many regions, each of many taps.
    """
    others, minor = window.dims[:-2], window.dims[-2:]
    of_minor = Window(minor)
    strided = any(dim.stride > 1 for dim in minor)
    many = window.overlapping and window.size > FLAT_TAPS_OF_OVERLAPS
    if not (others and strided and many and of_minor.size <= FLAT_TAPS_OF_OVERLAPS):
        return None
    if all(dim.idle for dim in others):
        return None
    flat, sizes = flat_step(of_minor), tuple(dim.size for dim in others)
    nothing = tuple(0 for _ in others)
    return Step(
        shifts=tuple(nothing + shift for shift in flat.shifts),
        starts=flat.starts,
        reach=1,
        strides=tuple(1 for _ in others) + flat.strides,
        sizes=sizes + flat.sizes,
        outs=sizes + flat.outs,
        sides=tuple((0, 0) for _ in others) + flat.sides,
    )


@functools.lru_cache(maxsize=1024)
def select_steps(window: Window, *, forward: bool = False) -> tuple[Step, ...]:
    """The steps of a max or min pool, from the input to the output; each pads what it begins with.

    Axis by axis or the last two at once, the minor one first, so that row-major order decides
    ties. Much padding is done when the turn of its axis comes, so that steps before pass over less;
    forwards, where it copies nothing, all of it. The flat tap that steps find says nothing of them:
    backwards there may be others.
    """
    first = _first_step(window) if forward else None
    flat = _flat_forward(window) if forward else window.size <= FLAT_TAPS
    if flat and first is None:
        return (flat_step(window),)
    rank = len(window.dims)
    at_once = not forward and all(dim.needed <= (1 + LITTLE) * dim.size for dim in window.dims)
    unpadded = [True] * rank
    sizes = list(window.input_shape)
    steps = []
    if first:
        steps.append(first)
        sizes = list(first.outs)
    for which in reversed(range(rank - 2 if first else rank)):
        dim = window.dims[which]
        if dim.idle:
            continue
        for by in _lengthenings(dim):
            padded = [unpadded[i] and (at_once or i == which) for i in range(rank)]
            unpadded = [un and not now for un, now in zip(unpadded, padded, strict=True)]
            step = _axis_step(window, which, sizes, padded, by)
            steps.append(step)
            sizes = list(step.outs)
    return tuple(steps)
