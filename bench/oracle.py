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

from bench._case import (
    ADAPTIVE,
    ARGMAX,
    AVERAGES,
    CUMMAX,
    ELEMENTWISE,
    MAX,
    UNPOOL,
    Case,
    numpy_dtype,
    spans,
)

# What the op gives (y, or y and positions), and one dx per input that has a gradient.
Results = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]


def sample_index(case: Case) -> tuple[slice, ...]:
    """Slices that take the first and last of batch and channels, in any array library."""
    index = [slice(None)] * len(case.shape)
    for axis in {case.channel_axis, 0}:
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
        case, xs, dy = self._case, self._xs, self._dy
        if case.op in ELEMENTWISE:
            return _elementwise(case, xs, dy)
        by_op = {**dict.fromkeys(ADAPTIVE, _adaptive), CUMMAX: _running, MAX: _whole}
        if case.op == UNPOOL:
            y, dx = _unpooled(case, xs[0], xs[1].astype(np.int64), dy)
            outputs: tuple[np.ndarray, ...] = (y,)
        elif case.op in by_op:
            y, dx = by_op[case.op](case, xs[0], dy)
            outputs = (y,)
        else:
            outputs, dx = _windowed(case, xs[0], dy, count_include_pad)
        return outputs, () if dx is None else (dx,)

    def difference(
        self, outputs: Sequence[Any], dxs: Sequence[Any] = (), *, count_include_pad: bool = True
    ) -> float:
        """The largest absolute difference over outputs and dxs, each cut by `sample_index`."""
        want, want_dxs = self.expected(count_include_pad)
        pairs = [*zip(outputs, want, strict=True), *zip(dxs, want_dxs, strict=bool(dxs))]
        return max(_largest_difference(*pair) for pair in pairs)

    def tolerance(self, with_dx: bool) -> float:
        """What rounding may explain: some units in the last place of the largest number."""
        if self._case.integer:
            return 0.0
        (y, *_), dxs = self.expected()
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
        return (y,), ()
    wins = [x == y for x in xs]
    share = dy / sum(w.astype(np.float64) for w in wins)
    return (y,), tuple(np.where(w, share, 0.0) for w in wins)


def _windowed(
    case: Case, x: np.ndarray, dy: np.ndarray | None, count_include_pad: bool
) -> tuple[tuple[np.ndarray, ...], np.ndarray | None]:
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
    outputs = (y, _where(case, chosen)) if case.op == ARGMAX else (sign * y,)
    if dy is None:
        return outputs, None

    d_padded = np.zeros_like(padded)
    for number, tap in enumerate(taps):
        d_padded[tap] += dy / divisor if averages else np.where(chosen == number, dy, 0.0)
    sizes = zip(widths, padded.shape, strict=True)
    inner = tuple(slice(low, size - high) for (low, high), size in sizes)
    return outputs, d_padded[inner]


def _where(case: Case, chosen: np.ndarray) -> np.ndarray:
    """The position in the unpadded input, flat over the pooled axes, of the chosen taps."""
    flat = np.zeros_like(chosen)
    offsets = np.unravel_index(chosen, case.window)
    geometry = zip(case.axes, offsets, case.strides, case.dilation, case.pads, strict=True)
    for axis, offset, stride, dilation, (low, _) in geometry:
        starts = stride * np.arange(chosen.shape[axis]) - low
        starts = starts.reshape([-1 if a == axis else 1 for a in range(chosen.ndim)])
        flat = flat * case.shape[axis] + starts + offset * dilation
    return flat


def _adaptive(
    case: Case, x: np.ndarray, dy: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Window by window, with the pooled axes in front."""
    front = tuple(range(len(case.axes)))
    x = np.moveaxis(x, case.axes, front)
    y = np.empty((*case.output, *x.shape[len(front) :]))
    dx = np.zeros_like(x)
    dy = None if dy is None else np.moveaxis(dy, case.axes, front)
    cuts = [spans(size, count) for size, count in zip(case.spatial_shape, case.output, strict=True)]
    for at in itertools.product(*map(range, case.output)):
        window = tuple(slice(*cut[i]) for cut, i in zip(cuts, at, strict=True))
        flat = x[window].reshape(-1, *y.shape[len(front) :])
        if case.op == "adaptive_avg_pool":
            y[at] = flat.mean(0)
            shares = np.full_like(flat, 1 / len(flat))
        else:
            first = flat.argmax(0)[None]
            y[at] = np.take_along_axis(flat, first, 0)[0]
            shares = np.zeros_like(flat)
            np.put_along_axis(shares, first, 1.0, 0)
        if dy is not None:
            dx[window] += (shares * dy[at]).reshape(x[window].shape)
    back = np.moveaxis(y, front, case.axes)
    return back, None if dy is None else np.moveaxis(dx, front, case.axes)


def _unpooled(
    case: Case, x: np.ndarray, positions: np.ndarray, dy: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Each element to its place, with the pooled axes in front and flat."""
    front = tuple(range(len(case.axes)))

    def flat(array: np.ndarray) -> np.ndarray:
        moved = np.moveaxis(array, case.axes, front)
        return moved.reshape(-1, *moved.shape[len(front) :])

    def folded(array: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
        return np.moveaxis(array.reshape(*sizes, *array.shape[1:]), front, case.axes)

    places = flat(positions)
    y = np.zeros((math.prod(case.output), *places.shape[1:]))
    np.put_along_axis(y, places, flat(x), 0)
    dx = None if dy is None else np.take_along_axis(flat(dy), places, 0)
    return folded(y, case.output), None if dx is None else folded(dx, case.spatial_shape)


def _running(
    case: Case, x: np.ndarray, dy: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Step by step along the axis: the cotangent goes to the first of the equal elements."""
    (axis,) = case.axes
    x = np.moveaxis(x, axis, 0)
    y = np.maximum.accumulate(x, 0)
    if dy is None:
        return np.moveaxis(y, 0, axis), None
    dy = np.moveaxis(dy, axis, 0)
    dx, held = np.zeros_like(x), np.zeros((1, *x.shape[1:]), np.int64)
    for step in range(len(x)):
        if step:
            held = np.where(x[step] > y[step - 1], step, held)
        got = np.take_along_axis(dx, held, 0)
        np.put_along_axis(dx, held, got + dy[step], 0)
    return np.moveaxis(y, 0, axis), np.moveaxis(dx, 0, axis)


def _whole(
    case: Case, x: np.ndarray, dy: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The maximum over all of the axes; the tied share the cotangent."""
    y = x.max(case.axes, keepdims=True)
    if dy is None:
        return y, None
    wins = x == y
    return y, np.where(wins, dy / wins.sum(case.axes, keepdims=True), 0.0)


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
