"""What pools over rows that share an id should give."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxpool.testing import _twins as twins
from jaxpool.testing._answer import Answer, Term, exact_values, rounded
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties

__all__ = ["segment_max", "segment_mean", "segment_min"]


def _segments(x: Any, ids: Any, count: int, rule: parts.Rule, empty: Any, dtype: Any) -> Answer:
    x = np.asarray(x)
    values, terms = exact_values(x), []
    y = np.full((count, *x.shape[1:]), empty, object)
    for output in np.ndindex(*y.shape):
        places = [(n, *output[1:]) for n in np.flatnonzero(np.asarray(ids) == output[0])]
        if places:
            y[output], shares = rule([values[place] for place in places])
            terms += [Term(output, 0, p, s) for p, s in zip(places, shares, strict=True) if s]
    return Answer(rounded(y, dtype), ((x.shape, x.dtype),), tuple(terms))


def _number(ids: Any, num_segments: int | None) -> int:
    """How many segments there are, where nobody says it: up to the largest id."""
    return int(np.max(ids, initial=-1)) + 1 if num_segments is None else num_segments


def _extreme(kind: Any, x: Any, ids: Any, count: int | None, ties: Ties) -> Answer:
    dtype, number = np.asarray(x).dtype, _number(ids, count)
    rule = parts.choose(builtins.max if kind == "max" else builtins.min, ties)
    return _segments(x, ids, number, rule, parts.worst(dtype, kind), dtype)


def _twin(formula: Callable[..., Any]) -> Callable[..., Any]:
    def twin(
        x: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        *,
        indices_are_sorted: bool = False,
        ties: Any = None,
    ) -> Any:
        number = _number(segment_ids, num_segments)
        rows = [np.flatnonzero(np.asarray(segment_ids) == s).tolist() for s in range(number)]
        return formula(*twins.side_by_side(x, (0,), [rows]))

    return twin


@record(twin=_twin(twins.largest))
def segment_max(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    ties: Ties = "split",
) -> Answer:
    """The largest row of each segment, as in `jaxpool.segment_max`."""
    return _extreme("max", x, segment_ids, num_segments, ties)


@record(twin=_twin(twins.smallest))
def segment_min(
    x: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    *,
    indices_are_sorted: bool = False,
    ties: Ties = "split",
) -> Answer:
    """The smallest row of each segment, as in `jaxpool.segment_min`."""
    return _extreme("min", x, segment_ids, num_segments, ties)


@record(twin=_twin(twins.mean), adds=True)
def segment_mean(
    x: Any, segment_ids: Any, num_segments: int | None = None, *, indices_are_sorted: bool = False
) -> Answer:
    """The mean of the rows of each segment, 0 where there are none, as in `jaxpool.segment_mean`."""
    dtype, number = parts.float_dtype(x), _number(segment_ids, num_segments)
    return _segments(x, segment_ids, number, parts.mean, 0.0, dtype)
