"""Oracle of the pools with a PRNG key. The oracle draws the same random numbers from the key as the pool."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows, fractional_windows, pooled_axes
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Element, Reducer, Ties


def _random_dtype(x: Any) -> Any:
    """The dtype of the random numbers: float64 for a float64 x, else float32."""
    return np.float64 if x.dtype == np.float64 else np.float32


# Windows at random positions


def _uniform_samples(key: Any, x: Any, axes: Sequence[int]) -> Any:
    """A random number in [0, 1) for each pooled axis, at each position along the other axes."""
    lane_shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    return jax.random.uniform(key, (len(axes), *lane_shape), _random_dtype(x))


def _fractional_pool(
    kind: str,
    key: Any,
    x: Any,
    window_shape: Any,
    output_shape: Any,
    axes: Any,
    ties: Ties = "first",
) -> Answer:
    """The largest element or the mean of each randomly placed window."""
    x = np.asarray(x)
    reducer = parts.mean_reducer if kind == "avg" else parts.extremum_reducer(max, ties)
    dtype = parts.mean_dtype(x) if kind == "avg" else x.dtype
    window_axes = pooled_axes(x.ndim, len(output_shape), axes)
    samples = np.asarray(_uniform_samples(key, x, window_axes))
    origin = (0,) * len(window_axes)

    def elements_of_output(output: Position) -> list[Element]:
        lane, window = parts.merge_positions(output, window_axes, origin), []
        for sample, axis, k, n in zip(
            samples, window_axes, window_shape, output_shape, strict=True
        ):
            window.append(fractional_windows(sample[lane], x.shape[axis], k, n)[output[axis]])
        return parts.window_elements(output, window_axes, window)

    shape = parts.merge_positions(x.shape, window_axes, output_shape)
    return parts.apply_reducer([x], shape, elements_of_output, lambda output: reducer, dtype)


def _fractional_pool_in_jnp(
    kind: str, key: Any, x: Any, window_shape: Any, output_shape: Any, axes: Any
) -> Any:
    pooled = pooled_axes(x.ndim, len(output_shape), axes)
    samples = _uniform_samples(key, x, pooled)
    ndim = x.ndim
    for sample, axis, width, out in zip(samples, pooled, window_shape, output_shape, strict=True):
        size, float_type = x.shape[axis], sample.dtype.type
        alpha = float_type(size - width) / float_type(max(1, out - 1))
        i = np.arange(out, dtype=float_type).reshape([-1 if a == axis else 1 for a in range(ndim)])
        starts = ((i + sample) * alpha).astype(int) - (sample * alpha).astype(int)
        starts = jnp.where(i == out - 1, size - width, starts)
        starts = starts.reshape(*starts.shape, *[1] * (x.ndim - ndim))
        x = jnp.stack([jnp.take_along_axis(x, starts + t, axis) for t in range(width)], -1)
    taps = x.reshape(*x.shape[:ndim], math.prod(window_shape))
    return taps.mean(-1) if kind == "avg" else taps.max(-1)


for kind in ("max", "avg"):
    record(
        f"fractional_{kind}_pool",
        twin=partial(_fractional_pool_in_jnp, kind),
        adds=kind == "avg",
    )(partial(_fractional_pool, kind))


# Randomly drawn elements


def _uniform_per_window(key: Any, x: Any, windows: Windows) -> Any:
    """A random number in [0, 1) for each window, the fraction of the total weight that selects an element."""
    return jax.random.uniform(key, windows.output_shape_of(x.shape), _random_dtype(x))


def _sampling_reducer(uniform_sample: Any) -> Reducer:
    """A rule: the first element where the cumulative weight exceeds `uniform_sample` times the total weight.

    If the window has a NaN, the rule selects the first NaN, or else the first infinite element, if there is one.
    """
    kind = type(uniform_sample)

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        weights = [kind(float(value)) if not value <= 0 else kind(0) for value in values]
        with np.errstate(over="ignore"):
            partial_sums = list(itertools.accumulate(weights))
            if math.isinf(partial_sums[-1]) and not any(map(math.isinf, weights)):
                factor = kind(0.5 ** len(values).bit_length())
                partial_sums = list(itertools.accumulate(weight * factor for weight in weights))
        threshold = uniform_sample * partial_sums[-1]
        if math.isnan(partial_sums[-1]):
            is_selected = [math.isnan(partial_sum) for partial_sum in partial_sums]
        elif math.isinf(partial_sums[-1]):
            is_selected = [math.isinf(partial_sum) for partial_sum in partial_sums]
        else:
            is_selected = [partial_sum > threshold for partial_sum in partial_sums]
        index = is_selected.index(True) if True in is_selected else 0
        return values[index], [float(i == index) for i in range(len(values))]

    return reducer


def _expected_value_reducer(values: list[Any]) -> tuple[Any, list[float]]:
    """The expected value of a draw: each value weighted by itself; the first element if no value is positive."""
    weights = [max(float(value), 0.0) for value in values]
    total = math.fsum(weights)
    if not total:
        return float(values[0]), [1.0, *[0.0] * (len(values) - 1)]
    y = math.fsum(weight * weight for weight in weights) / total
    return y, [(2 * weight - y) / total if weight else 0.0 for weight in weights]


def _stochastic_pool_in_jnp(key: Any, x: Any, windows: Windows) -> Any:
    values, tap_exists = jnp_windows.gather(x, windows)
    weights = jnp.where(tap_exists, jnp.maximum(values, 0), 0)
    if key is None:
        return (weights * weights).sum(-1) / weights.sum(-1)
    sample = _uniform_per_window(key, x, windows)[..., None]
    sums = jax.lax.stop_gradient(weights).astype(sample.dtype).cumsum(-1)
    tap = jnp.where(sums[..., -1:] == 0, tap_exists, sums > sample * sums[..., -1:]).argmax(-1)
    one_hot = jax.nn.one_hot(tap, values.shape[-1], dtype=values.dtype)
    return jnp.where(one_hot > 0, values, 0).sum(-1)


@record(
    twin=_stochastic_pool_in_jnp,
    adds=lambda key, **others: key is None,
    usual={"x": abs},
    choices={"key": (None,)},
    tolerance=256.0,
    covers=("normal",),
)
def stochastic_pool(key: Any, x: Any, windows: Windows) -> Answer:
    """A random element of each window, or without a key the expected value, as in `jaxpool.stochastic_pool`."""
    x = np.asarray(x)
    if key is None:
        answer = parts.apply_reducer_to_windows(
            x, windows, lambda output: _expected_value_reducer, parts.mean_dtype(x)
        )
        return parts.scale_error_by_value(answer)
    samples = np.asarray(_uniform_per_window(key, x, windows))
    return parts.apply_reducer_to_windows(
        x, windows, lambda output: _sampling_reducer(samples[output])
    )
