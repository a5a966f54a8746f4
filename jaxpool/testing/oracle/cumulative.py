"""Oracle of the running maxima and minima: `cummax`, `cummin` and their variants with indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpool.testing._answer import Answer, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Rule, Ties

__all__ = ["cummax", "cummax_with_argmax", "cummin", "cummin_with_argmax"]

# A valid `reset` for the sample images: the running extremum restarts at these rows.
RESET_MASK = np.array([False, True, False, True]).reshape(-1, 1, 1)


def _running_extremum(x: Any, axis: int, reverse: bool, reset: Any, rule: Rule) -> Answer:
    x = np.asarray(x)
    values = as_exact_numbers(x)
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
    return Answer(round_to_dtype(y, x.dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def _make_running_extremum_in_jnp(
    keep_earlier: Callable[..., Any], *, with_index: bool = False
) -> Callable[..., Any]:
    """A jax.numpy equivalent by parallel prefix: the best element of the last 1, 2, 4, ... elements, and its index.

    `keep_earlier(earlier, later)` is True if the best of the earlier half is selected.
    """

    def jnp_function(
        x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Any = None
    ) -> Any:
        at = axis % x.ndim
        begins = jnp.broadcast_to(False if reset is None else jnp.asarray(reset), x.shape)
        if reverse:  # a backward scan restarts at the element before each True
            begins = jnp.roll(begins, -1, at)
        index = lax.broadcasted_iota(np.int32, x.shape, at)
        number = x.shape[at] - 1 - index if reverse else index
        y, steps = x, 1
        while steps < x.shape[at]:
            shifted = [
                jnp.roll(each, -steps if reverse else steps, at) for each in (y, index, begins)
            ]
            valid = (number >= steps) & ~begins
            earlier = valid & keep_earlier(shifted[0], y)
            y, index = jnp.where(earlier, shifted[0], y), jnp.where(earlier, shifted[1], index)
            begins, steps = begins | (valid & shifted[2]), 2 * steps
        return (y, index) if with_index else y

    return jnp_function


RECORD_FIELDS: dict[str, Any] = {
    "usual": {"axis": lambda x: -3},
    "choices": {"axis": (-1, -2), "reset": (RESET_MASK,)},
}


@record(twin=_make_running_extremum_in_jnp(jnp.greater_equal), **RECORD_FIELDS)
def cummax(
    x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Ties = "first"
) -> Answer:
    """The running maximum and its index along the axis, as in `jaxpool.cummax`.

    >>> import numpy as np
    >>> cummax(np.array([1, 3, 2, 3]), ties="last").indices
    array([0, 1, 1, 3], dtype=int32)
    """
    return _running_extremum(x, axis, reverse, reset, parts.extremum_rule(max, ties))


@record(twin=_make_running_extremum_in_jnp(jnp.less_equal), **RECORD_FIELDS)
def cummin(
    x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Ties = "first"
) -> Answer:
    """The running minimum and its index along the axis, as in `jaxpool.cummin`."""
    return _running_extremum(x, axis, reverse, reset, parts.extremum_rule(min, ties))


@record(twin=_make_running_extremum_in_jnp(jnp.greater_equal, with_index=True), **RECORD_FIELDS)
def cummax_with_argmax(
    x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Ties = "first"
) -> Answer:
    """The running maximum and its index along the axis, as in `jaxpool.cummax_with_argmax`."""
    return cummax(x, axis, reverse=reverse, reset=reset, ties=ties)


@record(twin=_make_running_extremum_in_jnp(jnp.less_equal, with_index=True), **RECORD_FIELDS)
def cummin_with_argmax(
    x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Ties = "first"
) -> Answer:
    """The running minimum and its index along the axis, as in `jaxpool.cummin_with_argmax`."""
    return cummin(x, axis, reverse=reverse, reset=reset, ties=ties)
