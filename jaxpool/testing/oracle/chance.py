"""Expected results of the pools with a key. The oracle draws the same random numbers from the key as the pool."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer
from jaxpool.testing._record import record
from jaxpool.testing._windows import (
    WindowPositions,
    Windows,
    fractional_windows,
    pooled_axes,
    sliding_windows,
)
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Rule

__all__ = ["fractional_avg_pool", "fractional_max_pool", "stochastic_pool"]


def _random_dtype(x: Any) -> Any:
    """The dtype of the random numbers: float64 for a float64 x, else float32."""
    return np.float64 if x.dtype == np.float64 else np.float32


# Windows at random positions


def _uniform_samples(key: Any, x: Any, axes: Sequence[int]) -> Any:
    """A number in [0, 1) for each pooled axis of each lane."""
    lanes = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    return jax.random.uniform(key, (len(axes), *lanes), _random_dtype(x))


def _pool_fractional_windows(
    rule: Rule, dtype: Any, key: Any, x: Any, window_shape: Any, output_shape: Any, axes: Any
) -> Answer:
    x = np.asarray(x)
    pooled = pooled_axes(x.ndim, len(output_shape), axes)
    samples = np.asarray(_uniform_samples(key, x, pooled))

    def window_positions_of_lane(lane: Sequence[int]) -> WindowPositions:
        each = zip(samples, pooled, window_shape, output_shape, strict=True)
        return [fractional_windows(s[tuple(lane)], x.shape[axis], k, n) for s, axis, k, n in each]

    return parts.apply_rule(
        x, pooled, output_shape, window_positions_of_lane, lambda output: rule, dtype
    )


def _gather_fractional_windows(
    key: Any, x: Any, window_shape: Any, output_shape: Any, axes: Any
) -> Any:
    """The elements of each window along a new last axis."""
    pooled = pooled_axes(x.ndim, len(output_shape), axes)
    samples = _uniform_samples(key, x, pooled)
    for sample, axis, width, out in zip(samples, pooled, window_shape, output_shape, strict=True):
        size, kind = x.shape[axis], sample.dtype.type
        alpha = kind(size - width) / kind(max(1, out - 1))
        i = np.arange(out, dtype=kind).reshape([-1 if a == axis else 1 for a in range(sample.ndim)])
        starts = ((i + sample) * alpha).astype(int) - (sample * alpha).astype(int)
        starts = jnp.where(i == out - 1, size - width, starts)
        starts = starts.reshape(*starts.shape, *[1] * (x.ndim - starts.ndim))
        x = jnp.stack([jnp.take_along_axis(x, starts + t, axis) for t in range(width)], -1)
    ndim = samples.ndim - 1
    return x.reshape(*x.shape[:ndim], math.prod(window_shape))


def _fractional_max_pool_in_jnp(
    key: Any, x: Any, window_shape: Any, output_shape: Any, *, axes: Any = None
) -> Any:
    return _gather_fractional_windows(key, x, window_shape, output_shape, axes).max(-1)


@record(twin=_fractional_max_pool_in_jnp)
def fractional_max_pool(
    key: Any, x: Any, window_shape: Any, output_shape: Any, *, axes: Any = None
) -> Answer:
    """The largest element of each randomly placed window, as in `jaxpool.fractional_max_pool`."""
    rule, dtype = parts.extremum_rule(max, "first"), np.asarray(x).dtype
    return _pool_fractional_windows(rule, dtype, key, x, window_shape, output_shape, axes)


def _fractional_avg_pool_in_jnp(
    key: Any, x: Any, window_shape: Any, output_shape: Any, *, axes: Any = None
) -> Any:
    return _gather_fractional_windows(key, x, window_shape, output_shape, axes).mean(-1)


@record(twin=_fractional_avg_pool_in_jnp, adds=True)
def fractional_avg_pool(
    key: Any, x: Any, window_shape: Any, output_shape: Any, *, axes: Any = None
) -> Answer:
    """The mean of each randomly placed window, as in `jaxpool.fractional_avg_pool`."""
    dtype = parts.mean_dtype(x)
    answer = _pool_fractional_windows(
        parts.mean_rule, dtype, key, x, window_shape, output_shape, axes
    )
    return parts.without_indices(answer)


# Randomly drawn elements


def _uniform_per_window(key: Any, x: Any, windows: Windows) -> Any:
    """A random number in [0, 1) for each window, the fraction of the total weight that selects an element."""
    return jax.random.uniform(key, windows.output_shape_of(x.shape), _random_dtype(x))


def _sampling_rule(uniform_sample: Any) -> Rule:
    """The first element at which the cumulative weight exceeds the fraction `uniform_sample` of the total weight.

    If there is a NaN, it is the first NaN, and else the first infinite element, if there is one.
    """
    kind = type(uniform_sample)

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        weights = [kind(float(value)) if not value <= 0 else kind(0) for value in values]
        with np.errstate(over="ignore"):
            cumulative = list(itertools.accumulate(weights))
            if math.isinf(cumulative[-1]) and not any(map(math.isinf, weights)):
                small = kind(0.5 ** len(values).bit_length())
                cumulative = list(itertools.accumulate(weight * small for weight in weights))
        threshold = uniform_sample * cumulative[-1]
        if math.isnan(cumulative[-1]):
            selected = [math.isnan(each) for each in cumulative]
        elif math.isinf(cumulative[-1]):
            selected = [math.isinf(each) for each in cumulative]
        else:
            selected = [each > threshold for each in cumulative]
        at = selected.index(True) if True in selected else 0
        return values[at], [float(place == at) for place in range(len(values))]

    return rule


def _expected_value_rule(values: list[Any]) -> tuple[Any, list[float]]:
    """The expected value of a draw: each value weighted by itself. Without a positive value, the first element."""
    weights = [max(float(value), 0.0) for value in values]
    total = math.fsum(weights)
    if not total:
        return float(values[0]), [1.0, *[0.0] * (len(values) - 1)]
    y = math.fsum(weight * weight for weight in weights) / total
    return y, [(2 * weight - y) / total if weight else 0.0 for weight in weights]


def _stochastic_pool_in_jnp(key: Any, x: Any, *geometry: Any, **options: Any) -> Any:
    windows = sliding_windows(x.shape, *geometry, **options)
    values, exists = jnp_windows.gather_windows(x, windows.axes, windows.element_positions)
    weights = jnp.where(exists, jnp.maximum(values, 0), 0)
    if key is None:
        return (weights * weights).sum(-1) / weights.sum(-1)
    chance = _uniform_per_window(key, x, windows)[..., None]
    sums = jax.lax.stop_gradient(weights).astype(chance.dtype).cumsum(-1)
    best = jnp.where(sums[..., -1:] == 0, exists, sums > chance * sums[..., -1:]).argmax(-1)
    at = jax.nn.one_hot(best, values.shape[-1], dtype=values.dtype)
    return jnp.where(at > 0, values, 0).sum(-1)


def _returns_mean(key: Any, **other_arguments: Any) -> bool:
    return key is None


@record(
    twin=_stochastic_pool_in_jnp,
    adds=_returns_mean,
    usual={"x": abs},
    choices={"key": (None,)},
    tolerance=256.0,
    covers=("normal",),
)
def stochastic_pool(key: Any, x: Any, *geometry: Any, **options: Any) -> Answer:
    """An element of each window drawn in proportion to its value, or their mean, as in `jaxpool.stochastic_pool`."""
    x = np.asarray(x)
    windows = sliding_windows(x.shape, *geometry, **options)
    if key is None:
        answer = parts.apply_rule_to_windows(
            x, windows, lambda output: _expected_value_rule, parts.mean_dtype(x)
        )
        return parts.without_indices(answer, np.abs(answer.y.astype(float)))
    chance = np.asarray(_uniform_per_window(key, x, windows))
    return parts.apply_rule_to_windows(x, windows, lambda output: _sampling_rule(chance[output]))
