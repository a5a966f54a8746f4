"""What binomial averages of the reflected array should be, by themselves and of maxima."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxpool._geometry.window import Axis, Window, make_window
from jaxpool.testing import _twins as twins
from jaxpool.testing._answer import Answer, exact_sum
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle.windowed import max_pool

__all__ = ["blur_pool", "max_blur_pool"]


def _reflected(dim: Axis) -> list[list[int]]:
    """Along an axis, the element that each tap of each window falls on: the array is reflected at its ends."""
    turn = max(1, 2 * dim.size - 2)
    windows = [
        [(o * dim.stride - dim.low + t) % turn for t in range(dim.window)] for o in range(dim.out)
    ]
    return [[min(at, turn - at) if dim.size > 1 else 0 for at in own] for own in windows]


def _binomial(window: Window) -> np.ndarray:
    """The weight of each tap, in row-major order."""
    weights = np.ones(1)
    for n in window.window_shape:
        row = [math.comb(n - 1, tap) / 2 ** (n - 1) for tap in range(n)]
        weights = np.multiply.outer(weights, row).ravel()
    return weights


def _blurred(
    x: Any, window_shape: Any, strides: Any = None, padding: Any = "SAME", *, axes: Any = None
) -> Any:
    window = make_window(x.shape, window_shape, strides, padding, axes=axes)
    lists = [_reflected(dim) for dim in window.dims]
    return (twins.side_by_side(x, window.axes, lists)[0] * _binomial(window)).sum(-1)


@record(twin=_blurred, adds=True, covers=("ties", "normal"))
def blur_pool(
    x: Any, window_shape: Any, strides: Any = None, padding: Any = "SAME", *, axes: Any = None
) -> Answer:
    """The binomial average of each window of the reflected x, as in `jaxpool.blur_pool`."""
    window = make_window(np.shape(x), window_shape, strides, padding, axes=axes)
    weights = _binomial(window).tolist()

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        pairs = zip(weights, values, strict=True)
        return exact_sum([share * float(value) for share, value in pairs]), weights

    lists = [_reflected(dim) for dim in window.dims]
    answer = parts.pool(x, window.axes, lists, lambda output: rule, parts.float_dtype(x))
    return parts.summed(answer)


def _sharpest(
    x: Any,
    window_shape: Any,
    blur_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    *,
    axes: Any = None,
) -> Any:
    largest = twins.largest(*twins.windows(x, window_shape, None, padding, axes=axes))
    return _blurred(largest, blur_shape, strides, padding, axes=axes)


@record(twin=_sharpest, adds=True, covers=("ties", "normal"))
def max_blur_pool(
    x: Any,
    window_shape: Any,
    blur_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    *,
    axes: Any = None,
) -> Answer:
    """The blur of the maxima, as in `jaxpool.max_blur_pool`: one pool after the other."""
    largest = max_pool(x, window_shape, None, padding, axes=axes)
    return parts.after(blur_pool(largest.y, blur_shape, strides, padding, axes=axes), largest)
