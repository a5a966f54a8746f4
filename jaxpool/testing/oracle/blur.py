"""Oracle of `blur_pool`, a binomial average of the reflected array, and of `max_blur_pool`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, exact_sum
from jaxpool.testing._record import record
from jaxpool.testing._windows import WindowPositions, Windows, sliding_windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle.windowed import max_pool

__all__ = ["blur_pool", "max_blur_pool"]


def _reflected_positions(windows: Windows) -> WindowPositions:
    """The input position of each window element. The array is reflected without repeating its end elements."""

    def reflect(position: int, size: int) -> int:
        position = abs(position) % max(1, 2 * size - 2)
        return min(position, 2 * size - 2 - position) if size > 1 else 0

    return [
        [[reflect(tap, size) for tap in taps] for taps in axis_windows]
        for size, axis_windows in zip(windows.input_shape, windows.tap_positions, strict=True)
    ]


def _binomial_weights(windows: Windows) -> np.ndarray:
    """The binomial weight of each element of a window, in row-major order."""
    weights = np.ones(1)
    for n in windows.window_shape:
        axis_weights = [math.comb(n - 1, tap) / 2 ** (n - 1) for tap in range(n)]
        weights = np.multiply.outer(weights, axis_weights).ravel()
    return weights


def _blur_pool_in_jnp(x: Any, windows: Windows) -> Any:
    values, _ = jnp_windows.gather_windows(x, windows.axes, _reflected_positions(windows))
    return (values * _binomial_weights(windows)).sum(-1)


@record(twin=_blur_pool_in_jnp, adds=True, covers=("ties", "normal"))
def blur_pool(x: Any, windows: Windows) -> Answer:
    """The binomial average of each window of the reflected x, as in `jaxpool.blur_pool`."""
    positions, weights = _reflected_positions(windows), _binomial_weights(windows).tolist()

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        pairs = zip(weights, values, strict=True)
        return exact_sum([share * float(value) for share, value in pairs]), weights

    axes, output_shape = windows.axes, windows.output_shape
    dtype = parts.mean_dtype(x)
    return parts.apply_reducer(x, axes, output_shape, lambda _: positions, lambda _: reducer, dtype)


def _max_blur_pool_in_jnp(
    x: Any, window_shape: Any, blur_shape: Any, strides: Any, padding: Any, axes: Any
) -> Any:
    windows = sliding_windows(x.shape, window_shape, None, padding, axes=axes)
    maxima = jnp_windows.max_over_taps(*jnp_windows.gather(x, windows))
    blur_windows = sliding_windows(maxima.shape, blur_shape, strides, padding, axes=axes)
    return _blur_pool_in_jnp(maxima, blur_windows)


@record(twin=_max_blur_pool_in_jnp, adds=True, covers=("ties", "normal"))
def max_blur_pool(
    x: Any, window_shape: Any, blur_shape: Any, strides: Any, padding: Any, axes: Any
) -> Answer:
    """A blur pool of a max pool, as in `jaxpool.max_blur_pool`."""
    max_answer = max_pool(x, window_shape, None, padding, axes=axes)
    return parts.compose_answers(
        blur_pool(max_answer.y, blur_shape, strides, padding, axes=axes), max_answer
    )
