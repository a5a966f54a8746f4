"""The reference each benchmark row is held against: NumPy in float64, on a slice of the case.

Batch entries and channels do not touch each other in a pool: the first and the last of each are
enough to show a fast wrong answer, and cheap enough for a window of 63x63.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from bench._case import AVERAGES, ELEMENTWISE, Case, numpy_dtype

Results = tuple[np.ndarray, tuple[np.ndarray, ...]]


def sample_index(case: Case) -> tuple[slice, ...]:
    """Slices that take the first and last of batch and channels, in any array library."""
    index = [slice(None)] * len(case.shape)
    for axis in {0, case.channel_axis}:
        index[axis] = slice(None, None, max(case.shape[axis] - 1, 1))
    return tuple(index)


class Reference:
    """The right results of one case on the given arrays, computed when first asked for."""

    def __init__(self, case: Case, xs: Sequence[np.ndarray], dy: np.ndarray | None) -> None:
        self._case = case
        self._index = sample_index(case)
        self._xs = [np.asarray(x[self._index], np.float64) for x in xs]
        self._dy = None if dy is None else np.asarray(dy[self._index], np.float64)
        self._results: dict[bool, Results] = {}

    def expected(self, count_include_pad: bool = True) -> Results:
        if count_include_pad not in self._results:
            self._results[count_include_pad] = self._compute(count_include_pad)
        return self._results[count_include_pad]

    def _compute(self, count_include_pad: bool) -> Results:
        if self._case.op in ELEMENTWISE:
            return _elementwise(self._case, self._xs, self._dy)
        y, dx = _windowed(self._case, self._xs[0], self._dy, count_include_pad)
        return y, () if dx is None else (dx,)

    def difference(
        self, y: Any, dxs: Sequence[Any] = (), *, count_include_pad: bool = True
    ) -> float:
        """The largest absolute difference over y and every dx, each cut by `sample_index`."""
        want_y, want_dxs = self.expected(count_include_pad)
        pairs = [(y, want_y), *zip(dxs, want_dxs, strict=bool(dxs))]
        return max(_largest_difference(got, want) for got, want in pairs)

    def tolerance(self, with_dx: bool) -> float:
        """What rounding may explain: some units in the last place of the largest number."""
        if self._case.integer:
            return 0.0
        y, dxs = self.expected()
        largest = max(float(np.abs(a).max(initial=1.0)) for a in (y, *(dxs if with_dx else ())))
        return 16 * float(ml_dtypes.finfo(numpy_dtype(self._case.dtype)).eps) * largest


def _largest_difference(got: Any, want: np.ndarray) -> float:
    got = np.asarray(got, np.float64)
    if got.shape != want.shape:
        return math.inf
    return float(np.abs(got - want).max(initial=0.0))


def _elementwise(case: Case, xs: Sequence[np.ndarray], dy: np.ndarray | None) -> Results:
    y = functools.reduce(getattr(np, case.op), xs)
    if dy is None:
        return y, ()
    wins = [x == y for x in xs]
    share = dy / sum(w.astype(np.float64) for w in wins)
    return y, tuple(np.where(w, share, 0.0) for w in wins)


def _windowed(
    case: Case, x: np.ndarray, dy: np.ndarray | None, count_include_pad: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Pool tap by tap: the strided slice of the padded input that each window position sees."""
    averages = case.op in AVERAGES
    sign = -1.0 if case.op == "min_pool" else 1.0
    widths = [(0, 0)] * x.ndim
    for axis, pad in zip(case.axes, case.pads, strict=True):
        widths[axis] = pad
    padded = np.pad(sign * x, widths, constant_values=0.0 if averages else -np.inf)
    taps = [_tap(case, offsets) for offsets in itertools.product(*map(range, case.window))]

    if averages:
        divisor = _divisor(case, widths, taps, count_include_pad)
        y = sum(padded[tap] for tap in taps) / divisor
    else:
        y = padded[taps[0]].copy()
        chosen = np.zeros(y.shape, np.int64)
        for number, tap in enumerate(taps[1:], start=1):
            better = padded[tap] > y  # strictly: the first of the tied stays
            np.copyto(y, padded[tap], where=better)
            np.copyto(chosen, number, where=better)
    if dy is None:
        return sign * y, None

    d_padded = np.zeros_like(padded)
    for number, tap in enumerate(taps):
        d_padded[tap] += dy / divisor if averages else np.where(chosen == number, dy, 0.0)
    sizes = zip(widths, padded.shape, strict=True)
    inner = tuple(slice(low, size - high) for (low, high), size in sizes)
    return sign * y, d_padded[inner]


def _tap(case: Case, offsets: tuple[int, ...]) -> tuple[slice, ...]:
    index = [slice(None)] * len(case.shape)
    for axis, offset, dilation, stride in zip(
        case.axes, offsets, case.dilation, case.strides, strict=True
    ):
        start = offset * dilation
        index[axis] = slice(start, start + (case.output_shape[axis] - 1) * stride + 1, stride)
    return tuple(index)


def _divisor(
    case: Case,
    widths: list[tuple[int, int]],
    taps: list[tuple[slice, ...]],
    count_include_pad: bool,
) -> Any:
    if case.op == "sum_pool":
        return 1.0
    if count_include_pad:
        return float(math.prod(case.window))
    ones = [case.shape[a] if a in case.axes else 1 for a in range(len(case.shape))]
    real = np.pad(np.ones(ones), widths)
    return sum(real[tap] for tap in taps)
