"""What running extremes should give."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxpool.testing import _twins as twins
from jaxpool.testing._answer import Answer, Term, exact_values, rounded
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Rule, Ties

__all__ = ["cummax", "cummin"]


def _cumulative(x: Any, axis: int, reverse: bool, rule: Rule) -> Answer:
    x = np.asarray(x)
    values = exact_values(x)
    at, size = axis % x.ndim, x.shape[axis]
    y = np.zeros(x.shape, object)
    indices = np.zeros(x.shape, np.int32)
    terms = []
    for output in np.ndindex(*x.shape):
        here = range(output[at], size) if reverse else range(output[at] + 1)
        positions = [(*output[:at], index, *output[at + 1 :]) for index in here]
        y[output], shares = rule([values[position] for position in positions])
        chosen = positions[shares.index(1.0)]
        indices[output] = chosen[at]
        terms.append(Term(output, 0, chosen, 1.0))
    return Answer(rounded(y, x.dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def _twin(formula: Callable[..., Any]) -> Callable[..., Any]:
    def twin(x: Any, axis: int = -1, *, reverse: bool = False, ties: Any = None) -> Any:
        at = axis % x.ndim
        every = range(x.shape[at])
        seen = [list(range(i, len(every))) if reverse else list(range(i + 1)) for i in every]
        return formula(*twins.side_by_side(x, (at,), [seen]))

    return twin


@record(twin=_twin(twins.largest), usual={"axis": lambda x: -3}, choices={"axis": (-1, -2)})
def cummax(x: Any, axis: int = -1, *, reverse: bool = False, ties: Ties = "first") -> Answer:
    """The running maximum and where it stands along the axis, as in `jaxpool.cummax`.

    >>> import numpy as np
    >>> cummax(np.array([1, 3, 2, 3]), ties="last").indices
    array([0, 1, 1, 3], dtype=int32)
    """
    return _cumulative(x, axis, reverse, parts.choose(builtins.max, ties))


@record(twin=_twin(twins.smallest), usual={"axis": lambda x: -3}, choices={"axis": (-1, -2)})
def cummin(x: Any, axis: int = -1, *, reverse: bool = False, ties: Ties = "first") -> Answer:
    """The running minimum and where it stands along the axis, as in `jaxpool.cummin`."""
    return _cumulative(x, axis, reverse, parts.choose(builtins.min, ties))
