"""Oracle of the segment functions, which pool the rows of x with the same segment id."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties

__all__ = [
    "segment_logsumexp",
    "segment_max",
    "segment_max_with_argmax",
    "segment_mean",
    "segment_min",
    "segment_softmax",
    "segment_sum",
]


def _positions_in_segment(
    x: np.ndarray, segment_ids: Any, where: Any, segment: int, trailing_position: Position
) -> list[Position]:
    """The elements of a segment at position `trailing_position` of the trailing axes that are True in `where`."""
    mask = np.broadcast_to(True if where is None else where, x.shape)
    segment_positions = [
        (int(n), *trailing_position) for n in np.flatnonzero(np.asarray(segment_ids) == segment)
    ]
    return [position for position in segment_positions if mask[position]]


def _reduce_segments(
    x: Any,
    segment_ids: Any,
    num_segments: int,
    reducer: parts.Reducer,
    empty_value: Any,
    dtype: Any,
    where: Any,
) -> Answer:
    x = np.asarray(x)
    values, terms = as_exact_numbers(x), []
    y = np.full((num_segments, *x.shape[1:]), empty_value, object)
    indices = np.full(y.shape, len(x), np.int32)
    for output in np.ndindex(*y.shape):
        positions = _positions_in_segment(x, segment_ids, where, output[0], output[1:])
        if positions:
            y[output], shares = reducer([values[position] for position in positions])
            terms += [Term(output, 0, p, s) for p, s in zip(positions, shares, strict=True) if s]
            indices[output] = next(p for p, s in zip(positions, shares, strict=True) if s)[0]
    return Answer(round_to_dtype(y, dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def _num_segments(segment_ids: Any, num_segments: int | None) -> int:
    """The number of segments; None is the largest id plus 1."""
    return int(np.max(segment_ids, initial=-1)) + 1 if num_segments is None else num_segments


def _segment_extremum(
    kind: Any, x: Any, segment_ids: Any, num_segments: int | None, ties: Ties, where: Any
) -> Answer:
    dtype, checked_num_segments = np.asarray(x).dtype, _num_segments(segment_ids, num_segments)
    reducer = parts.extremum_reducer(builtins.max if kind == "max" else builtins.min, ties)
    return _reduce_segments(
        x,
        segment_ids,
        checked_num_segments,
        reducer,
        parts.extremum_identity(dtype, kind),
        dtype,
        where,
    )


def _gather_segments(
    x: Any, segment_ids: Any, num_segments: int | None, where: Any
) -> tuple[Any, Any, Any]:
    """The rows of each segment along a new last axis, their `where` mask, and their row numbers."""
    row_lists = [
        np.flatnonzero(np.asarray(segment_ids) == s).tolist()
        for s in range(_num_segments(segment_ids, num_segments))
    ]
    values, tap_exists = jnp_windows.gather_windows_where(x, where, (0,), [row_lists])
    row_numbers = jnp.arange(x.shape[0]).reshape(-1, *[1] * (x.ndim - 1))
    return values, tap_exists, jnp_windows.gather_windows(row_numbers, (0,), [row_lists])[0]


def _make_segment_pool_in_jnp(reduce_taps: Callable[..., Any]) -> Callable[..., Any]:
    def jnp_function(
        x: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        *,
        where: Any = None,
        indices_are_sorted: bool = False,
        ties: Any = None,
    ) -> Any:
        return reduce_taps(*_gather_segments(x, segment_ids, num_segments, where)[:2])

    return jnp_function


@record(twin=_make_segment_pool_in_jnp(jnp_windows.max_over_taps))
def segment_max(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    where: Any = None,
    indices_are_sorted: bool = False,
    ties: Ties = "split",
) -> Answer:
    """The largest row of each segment, as in `jaxpool.segment_max`."""
    return parts.drop_indices(_segment_extremum("max", x, segment_ids, num_segments, ties, where))


def _segment_max_with_argmax_in_jnp(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    where: Any = None,
    indices_are_sorted: bool = False,
    ties: Any = None,
) -> tuple[Any, Any]:
    values, tap_exists, numbers = _gather_segments(x, segment_ids, num_segments, where)
    y = jnp_windows.max_over_taps(values, tap_exists)
    rows = jnp.where(tap_exists & (values == y[..., None]), numbers, len(x)).min(-1, initial=len(x))
    return y, rows.astype(np.int32)


@record(twin=_segment_max_with_argmax_in_jnp)
def segment_max_with_argmax(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    where: Any = None,
    indices_are_sorted: bool = False,
    ties: Ties = "first",
) -> Answer:
    """The largest row of each segment and its number, as in `jaxpool.segment_max_with_argmax`."""
    return _segment_extremum("max", x, segment_ids, num_segments, ties, where)


@record(twin=_make_segment_pool_in_jnp(jnp_windows.min_over_taps))
def segment_min(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    where: Any = None,
    indices_are_sorted: bool = False,
    ties: Ties = "split",
) -> Answer:
    """The smallest row of each segment, as in `jaxpool.segment_min`."""
    return parts.drop_indices(_segment_extremum("min", x, segment_ids, num_segments, ties, where))


@record(twin=_make_segment_pool_in_jnp(jnp_windows.mean_over_taps), adds=True)
def segment_mean(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Answer:
    """The mean of the rows of each segment, 0 for an empty segment, as in `jaxpool.segment_mean`."""
    dtype, count = parts.mean_dtype(x), _num_segments(segment_ids, num_segments)
    return parts.drop_indices(
        _reduce_segments(x, segment_ids, count, parts.mean_reducer, 0.0, dtype, where)
    )


@record(twin=_make_segment_pool_in_jnp(jnp_windows.sum_over_taps), adds=True, keeps_integers=True)
def segment_sum(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Answer:
    """The sum of the rows of each segment, as in `jaxpool.segment_sum`."""
    dtype, count = np.asarray(x).dtype, _num_segments(segment_ids, num_segments)
    return parts.drop_indices(
        _reduce_segments(x, segment_ids, count, parts.sum_reducer, 0, dtype, where)
    )


# Exponentials

SOFT_RECORD_FIELDS: dict[str, Any] = {
    "adds": True,
    "choices": {"temperature": (0.5, 2.0)},
    "tolerance": 256.0,
    "covers": ("ties", "normal"),
}


def _segment_logsumexp_in_jnp(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Any:
    values, tap_exists, _ = _gather_segments(x, segment_ids, num_segments, where)
    powers = jnp.where(tap_exists, values / temperature, -np.inf)
    return temperature * jax.scipy.special.logsumexp(powers, -1)


@record(twin=_segment_logsumexp_in_jnp, **SOFT_RECORD_FIELDS)
def segment_logsumexp(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Answer:
    """The logarithm of the sum of exponentials of each segment, as in `jaxpool.segment_logsumexp`."""
    dtype, count = parts.mean_dtype(x), _num_segments(segment_ids, num_segments)
    identity, reducer = parts.extremum_identity(dtype, "max"), parts.logsumexp_reducer(temperature)
    answer = _reduce_segments(x, segment_ids, count, reducer, identity, dtype, where)
    return parts.drop_indices(
        answer, np.abs(np.asarray(x, float)).max(initial=0) + 10 * temperature
    )


def _segment_softmax_in_jnp(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Any:
    ids = np.asarray(segment_ids)
    is_same = (ids[:, None] == ids) & (ids >= 0) & (ids < _num_segments(segment_ids, num_segments))
    mask = jnp.broadcast_to(True if where is None else jnp.asarray(where), x.shape)
    is_same = is_same.reshape(*is_same.shape, *[1] * (x.ndim - 1)) & mask & mask[:, None]
    powers = jnp.exp(jnp.where(mask, x, 0) / temperature)
    sums = jnp.where(is_same, powers, 0).sum(1)
    return jnp.where(sums > 0, powers / jnp.where(sums > 0, sums, 1), 0)


@record(twin=_segment_softmax_in_jnp, rounds_weights=True, **SOFT_RECORD_FIELDS)
def segment_softmax(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: Any = None,
    indices_are_sorted: bool = False,
) -> Answer:
    """The softmax over the rows of each segment, as in `jaxpool.segment_softmax`."""
    x = np.asarray(x)
    values, y, terms = as_exact_numbers(x), np.zeros(x.shape, object), []
    for segment in range(_num_segments(segment_ids, num_segments)):
        for trailing_position in np.ndindex(*x.shape[1:]):
            positions = _positions_in_segment(x, segment_ids, where, segment, trailing_position)
            if not positions:
                continue
            shares = parts.logsumexp_reducer(temperature)([values[p] for p in positions])[1]
            for p, weight in zip(positions, shares, strict=True):
                y[p] = weight
                for q, share in zip(positions, shares, strict=True):
                    derivative = weight * ((q == p) - share) / temperature
                    terms.append(Term(p, 0, q, derivative))
    answer = Answer(round_to_dtype(y, parts.mean_dtype(x)), ((x.shape, x.dtype),), tuple(terms))
    return parts.drop_indices(answer, np.ones(x.shape))
