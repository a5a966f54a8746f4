"""Oracle of the adaptive pools, the global pools and `spatial_pyramid_pool`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Term
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows, adaptive_windows, pooled_axes
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties
from jaxpool.testing.oracle.windowed import _max_with_argmax

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "adaptive_max_pool_with_argmax",
    "global_avg_pool",
    "global_max_pool",
    "spatial_pyramid_pool",
]

OutputSizes = Sequence[int | None]


def _mean_of_windows(x: Any, windows: Windows, where: Any = None) -> Answer:
    dtype = parts.mean_dtype(x)
    return parts.drop_indices(
        parts.apply_reducer_to_windows(x, windows, lambda output: parts.mean_reducer, dtype, where)
    )


def _make_adaptive_pool_in_jnp(reduce_taps: Callable[..., Any]) -> Callable[..., Any]:
    def jnp_function(
        x: Any, output_shape: OutputSizes, *, axes: Any = None, ties: Any = None
    ) -> Any:
        windows = adaptive_windows(x.shape, output_shape, axes)
        return reduce_taps(*jnp_windows.gather_windows(x, windows.axes, windows.element_positions))

    return jnp_function


@record(twin=_make_adaptive_pool_in_jnp(jnp_windows.max_over_taps))
def adaptive_max_pool(
    x: Any, output_shape: OutputSizes, *, axes: Any = None, ties: Ties = "first"
) -> Answer:
    """The largest element of each window, as in `jaxpool.adaptive_max_pool`."""
    windows = adaptive_windows(np.shape(x), output_shape, axes)
    return parts.drop_indices_if_split(parts.extremum_of_windows("max", x, windows, ties), ties)


def _adaptive_max_argmax_in_jnp(
    x: Any, output_shape: OutputSizes, *, axes: Any = None, ties: Any = None
) -> Any:
    return _max_with_argmax(x, adaptive_windows(x.shape, output_shape, axes))


@record(twin=_adaptive_max_argmax_in_jnp)
def adaptive_max_pool_with_argmax(
    x: Any, output_shape: OutputSizes, *, axes: Any = None, ties: Ties = "first"
) -> Answer:
    """The largest element of each window and its position, as in `jaxpool.adaptive_max_pool_with_argmax`."""
    return parts.extremum_of_windows(
        "max", x, adaptive_windows(np.shape(x), output_shape, axes), ties
    )


@record(twin=_make_adaptive_pool_in_jnp(jnp_windows.mean_over_taps), adds=True)
def adaptive_avg_pool(x: Any, output_shape: OutputSizes, *, axes: Any = None) -> Answer:
    """The mean of each window, as in `jaxpool.adaptive_avg_pool`."""
    return _mean_of_windows(x, adaptive_windows(np.shape(x), output_shape, axes))


# Whole axes


def _full_windows(x: Any, axes: Any) -> Windows:
    """One window over all of `axes`, or over all axes but the first and the last."""
    window_axes = pooled_axes(np.ndim(x), np.ndim(x) - 2, axes)
    return adaptive_windows(np.shape(x), (1,) * len(window_axes), window_axes)


def _make_global_pool_in_jnp(reduce_taps: Callable[..., Any]) -> Callable[..., Any]:
    def jnp_function(
        x: Any, *, axes: Any = None, where: Any = None, keepdims: bool = False, ties: Any = None
    ) -> Any:
        windows = _full_windows(x, axes)
        y = reduce_taps(
            *jnp_windows.gather_windows_where(x, where, windows.axes, windows.element_positions)
        )
        return y if keepdims else jnp.squeeze(y, windows.axes)

    return jnp_function


@record(twin=_make_global_pool_in_jnp(jnp_windows.max_over_taps), choices={"keepdims": (True,)})
def global_max_pool(
    x: Any, *, axes: Any = None, where: Any = None, keepdims: bool = False, ties: Ties = "first"
) -> Answer:
    """The largest element that is True in `where`, as in `jaxpool.global_max_pool`."""
    windows = _full_windows(x, axes)
    answer = parts.drop_indices_if_split(
        parts.extremum_of_windows("max", x, windows, ties, where), ties
    )
    return answer if keepdims else parts.squeeze_answer(answer, windows.axes)


@record(twin=_make_global_pool_in_jnp(jnp_windows.mean_over_taps), adds=True)
def global_avg_pool(
    x: Any, *, axes: Any = None, where: Any = None, keepdims: bool = False
) -> Answer:
    """The mean of the elements that are True in `where`, as in `jaxpool.global_avg_pool`."""
    windows = _full_windows(x, axes)
    answer = _mean_of_windows(x, windows, where)
    return answer if keepdims else parts.squeeze_answer(answer, windows.axes)


# Pyramids


def _pool_each_level(x: Any, levels: Sequence[int], axes: Any, pool: Callable[..., Any]) -> Any:
    """For each level: the result of `pool`, the number of batch axes, and the axes as (batch, pooled, channels)."""
    pooled = pooled_axes(np.ndim(x), np.ndim(x) - 2, axes)
    other_axes = [axis for axis in range(np.ndim(x)) if axis not in pooled]
    batch, channels = other_axes[:-1], other_axes[-1:]
    order = (*batch, *pooled, *channels)
    return [(pool(x, (n,) * len(pooled), axes=pooled), len(batch), order) for n in sorted(levels)]


def _pyramid_pool_in_jnp(
    x: Any, levels: Sequence[int], *, kind: str = "max", axes: Any = None
) -> Any:
    pool = _make_adaptive_pool_in_jnp(
        jnp_windows.max_over_taps if kind == "max" else jnp_windows.mean_over_taps
    )
    flat_levels = []
    for y, num_batch, order in _pool_each_level(x, levels, axes, pool):
        y_t = jnp.transpose(y, order)
        flat_levels.append(
            y_t.reshape(*y_t.shape[:num_batch], math.prod(y_t.shape[num_batch:-1]) * y_t.shape[-1])
        )
    return jnp.concatenate(flat_levels, -1)


def _is_average(levels: Any, kind: str = "max", **other_arguments: Any) -> bool:
    return kind == "avg"


@record(twin=_pyramid_pool_in_jnp, adds=_is_average)
def spatial_pyramid_pool(
    x: Any, levels: Sequence[int], *, kind: str = "max", axes: Any = None
) -> Answer:
    """Adaptive pools of several sizes, flattened and concatenated, as in `jaxpool.spatial_pyramid_pool`."""
    pool = adaptive_max_pool if kind == "max" else adaptive_avg_pool
    values, terms, offset = [], [], 0
    for answer, num_batch, order in _pool_each_level(x, levels, axes, pool):
        y_t = answer.y.transpose(order)
        shape = y_t.shape
        values.append(y_t.reshape(*shape[:num_batch], -1))
        for term in answer.terms:
            position = tuple(term.output[axis] for axis in order)
            index = int(np.ravel_multi_index(position[num_batch:], shape[num_batch:]))
            terms.append(
                Term((*position[:num_batch], offset + index), 0, term.position, term.share)
            )
        offset += values[-1].shape[-1]
    inputs = ((np.shape(x), np.asarray(x).dtype),)
    return Answer(np.concatenate(values, -1), inputs, tuple(terms))
