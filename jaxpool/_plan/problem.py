"""Inputs of plans, `ArrayProblem` and `Problem`, and parts of plans: steps of a maximum, layouts of passes. No JAX.

A step takes the maximum of a few pieces of a window. Each piece is a shifted view of the previous step's result. Pieces
may overlap, because a maximum is idempotent. For example, a window of 13 taps takes two steps:

    step 1   pieces of 4 taps      [a a a a]
    step 2   4 such pieces         [a a a a][b b b b][c c c c]
             the last overlaps                 [d d d d]          taps 0-3, 4-7, 8-11, 9-12

The backward pass derives the selected piece of each step from the flat index of the tap that the last step selected.
`run_pass` in `_kernels/passes.py` executes a `Layout`.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from jaxpool._geometry.access import (
    AxisAccess,
    Phases,
    Region,
    split_into_regions,
    total_positions,
    whole_region,
    window_access,
)
from jaxpool._geometry.window import AdaptiveWindow, Axis, Window, replace_sizes
from jaxpool._plan.tuning import LIMITS, TUNING, Tuning

# The tap by which clamped passes mark elements outside the array
OUTSIDE_TAP = -(1 << 24)
Platform = Literal["cpu", "gpu", "tpu", "portable"]  # "portable": any other platform
PLATFORMS: tuple[Platform, ...] = ("cpu", "gpu", "tpu")
# An optimization barrier, one that also fixes the layout of the result, or a call that is not inlined
BarrierKind = Literal["barrier", "row-major barrier", "call"]
SizeT = TypeVar("SizeT")
Shape = tuple[int | None, ...]  # None where a size is symbolic


def barrier_of(platform: Platform) -> BarrierKind:
    """The kind of barrier that makes XLA store a result."""
    return "call" if TUNING[platform].drops_barriers else "barrier"


def num_elements(shape: Shape) -> float:
    """Number of elements of an array of `shape`; infinite if a size is symbolic."""
    return math.prod(math.inf if size is None else size for size in shape)


@dataclasses.dataclass(frozen=True)
class ArrayProblem:
    """An array of `shape` on a platform; axes that `jax.vmap` adds are not part of the shape."""

    shape: Shape
    dtype: str
    platform: Platform
    _: dataclasses.KW_ONLY
    # True if the type of the array has a sharding over explicit mesh axes. Types carry no automatic mesh axes.
    is_sharded: bool = False
    # True if XLA may partition the array over devices, even if the array's type has no sharding.
    is_partitioned: bool = False

    @property
    def tuning(self) -> Tuning:
        return TUNING[self.platform]

    @property
    def is_on_one_device(self) -> bool:
        """Whether XLA does not partition the array over devices."""
        return not (self.is_sharded or self.is_partitioned)

    @property
    def bits(self) -> int:
        """Number of bits of an array element; 8 for bool."""
        digits = re.search(r"\d+", self.dtype)
        return int(digits.group()) if digits else 8

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def is_low_precision(self) -> bool:
        """Whether array elements are 8- or 16-bit floats, which are summed in float32."""
        return self.is_float and self.bits < 32

    @property
    def sum_bits(self) -> int:
        """Number of bits of the dtype of sums: 32 for low-precision floats."""
        return 32 if self.is_low_precision else self.bits


@dataclasses.dataclass(frozen=True)
class Problem(ArrayProblem):
    """A pool over an array."""

    window: Window


def row_size(shape: Shape, axes: Sequence[int]) -> float:
    """Number of contiguous elements per position of `axes`: the product of all later sizes; infinite if symbolic."""
    return num_elements(shape[max(axes, default=-1) + 1 :])


def new_axes(axes: Sequence[int]) -> tuple[int, ...]:
    """Axes that are new if a second axis is inserted after each of `axes`, in the order of `axes`."""
    return tuple(axis + sorted(axes).index(axis) + 1 for axis in axes)


def split_shape(
    shape: Sequence[SizeT], axes: Sequence[int], sizes: Sequence[tuple[int, int]]
) -> tuple[SizeT | int, ...]:
    """The shape after each of `axes` is split into two axes of `sizes`."""
    pairs = dict(zip(axes, sizes, strict=True))
    return tuple(n for axis, size in enumerate(shape) for n in pairs.get(axis, (size,)))


def nbytes(shape: Shape, bits: int) -> float:
    """Size in bytes of an array of `shape`; infinite if a size is symbolic."""
    return num_elements(shape) * bits / 8


def is_ordinary_pool(window: AdaptiveWindow) -> bool:
    """Whether an adaptive pool has windows of equal length that are short enough to unroll."""
    return not window.is_padded and max(window.window_shape) <= LIMITS.max_adaptive_taps


def always_scales(problem: Problem) -> bool:
    """Whether a soft pool is always unrolled sums relative to the largest element of each window.

    The unrolled sums read at clamped positions. These need known sizes that fit int32, and a program for one device.
    """
    window = problem.window
    if window.size > problem.tuning.max_scaled_taps or not problem.is_on_one_device:
        return False
    # A window in the padding reads no element.
    if not all(any(a.tap_offsets for a in window_access(d).transposed()) for d in window.dims):
        return False
    shapes = problem.shape, window.pooled_shape(problem.shape)
    return all(0 < num_elements(shape) < 1 << 31 for shape in shapes)


def num_batch_chunks(problem: Problem) -> int:
    """The number of chunks into which a soft pool splits the batch.

    A loop along a partitioned batch would make XLA gather the batch on every device.
    """
    shape, max_elements = problem.shape, problem.tuning.max_chunk_elements
    is_split = 0 in problem.window.axes or not problem.is_on_one_device
    if is_split or None in shape or num_elements(shape) <= max_elements:
        return 1
    batch, example = int(shape[0] or 0), num_elements(shape[1:])
    largest = min(batch - 1, int(max_elements // max(example, 1)))
    return batch // next((part for part in range(largest, 0, -1) if batch % part == 0), 1)


def gathered_axes(window: AdaptiveWindow) -> list[int]:
    """Axes along which the windows that cover an element are gathered one by one, instead of summed as a block."""
    return [dim.axis for dim in window.dims if dim.max_overlap <= LIMITS.max_gathered_windows]


def is_constant_table(length: float) -> bool:
    """Whether a table of `length` entries is a constant of the program. The program computes longer tables itself."""
    return length <= LIMITS.max_constant_entries


def taps_per_loop_step(*, has_weights: bool = False) -> int:
    """Elements of a window per iteration of a loop over them; `has_weights` is True if each has a weight."""
    return LIMITS.weighted_taps_per_loop_step if has_weights else LIMITS.taps_per_loop_step


def unrolls_morphology(window: Window) -> bool:
    """Whether grey morphology is unrolled over the elements of its kernel, instead of a loop."""
    return window.size <= LIMITS.max_unrolled_morphology_taps


@dataclasses.dataclass(frozen=True)
class Step:
    """One pass of a maximum along `axes`. Each piece of the window has `piece_taps` consecutive flat window indices."""

    axes: tuple[int, ...]
    accesses: tuple[AxisAccess, ...]
    piece_taps: int

    @functools.cached_property
    def piece_starts(self) -> tuple[int, ...]:
        """The first flat window index of each piece of the window, in ascending order."""
        choices = itertools.product(*[access.tap_offsets for access in self.accesses])
        return tuple(sum(tap for _, tap in pairs) for pairs in choices)

    @property
    def num_flat_taps(self) -> int:
        """Number of flat window indices that the argmax may have after this step."""
        return self.piece_starts[-1] + self.piece_taps

    def output_shape(self, input_shape: Shape) -> Shape:
        return replace_sizes(input_shape, self.axes, [access.out for access in self.accesses])

    def input_shape(self, output_shape: Shape) -> Shape:
        return replace_sizes(output_shape, self.axes, [access.size for access in self.accesses])

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

    Windows take one step if several steps would not read less. Otherwise each step joins pieces to longer pieces, until
    a piece is a window. Results of a step start at multiples of a spacing. The spacing of windows is the stride. That
    of pieces is the greatest common divisor of the next step's spacing and of the starts of the pieces that the next
    step joins:

        window 36, stride 2     [a        ][b        ] ... [f        ]      6 pieces of 6 that start at 0, 6, ..., 30
                                   [a        ][b        ] ... [f        ]   the next window, 2 positions later
                                                                            pieces start at multiples of 2
    """
    num_steps = next(n for n in itertools.count(1) if tuning.pieces_per_step**n >= dim.window)
    num_pieces = next(n for n in range(1, tuning.pieces_per_step + 1) if n**num_steps >= dim.window)
    if dim.window <= min(num_steps * num_pieces * dim.stride, tuning.max_pass_taps):
        return [make_step([dim], tap_stride)]
    # For each step, the length and the starts of the pieces that it joins.
    pieces: list[tuple[int, list[int]]] = []
    length = 1
    while length < dim.window:
        joined = min(num_pieces * length, dim.window)
        pieces.append((length, [min(start, joined - length) for start in range(0, joined, length)]))
        length = joined
    spacings = [dim.stride]
    for _, starts in reversed(pieces[1:]):
        spacings.insert(0, math.gcd(spacings[0], *[start * dim.dilation for start in starts]))
    steps, size, low, previous_spacing = [], dim.size, dim.low, 1
    for (length, starts), spacing in zip(pieces, spacings, strict=True):
        span = (starts[-1] + length - 1) * dim.dilation + 1
        out = (dim.covered_size - span) // spacing + 1
        offsets = [start * dim.dilation // previous_spacing - low for start in starts]
        pairs = tuple(zip(offsets, [start * tap_stride for start in starts], strict=True))
        access = AxisAccess(pairs, spacing // previous_spacing, size, out)
        steps.append(Step((dim.axis,), (access,), length * tap_stride))
        size, low, previous_spacing = out, 0, spacing
    return steps


def plan_steps(window: Window, tuning: Tuning, *, is_forward: bool) -> tuple[Step, ...]:
    """The steps of a max or min pool, from the input to the output.

    Steps pool the last axis first, so the first of ties is the first in row-major order. Backward steps may differ.
    """
    few, dims = tuning.max_overlapping_taps, list(window.dims)
    computes_all_pieces = is_forward and window.has_overlap
    limit = tuning.one_pass_taps_per_element * math.prod(dim.stride for dim in dims)
    max_taps = max(
        few if computes_all_pieces else tuning.max_one_pass_taps, min(limit, tuning.max_pass_taps)
    )
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


_Dim = TypeVar("_Dim")  # any representation of an axis

# "padded": each region pads a copy of its input once, and slices the copy for every window offset.
# "deinterleaved": as "padded", but the copy has the strided slices of the last axis one after another (CPU only).
# "bounded": each region slices and pads the input for every window offset. The loop tests bounds instead of copying.
# "clamped": each window offset gathers elements at positions clamped to the array, and a select replaces padding (GPU).
# "tables": one loop gathers all elements through tables of positions (CPU only).
ReadMode = Literal["padded", "deinterleaved", "bounded", "clamped", "tables"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Output regions along each axis, their read mode, and whether phases of the last axis are interleaved last."""

    read_mode: ReadMode
    axis_regions: tuple[tuple[Region, ...], ...] = ()
    minor_axis_last: bool = False


def single_region(
    phases: Sequence[Phases], read_mode: ReadMode = "padded", *, extra_position: bool = False
) -> Layout:
    """A layout of one region. `extra_position` lengthens phases of the first strided axis by 1, to be cropped later."""
    strided_axes = [which for which, each in enumerate(phases) if len(each) > 1][:1]
    extra_positions = [extra_position and which in strided_axes for which in range(len(phases))]
    return Layout(read_mode, tuple(map(whole_region, phases, extra_positions)))


def barrier_between_passes(problem: ArrayProblem) -> BarrierKind:
    """The kind of barrier that makes XLA store the results of passes. XLA cannot merge axes that are partitioned."""
    has_clamped_reads = problem.tuning.clamps_reads and problem.is_on_one_device
    return "row-major barrier" if has_clamped_reads else barrier_of(problem.platform)


def clamped_or_single_region(
    problem: Problem, axes: Sequence[int], *sources: Sequence[Phases]
) -> Layout:
    """A layout of one region, with clamped reads if the platform prefers them and int32 holds all positions."""
    sizes = [each[0].size for each in sources[0]]
    shape = replace_sizes(problem.shape, axes, sizes)[min(axes) : max(axes) + 1]
    reads_all_axes = all(any(a.tap_offsets for a in each) for along in sources for each in along)
    fits = 0 < num_elements(shape) < 1 << 31 and 0 not in map(total_positions, sources[0])
    fits = fits and problem.window.size < -OUTSIDE_TAP
    # XLA would all-reduce the result of a gather along an axis that it partitions.
    clamps_reads = problem.tuning.clamps_reads and problem.is_on_one_device
    if clamps_reads and fits and reads_all_axes:
        return Layout("clamped")
    return single_region(sources[0])


def multi_region(
    sources: Sequence[Sequence[Phases]], read_mode: ReadMode, *, separate_ends: bool = True
) -> Layout:
    """A layout cut where shorter phases end and, with `separate_ends`, where windows begin to overlap the padding."""
    split_axis = functools.partial(split_into_regions, separate_ends=separate_ends)
    return Layout(read_mode, tuple(map(split_axis, zip(*sources, strict=True))))


def fits_tables(problem: ArrayProblem, phases: Iterable[Phases]) -> bool:
    """Whether elements may be gathered through tables: sizes are known and fit, and the type has no sharding."""
    if None in problem.shape or problem.is_sharded:
        return False
    return all(0 < total_positions(each) <= problem.tuning.max_table_positions for each in phases)


def group_axes(
    dims: Iterable[_Dim], fits_group: Callable[[tuple[_Dim, ...]], bool]
) -> list[tuple[_Dim, ...]]:
    """Split axes into groups of consecutive axes. An axis joins the previous group if `fits_group` allows it."""
    groups: list[tuple[_Dim, ...]] = []
    for dim in dims:
        if groups and fits_group((*groups[-1], dim)):
            groups[-1] = (*groups[-1], dim)
        else:
            groups.append((dim,))
    return groups
