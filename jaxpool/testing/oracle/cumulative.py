"""Oracle of the running maxima and minima: `cummax`, `cummin` and their variants with indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpool.testing._answer import Answer
from jaxpool.testing._record import record
from jaxpool.testing._windows import WindowPositions
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import ExtremumFunction, Ties

__all__ = ["cummax", "cummax_with_argmax", "cummin", "cummin_with_argmax"]

# A valid `reset` for the sample images: the running extremum restarts at these rows.
RESET_MASK = np.array([False, True, False, True]).reshape(-1, 1, 1)


def _running_extremum(
    x: Any, axis: int, reverse: bool, reset: Any, ties: Ties, best_of: ExtremumFunction
) -> Answer:
    x = np.asarray(x)
    is_start = np.broadcast_to(False if reset is None else reset, x.shape)
    dim, size = axis % x.ndim, x.shape[axis]
    reducer = parts.extremum_reducer(best_of, ties)

    def window_positions_of_lane(lane: list[int]) -> WindowPositions:
        starts = [i for i in range(size) if is_start[parts.merge_positions(lane, (dim,), (i,))]]
        windows = []
        for output in range(size):
            start = max([0, *[i for i in starts if i <= output]])
            end = min([size, *[i for i in starts if i > output]])
            windows.append(range(output, end) if reverse else range(start, output + 1))
        return [windows]

    answer = parts.apply_reducer(
        x, (dim,), (size,), window_positions_of_lane, lambda output: reducer
    )
    return parts.add_indices(answer, (dim,))


def _make_running_extremum_in_jnp(
    keep_earlier: Callable[..., Any], *, with_index: bool = False
) -> Callable[..., Any]:
    """The twin, by parallel prefix: the best element of the last 1, 2, 4, ... elements, and the index of this element.

    `keep_earlier(earlier, later)` is True if the best of the earlier half is selected.
    """

    def jnp_function(x: Any, axis: int, reverse: bool, reset: Any) -> Any:
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
def cummax(**arguments: Any) -> Answer:
    """The running maximum and its index along the axis, as in `jaxpool.cummax`.

    >>> import numpy as np
    >>> cummax(np.array([1, 3, 2, 3]), ties="last").indices
    array([0, 1, 1, 3], dtype=int32)
    """
    return _running_extremum(best_of=max, **arguments)


@record(twin=_make_running_extremum_in_jnp(jnp.less_equal), **RECORD_FIELDS)
def cummin(**arguments: Any) -> Answer:
    """The running minimum and its index along the axis, as in `jaxpool.cummin`."""
    return _running_extremum(best_of=min, **arguments)


@record(twin=_make_running_extremum_in_jnp(jnp.greater_equal, with_index=True), **RECORD_FIELDS)
def cummax_with_argmax(**arguments: Any) -> Answer:
    """The running maximum and its index along the axis, as in `jaxpool.cummax_with_argmax`."""
    return _running_extremum(best_of=max, **arguments)


@record(twin=_make_running_extremum_in_jnp(jnp.less_equal, with_index=True), **RECORD_FIELDS)
def cummin_with_argmax(**arguments: Any) -> Answer:
    """The running minimum and its index along the axis, as in `jaxpool.cummin_with_argmax`."""
    return _running_extremum(best_of=min, **arguments)
