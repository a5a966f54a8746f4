"""Oracle of the max, min, average and sum pools and of `max_unpool`."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows, pooled_axes
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Reducer, Ties

__all__ = ["avg_pool", "max_pool", "max_pool_with_argmax", "max_unpool", "min_pool", "sum_pool"]


@record(twin=jnp_windows.twin_of_windows(jnp_windows.max_over_taps))
def max_pool(x: Any, windows: Windows, where: Any, ties: Ties) -> Answer:
    """The largest element of each window, as in `jaxpool.max_pool`.

    >>> import numpy as np
    >>> answer = max_pool(np.array([[3.0], [1.0], [2.0], [5.0]]), (2,), (2,))
    >>> answer.y.ravel(), answer.indices.ravel()
    (array([3., 5.]), array([0, 3], dtype=int32))
    >>> answer.cotangent(np.array([[10.0], [20.0]])).ravel()
    array([10.,  0.,  0., 20.])
    """
    return parts.extremum_of_windows("max", x, windows, ties, where)


@record(twin=jnp_windows.twin_of_windows(jnp_windows.min_over_taps))
def min_pool(x: Any, windows: Windows, where: Any, ties: Ties) -> Answer:
    """The smallest element of each window, as in `jaxpool.min_pool`."""
    return parts.extremum_of_windows("min", x, windows, ties, where)


def max_with_argmax_in_jnp(x: Any, windows: Windows) -> tuple[Any, Any]:
    """The maximum of each window, and its flat position over the pooled axes."""
    axes, taps = windows.axes, windows.element_positions
    sizes = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
    values, tap_exists = jnp_windows.gather_windows(x, axes, taps)
    indices, _ = jnp_windows.gather_windows(jnp.arange(math.prod(sizes)).reshape(sizes), axes, taps)
    best_tap = jnp.where(tap_exists, values, -np.inf).argmax(-1)
    indices = jnp.broadcast_to(indices, values.shape)
    argmax = jnp.take_along_axis(indices, best_tap[..., None], -1)[..., 0]
    return jnp_windows.max_over_taps(values, tap_exists), argmax.astype(np.int32)


@record(twin=max_with_argmax_in_jnp)
def max_pool_with_argmax(x: Any, windows: Windows, ties: Ties) -> Answer:
    """The largest element of each window and its position, as in `jaxpool.max_pool_with_argmax`."""
    return parts.extremum_of_windows("max", x, windows, ties)


@record(twin=jnp_windows.twin_of_windows(jnp_windows.sum_over_taps), adds=True, keeps_integers=True)
def sum_pool(x: Any, windows: Windows, where: Any) -> Answer:
    """The sum of each window, as in `jaxpool.sum_pool`."""
    return parts.apply_reducer_to_windows(x, windows, lambda output: parts.sum_reducer, where=where)


def _avg_pool_in_jnp(
    x: Any, windows: Windows, where: Any, count_include_pad: bool, divisor: Any
) -> Any:
    values, tap_exists = jnp_windows.gather(x, windows, where)
    if divisor is None and not count_include_pad:
        return jnp_windows.mean_over_taps(values, tap_exists)
    if divisor is None:
        shape = windows.output_shape_of([1] * x.ndim)
        counts = [float(windows.num_taps_counted(output)) for output in np.ndindex(*shape)]
        divisor = np.reshape(counts, shape)
    return jnp_windows.sum_over_taps(values, tap_exists) / divisor


@record(
    twin=_avg_pool_in_jnp,
    adds=True,
    choices={"count_include_pad": (False,), "divisor": (3.0, -2.5)},
)
def avg_pool(
    x: Any, windows: Windows, where: Any, count_include_pad: bool, divisor: float | None
) -> Answer:
    """The mean of each window, as in `jaxpool.avg_pool`; integers give the dtype of `jnp.mean`."""

    def reducer_of_output(output: Position) -> Reducer:
        if divisor is not None:
            return parts.divided_sum_reducer(divisor)
        if count_include_pad:
            return parts.divided_sum_reducer(windows.num_taps_counted(output))
        return parts.mean_reducer

    return parts.apply_reducer_to_windows(x, windows, reducer_of_output, parts.mean_dtype(x), where)


def _max_unpool_in_jnp(y: Any, indices: Any, spatial_shape: Any, axes: Any) -> Any:
    pooled = pooled_axes(y.ndim, len(spatial_shape), axes)
    lanes = [axis for axis in range(y.ndim) if axis not in pooled]
    elements = math.prod(y.shape[axis] for axis in pooled)
    values, index = (
        jnp.transpose(array, (*lanes, *pooled)).reshape(*[y.shape[a] for a in lanes], elements)
        for array in (y, indices)
    )
    size = math.prod(spatial_shape)
    if index.dtype.itemsize < 4:
        index = index.astype(jnp.int32)  # the dtype must represent `size`
    flat = jnp.zeros((*values.shape[:-1], size), values.dtype)
    scatter = jnp.vectorize(
        lambda to, at, y: to.at[at].set(y, mode="drop"), signature="(m),(n),(n)->(m)"
    )
    flat = scatter(flat, jnp.where(index < 0, size, index), values)  # negative indices are dropped
    lanes_first = flat.reshape(*flat.shape[:-1], *spatial_shape)
    return jnp.transpose(lanes_first, tuple(np.argsort((*lanes, *pooled)).tolist()))


@record(twin=_max_unpool_in_jnp, operands=("y",))
def max_unpool(y: Any, indices: Any, spatial_shape: Any, axes: Any) -> Answer:
    """Each element at its index, zeros elsewhere, as in `jaxpool.max_unpool`.

    If several elements have the same index, the last element is written and receives the cotangent.
    """
    y, indices = np.asarray(y), np.asarray(indices)
    window_axes = pooled_axes(y.ndim, len(spatial_shape), axes)
    values = as_exact_numbers(y)
    x = np.zeros(parts.merge_positions(list(y.shape), window_axes, spatial_shape), values.dtype)
    last_source: dict[Position, Position] = {}
    in_order_of_axes = sorted(np.ndindex(*y.shape), key=lambda at: [at[a] for a in window_axes])
    for source in in_order_of_axes:
        if 0 <= indices[source] < math.prod(spatial_shape):
            pooled_position = tuple(map(int, np.unravel_index(indices[source], spatial_shape)))
            target = parts.merge_positions(list(source), window_axes, pooled_position)
            x[target] = values[source]
            last_source[target] = source
    terms = tuple(Term(target, 0, source, 1.0) for target, source in last_source.items())
    return Answer(round_to_dtype(x, y.dtype), ((y.shape, y.dtype),), terms)
