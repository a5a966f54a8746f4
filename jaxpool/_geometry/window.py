"""Windows of a pool: `WindowArguments` are the arguments that determine them, a `Window` is the checked result.

A `Window` has the pooled axes, input and output sizes, and the input position of every tap (element of a window).
An `AdaptiveWindow` is the `Window` of an adaptive pool. This module imports no JAX.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import (
    Axes,
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

Index = Any  # an int, or an array of ints of any library
Size = TypeVar("Size")  # an int, or in a plan, None where a size is symbolic
NewSize = TypeVar("NewSize")


def _clip(value: Index, low: int, high: int) -> Index:
    """Clip an int of any size, or an array, to the range from `low` to `high`."""
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
    def is_tiled(self) -> bool:
        """Whether windows cover exactly the whole axis, without padding, overlap or gaps."""
        is_adjacent = self.out == 1 or self.window == self.stride
        starts_at_0 = self.low == 0 and self.dilation == 1
        return starts_at_0 and is_adjacent and self.out * self.window == self.size

    @property
    def is_global(self) -> bool:
        """Whether a single window covers exactly the whole axis, without padding."""
        return self.is_tiled and self.out == 1

    def first_tap_inside(self, out_index: Index) -> Index:
        """The first tap of window `out_index` (an int or array) that is at or after the start of the input."""
        return _clip(-((out_index * self.stride - self.low) // self.dilation), 0, self.window)

    def last_tap_inside(self, out_index: Index) -> Index:
        """The last tap of window `out_index` (an int or array) that is before the end of the input."""
        max_offset = self.size - 1 + self.low - out_index * self.stride
        return _clip(max_offset // self.dilation, -1, self.window - 1)

    def num_taps_inside(self, out_index: Index) -> Index:
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

    def tap_positions(self) -> np.ndarray:
        """The input position of each window element, one row per window; `size` for elements outside the input."""
        output, taps = np.arange(self.out)[:, None], np.arange(self.window)
        is_inside = (self.first_tap_inside(output) <= taps) & (taps <= self.last_tap_inside(output))
        positions = output * self.stride - self.low + taps * self.dilation
        return np.where(is_inside, positions, self.size).astype(np.int32)

    def num_taps_counted(self, out_index: Index) -> Index:
        """Number of elements of window `out_index` in the input or its explicit padding, without ceil-mode overhang."""
        end = min(self.size + self.low + self.high, self.covered_size) - out_index * self.stride
        return _clip(-(-end // self.dilation), 0, self.window)


def replace_sizes(
    shape: Sequence[Size], axes: Iterable[int], sizes: Iterable[NewSize]
) -> tuple[Size | NewSize, ...]:
    """The shape `shape` with the sizes along `axes` replaced by `sizes`."""
    size_of_axis = dict(zip(axes, sizes, strict=True))
    return tuple(size_of_axis.get(axis, size) for axis, size in enumerate(shape))


def _max_adaptive_length(length: int, num_windows: int) -> int:
    """The length of the longest of `num_windows` adaptive windows over `length` positions."""
    # The longest window is the window that starts just before the end of a position.
    gcd = math.gcd(length, num_windows)
    return (length // gcd + 2 * (num_windows // gcd) - 2) // (num_windows // gcd)


@dataclasses.dataclass(frozen=True)
class AdaptiveAxis:
    """One pooled axis with windows `[floor(o * size / out), ceil((o + 1) * size / out))` of almost equal lengths."""

    axis: int
    size: int
    out: int
    dilation = 1

    @functools.cached_property
    def window(self) -> int:
        """The length of the longest window."""
        return _max_adaptive_length(self.size, self.out)

    @property
    def is_padded(self) -> bool:
        """Whether windows may overlap and differ in length. Patches of short windows are padded to the longest."""
        return self.size % self.out > 0

    @property
    def max_position(self) -> int:
        """Upper bound of positions in index arithmetic: the input size, plus the padded lengths of all windows."""
        return self.size + self.out * self.window

    @property
    def max_overlap(self) -> int:
        """Maximum number of windows over a position: the longest of `size` adaptive windows over `out` positions."""
        return _max_adaptive_length(self.out, self.size)

    def tap_positions(self) -> np.ndarray:
        """The input position of each window element, one row per window; `size` after the end of a window."""
        bounds = np.arange(self.out + 1) * self.size
        starts, stops = bounds[:-1] // self.out, -(-bounds[1:] // self.out)
        positions = starts[:, None] + np.arange(self.window)
        return np.where(positions < stops[:, None], positions, self.size).astype(np.int32)


AxisT = TypeVar("AxisT", Axis, AdaptiveAxis)


@dataclasses.dataclass(frozen=True)
class Windows(Generic[AxisT]):
    """The pooled axes, in the order that defines flat indices and the first of ties. Hashable, static under jit."""

    dims: tuple[AxisT, ...]

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

    def pooled_shape(self, shape: Sequence[Size]) -> tuple[Size | int, ...]:
        """The shape of the pool's output for an input of `shape`."""
        return replace_sizes(shape, self.axes, self.output_shape)

    def unpooled_shape(self, shape: Sequence[Size]) -> tuple[Size | int, ...]:
        return replace_sizes(shape, self.axes, self.input_shape)


class Window(Windows[Axis]):
    """The windows of a pool with a window shape, strides, padding and dilation."""

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


class AdaptiveWindow(Windows[AdaptiveAxis]):
    """The windows of an adaptive pool."""

    def as_window(self) -> Window:
        """The equivalent `Window`, if windows have equal lengths and no axis is padded."""
        dims = (Axis(d.axis, d.size, d.window, d.window, 1, 0, 0, d.out) for d in self.dims)
        return Window(tuple(dims))

    def padded_axes_first(self, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A permutation that puts padded axes first, where gathers copy whole rows, and the inverse permutation."""
        padded_axes = [dim.axis for dim in self.dims if dim.is_padded]
        permutation = (*padded_axes, *(axis for axis in range(ndim) if axis not in padded_axes))
        return permutation, tuple(permutation.index(axis) for axis in range(ndim))


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
    dilation = dilation if window > 1 else 1  # a window of one element has no gaps
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


def check_int32_positions(
    window: Window | AdaptiveWindow, *, only_padded_axes: bool = False
) -> None:
    """Raise unless int32 holds every position that windows cover; `only_padded_axes` skips axes without padding."""
    for dim in window.dims:
        if not fits_int32(dim.max_position) and (dim.is_padded or not only_padded_axes):
            rule = "of fewer than 2**31 positions along axis {}, padding and windows counted"
            hint, attribute = "Pool parts of the array.", f"shape[{dim.axis}]"
            raise ArgumentError("x", rule.format(dim.axis), dim.size, hint, attribute=attribute)


def make_window(
    shape: Sequence[int],
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
    hint, entries = "Pass a tuple such as (2, 2).", list[int]()
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


@dataclasses.dataclass(frozen=True, eq=False)
class WindowArguments:
    """The arguments of a windowed pool that determine its windows, as they were passed: `make_window` checks them."""

    window_shape: IntOrInts
    strides: IntOrInts | None = None
    padding: Padding = "VALID"
    window_dilation: IntOrInts | None = None
    ceil_mode: bool = False
    axes: Axes = None

    def window_over(self, shape: Sequence[int]) -> Window:
        """The checked `Window` over an array of `shape`. Raises `ArgumentError`."""
        return make_window(shape, **vars(self))
