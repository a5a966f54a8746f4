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
from jaxpool.testing.oracle._parts import Reducer, Ties

__all__ = ["cummax", "cummax_with_argmax", "cummin", "cummin_with_argmax"]

# A valid `reset` for the sample images: the running extremum restarts at these rows.
RESET_MASK = np.array([False, True, False, True]).reshape(-1, 1, 1)


def _running_extremum(x: Any, axis: int, reverse: bool, reset: Any, reducer: Reducer) -> Answer:
    x = np.asarray(x)
    values = as_exact_numbers(x)
    is_start = np.broadcast_to(False if reset is None else reset, x.shape)
    dim, size = axis % x.ndim, x.shape[axis]
    y = np.zeros(x.shape, object)
    indices = np.zeros(x.shape, np.int32)
    terms = []
    for output in np.ndindex(*x.shape):
        lane = [(*output[:dim], index, *output[dim + 1 :]) for index in range(size)]
        starts = [index for index in range(size) if is_start[lane[index]]]
        start = max([0, *[index for index in starts if index <= output[dim]]])
        end = min([size, *[index for index in starts if index > output[dim]]])
        positions = lane[output[dim] : end] if reverse else lane[start : output[dim] + 1]
        y[output], shares = reducer([values[position] for position in positions])
        source = positions[shares.index(1.0)]
        indices[output] = source[dim]
        terms.append(Term(output, 0, source, 1.0))
    return Answer(round_to_dtype(y, x.dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def _make_running_extremum_in_jnp(
    keep_earlier: Callable[..., Any], *, with_index: bool = False
) -> Callable[..., Any]:
    """The twin, by parallel prefix: the best element of the last 1, 2, 4, ... elements, and the index of this element.

    `keep_earlier(earlier, later)` is True if the best of the earlier half is selected.
    """

    def jnp_function(
        x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Any = None
    ) -> Any:
        dim = axis % x.ndim
        is_start = jnp.broadcast_to(False if reset is None else jnp.asarray(reset), x.shape)
        if reverse:  # a backward scan restarts at the element before each True
            is_start = jnp.roll(is_start, -1, dim)
        index = lax.broadcasted_iota(np.int32, x.shape, dim)
        scan_index = x.shape[dim] - 1 - index if reverse else index
        y, shift = x, 1
        while shift < x.shape[dim]:
            arrays = [jnp.roll(a, -shift if reverse else shift, dim) for a in (y, index, is_start)]
            is_valid = (scan_index >= shift) & ~is_start
            wins = is_valid & keep_earlier(arrays[0], y)
            y, index = jnp.where(wins, arrays[0], y), jnp.where(wins, arrays[1], index)
            is_start, shift = is_start | (is_valid & arrays[2]), 2 * shift
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
    return _running_extremum(x, axis, reverse, reset, parts.extremum_reducer(max, ties))


@record(twin=_make_running_extremum_in_jnp(jnp.less_equal), **RECORD_FIELDS)
def cummin(
    x: Any, axis: int = -1, *, reverse: bool = False, reset: Any = None, ties: Ties = "first"
) -> Answer:
    """The running minimum and its index along the axis, as in `jaxpool.cummin`."""
    return _running_extremum(x, axis, reverse, reset, parts.extremum_reducer(min, ties))


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
