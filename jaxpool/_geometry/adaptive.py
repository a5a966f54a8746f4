"""Geometry of adaptive pooling: a fixed number of windows of almost equal length along an axis. Imports no JAX.

Window `i` of `n` over a length `L` is `[floor(i * L / n), ceil((i + 1) * L / n))`. If n divides L, these windows are
those of an ordinary pool. Otherwise a `RaggedAxis` pads each window to the length of the longest window.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import (
    Axes,
    checked_tuple,
    is_int,
    normalise_axes,
    static_sizes,
)
from jaxpool._geometry.window import MAX_WINDOW_OVERHANG, Axis, Index, Window, check_int32_positions

OutputSizes = int | Sequence[int | None]


@dataclasses.dataclass(frozen=True)
class RaggedAxis(Axis):
    """An axis with windows of unequal lengths. `window` and `stride` are the length of the longest window."""

    is_padded = True  # shorter windows are padded to the longest window
    used_high = 0

    def last_tap_inside(self, out_index: Index) -> Index:
        """The index, within window `out_index`, of the last element that is not padding."""
        return -((out_index + 1) * -self.size // self.out) - out_index * self.size // self.out - 1

    @property
    def max_position(self) -> int:
        """Upper bound of positions in index arithmetic: the input size, plus the padded lengths of all windows."""
        return self.size + self.out * self.window

    def starts(self) -> np.ndarray:
        return np.arange(self.out) * self.size // self.out

    def representative_windows(self) -> np.ndarray:
        """Indices i of a shortest and of a longest window, for which `i * size % out` is least and greatest."""
        gcd = math.gcd(self.size, self.out)
        modulus = self.out // gcd
        return np.array([0, -pow(self.size // gcd, -1, modulus) % modulus])

    @property
    def max_overlap(self) -> int:
        """Maximum number of windows over a position: the longest of `size` adaptive windows over `out` positions."""
        return _max_window_length(self.out, self.size)


def _max_window_length(length: int, num_windows: int) -> int:
    """The length of the longest of `num_windows` windows over `length` positions."""
    # The longest window is the window that starts just before the end of a position.
    gcd = math.gcd(length, num_windows)
    return (length // gcd + 2 * (num_windows // gcd) - 2) // (num_windows // gcd)


@functools.lru_cache(maxsize=4096)
def _adaptive_axis(axis: int, length: int, num_windows: int) -> Axis:
    axis_type = RaggedAxis if length % num_windows else Axis
    width = _max_window_length(length, num_windows)
    return axis_type(axis, length, width, width, 1, 0, 0, num_windows)


def ragged_first_permutation(window: Window, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A permutation that puts ragged axes first, where gathers copy whole rows, and the inverse permutation."""
    ragged_axes = [dim.axis for dim in window.dims if isinstance(dim, RaggedAxis)]
    permutation = (*ragged_axes, *(axis for axis in range(ndim) if axis not in ragged_axes))
    return permutation, tuple(permutation.index(axis) for axis in range(ndim))


def adaptive_window(
    shape: Sequence[int], output_shape: Any, axes: Axes, *, arg_name: str = "output_shape"
) -> Window:
    """Check the arguments of an adaptive pool over an array of `shape` and return its `Window`."""
    rule = "an int, or a tuple with a positive int or None for each pooled axis"
    hint = "Pass a tuple such as (7, 7), or (7, None) to keep the size of the second axis."
    value, is_single_int = output_shape, is_int(output_shape)
    outs = [value] if is_single_int else checked_tuple("output_shape", value, rule, hint)
    if is_single_int and axes is None:
        more = "Pass axes=(1, 2), say."
        raise ArgumentError("axes", "given when `output_shape` is an int", None, more, TypeError)
    pooled_axes = normalise_axes(axes, len(shape), None if is_single_int else len(outs))
    outs = [value] * len(pooled_axes) if is_single_int else outs
    if not all(out is None or is_int(out) for out in outs):
        raise ArgumentError("output_shape", rule, value, hint, TypeError)
    if any(out is not None and operator.index(out) < 1 for out in outs):
        raise ArgumentError("output_shape", rule, value, hint)
    sizes = static_sizes(shape, pooled_axes)
    pairs = zip(sizes, outs, strict=True)
    out_sizes = [size if out is None else operator.index(out) for size, out in pairs]
    if math.prod(out_sizes) > math.prod(sizes) + 16 * MAX_WINDOW_OVERHANG:
        rule = f"at most {16 * MAX_WINDOW_OVERHANG} more windows than the input has positions"
        raise ArgumentError(arg_name, rule, value, "Ask for fewer windows.")
    for axis, size, out in zip(pooled_axes, sizes, out_sizes, strict=True):
        if out > size + MAX_WINDOW_OVERHANG:
            rule = f"at most {MAX_WINDOW_OVERHANG} more than the input, {size} along axis {axis}"
            raise ArgumentError(arg_name, rule, value, "Ask for fewer windows.")
    window = Window(tuple(map(_adaptive_axis, pooled_axes, sizes, out_sizes)))
    check_int32_positions(window, only_padded_axes=True)
    if window.size >= 2**32:
        rule = f"such that a window has fewer than 2**32 elements, here {window.size}"
        raise ArgumentError(arg_name, rule, value, "Ask for more windows.")
    return window
