"""What adaptive and global pools should give, in NumPy loops; see `_oracle` for the parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _oracle
from jaxpool.testing._answer import Answer, Term, exact_values, is_floating, rounded
from jaxpool.testing._oracle import Rule, Ties

Windows = list[list[int]]  # of each output along one axis, the positions in its window


def adaptive_windows(length: int, outputs: int) -> Windows:
    """From the definition: the floor of where a window begins, the ceiling of where it ends.

    >>> adaptive_windows(5, 3)
    [[0, 1], [1, 2, 3], [3, 4]]
    """
    starts = [i * length // outputs for i in range(outputs)]
    stops = [((i + 1) * length + outputs - 1) // outputs for i in range(outputs)]
    return [list(range(*ends)) for ends in zip(starts, stops, strict=True)]


def _axes(ndim: int, count: int, axes: Sequence[int] | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(ndim - 1 - count, ndim - 1))
    return tuple(axis % ndim for axis in axes)


def _pool(
    x: Any, axes: tuple[int, ...], windows: list[Windows], rule: Rule, dtype: Any, mask: Any = None
) -> Answer:
    """`rule` on every window of every lane; where a mask leaves nothing, the least value, or 0."""
    x = np.asarray(x)
    values = exact_values(x)
    counts = np.ones(x.shape, bool) if mask is None else np.broadcast_to(mask, x.shape)
    shape = list(x.shape)
    for axis, own in zip(axes, windows, strict=True):
        shape[axis] = len(own)
    y, indices = np.zeros(shape, object), np.zeros(shape, np.int32)
    terms = []
    for lane in _oracle._lanes(x.shape, axes):
        for output in itertools.product(*[range(len(own)) for own in windows]):
            here = [own[o] for own, o in zip(windows, output, strict=True)]
            elements = [
                element
                for element in itertools.product(*here)
                if counts[_oracle._at(lane, axes, element)]
            ]
            positions = [_oracle._at(lane, axes, element) for element in elements]
            target = _oracle._at(lane, axes, output)
            y[target], shares = rule([values[position] for position in positions])
            for element, position, share in zip(elements, positions, shares, strict=True):
                if share:
                    terms.append(Term(target, 0, position, share))
                    sizes = [x.shape[axis] for axis in axes]
                    indices[target] = np.ravel_multi_index(element, sizes)
    return Answer(rounded(y, dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def _greatest(ties: Ties, dtype: Any) -> Rule:
    choose = _oracle._choose(max, ties)
    return lambda values: choose(values) if values else (_least(dtype), [])


def _least(dtype: Any) -> Any:
    """The least value of a type: its negative infinity, if it has one."""
    if dtype == np.bool_:
        return False
    if not is_floating(dtype):
        return int(jnp.iinfo(dtype).min)
    lowest = float(rounded(-np.inf, dtype))
    return lowest if lowest == -np.inf else float(jnp.finfo(dtype).min)


def _mean(values: list[Any]) -> tuple[Any, list[float]]:
    return _oracle._divide(len(values))(values) if values else (0.0, [])


def _mean_dtype(x: Any) -> Any:
    dtype = np.asarray(x).dtype
    return dtype if is_floating(dtype) else np.dtype(np.float32)


def _adaptive(x: Any, output_shape: Sequence[int | None], axes: Any) -> tuple[Any, Any]:
    pooled = _axes(np.ndim(x), len(output_shape), axes)
    sizes = [np.shape(x)[axis] for axis in pooled]
    pairs = zip(sizes, output_shape, strict=True)
    return pooled, [adaptive_windows(size, size if n is None else n) for size, n in pairs]


def adaptive_max_pool(
    x: Any, output_shape: Sequence[int | None], *, axes: Any = None, ties: Ties = "first"
) -> Answer:
    """The largest element of each window, as in `jaxpool.adaptive_max_pool`."""
    dtype = np.asarray(x).dtype
    return _pool(x, *_adaptive(x, output_shape, axes), _greatest(ties, dtype), dtype)


def adaptive_avg_pool(x: Any, output_shape: Sequence[int | None], *, axes: Any = None) -> Answer:
    """The mean of each window, as in `jaxpool.adaptive_avg_pool`."""
    return _pool(x, *_adaptive(x, output_shape, axes), _mean, _mean_dtype(x))


def _global(x: Any, axes: Any) -> tuple[tuple[int, ...], list[Windows]]:
    pooled = _axes(np.ndim(x), np.ndim(x) - 2, axes)
    return pooled, [[list(range(np.shape(x)[axis]))] for axis in pooled]


def global_max_pool(x: Any, *, axes: Any = None, where: Any = None, ties: Ties = "first") -> Answer:
    """The largest element that counts, as in `jaxpool.global_max_pool` with `keepdims=True`."""
    dtype = np.asarray(x).dtype
    return _pool(x, *_global(x, axes), _greatest(ties, dtype), dtype, where)


def global_avg_pool(x: Any, *, axes: Any = None, where: Any = None) -> Answer:
    """The mean of what counts, as in `jaxpool.global_avg_pool` with `keepdims=True`."""
    return _pool(x, *_global(x, axes), _mean, _mean_dtype(x), where)
