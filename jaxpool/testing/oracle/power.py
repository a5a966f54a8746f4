"""Oracle of `lp_pool` (norms of windows) and `gem_pool` (generalised means of windows)."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position
from jaxpool.testing._record import record
from jaxpool.testing._windows import sliding_windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Rule

__all__ = ["gem_pool", "lp_pool"]

FINITE_VALUE_KINDS = ("ties", "normal")


def _norm_rule(p: float) -> Rule:
    """`(sum of |x|^p)^(1/p)`, scaled by the largest |x| to avoid overflow."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        sizes = [abs(float(value)) for value in values]
        largest = max(sizes)
        signs = [math.copysign(1.0, value) if value else 0.0 for value in values]
        if p == math.inf or largest == 0:
            first = sizes.index(largest)
            shares = [sign if i == first else 0.0 for i, sign in enumerate(signs)]
            return largest, shares if p == math.inf else [0.0] * len(values)
        scaled = [size / largest for size in sizes]
        root = math.fsum(part**p for part in scaled) ** (1 / p)
        shares = [
            sign * (part / root) ** (p - 1) if part else 0.0
            for sign, part in zip(signs, scaled, strict=True)
        ]
        return largest * root, shares

    return rule


def _lp_pool_in_jnp(x: Any, p: float, *geometry: Any, **options: Any) -> Any:
    values, exists = jnp_windows.gather_pool_windows(x, *geometry, **options)
    if p == math.inf:
        return jnp_windows.max_over_taps(jnp.abs(jnp.where(exists, values, 0)), True)
    powers = jnp.abs(jnp.where(exists, values, 1)) ** p
    total = jnp.where(exists, powers, 0).sum(-1)
    nonempty = exists.any(-1)
    return jnp.where(nonempty, jnp.where(nonempty, total, 1) ** (1 / p), 0)


@record(
    twin=_lp_pool_in_jnp,
    adds=True,
    choices={"p": (1.0, 2.0, math.inf)},
    tolerance=256.0,
    covers=FINITE_VALUE_KINDS,
)
def lp_pool(x: Any, p: float, *geometry: Any, where: Any = None, **options: Any) -> Answer:
    """The p-norm of each window; `geometry` and `options` as in `jaxpool.lp_pool`."""
    windows = sliding_windows(np.shape(x), *geometry, **options)
    rule = parts.rule_with_empty_value(_norm_rule(p), 0.0)
    answer = parts.apply_rule_to_windows(
        x, windows, lambda output: rule, parts.mean_dtype(x), where
    )
    return parts.without_indices(answer, np.abs(answer.y.astype(float)))


def _generalised_mean_rule(p: float, eps: float) -> Rule:
    """`(mean of max(x, eps)^p)^(1/p)`, computed with logarithms. An element equal to eps gets half the derivative."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        clipped = [max(float(value), eps) for value in values]
        heights = [p * math.log(value) for value in clipped]
        maximum = max(heights)
        powers = [math.exp(height - maximum) for height in heights]
        total = math.fsum(powers)
        y = math.exp((maximum + math.log(total / len(values))) / p)
        slopes = [0.5 if value == eps else float(value > eps) for value in values]
        triples = zip(slopes, powers, clipped, strict=True)
        return y, [slope * power / total * y / value for slope, power, value in triples]

    return rule


def _gem_pool_in_jnp(x: Any, p: Any, *geometry: Any, eps: float = 1e-6, **options: Any) -> Any:
    values, exists = jnp_windows.gather_pool_windows(x, *geometry, **options)
    power = jnp.asarray(p, x.dtype)
    tap_power = power[..., None] if power.ndim else power
    powers = jnp.where(exists, jnp.maximum(jnp.where(exists, values, 1), eps) ** tap_power, 0)
    return jnp_windows.mean_over_taps(powers, exists) ** (1 / power)


@record(
    twin=_gem_pool_in_jnp,
    adds=True,
    usual={"x": abs},
    choices={"p": (1.0, 2.0, -1.0, 0.5)},
    coefficients=("p",),
    tolerance=256.0,
    covers=("normal",),
)
def gem_pool(x: Any, p: Any, *geometry: Any, eps: float = 1e-6, **options: Any) -> Answer:
    """The generalised mean of each window; `geometry` and `options` as in `jaxpool.gem_pool`."""
    windows = sliding_windows(np.shape(x), *geometry, **options)
    powers = np.broadcast_to(np.asarray(p, np.float64), windows.output_shape_of(np.shape(x)))

    def rule_of_output(output: Position) -> Rule:
        return _generalised_mean_rule(float(powers[output]), eps)

    answer = parts.apply_rule_to_windows(x, windows, rule_of_output, parts.mean_dtype(x))
    return parts.without_indices(answer, np.abs(answer.y.astype(float)))
