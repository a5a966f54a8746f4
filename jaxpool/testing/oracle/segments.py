"""Oracle of the segment functions. The rows of x with one segment id are a window along axis 0."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties
from jaxpool.testing.oracle.soft import SOFT_RECORD_FIELDS, logsumexp_in_jnp, pool_with_temperature

__all__ = [
    "segment_logsumexp",
    "segment_max",
    "segment_max_with_argmax",
    "segment_mean",
    "segment_min",
    "segment_softmax",
    "segment_sum",
]


@record(twin=jnp_windows.twin_of_windows(jnp_windows.max_over_taps))
def segment_max(x: Any, windows: Windows, where: Any, ties: Ties) -> Answer:
    """The largest row of each segment, as in `jaxpool.segment_max`."""
    return parts.extremum_of_windows("max", x, windows, ties, where)


def _segment_max_with_argmax_in_jnp(x: Any, windows: Windows, where: Any) -> tuple[Any, Any]:
    values, tap_exists = jnp_windows.gather(x, windows, where)
    numbers, _ = jnp_windows.gather(jnp.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1)), windows)
    y = jnp_windows.max_over_taps(values, tap_exists)
    rows = jnp.where(tap_exists & (values == y[..., None]), numbers, len(x)).min(-1, initial=len(x))
    return y, rows.astype(np.int32)


@record(twin=_segment_max_with_argmax_in_jnp)
def segment_max_with_argmax(x: Any, windows: Windows, where: Any, ties: Ties) -> Answer:
    """The largest row of each segment and its number, as in `jaxpool.segment_max_with_argmax`."""
    return parts.extremum_of_windows("max", x, windows, ties, where)


@record(twin=jnp_windows.twin_of_windows(jnp_windows.min_over_taps))
def segment_min(x: Any, windows: Windows, where: Any, ties: Ties) -> Answer:
    """The smallest row of each segment, as in `jaxpool.segment_min`."""
    return parts.extremum_of_windows("min", x, windows, ties, where)


@record(twin=jnp_windows.twin_of_windows(jnp_windows.mean_over_taps), adds=True)
def segment_mean(x: Any, windows: Windows, where: Any) -> Answer:
    """The mean of the rows of each segment, 0 for an empty segment, as in `jaxpool.segment_mean`."""
    return parts.mean_of_windows(x, windows, where)


@record(twin=jnp_windows.twin_of_windows(jnp_windows.sum_over_taps), adds=True, keeps_integers=True)
def segment_sum(x: Any, windows: Windows, where: Any) -> Answer:
    """The sum of the rows of each segment, as in `jaxpool.segment_sum`."""
    return parts.apply_reducer_to_windows(x, windows, lambda output: parts.sum_reducer, where=where)


# Exponentials


@record(twin=logsumexp_in_jnp, **SOFT_RECORD_FIELDS)
def segment_logsumexp(x: Any, windows: Windows, temperature: Any, where: Any) -> Answer:
    """The logarithm of the sum of exponentials of each segment, as in `jaxpool.segment_logsumexp`."""
    identity = parts.extremum_identity(parts.mean_dtype(x), "max")
    return pool_with_temperature(parts.logsumexp_reducer, x, windows, temperature, where, identity)


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
            shares = parts.logsumexp_reducer(temperature)([values[p] for p in positions])[1]
            for p, weight in zip(positions, shares, strict=True):
                y[p] = weight
                for q, share in zip(positions, shares, strict=True):
                    derivative = weight * ((q == p) - share) / temperature
                    terms.append(Term(p, 0, q, derivative))
    answer = Answer(round_to_dtype(y, parts.mean_dtype(x)), ((x.shape, x.dtype),), tuple(terms))
    return dataclasses.replace(answer, size=np.ones(x.shape))
