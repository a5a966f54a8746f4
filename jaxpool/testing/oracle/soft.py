"""Oracle of the soft pools: exponential weights (also over segments), norms and generalised means."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Reducer, Ties

# Exponentials

SOFT_RECORD_FIELDS: dict[str, Any] = {
    "adds": True,
    "choices": {"temperature": (0.5, 2.0)},
    "tolerance": 256.0,
    "covers": ("ties", "normal"),
}


def _scaled_exponentials(
    values: list[Any], temperature: float
) -> tuple[float, list[float], list[float], float]:
    """The maximum, the difference of each value from it, `exp(difference / temperature)`, and the sum of these."""
    maximum = max(map(float, values))
    offsets = [0.0 if value == maximum else float(value) - maximum for value in values]
    powers = [math.exp(offset / temperature) for offset in offsets]
    return maximum, offsets, powers, math.fsum(powers)


def _logsumexp_reducer(temperature: float) -> Reducer:
    """`temperature * log(sum of exp(value / temperature))`; the shares are the softmax weights."""

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        maximum, _, powers, total = _scaled_exponentials(values, temperature)
        return maximum + temperature * math.log(total), [power / total for power in powers]

    return reducer


def _softmax_mean_reducer(temperature: float) -> Reducer:
    """The mean of the values, weighted by `exp(value / temperature)`."""

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        # The offsets are exact for values close to the maximum, which have large weights.
        maximum, offsets, powers, total = _scaled_exponentials(values, temperature)
        pairs = [(power / total, offset) for power, offset in zip(powers, offsets, strict=True)]
        mean_offset = math.fsum(weight * offset for weight, offset in pairs if weight)
        shares = [
            weight * (1 + (offset - mean_offset) / temperature) if weight else 0.0
            for weight, offset in pairs
        ]
        return maximum + mean_offset, shares

    return reducer


def _pool_with_temperature(
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


def _with_tap_axis(parameter: Any) -> Any:
    """A number, or one number for each output, to combine with the elements of windows."""
    return parameter[..., None] if parameter.ndim else parameter


def _logsumexp_in_jnp(x: Any, windows: Windows, temperature: Any, where: Any) -> Any:
    values, tap_exists = jnp_windows.gather(x, windows, where)
    t = jnp.asarray(temperature, x.dtype)
    any_tap = tap_exists.any(-1)
    fill_value = jnp.where(any_tap[..., None], -np.inf, 0)
    powers = jnp.where(tap_exists, values / _with_tap_axis(t), fill_value)
    return jnp.where(any_tap, t * jax.scipy.special.logsumexp(powers, -1), -np.inf)


def _softmax_pool_in_jnp(x: Any, windows: Windows, temperature: Any, where: Any) -> Any:
    values, tap_exists = jnp_windows.gather(x, windows, where)
    t = _with_tap_axis(jnp.asarray(temperature, x.dtype))
    fill_value = jnp.where(tap_exists.any(-1, keepdims=True), -np.inf, 0)
    weights = jax.nn.softmax(jnp.where(tap_exists, values / t, fill_value), -1)
    return jnp.where(tap_exists, weights * values, 0).sum(-1)


@record(
    "logsumexp_pool", twin=_logsumexp_in_jnp, coefficients=("temperature",), **SOFT_RECORD_FIELDS
)
@record("segment_logsumexp", twin=_logsumexp_in_jnp, **SOFT_RECORD_FIELDS)
def logsumexp_of_windows(x: Any, windows: Windows, temperature: Any, where: Any) -> Answer:
    """The logarithm of the sum of the exponentials of each window."""
    identity = parts.extremum_identity(parts.mean_dtype(x), "max")
    return _pool_with_temperature(_logsumexp_reducer, x, windows, temperature, where, identity)


@record(twin=_softmax_pool_in_jnp, coefficients=("temperature",), **SOFT_RECORD_FIELDS)
def softmax_pool(x: Any, windows: Windows, temperature: Any, where: Any) -> Answer:
    """The mean weighted by exponentials, as in `jaxpool.softmax_pool`."""
    return _pool_with_temperature(_softmax_mean_reducer, x, windows, temperature, where, 0.0)


def _segment_softmax_in_jnp(x: Any, windows: Windows, temperature: Any, where: Any) -> Any:
    segment_of_row = np.full(len(x), -1)
    for segment, rows in enumerate(windows.element_positions[0]):
        segment_of_row[rows] = segment
    is_same = (segment_of_row[:, None] == segment_of_row) & (segment_of_row >= 0)
    mask = jnp.broadcast_to(True if where is None else jnp.asarray(where), x.shape)
    is_same = is_same.reshape(*is_same.shape, *[1] * (x.ndim - 1)) & mask & mask[:, None]
    powers = jnp.exp(jnp.where(mask, x, 0) / temperature)
    sums = jnp.where(is_same, powers, 0).sum(1)
    return jnp.where(sums > 0, powers / jnp.where(sums > 0, sums, 1), 0)


@record(twin=_segment_softmax_in_jnp, rounds_weights=True, **SOFT_RECORD_FIELDS)
def segment_softmax(x: Any, windows: Windows, temperature: Any, where: Any) -> Answer:
    """The softmax over the rows of each segment, as in `jaxpool.segment_softmax`."""
    x = np.asarray(x)
    mask = np.broadcast_to(True if where is None else where, x.shape)
    values, y, terms = as_exact_numbers(x), np.zeros(x.shape, object), []
    for rows in windows.element_positions[0]:
        for trailing_position in np.ndindex(*x.shape[1:]):
            positions: list[Position] = [(row, *trailing_position) for row in rows]
            positions = [position for position in positions if mask[position]]
            if not positions:
                continue
            shares = _logsumexp_reducer(temperature)([values[p] for p in positions])[1]
            for p, weight in zip(positions, shares, strict=True):
                y[p] = weight
                for q, share in zip(positions, shares, strict=True):
                    derivative = weight * ((q == p) - share) / temperature
                    terms.append(Term(p, 0, q, derivative))
    answer = Answer(round_to_dtype(y, parts.mean_dtype(x)), ((x.shape, x.dtype),), tuple(terms))
    return dataclasses.replace(answer, size=np.ones(x.shape))


# Powers


def _norm_reducer(p: float, ties: Ties) -> Reducer:
    """`(sum of |x|^p)^(1/p)`, scaled by the largest |x| to avoid overflow. If p is inf, `ties` applies to |x|."""

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        magnitudes = [abs(float(value)) for value in values]
        maximum, shares = parts.extremum_reducer(max, ties)(magnitudes)
        signs = [0.0 if value == 0 else -1.0 if value < 0 else 1.0 for value in values]
        if p == math.inf or maximum == 0:
            return maximum, [sign * share for sign, share in zip(signs, shares, strict=True)]
        if maximum == math.inf:
            return maximum, [sign * (p == 1) for sign in signs]
        ratios = [magnitude / maximum for magnitude in magnitudes]
        root = math.fsum(ratio**p for ratio in ratios) ** (1 / p)
        shares = [
            sign * (ratio / root) ** (p - 1)
            if sign and ratio and (size != math.inf or p == 1)
            else 0.0
            for sign, ratio, size in zip(signs, ratios, magnitudes, strict=True)
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
    covers=("ties", "normal"),
)
def lp_pool(x: Any, p: float, windows: Windows, where: Any, ties: Ties = "first") -> Answer:
    """The p-norm of each window, as in `jaxpool.lp_pool`."""
    reducer = parts.reducer_with_empty_value(_norm_reducer(p, ties), 0.0)
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
        powers = [1.0 if power == maximum else math.exp(power - maximum) for power in log_powers]
        total = math.fsum(powers)
        y = math.exp((maximum + math.log(total / len(values))) / p)
        if y == math.inf:
            return y, [0.0] * len(values)
        slopes = [0.5 if value == eps else float(value > eps) for value in values]
        triples = zip(slopes, powers, clipped_values, strict=True)
        return y, [slope * power / total * y / value for slope, power, value in triples]

    return reducer


def _gem_pool_in_jnp(x: Any, p: Any, windows: Windows, eps: float) -> Any:
    values, tap_exists = jnp_windows.gather(x, windows)
    exponent = jnp.asarray(p, x.dtype)
    clipped_values = jnp.maximum(jnp.where(tap_exists, values, 1), eps)
    powers = jnp.where(tap_exists, clipped_values ** _with_tap_axis(exponent), 0)
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
