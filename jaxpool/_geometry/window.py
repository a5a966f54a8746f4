"""Geometry of windowed pooling: `make_window` checks the arguments of a pool and returns a `Window`. Imports no JAX.

A `Window` has the pooled axes, input and output sizes, and the input position of every tap (element of a window).

Along one axis, an `AxisAccess` has the elements that each window reads, at fixed offsets from `stride * position`:

    stride 2, offsets -1 0 1     elements        0 1 2 3 4 5 6
                                 position 0   [. 0 1]            one element does not exist
                                 position 1        [1 2 3]
                                 position 2            [3 4 5]

The transpose lists the windows that cover each element. Elements with the same remainder modulo the stride are a phase
of the transpose, with its own `AxisAccess`: here elements 0, 2, 4, ... are in one window, 1, 3, 5, ... in two.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import (
    IntOrInts,
    Padding,
    check_bool,
    checked_tuple,
    fits_int32,
    ints_per_axis,
    is_int,
    normalise_axes,
    padding_pairs,
    static_sizes,
)

# Maximum excess of a window's span over the input size. XLA takes minutes to compile longer windows.
MAX_WINDOW_OVERHANG = 2**20


def _clip(value: Any, low: int, high: int) -> Any:
    """Clip an int of any size, or an array of any library, to the range from `low` to `high`."""
    return value.clip(low, high) if hasattr(value, "clip") else min(max(value, low), high)


@dataclasses.dataclass(frozen=True)
class Axis:
    """One pooled axis: output `o` reads input positions `o * stride - low + tap * dilation`, `tap < window`."""

    axis: int
    size: int
    window: int
    stride: int
    dilation: int
    low: int
    high: int
    out: int

    @property
    def span(self) -> int:
        """Number of positions from the first to the last element of a dilated window."""
        return (self.window - 1) * self.dilation + 1

    @property
    def covered_size(self) -> int:
        """Number of positions from the start of the low padding to the end of the last window."""
        return (self.out - 1) * self.stride + self.span

    @property
    def used_high(self) -> int:
        """Number of positions from the end of the input to the end of the last window; negative if input is cropped."""
        return self.covered_size - self.low - self.size

    @property
    def is_padded(self) -> bool:
        return self.low > 0 or self.used_high > 0

    @property
    def max_position(self) -> int:
        """Upper bound of positions in index arithmetic: the size of the padded input, plus the span of a window."""
        return max(self.covered_size, self.low + self.size) + self.span

    @property
    def is_identity(self) -> bool:
        """Whether pooling along the axis is the identity, because every window is one element."""
        return self.window == self.stride == 1 and self.size == self.out and self.low == 0

    @property
    def is_global(self) -> bool:
        """Whether a single window covers exactly the whole axis, without padding."""
        covers = self.window == self.size and self.dilation == 1 and not self.is_padded
        return covers and self.out == 1

    def first_tap_inside(self, out_index: Any) -> Any:
        """The first tap of window `out_index` (an int or array) that is at or after the start of the input."""
        return _clip(-((out_index * self.stride - self.low) // self.dilation), 0, self.window)

    def last_tap_inside(self, out_index: Any) -> Any:
        """The last tap of window `out_index` (an int or array) that is before the end of the input."""
        max_offset = self.size - 1 + self.low - out_index * self.stride
        return _clip(max_offset // self.dilation, -1, self.window - 1)

    def num_taps_inside(self, out_index: Any) -> Any:
        """Number of elements of window `out_index` that are inside the input."""
        num_taps = self.last_tap_inside(out_index) - self.first_tap_inside(out_index) + 1
        return _clip(num_taps, 0, self.window)

    def first_empty_window(self) -> int | None:
        """Index of the first window that contains only padding, or None. Only a few windows are tested.

        A window that starts before the input skips the input only if the dilation is longer than the input.
        """
        num_low = min(self.out, -(-self.low // self.stride)) if self.dilation > self.size else 1
        for out_index in range(max(1, num_low)):
            if not self.num_taps_inside(out_index):
                return out_index
        first_after_input = -(-(self.size + self.low) // self.stride)
        return first_after_input if first_after_input < self.out else None

    def representative_windows(self) -> np.ndarray:
        """Indices of enough windows to find every number of input elements: those over padding, and one other."""
        num_low = min(self.out, -(-self.low // self.stride))
        stop = min(self.out, max(num_low, (self.size + self.low - self.span) // self.stride + 1))
        return np.concatenate([np.arange(min(num_low + 1, self.out)), np.arange(stop, self.out)])

    def starts(self) -> np.ndarray:
        """The input position of the first tap of each window; negative in the low padding."""
        return np.arange(self.out) * self.stride - self.low

    def tap_positions(self) -> np.ndarray:
        """The input position of each window element, one row per window; `size` for elements outside the input."""
        output, taps = np.arange(self.out)[:, None], np.arange(self.window)
        is_inside = (self.first_tap_inside(output) <= taps) & (taps <= self.last_tap_inside(output))
        positions = self.starts()[:, None] + taps * self.dilation
        return np.where(is_inside, positions, self.size).astype(np.int32)

    def num_taps_counted(self, out_index: Any) -> Any:
        """Number of elements of window `out_index` in the input or its explicit padding, without ceil-mode overhang."""
        end = min(self.size + self.low + self.high, self.covered_size) - out_index * self.stride
        return _clip(-(-end // self.dilation), 0, self.window)


def replace_sizes(
    shape: Sequence[Any], axes: Iterable[int], sizes: Iterable[Any]
) -> tuple[Any, ...]:
    """The shape `shape` with the sizes along `axes` replaced by `sizes`."""
    size_of_axis = dict(zip(axes, sizes, strict=True))
    return tuple(size_of_axis.get(axis, size) for axis, size in enumerate(shape))


@dataclasses.dataclass(frozen=True)
class Window:
    """The pooled axes, in the order that defines flat indices and the first of ties. Hashable, static under jit."""

    dims: tuple[Axis, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(dim.axis for dim in self.dims)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(dim.size for dim in self.dims)

    @property
    def window_shape(self) -> tuple[int, ...]:
        return tuple(dim.window for dim in self.dims)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return tuple(dim.out for dim in self.dims)

    @property
    def size(self) -> int:
        """Number of elements of one window."""
        return math.prod(self.window_shape)

    @property
    def is_padded(self) -> bool:
        return any(dim.is_padded for dim in self.dims)

    @property
    def has_overlap(self) -> bool:
        """Whether an input element can belong to more than one window."""
        for dim in self.dims:
            num_taps = dim.stride // math.gcd(dim.stride, dim.dilation)
            if num_taps < dim.window and num_taps * dim.dilation // dim.stride < dim.out:
                return True
        return False

    def unravel(self, flat_tap: int) -> tuple[int, ...]:
        """Convert a flat row-major index within a window to one index per pooled axis."""
        return tuple(map(int, np.unravel_index(flat_tap, self.window_shape)))

    def pooled_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The shape of the pool's output for an input of `shape`."""
        return replace_sizes(shape, self.axes, self.output_shape)

    def unpooled_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        return replace_sizes(shape, self.axes, self.input_shape)


