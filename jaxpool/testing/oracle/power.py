"""Oracle of `lp_pool` (norms of windows) and `gem_pool` (generalised means of windows)."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Reducer

__all__ = ["gem_pool", "lp_pool"]

FINITE_VALUE_KINDS = ("ties", "normal")


def _norm_reducer(p: float) -> Reducer:
    """`(sum of |x|^p)^(1/p)`, scaled by the largest |x| to avoid overflow."""

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        magnitudes = [abs(float(value)) for value in values]
        maximum = max(magnitudes)
        signs = [math.copysign(1.0, value) if value else 0.0 for value in values]
        if p == math.inf or maximum == 0:
            first_index = magnitudes.index(maximum)
            shares = [sign if i == first_index else 0.0 for i, sign in enumerate(signs)]
            return maximum, shares if p == math.inf else [0.0] * len(values)
        ratios = [magnitude / maximum for magnitude in magnitudes]
        root = math.fsum(ratio**p for ratio in ratios) ** (1 / p)
        shares = [
            sign * (ratio / root) ** (p - 1) if ratio else 0.0
            for sign, ratio in zip(signs, ratios, strict=True)
        ]
        return maximum * root, shares

    return reducer


def _lp_pool_in_jnp(x: Any, p: float, windows: Windows, where: Any) -> Any:
    values, tap_exists = jnp_windows.gather(x, windows, where)
    if p == math.inf:
        return jnp_windows.max_over_taps(jnp.abs(jnp.where(tap_exists, values, 0)), True)
    powers = jnp.abs(jnp.where(tap_exists, values, 1)) ** p
    total = jnp.where(tap_exists, powers, 0).sum(-1)
    any_tap = tap_exists.any(-1)
    return jnp.where(any_tap, jnp.where(any_tap, total, 1) ** (1 / p), 0)


@record(
    twin=_lp_pool_in_jnp,
    adds=True,
    choices={"p": (1.0, 2.0, math.inf)},
    tolerance=256.0,
    covers=FINITE_VALUE_KINDS,
)
def lp_pool(x: Any, p: float, windows: Windows, where: Any) -> Answer:
    """The p-norm of each window, as in `jaxpool.lp_pool`."""
    reducer = parts.reducer_with_empty_value(_norm_reducer(p), 0.0)
    answer = parts.apply_reducer_to_windows(
        x, windows, lambda output: reducer, parts.mean_dtype(x), where
    )
    return parts.scale_error_by_value(answer)


def _generalised_mean_reducer(p: float, eps: float) -> Reducer:
    """`(mean of max(x, eps)^p)^(1/p)`, computed with logarithms. An element equal to eps gets half the derivative."""

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        clipped_values = [max(float(value), eps) for value in values]
        log_powers = [p * math.log(value) for value in clipped_values]
        maximum = max(log_powers)
        powers = [math.exp(log_power - maximum) for log_power in log_powers]
        total = math.fsum(powers)
        y = math.exp((maximum + math.log(total / len(values))) / p)
        slopes = [0.5 if value == eps else float(value > eps) for value in values]
        triples = zip(slopes, powers, clipped_values, strict=True)
        return y, [slope * power / total * y / value for slope, power, value in triples]

    return reducer


def _gem_pool_in_jnp(x: Any, p: Any, windows: Windows, eps: float) -> Any:
    values, tap_exists = jnp_windows.gather(x, windows)
    exponent = jnp.asarray(p, x.dtype)
    tap_exponent = exponent[..., None] if exponent.ndim else exponent
    powers = jnp.where(
        tap_exists, jnp.maximum(jnp.where(tap_exists, values, 1), eps) ** tap_exponent, 0
    )
    return jnp_windows.mean_over_taps(powers, tap_exists) ** (1 / exponent)


@record(
    twin=_gem_pool_in_jnp,
    adds=True,
    usual={"x": abs},
    choices={"p": (1.0, 2.0, -1.0, 0.5)},
    coefficients=("p",),
    tolerance=256.0,
    covers=("normal",),
)
def gem_pool(x: Any, p: Any, windows: Windows, eps: float) -> Answer:
    """The generalised mean of each window, as in `jaxpool.gem_pool`."""
    exponents = np.broadcast_to(np.asarray(p, np.float64), windows.output_shape_of(np.shape(x)))

    def reducer_of_output(output: Position) -> Reducer:
        return _generalised_mean_reducer(float(exponents[output]), eps)

    answer = parts.apply_reducer_to_windows(x, windows, reducer_of_output, parts.mean_dtype(x))
    return parts.scale_error_by_value(answer)
