"""Oracle of the adaptive pools, the global pools and `spatial_pyramid_pool`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Term
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows, adaptive_windows, pooled_axes
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties
from jaxpool.testing.oracle.windowed import max_with_argmax_in_jnp

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "adaptive_max_pool_with_argmax",
    "global_avg_pool",
    "global_max_pool",
    "spatial_pyramid_pool",
]


@record(twin=jnp_windows.twin_of_windows(jnp_windows.max_over_taps))
def adaptive_max_pool(x: Any, windows: Windows, ties: Ties) -> Answer:
    """The largest element of each window, as in `jaxpool.adaptive_max_pool`."""
    return parts.extremum_of_windows("max", x, windows, ties)


@record(twin=max_with_argmax_in_jnp)
def adaptive_max_pool_with_argmax(x: Any, windows: Windows, ties: Ties) -> Answer:
    """The largest element of each window and its position, as in `jaxpool.adaptive_max_pool_with_argmax`."""
    return parts.extremum_of_windows("max", x, windows, ties)


@record(twin=jnp_windows.twin_of_windows(jnp_windows.mean_over_taps), adds=True)
def adaptive_avg_pool(x: Any, windows: Windows) -> Answer:
    """The mean of each window, as in `jaxpool.adaptive_avg_pool`."""
    return parts.mean_of_windows(x, windows)


@record(twin=jnp_windows.twin_of_windows(jnp_windows.max_over_taps), choices={"keepdims": (True,)})
def global_max_pool(x: Any, windows: Windows, where: Any, keepdims: bool, ties: Ties) -> Answer:
    """The largest element that is True in `where`, as in `jaxpool.global_max_pool`."""
    answer = parts.extremum_of_windows("max", x, windows, ties, where)
    return answer if keepdims else parts.squeeze_answer(answer, windows.axes)


@record(twin=jnp_windows.twin_of_windows(jnp_windows.mean_over_taps), adds=True)
def global_avg_pool(x: Any, windows: Windows, where: Any, keepdims: bool) -> Answer:
    """The mean of the elements that are True in `where`, as in `jaxpool.global_avg_pool`."""
    answer = parts.mean_of_windows(x, windows, where)
    return answer if keepdims else parts.squeeze_answer(answer, windows.axes)


# Pyramids


def _axes_of_pyramid(x: Any, axes: Any) -> tuple[Sequence[int], Sequence[int], int]:
    """The pooled axes, all axes as (batch, pooled, channels), and the number of batch axes."""
    pooled = pooled_axes(np.ndim(x), np.ndim(x) - 2, axes)
    other_axes = [axis for axis in range(np.ndim(x)) if axis not in pooled]
    batch, channels = other_axes[:-1], other_axes[-1:]
    return pooled, (*batch, *pooled, *channels), len(batch)


def _pyramid_pool_in_jnp(x: Any, levels: Sequence[int], kind: str, axes: Any) -> Any:
    reduce_taps = jnp_windows.max_over_taps if kind == "max" else jnp_windows.mean_over_taps
    pooled, order, num_batch = _axes_of_pyramid(x, axes)
    flat_levels = []
    for n in sorted(levels):
        windows = adaptive_windows(x.shape, (n,) * len(pooled), pooled)
        y = jnp.transpose(reduce_taps(*jnp_windows.gather(x, windows)), order)
        flat_levels.append(y.reshape(*y.shape[:num_batch], math.prod(y.shape[num_batch:])))
    return jnp.concatenate(flat_levels, -1)


def _is_average(levels: Any, kind: str = "max", **other_arguments: Any) -> bool:
    return kind == "avg"


@record(twin=_pyramid_pool_in_jnp, adds=_is_average)
def spatial_pyramid_pool(x: Any, levels: Sequence[int], kind: str, axes: Any) -> Answer:
    """Adaptive pools of several sizes, flattened and concatenated, as in `jaxpool.spatial_pyramid_pool`."""
    pool = adaptive_max_pool if kind == "max" else adaptive_avg_pool
    pooled, order, num_batch = _axes_of_pyramid(x, axes)
    values, terms, offset = [], [], 0
    for n in sorted(levels):
        answer = pool(x, (n,) * len(pooled), axes=pooled)
        shape = tuple(answer.y.shape[axis] for axis in order)
        values.append(answer.y.transpose(order).reshape(*shape[:num_batch], -1))
        for term in answer.terms:
            position = tuple(term.output[axis] for axis in order)
            index = int(np.ravel_multi_index(position[num_batch:], shape[num_batch:]))
            output = (*position[:num_batch], offset + index)
            terms.append(Term(output, 0, term.position, term.share))
        offset += values[-1].shape[-1]
    inputs = ((np.shape(x), np.asarray(x).dtype),)
    return Answer(np.concatenate(values, -1), inputs, tuple(terms))
