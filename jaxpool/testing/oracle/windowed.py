"""Oracle of the max, min, average and sum pools and of `max_unpool`."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows, pooled_axes, sliding_windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Reducer, Ties

__all__ = ["avg_pool", "max_pool", "max_pool_with_argmax", "max_unpool", "min_pool", "sum_pool"]


def _windowed_extremum(
    kind: Any, x: Any, geometry: Any, ties: Ties, where: Any, options: Any
) -> Answer:
    windows = sliding_windows(np.shape(x), *geometry, **options)
    return parts.drop_indices_if_split(
        parts.extremum_of_windows(kind, x, windows, ties, where), ties
    )


def _max_pool_in_jnp(x: Any, *geometry: Any, ties: Any = None, **options: Any) -> Any:
    return jnp_windows.max_over_taps(*jnp_windows.gather_pool_windows(x, *geometry, **options))


@record(twin=_max_pool_in_jnp)
def max_pool(
    x: Any, *geometry: Any, where: Any = None, ties: Ties = "first", **options: Any
) -> Answer:
    """The largest element of each window; `geometry` and `options` as in `jaxpool.max_pool`.

    >>> import numpy as np
    >>> answer = max_pool(np.array([[3.0], [1.0], [2.0], [5.0]]), (2,), (2,))
    >>> answer.y.ravel(), answer.indices.ravel()
    (array([3., 5.]), array([0, 3], dtype=int32))
    >>> answer.cotangent(np.array([[10.0], [20.0]])).ravel()
    array([10.,  0.,  0., 20.])
    """
    return _windowed_extremum("max", x, geometry, ties, where, options)


def _min_pool_in_jnp(x: Any, *geometry: Any, ties: Any = None, **options: Any) -> Any:
    return jnp_windows.min_over_taps(*jnp_windows.gather_pool_windows(x, *geometry, **options))


@record(twin=_min_pool_in_jnp)
def min_pool(
    x: Any, *geometry: Any, where: Any = None, ties: Ties = "first", **options: Any
) -> Answer:
    """The smallest element of each window; `geometry` and `options` as in `jaxpool.min_pool`."""
    return _windowed_extremum("min", x, geometry, ties, where, options)


def _max_pool_with_argmax_in_jnp(
    x: Any, *geometry: Any, ties: Any = None, **options: Any
) -> tuple[Any, Any]:
    return _max_with_argmax(x, sliding_windows(x.shape, *geometry, **options))


def _max_with_argmax(x: Any, windows: Windows) -> tuple[Any, Any]:
    """The maximum of each window, and its flat position over the pooled axes."""
    axes, taps = windows.axes, windows.element_positions
    sizes = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
    values, tap_exists = jnp_windows.gather_windows(x, axes, taps)
    indices, _ = jnp_windows.gather_windows(jnp.arange(math.prod(sizes)).reshape(sizes), axes, taps)
    best_tap = jnp.where(tap_exists, values, -np.inf).argmax(-1)
    indices = jnp.broadcast_to(indices, values.shape)
    argmax = jnp.take_along_axis(indices, best_tap[..., None], -1)[..., 0]
    return jnp_windows.max_over_taps(values, tap_exists), argmax.astype(np.int32)


@record(twin=_max_pool_with_argmax_in_jnp)
def max_pool_with_argmax(x: Any, *geometry: Any, ties: Ties = "first", **options: Any) -> Answer:
    """The largest element of each window and its position, as in `jaxpool.max_pool_with_argmax`."""
    return parts.extremum_of_windows(
        "max", x, sliding_windows(np.shape(x), *geometry, **options), ties
    )


def _sum_pool_in_jnp(x: Any, *geometry: Any, **options: Any) -> Any:
    return jnp_windows.sum_over_taps(*jnp_windows.gather_pool_windows(x, *geometry, **options))


@record(twin=_sum_pool_in_jnp, adds=True, keeps_integers=True)
def sum_pool(x: Any, *geometry: Any, where: Any = None, **options: Any) -> Answer:
    """The sum of each window; `geometry` and `options` as in `jaxpool.sum_pool`."""
    windows = sliding_windows(np.shape(x), *geometry, **options)
    return parts.drop_indices(
        parts.apply_reducer_to_windows(x, windows, lambda output: parts.sum_reducer, where=where)
    )


def _avg_pool_in_jnp(
    x: Any,
    window_shape: Any,
    strides: Any = None,
    padding: Any = "VALID",
    count_include_pad: bool = True,
    *,
    where: Any = None,
    divisor: Any = None,
    **options: Any,
) -> Any:
    values, tap_exists = jnp_windows.gather_pool_windows(
        x, window_shape, strides, padding, where=where, **options
    )
    if divisor is not None:
        return jnp_windows.sum_over_taps(values, tap_exists) / divisor
    if not count_include_pad:
        return jnp_windows.mean_over_taps(values, tap_exists)
    windows = sliding_windows(x.shape, window_shape, strides, padding, **options)
    divisor_shape = windows.output_shape_of([1] * x.ndim)
    divisors = [float(windows.num_taps_counted(output)) for output in np.ndindex(*divisor_shape)]
    return jnp_windows.sum_over_taps(values, tap_exists) / np.reshape(divisors, divisor_shape)


@record(
    twin=_avg_pool_in_jnp,
    adds=True,
    choices={"count_include_pad": (False,), "divisor": (3.0, -2.5)},
)
def avg_pool(
    x: Any,
    window_shape: Any,
    strides: Any = None,
    padding: Any = "VALID",
    count_include_pad: bool = True,
    *,
    where: Any = None,
    divisor: float | None = None,
    **options: Any,
) -> Answer:
    """The mean of each window, arguments as in `jaxpool.avg_pool`; integers give the dtype of `jnp.mean`."""
    windows = sliding_windows(np.shape(x), window_shape, strides, padding, **options)

    def reducer_of_output(output: Position) -> Reducer:
        if divisor is not None:
            return parts.divided_sum_reducer(divisor)
        return (
            parts.divided_sum_reducer(windows.num_taps_counted(output))
            if count_include_pad
            else parts.mean_reducer
        )

    return parts.drop_indices(
        parts.apply_reducer_to_windows(x, windows, reducer_of_output, parts.mean_dtype(x), where)
    )


def _max_unpool_in_jnp(y: Any, indices: Any, spatial_shape: Any, *, axes: Any = None) -> Any:
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
def max_unpool(y: Any, indices: Any, spatial_shape: Any, *, axes: Any = None) -> Answer:
    """Each element at its index, zeros elsewhere, as in `jaxpool.max_unpool`.

    If several elements have the same index, the last element is written and receives the cotangent.
    """
    y, indices = np.asarray(y), np.asarray(indices)
    window_axes = pooled_axes(y.ndim, len(spatial_shape), axes)
    values, shape = as_exact_numbers(y), list(y.shape)
    last_source: dict[Position, Position] = {}
    for axis, size in zip(window_axes, spatial_shape, strict=True):
        shape[axis] = size
    x = np.zeros(shape, values.dtype)
    pooled_shape = tuple(y.shape[axis] for axis in window_axes)
    for lane in parts.unpooled_positions(y.shape, window_axes):
        for element in np.ndindex(*pooled_shape):
            source = parts.merge_positions(lane, window_axes, element)
            if 0 <= indices[source] < math.prod(spatial_shape):
                pooled_position = tuple(map(int, np.unravel_index(indices[source], spatial_shape)))
                target = parts.merge_positions(lane, window_axes, pooled_position)
                x[target] = values[source]
                last_source[target] = source
    terms = tuple(Term(target, 0, source, 1.0) for target, source in last_source.items())
    return Answer(round_to_dtype(x, y.dtype), ((y.shape, y.dtype),), terms)
