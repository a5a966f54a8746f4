"""What running extremes should give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _twins as twins
from jaxpool.testing._answer import Answer, Term, exact_values, rounded
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Rule, Ties

__all__ = ["cummax", "cummax_with_argmax", "cummin", "cummin_with_argmax"]

# Where episodes of images begin along the axis of rows: a right `reset` of the samples.
STARTS = np.array([False, True, False, True]).reshape(-1, 1, 1)


def _cumulative(x: Any, axis: int, reverse: bool, reset: Any, rule: Rule) -> Answer:
    x = np.asarray(x)
    values = exact_values(x)
    begins = np.broadcast_to(False if reset is None else reset, x.shape)
    at, size = axis % x.ndim, x.shape[axis]
    y = np.zeros(x.shape, object)
    indices = np.zeros(x.shape, np.int32)
    terms = []
    for output in np.ndindex(*x.shape):
        line = [(*output[:at], index, *output[at + 1 :]) for index in range(size)]
        starts = [index for index in range(size) if begins[line[index]]]
        first = max([0, *[index for index in starts if index <= output[at]]])
        end = min([size, *[index for index in starts if index > output[at]]])
        positions = line[output[at] : end] if reverse else line[first : output[at] + 1]
        y[output], shares = rule([values[position] for position in positions])
        chosen = positions[shares.index(1.0)]
        indices[output] = chosen[at]
        terms.append(Term(output, 0, chosen, 1.0))
    return Answer(rounded(y, x.dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def _twin(formula: Callable[..., Any]) -> Callable[..., Any]:
    def twin(
        x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Any = None
    ) -> Any:
        return formula(*_seen(x, axis, reverse, reset)[:2])

    return twin


def _seen(x: Any, axis: int, reverse: bool, reset: Any) -> tuple[Any, Any, Any]:
    """What the run has seen at each element along a new last axis, which counts, and where it stands."""
    at = axis % x.ndim
    every = range(x.shape[at])
    seen = [list(range(i, len(every))) if reverse else list(range(i + 1)) for i in every]
    values, there = twins.side_by_side(x, (at,), [seen])
    number = jnp.arange(len(every)).reshape([-1 if axis == at else 1 for axis in range(x.ndim)])
    if reset is not None:
        episode = jnp.cumsum(jnp.broadcast_to(jnp.asarray(reset), x.shape), at)
        there = there & (twins.side_by_side(episode, (at,), [seen])[0] == episode[..., None])
    return values, there, twins.side_by_side(number, (at,), [seen])[0]


def _with_position(best: Any, worst: float, extreme: Any) -> Callable[..., Any]:
    def twin(
        x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Any = None
    ) -> Any:
        values, there, number = _seen(x, axis, reverse, reset)
        at = best(jnp.where(there, values, worst), -1)[..., None]
        index = jnp.take_along_axis(jnp.broadcast_to(number, values.shape), at, -1)[..., 0]
        return extreme(values, there), index.astype(np.int32)

    return twin


SETTINGS: dict[str, Any] = {
    "usual": {"axis": lambda x: -3},
    "choices": {"axis": (-1, -2), "reset": (STARTS,)},
}


@record(twin=_twin(twins.largest), **SETTINGS)
def cummax(
    x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Ties = "first"
) -> Answer:
    """The running maximum and where it stands along the axis, as in `jaxpool.cummax`.

    >>> import numpy as np
    >>> cummax(np.array([1, 3, 2, 3]), ties="last").indices
    array([0, 1, 1, 3], dtype=int32)
    """
    return _cumulative(x, axis, reverse, reset, parts.choose(max, ties))


@record(twin=_twin(twins.smallest), **SETTINGS)
def cummin(
    x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Ties = "first"
) -> Answer:
    """The running minimum and where it stands along the axis, as in `jaxpool.cummin`."""
    return _cumulative(x, axis, reverse, reset, parts.choose(min, ties))


@record(twin=_with_position(jnp.argmax, -np.inf, twins.largest), **SETTINGS)
def cummax_with_argmax(
    x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Ties = "first"
) -> Answer:
    """The running maximum and where it stands along the axis, as in `jaxpool.cummax_with_argmax`."""
    return cummax(x, axis, reverse=reverse, reset=reset, ties=ties)


@record(twin=_with_position(jnp.argmin, np.inf, twins.smallest), **SETTINGS)
def cummin_with_argmax(
    x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Ties = "first"
) -> Answer:
    """The running minimum and where it stands along the axis, as in `jaxpool.cummin_with_argmax`."""
    return cummin(x, axis, reverse=reverse, reset=reset, ties=ties)
