"""Oracle of the pools with exponential weights: `logsumexp_pool` and `softmax_pool`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Reducer

__all__ = ["logsumexp_pool", "softmax_pool"]

SOFT_RECORD_FIELDS: dict[str, Any] = {
    "adds": True,
    "choices": {"temperature": (0.5, 2.0)},
    "tolerance": 256.0,
    "covers": ("ties", "normal"),
}


def _softmax_mean_reducer(temperature: float) -> Reducer:
    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        maximum, powers, total = parts.scaled_exponentials(values, temperature)
        # The difference is exact for values close to the maximum, which have large weights.
        offsets = [float(value) - maximum for value in values]
        mean_offset = math.fsum(p / total * b for p, b in zip(powers, offsets, strict=True))
        pairs = zip(powers, offsets, strict=True)
        return maximum + mean_offset, [
            power / total * (1 + (b - mean_offset) / temperature) for power, b in pairs
        ]

    return reducer


def pool_with_temperature(
    reducer_of_temperature: Callable[[float], Reducer],
    x: Any,
    windows: Windows,
    temperature: Any,
    where: Any,
    empty_value: Any,
) -> Answer:
    """Apply the rule of its temperature to each window; the result of an empty window is `empty_value`."""
    temperatures = np.broadcast_to(
        np.asarray(temperature, np.float64), windows.output_shape_of(np.shape(x))
    )

    def reducer_of_output(output: Position) -> Reducer:
        reducer = reducer_of_temperature(float(temperatures[output]))
        return parts.reducer_with_empty_value(reducer, empty_value)

    answer = parts.apply_reducer_to_windows(
        x, windows, reducer_of_output, parts.mean_dtype(x), where
    )
    maximum = np.abs(np.asarray(x, float)).max(initial=0)
    error_scale = maximum + temperatures * (1 + math.log(max(windows.taps_per_window, 1)))
    return dataclasses.replace(answer, size=error_scale)


def _windows_and_temperature(
    x: Any, windows: Windows, temperature: Any, where: Any
) -> tuple[Any, Any, Any, Any]:
    """The elements of each window, a mask of existing elements, and the temperature with and without a window axis."""
    values, tap_exists = jnp_windows.gather(x, windows, where)
    t = jnp.asarray(temperature, x.dtype)
    return values, tap_exists, t[..., None] if t.ndim else t, t


def logsumexp_in_jnp(x: Any, windows: Windows, temperature: Any, where: Any) -> Any:
    """The twin of `logsumexp_pool` and of `segment_logsumexp`."""
    values, tap_exists, tap_t, t = _windows_and_temperature(x, windows, temperature, where)
    any_tap = tap_exists.any(-1)
    powers = jnp.where(tap_exists, values / tap_t, jnp.where(any_tap[..., None], -np.inf, 0))
    return jnp.where(any_tap, t * jax.scipy.special.logsumexp(powers, -1), -np.inf)


def _softmax_pool_in_jnp(x: Any, windows: Windows, temperature: Any, where: Any) -> Any:
    values, tap_exists, tap_t, _ = _windows_and_temperature(x, windows, temperature, where)
    fill_value = jnp.where(tap_exists.any(-1, keepdims=True), -np.inf, 0)
    weights = jax.nn.softmax(jnp.where(tap_exists, values / tap_t, fill_value), -1)
    return jnp.where(tap_exists, weights * values, 0).sum(-1)


@record(twin=logsumexp_in_jnp, coefficients=("temperature",), **SOFT_RECORD_FIELDS)
def logsumexp_pool(x: Any, windows: Windows, temperature: Any, where: Any) -> Answer:
    """The logarithm of the sum of exponentials, as in `jaxpool.logsumexp_pool`."""
    identity = parts.extremum_identity(parts.mean_dtype(x), "max")
    return pool_with_temperature(parts.logsumexp_reducer, x, windows, temperature, where, identity)


@record(twin=_softmax_pool_in_jnp, coefficients=("temperature",), **SOFT_RECORD_FIELDS)
def softmax_pool(x: Any, windows: Windows, temperature: Any, where: Any) -> Answer:
    """The mean weighted by exponentials, as in `jaxpool.softmax_pool`."""
    return pool_with_temperature(_softmax_mean_reducer, x, windows, temperature, where, 0.0)
