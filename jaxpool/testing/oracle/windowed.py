"""Oracle of the maxima, minima, means and sums of windows, and of `max_unpool`, blur pools and pyramids.

Sliding, adaptive and global windows, segments and groups have one oracle per operation. `windows_of_call` computes the
windows from the arguments of the public function.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position, Term, exact_sum
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows, adaptive_windows, pooled_axes, sliding_windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Reducer, Ties


@record(
    "max_pool",
    "adaptive_max_pool",
    "global_max_pool",
    "maxout",
    "segment_max",
    twin=jnp_windows.max_of_windows,
)
@record(
    "max_pool_with_argmax",
    "adaptive_max_pool_with_argmax",
    "segment_max_with_argmax",
    twin=jnp_windows.max_of_windows_with_index,
)
def maximum_of_windows(
    x: Any, windows: Windows, ties: Ties = "first", where: Any = None, keepdims: bool = True
) -> Answer:
    """The largest element of each window, and its index.

    >>> import numpy as np
    >>> from jaxpool.testing import oracle
    >>> answer = oracle.max_pool(np.array([[3.0], [1.0], [2.0], [5.0]]), (2,), (2,))
    >>> answer.y.ravel(), answer.indices.ravel()
    (array([3., 5.]), array([0, 3], dtype=int32))
    >>> answer.cotangent(np.array([[10.0], [20.0]])).ravel()
    array([10.,  0.,  0., 20.])
    """
    return parts.extremum_of_windows("max", x, windows, ties, where, keepdims)


@record("min_pool", "segment_min", twin=jnp_windows.min_of_windows)
def minimum_of_windows(x: Any, windows: Windows, ties: Ties, where: Any) -> Answer:
    """The smallest element of each window, and its index."""
    return parts.extremum_of_windows("min", x, windows, ties, where)


@record(
    "adaptive_avg_pool",
    "global_avg_pool",
    "segment_mean",
    twin=jnp_windows.mean_of_windows,
    adds=True,
)
def mean_of_windows(x: Any, windows: Windows, where: Any = None, keepdims: bool = True) -> Answer:
    """The mean of each window; 0 for a window without elements."""
    dtype = parts.mean_dtype(x)
    answer = parts.apply_reducer_to_windows(
        x, windows, lambda output: parts.mean_reducer, dtype, where
    )
    return answer if keepdims else parts.squeeze_answer(answer, windows.axes)


@record("sum_pool", "segment_sum", twin=jnp_windows.sum_of_windows, adds=True, keeps_integers=True)
def sum_of_windows(x: Any, windows: Windows, where: Any) -> Answer:
    """The sum of each window."""
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


# Binomial averages of the array, reflected without repeating its end elements


def _reflected_windows(windows: Windows) -> Windows:
    """The windows, with the position of an element in place of each tap in the padding."""

    def reflect(position: int, size: int) -> int:
        position = abs(position) % max(1, 2 * size - 2)
        return min(position, 2 * size - 2 - position) if size > 1 else 0

    tap_positions = [
        [[reflect(tap, size) for tap in taps] for taps in axis_windows]
        for size, axis_windows in zip(windows.input_shape, windows.tap_positions, strict=True)
    ]
    return dataclasses.replace(windows, tap_positions=tap_positions)


def _binomial_weights(windows: Windows) -> np.ndarray:
    """The binomial weight of each element of a window, in row-major order."""
    weights = np.ones(1)
    for n in windows.window_shape:
        axis_weights = [math.comb(n - 1, tap) / 2 ** (n - 1) for tap in range(n)]
        weights = np.multiply.outer(weights, axis_weights).ravel()
    return weights


def _blur_pool_in_jnp(x: Any, windows: Windows) -> Any:
    values, _ = jnp_windows.gather(x, _reflected_windows(windows))
    return (values * _binomial_weights(windows)).sum(-1)


@record(twin=_blur_pool_in_jnp, adds=True, covers=("ties", "normal"))
def blur_pool(x: Any, windows: Windows) -> Answer:
    """The binomial average of each window of the reflected x, as in `jaxpool.blur_pool`."""
    weights = _binomial_weights(windows).tolist()

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        pairs = zip(weights, values, strict=True)
        return exact_sum([share * float(value) for share, value in pairs]), weights

    return parts.apply_reducer_to_windows(
        x, _reflected_windows(windows), lambda output: reducer, parts.mean_dtype(x)
    )


def _max_blur_pool_in_jnp(
    x: Any, window_shape: Any, blur_shape: Any, strides: Any, padding: Any, axes: Any
) -> Any:
    windows = sliding_windows(x.shape, window_shape, None, padding, axes=axes)
    maxima = jnp_windows.max_of_windows(x, windows)
    blur_windows = sliding_windows(maxima.shape, blur_shape, strides, padding, axes=axes)
    return _blur_pool_in_jnp(maxima, blur_windows)


@record(twin=_max_blur_pool_in_jnp, adds=True, covers=("ties", "normal"))
def max_blur_pool(
    x: Any,
    window_shape: Any,
    blur_shape: Any,
    strides: Any,
    padding: Any,
    axes: Any,
    ties: Ties = "first",
) -> Answer:
    """A blur pool of a max pool, as in `jaxpool.max_blur_pool`."""
    windows = sliding_windows(np.shape(x), window_shape, None, padding, axes=axes)
    maxima = maximum_of_windows(x, windows, ties)
    blur_windows = sliding_windows(maxima.y.shape, blur_shape, strides, padding, axes=axes)
    return parts.compose_answers(blur_pool(maxima.y, blur_windows), maxima)


# Pyramids


def _axes_of_pyramid(x: Any, axes: Any) -> tuple[Sequence[int], Sequence[int], int]:
    """The pooled axes, all axes as (batch, pooled, channels), and the number of batch axes."""
    pooled = pooled_axes(np.ndim(x), np.ndim(x) - 2, axes)
    other_axes = [axis for axis in range(np.ndim(x)) if axis not in pooled]
    batch, channels = other_axes[:-1], other_axes[-1:]
    return pooled, (*batch, *pooled, *channels), len(batch)


def _pyramid_pool_in_jnp(x: Any, levels: Sequence[int], kind: str, axes: Any) -> Any:
    pool = jnp_windows.max_of_windows if kind == "max" else jnp_windows.mean_of_windows
    pooled, order, num_batch = _axes_of_pyramid(x, axes)
    flat_levels = []
    for n in sorted(levels):
        y = pool(x, adaptive_windows(x.shape, (n,) * len(pooled), pooled)).transpose(order)
        flat_levels.append(y.reshape(*y.shape[:num_batch], math.prod(y.shape[num_batch:])))
    return jnp.concatenate(flat_levels, -1)


@record(twin=_pyramid_pool_in_jnp, adds=lambda kind="max", **others: kind == "avg")
def spatial_pyramid_pool(
    x: Any, levels: Sequence[int], kind: str, axes: Any, ties: Ties = "first"
) -> Answer:
    """Adaptive pools of several sizes, flattened and concatenated, as in `jaxpool.spatial_pyramid_pool`."""
    pool = partial(maximum_of_windows, ties=ties) if kind == "max" else mean_of_windows
    pooled, order, num_batch = _axes_of_pyramid(x, axes)
    values, terms, offset = [], [], 0
    for n in sorted(levels):
        answer = pool(x, adaptive_windows(np.shape(x), (n,) * len(pooled), pooled))
        shape = tuple(answer.y.shape[axis] for axis in order)
        values.append(answer.y.transpose(order).reshape(*shape[:num_batch], -1))
        for term in answer.terms:
            position = tuple(term.output[axis] for axis in order)
            index = int(np.ravel_multi_index(position[num_batch:], shape[num_batch:]))
            output = (*position[:num_batch], offset + index)
            terms.append(dataclasses.replace(term, output=output))
        offset += values[-1].shape[-1]
    return dataclasses.replace(
        answer, y=np.concatenate(values, -1), terms=tuple(terms), indices=None
    )


def _max_unpool_in_jnp(y: Any, indices: Any, spatial_shape: Any, axes: Any) -> Any:
    pooled = pooled_axes(y.ndim, len(spatial_shape), axes)
    shape = parts.merge_positions(y.shape, pooled, spatial_shape)
    index = jnp.asarray(indices, jnp.int32)  # a narrow dtype may not represent the size
    is_inside = (index >= 0) & (index < math.prod(spatial_shape))
    target = [lax.broadcasted_iota(np.int32, y.shape, axis) for axis in range(y.ndim)]
    for axis, position in zip(pooled, jnp.unravel_index(index, spatial_shape), strict=True):
        target[axis] = jnp.where(is_inside, position, shape[axis])
    return jnp.zeros(shape, y.dtype).at[tuple(target)].set(y, mode="drop")


@record(twin=_max_unpool_in_jnp, operands=("y",))
def max_unpool(y: Any, indices: Any, spatial_shape: Any, axes: Any) -> Answer:
    """Each element at its index, zeros elsewhere, as in `jaxpool.max_unpool`.

    If several elements have the same index, the last element is written and receives the cotangent.
    """
    y, indices = np.asarray(y), np.asarray(indices)
    window_axes = pooled_axes(y.ndim, len(spatial_shape), axes)
    # The bits of zero are 2**-127 in float8_e8m0fnu, whose zero is NaN, as after a cast.
    x = np.zeros(parts.merge_positions(y.shape, window_axes, spatial_shape)).astype(y.dtype)
    last_source: dict[Position, Position] = {}
    in_order_of_axes = sorted(np.ndindex(*y.shape), key=lambda at: [at[a] for a in window_axes])
    for source in in_order_of_axes:
        if 0 <= indices[source] < math.prod(spatial_shape):
            pooled_position = tuple(map(int, np.unravel_index(indices[source], spatial_shape)))
            target = parts.merge_positions(source, window_axes, pooled_position)
            x[target] = y[source]
            last_source[target] = source
    terms = tuple(Term(target, 0, source, 1.0) for target, source in last_source.items())
    return Answer(x, ((y.shape, y.dtype),), terms)