def _output_size(
    padded_size: int, span: int, stride: int, size_without_high_padding: int, ceil_mode: bool
) -> int:
    """Number of windows along an axis; `size_without_high_padding` is the size of the input plus the low padding."""
    if not ceil_mode:
        return (padded_size - span) // stride + 1
    out = -(-(padded_size - span) // stride) + 1
    return out - 1 if (out - 1) * stride >= size_without_high_padding else out


def _make_axis(
    axis: int,
    size: int,
    window: int,
    stride: int,
    dilation: int,
    padding: str | tuple[int, int],
    ceil_mode: bool,
) -> Axis:
    span = (window - 1) * dilation + 1
    if isinstance(padding, tuple):
        low, high = padding
    elif padding == "VALID":
        low = high = 0
    else:
        total_padding = max((-(-size // stride) - 1) * stride + span - size, 0)
        low = total_padding // 2 if padding == "SAME" else total_padding - total_padding // 2
        high = total_padding - low
    out = _output_size(size + low + high, span, stride, size + low, ceil_mode)
    stride = min(stride, size + low + high)  # larger strides also give a single window
    return Axis(axis, size, window, stride, dilation, low, high, out)


@functools.lru_cache(maxsize=4096)
def _checked_window(
    sizes: tuple[int, ...],
    axes: tuple[int, ...],
    window_shape: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[tuple[int, int], ...] | str,
    ceil_mode: bool,
    empty_windows: Literal["raise", "allow"],
    channels_first_hint: str,
) -> Window:
    if math.prod(window_shape) >= 2**32:
        rule = "of fewer than 2**32 elements in all, which an index can name"
        raise ArgumentError("window_shape", rule, window_shape, "Use a smaller window.")
    dims = []
    for i, axis in enumerate(axes):
        pads = padding if isinstance(padding, str) else padding[i]
        dim = _make_axis(axis, sizes[i], window_shape[i], strides[i], dilation[i], pads, ceil_mode)
        where = f"along axis {axis} (it spans {dim.span})"
        if dim.out <= 0:
            rule = f"at most the padded input, {dim.size + dim.low + dim.high} {where}"
            hint = "Use a smaller window or more padding." + channels_first_hint
            raise ArgumentError("window_shape", rule, window_shape, hint)
        if dim.span > dim.size + MAX_WINDOW_OVERHANG:
            rule = f"at most {MAX_WINDOW_OVERHANG} longer than the input, {dim.size} {where}"
            raise ArgumentError("window_shape", rule, window_shape, "Use a smaller window.")
        if empty_windows == "raise" and (out_index := dim.first_empty_window()) is not None:
            rule = "such that every window holds a real element; "
            rule += f"window {out_index} along axis {axis} holds none"
            raise ArgumentError("padding", rule, padding, "Use less padding or a larger window.")
        dims.append(dim)
    window = Window(tuple(dims))
    check_int32_positions(window, only_padded_axes=True)
    return window


def check_int32_positions(window: Window, *, only_padded_axes: bool = False) -> None:
    """Raise unless int32 holds every position that windows cover; `only_padded_axes` skips axes without padding."""
    for dim in window.dims:
        if not fits_int32(dim.max_position) and (dim.is_padded or not only_padded_axes):
            rule = "of fewer than 2**31 positions along axis {}, padding and windows counted"
            hint, attribute = "Pool parts of the array.", f"shape[{dim.axis}]"
            raise ArgumentError("x", rule.format(dim.axis), dim.size, hint, attribute=attribute)


def make_window(
    shape: Sequence[Any],
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Sequence[int] | None = None,
    *,
    empty_windows: Literal["raise", "allow"] = "raise",
) -> Window:
    """Check the arguments of a pool over an array of `shape` and return its `Window`.

    Raises `ArgumentError`. `empty_windows="allow"` accepts windows that contain only padding, as lax does.
    """
    rule = "an int or a tuple of positive ints, one per pooled axis"
    hint, entries = "Pass a tuple such as (2, 2).", list[Any]()
    if not is_int(window_shape):
        entries = [*checked_tuple("window_shape", window_shape, rule, hint)]
    pooled_axes = normalise_axes(axes, len(shape), len(entries) or None, window_shape=entries)
    rank = len(pooled_axes)
    window_sizes = ints_per_axis("window_shape", window_shape, rank)
    step_sizes = ints_per_axis("strides", 1 if strides is None else strides, rank)
    window_dilation = 1 if window_dilation is None else window_dilation
    dilation = ints_per_axis("window_dilation", window_dilation, rank)
    pads = padding_pairs(padding, rank)
    check_bool("ceil_mode", ceil_mode)
    sizes = static_sizes(shape, pooled_axes, min_size=0)
    looks_channels_first = axes is None and rank == 2 and len(shape) == 4 and sizes[0] in (1, 3)
    hint = " If x is channels first, pass axes=(2, 3)." if looks_channels_first else ""
    return _checked_window(
        sizes, pooled_axes, window_sizes, step_sizes, dilation, pads, ceil_mode, empty_windows, hint
    )


@dataclasses.dataclass(frozen=True)
class AxisAccess:
    """Reads along an axis: output position p < `out` reads the elements at `stride * p + offset` within 0 to `size`.

    `tap_offsets` has (offset, tap) pairs. A tap is the contribution of this axis to the flat row-major index of a
    window element. The taps of a 3x3 window are 0, 3, 6 along the first axis and 0, 1, 2 along the second axis.
    """

    tap_offsets: tuple[tuple[int, int], ...]
    stride: int
    size: int
    out: int

    def valid_range(self, offset: int, start: int, stop: int) -> tuple[int, int]:
        """The range of output positions within [start, stop) that have an existing element at `offset`."""
        last = (self.size - 1 - offset) // self.stride
        return max(start, -(offset // self.stride)), min(stop, last + 1)

    @property
    def full_range(self) -> tuple[int, int]:
        """The range (start, stop) of output positions for which all elements exist."""
        start, stop = 0, self.out
        for offset, _ in self.tap_offsets:
            first, end = self.valid_range(offset, 0, self.out)
            start, stop = max(start, first), min(stop, end)
        return start, stop

    def slice_elements(self, start: int, stop: int) -> "AxisAccess":
        """This access with offsets relative to the slice `[start:stop]` of the elements."""
        pairs = tuple((offset - start, tap) for offset, tap in self.tap_offsets)
        return dataclasses.replace(self, tap_offsets=pairs, size=stop - start)

    def taps_of_clamped_reads(self, offset: int) -> np.ndarray:
        """Taps of the elements at the positions of `offset` clamped to the axis; -1 for elements of no tap."""
        starts, tap_of_offset = np.arange(self.out) * self.stride, dict(self.tap_offsets)
        offsets = np.clip(starts + offset, 0, self.size - 1) - starts
        unique, inverse = np.unique(offsets, return_inverse=True)
        taps = [tap_of_offset.get(int(each), -1) for each in unique]
        return np.array(taps, np.int32)[inverse]

    def transposed(self) -> "Phases":
        """Output positions that read each element: in a phase, `p + offset` reads element `stride * p + phase`."""
        phases = []
        for phase in range(max(1, min(self.stride, self.size))):
            shifts = [(phase - offset, tap) for offset, tap in self.tap_offsets]
            pairs = tuple((d // self.stride, tap) for d, tap in shifts if d % self.stride == 0)
            phases.append(AxisAccess(pairs, 1, self.out, len(range(phase, self.size, self.stride))))
        return tuple(phases)


# Accesses of interleaved phases: position p of phase q is position `p * len(phases) + q` of the result
Phases = tuple[AxisAccess, ...]


def window_access(dim: Axis, tap_stride: int = 1) -> AxisAccess:
    """The reads of the windows along an axis. Flat indices of adjacent window elements differ by `tap_stride`."""
    pairs = tuple((tap * dim.dilation - dim.low, tap * tap_stride) for tap in range(dim.window))
    return AxisAccess(pairs, dim.stride, dim.size, dim.out)


def max_elements_per_position(phases: Phases) -> int:
    """Maximum number of elements that an output position reads, over all phases."""
    return max(len(access.tap_offsets) for access in phases)


def total_positions(phases: Phases) -> int:
    """Total number of output positions of all phases."""
    return sum(access.out for access in phases)


GatherTable = tuple[np.ndarray, np.ndarray, np.ndarray]  # elements, their taps, whether they exist


def gather_tables(phases: Phases) -> list[GatherTable]:
    """Tables of the elements that each output position reads: indices, clipped to the array, taps, and existence."""
    shape = max(1, max_elements_per_position(phases)), total_positions(phases)
    elements, taps, is_inside = (np.zeros(shape, dtype) for dtype in (np.int32, np.int64, np.bool_))
    for phase, access in enumerate(phases):
        for row, (offset, tap) in enumerate(sorted(access.tap_offsets)):
            positions = np.arange(access.out) * access.stride + offset
            table_index = row, slice(phase, None, len(phases))
            elements[table_index], taps[table_index] = positions.clip(0, access.size - 1), tap
            is_inside[table_index] = (positions >= 0) & (positions < access.size)
    return list(zip(elements, taps, is_inside, strict=True))


class Region(NamedTuple):
    """A region along an output axis: positions [start, stop) of each of the first `num_phases` phases."""

    start: int
    stop: int
    num_phases: int


def whole_region(phases: Phases, extra_positions: int = 0) -> tuple[Region, ...]:
    """One region of all output positions. Phases are extended to the longest phase, plus `extra_positions`."""
    return (Region(0, phases[0].out + extra_positions, len(phases)),)


def split_into_regions(
    accesses_by_operand: Sequence[Phases], *, separate_ends: bool
) -> tuple[Region, ...]:
    """The regions of an output axis. All entries of `accesses_by_operand` have the same output positions.

        | an end | every element exists | an end | last position of the longer phases |

    Without `separate_ends`, the first three of these regions are a single region.
    """
    phases = accesses_by_operand[0]
    common_length = phases[-1].out  # number of positions that every phase has
    starts = {0}
    if separate_ends:
        full_ranges = [each.full_range for source in accesses_by_operand for each in source]
        first = min(common_length, max(start for start, _ in full_ranges))
        last = max(first, min(common_length, *[stop for _, stop in full_ranges]))
        starts |= {first, last} - {common_length}
    boundaries = [*sorted(starts), common_length]
    regions = [Region(first, stop, len(phases)) for first, stop in itertools.pairwise(boundaries)]
    if phases[0].out > common_length:
        num_longer = sum(access.out > common_length for access in phases)
        regions.append(Region(common_length, common_length + 1, num_longer))
    return tuple(regions)


def covers_all_elements(dim: Axis) -> bool:
    """Whether a cheap sufficient test shows that every element along an axis is in a window."""
    return dim.dilation == 1 and dim.window >= dim.stride and dim.low >= 0 and dim.used_high >= 0


def covered_elements_mask(dim: Axis) -> np.ndarray | None:
    """Mask of the elements along an axis that are in at least one window; None if all elements are."""
    if covers_all_elements(dim):
        return None
    covered = np.zeros(dim.size, bool)
    for tap in range(dim.window):
        start = tap * dim.dilation - dim.low
        stop = max(0, start + (dim.out - 1) * dim.stride + 1)
        covered[start % dim.stride if start < 0 else start : stop : dim.stride] = True
    return None if covered.all() else covered
