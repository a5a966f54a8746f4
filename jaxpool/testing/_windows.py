"""Positions of the windows of a pool, from the definitions in `docs/conventions.md` ("Positions of the windows").

The oracle and the twins use these positions. This module imports nothing from the library, so an error in the library's
geometry shows as a difference. A tap is a position that a window reads, in x or in padding.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

WindowPositions = Sequence[Sequence[Sequence[int]]]  # positions[axis][window]


class NoWindowError(ValueError):
    """The arguments leave no window along an axis, or a window without elements."""


@dataclasses.dataclass(frozen=True)
class Windows:
    """The windows of a pool. `tap_positions[i][o]` holds the position of each tap of window `o` along axis `axes[i]`.

    An axis has the elements 0 to `input_shape[i] - 1`. Taps at other positions are padding, and taps from
    `padded_axis_ends[i]` on are the overhang of `ceil_mode`, after the explicit padding.
    """

    axes: tuple[int, ...]
    input_shape: tuple[int, ...]
    padded_axis_ends: tuple[int, ...]
    tap_positions: Sequence[Sequence[Sequence[int]]]

    @functools.cached_property
    def element_positions(self) -> list[list[list[int]]]:
        """The taps of each window that are elements of the array."""
        return [
            [[position for position in taps if 0 <= position < size] for taps in windows]
            for size, windows in zip(self.input_shape, self.tap_positions, strict=True)
        ]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The number of windows along each pooled axis."""
        return tuple(map(len, self.tap_positions))

    @property
    def window_shape(self) -> tuple[int, ...]:
        """The number of taps along each pooled axis; the largest number where windows differ in length."""
        return tuple(max(map(len, windows), default=0) for windows in self.tap_positions)

    @property
    def taps_per_window(self) -> int:
        """The number of taps of a window."""
        return math.prod(self.window_shape)

    @property
    def min_elements_per_window(self) -> int:
        """The number of elements in the window that has the fewest; 0 if there is no window."""
        return math.prod(min(map(len, windows), default=0) for windows in self.element_positions)

    @property
    def has_overlapping_windows(self) -> bool:
        """Whether an element belongs to more than one window."""
        return any(
            len(set(itertools.chain(*windows))) < sum(map(len, windows))
            for windows in self.element_positions
        )

    def output_shape_of(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The shape of the output for an input of `shape`."""
        sizes = dict(zip(self.axes, self.output_shape, strict=True))
        return tuple(sizes.get(axis, size) for axis, size in enumerate(shape))

    def num_taps_counted(self, output: Sequence[int]) -> int:
        """The number of taps in the input or its explicit padding, for the window at position `output` of y."""
        counts = [
            sum(at < end for at in windows[output[axis]])
            for axis, end, windows in zip(
                self.axes, self.padded_axis_ends, self.tap_positions, strict=True
            )
        ]
        return math.prod(counts)


def sliding_windows(
    shape: Sequence[Any],
    window_shape: Any,
    strides: Any = None,
    padding: Any = "VALID",
    *,
    window_dilation: Any = None,
    ceil_mode: bool = False,
    axes: Sequence[int] | None = None,
    allow_empty: bool = False,
) -> Windows:
    """The windows of `max_pool` and the other windowed pools over an array of `shape`.

    Raises `NoWindowError` if there is no window along an axis or, unless `allow_empty`, if a window has no element.
    """
    window_axes = pooled_axes(len(shape), np.size(window_shape), axes)
    sizes = tuple(shape[axis] for axis in window_axes)
    window_sizes, steps, dilations = (
        _broadcast_ints(1 if number is None else number, len(window_axes))
        for number in (window_shape, strides, window_dilation)
    )
    pads = _padding_per_axis(padding, len(window_axes))
    axis_args = zip(sizes, window_sizes, steps, dilations, pads, strict=True)
    ends, taps = zip(*[_taps_along_axis(*args, ceil_mode) for args in axis_args], strict=True)
    windows = Windows(window_axes, sizes, ends, taps)
    if not all(taps) or not (allow_empty or windows.min_elements_per_window):
        raise NoWindowError(
            f"shape={tuple(shape)}, {window_shape=}, {strides=}, {padding=}, {window_dilation=}"
        )
    return windows


@functools.lru_cache(maxsize=4096)
def _taps_along_axis(
    size: int, window: int, stride: int, dilation: int, padding: Any, ceil_mode: bool
) -> tuple[int, tuple[range, ...]]:
    """The end of the padded axis, and the taps of each window along it."""
    span = (window - 1) * dilation + 1
    num_outputs = -(-size // stride)
    total_pad = max((num_outputs - 1) * stride + span - size, 0)
    small_pad, large_pad = total_pad // 2, total_pad - total_pad // 2
    pads = {"VALID": (0, 0), "SAME": (small_pad, large_pad), "SAME_LOWER": (large_pad, small_pad)}
    low, high = pads.get(padding, padding)
    # With `ceil_mode` a last window may hang over by less than a stride, if it starts before the end of the input.
    overhang = stride - 1 if ceil_mode else 0
    starts = list(range(-low, size + high + overhang - span + 1, stride))
    if ceil_mode and starts and starts[-1] >= size:
        starts.pop()
    return size + high, tuple(range(start, start + span, dilation) for start in starts)


def adaptive_windows(shape: Sequence[int], output_shape: Any, axes: Any) -> Windows:
    """The windows of the adaptive pools; None in `output_shape` keeps the size of an axis.

    >>> adaptive_windows((5,), 3, (0,)).element_positions
    [[[0, 1], [1, 2, 3], [3, 4]]]
    """
    window_axes = pooled_axes(len(shape), np.size(output_shape), axes)
    sizes = tuple(shape[axis] for axis in window_axes)
    output_sizes = np.broadcast_to(np.asarray(output_shape, object), len(window_axes))
    taps = []
    for size, num_windows in zip(sizes, output_sizes, strict=True):
        n = size if num_windows is None else num_windows
        taps.append(tuple(range(i * size // n, -(-(i + 1) * size // n)) for i in range(n)))
    return Windows(window_axes, sizes, sizes, tuple(taps))


def fractional_windows(sample: Any, size: int, window_size: int, num_windows: int) -> list[range]:
    """The windows of fractional pools along an axis, computed in the type of `sample`, a random number in [0, 1)."""
    float_type = type(sample)
    alpha = float_type(size - window_size) / float_type(max(1, num_windows - 1))
    starts = [
        int((float_type(i) + sample) * alpha) - int(sample * alpha) for i in range(num_windows - 1)
    ]
    return [range(start, start + window_size) for start in [*starts, size - window_size]]


WINDOW_ARGUMENTS = ("window_shape", "strides", "padding", "window_dilation", "ceil_mode")


def windows_of_call(x: Any, given: Mapping[str, Any]) -> Windows:
    """The windows over `x` of a call of a public function, whose arguments are `given`, defaults included.

    A segment, a group and a whole axis are windows too. The windows of `dilate` have the shape of its kernel.
    """
    shape, axes = np.shape(x), given.get("axes")
    if "segment_ids" in given:
        ids, number = np.asarray(given["segment_ids"]), given["num_segments"]
        number = int(np.max(ids, initial=-1)) + 1 if number is None else number
        rows = [np.flatnonzero(ids == segment).tolist() for segment in range(number)]
        return Windows((0,), shape[:1], shape[:1], (rows,))
    if "groups" in given:
        return adaptive_windows(shape, (given["groups"],), (given["axis"],))
    if "keepdims" in given:
        if "axis" in given:
            axes = range(len(shape)) if given["axis"] is None else np.atleast_1d(given["axis"])
        axes = pooled_axes(len(shape), len(shape) - 2, axes)
        return adaptive_windows(shape, (1,) * len(axes), axes)
    if "output_shape" in given:
        return adaptive_windows(shape, given["output_shape"], axes)
    arguments = {name: given[name] for name in WINDOW_ARGUMENTS if name in given}
    if "kernel" in given:
        kernel_shape = np.shape(given["kernel"])
        num_axes = len(kernel_shape) - (len(kernel_shape) == len(shape) - 1)
        arguments["window_shape"] = kernel_shape[: num_axes if axes is None else len(axes)]
    return sliding_windows(shape, **{"padding": "SAME", **arguments}, axes=axes)


def pooled_axes(ndim: int, num_axes: int, axes: Sequence[int] | None) -> tuple[int, ...]:
    """The pooled axes: `axes`, or by default the `num_axes` axes before the last one."""
    if axes is None:
        return tuple(range(ndim - 1 - num_axes, ndim - 1))
    return tuple(int(axis) % ndim for axis in axes)


def _broadcast_ints(value: Any, num_axes: int) -> list[int]:
    """`value` as one int for each of `num_axes` axes."""
    return [operator.index(n) for n in np.broadcast_to(np.asarray(value, object), num_axes)]


def _padding_per_axis(padding: Any, num_axes: int) -> list[Any]:
    """`padding` as a string or as a pair (low, high) for each of `num_axes` axes."""
    if isinstance(padding, str):
        return [padding] * num_axes
    pairs = np.asarray(padding, object)
    pairs = pairs[:, None] if pairs.ndim == 1 else pairs
    return [tuple(map(operator.index, pair)) for pair in np.broadcast_to(pairs, (num_axes, 2))]
