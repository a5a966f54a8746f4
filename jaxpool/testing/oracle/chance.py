"""What pools with a key should give: the same numbers of chance as theirs, drawn again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool._geometry.window import make_window
from jaxpool._ops.random_pool import chance_dtype, weight_dtype
from jaxpool.testing import _twins as twins
from jaxpool.testing._answer import Answer, Term, exact_values, rounded, taps_along
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Rule

__all__ = ["fractional_avg_pool", "fractional_max_pool", "stochastic_pool"]


# Windows that chance places


def starts(sample: Any, size: int, width: int, out: int) -> list[int]:
    """Where `out` windows of `width` begin over `size` positions, in the type of the sample."""
    kind = type(sample)
    alpha = kind(size - width) / kind(max(1, out - 1))
    begun = [int((kind(i) + sample) * alpha) - int(sample * alpha) for i in range(out - 1)]
    return [*begun, size - width]


def _samples(key: Any, shape: Sequence[Any], axes: Sequence[int], dtype: Any) -> Any:
    """A number for each pooled axis of each lane."""
    lanes = [1 if axis in axes else size for axis, size in enumerate(shape)]
    return jax.random.uniform(key, (len(axes), *lanes), chance_dtype(dtype))


def _placed(rule: Rule, dtype: Any, key: Any, x: Any, window: Any, outs: Any, axes: Any) -> Answer:
    x = np.asarray(x)
    pooled = parts.pooled_axes(x.ndim, len(window), axes)
    samples = np.asarray(_samples(key, x.shape, pooled, x.dtype))
    values, shape, terms = exact_values(x), list(x.shape), []
    for axis, out in zip(pooled, outs, strict=True):
        shape[axis] = x.shape[axis] if out is None else out
    y, indices = np.zeros(shape, object), np.zeros(shape, np.int32)
    sizes = [x.shape[axis] for axis in pooled]
    for lane in parts.lanes(x.shape, pooled):
        begun = [
            starts(sample[tuple(lane)], x.shape[axis], width, shape[axis])
            for sample, axis, width in zip(samples, pooled, window, strict=True)
        ]
        for output in itertools.product(*[range(shape[axis]) for axis in pooled]):
            first = [own[o] for own, o in zip(begun, output, strict=True)]
            spans = [range(at, at + width) for at, width in zip(first, window, strict=True)]
            elements = list(itertools.product(*spans))
            positions = [parts.at(lane, pooled, element) for element in elements]
            target = parts.at(lane, pooled, output)
            y[target], shares = rule([values[position] for position in positions])
            for element, position, share in zip(elements, positions, shares, strict=True):
                if share:
                    terms.append(Term(target, 0, position, share))
                    indices[target] = np.ravel_multi_index(element, sizes)
    return Answer(rounded(y, dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def _gathered(key: Any, x: Any, window: Any, outs: Any, axes: Any) -> Any:
    """The elements of each window along a new last axis."""
    pooled = parts.pooled_axes(x.ndim, len(window), axes)
    samples = _samples(key, x.shape, pooled, x.dtype)
    for sample, axis, width, out in zip(samples, pooled, window, outs, strict=True):
        size, kind = x.shape[axis], sample.dtype.type
        alpha = kind(size - width) / kind(max(1, out - 1))
        i = np.arange(out, dtype=kind).reshape([-1 if a == axis else 1 for a in range(sample.ndim)])
        begun = ((i + sample) * alpha).astype(int) - (sample * alpha).astype(int)
        begun = jnp.where(i == out - 1, size - width, begun)
        begun = begun.reshape(*begun.shape, *[1] * (x.ndim - begun.ndim))
        x = jnp.stack([jnp.take_along_axis(x, begun + t, axis) for t in range(width)], -1)
    ndim = samples.ndim - 1
    return x.reshape(*x.shape[:ndim], math.prod(window))


def _largest(key: Any, x: Any, window_shape: Any, output_shape: Any, *, axes: Any = None) -> Any:
    return _gathered(key, x, window_shape, output_shape, axes).max(-1)


@record(twin=_largest)
def fractional_max_pool(
    key: Any, x: Any, window_shape: Any, output_shape: Any, *, axes: Any = None
) -> Answer:
    """The largest element of windows that a key places, as in `jaxpool.fractional_max_pool`."""
    rule, dtype = parts.choose(max, "first"), np.asarray(x).dtype
    return _placed(rule, dtype, key, x, window_shape, output_shape, axes)


def _average(key: Any, x: Any, window_shape: Any, output_shape: Any, *, axes: Any = None) -> Any:
    return _gathered(key, x, window_shape, output_shape, axes).mean(-1)


@record(twin=_average, adds=True)
def fractional_avg_pool(
    key: Any, x: Any, window_shape: Any, output_shape: Any, *, axes: Any = None
) -> Answer:
    """The mean of windows that a key places, as in `jaxpool.fractional_avg_pool`."""
    dtype = parts.float_dtype(x)
    answer = _placed(parts.mean, dtype, key, x, window_shape, output_shape, axes)
    return parts.summed(answer)


# Elements that chance draws


def _chance(key: Any, x: Any, window: Any) -> Any:
    """The share of its total weight at which each window draws."""
    return jax.random.uniform(key, window.pooled(x.shape), weight_dtype(x.dtype))


def _drawn(chance: Any) -> Rule:
    """The first element whose weight and those before it reach beyond a share of all; NaN before all, then inf."""
    kind = type(chance)

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        weights = [kind(float(value)) if not value <= 0 else kind(0) for value in values]
        with np.errstate(over="ignore"):
            reach = list(itertools.accumulate(weights))
            if math.isinf(reach[-1]) and not any(map(math.isinf, weights)):
                small = kind(0.5 ** len(values).bit_length())
                reach = list(itertools.accumulate(weight * small for weight in weights))
        share = chance * reach[-1]
        if math.isnan(reach[-1]):
            found = [math.isnan(each) for each in reach]
        elif math.isinf(reach[-1]):
            found = [math.isinf(each) for each in reach]
        else:
            found = [each > share for each in reach]
        at = found.index(True) if True in found else 0
        return values[at], [float(place == at) for place in range(len(values))]

    return rule


def _expected(values: list[Any]) -> tuple[Any, list[float]]:
    """The mean of all draws: each value weighed by itself; the first where no weight is above 0."""
    weights = [max(float(value), 0.0) for value in values]
    total = math.fsum(weights)
    if not total:
        return float(values[0]), [1.0, *[0.0] * (len(values) - 1)]
    y = math.fsum(weight * weight for weight in weights) / total
    return y, [(2 * weight - y) / total if weight else 0.0 for weight in weights]


def _twin(key: Any, x: Any, *geometry: Any, **options: Any) -> Any:
    window = make_window(x.shape, *geometry, **options)
    lists = [taps_along(dim) for dim in window.dims]
    values, there = twins.side_by_side(x, window.axes, lists)
    weights = jnp.where(there, jnp.maximum(values, 0), 0)
    if key is None:
        return (weights * weights).sum(-1) / weights.sum(-1)
    chance = _chance(key, x, window)[..., None]
    reach = jax.lax.stop_gradient(weights).astype(chance.dtype).cumsum(-1)
    best = jnp.where(reach[..., -1:] == 0, there, reach > chance * reach[..., -1:]).argmax(-1)
    at = jax.nn.one_hot(best, values.shape[-1], dtype=values.dtype)
    return jnp.where(at > 0, values, 0).sum(-1)


def _is_mean(key: Any, **given: Any) -> bool:
    return key is None


@record(
    twin=_twin,
    adds=_is_mean,
    usual={"x": abs},
    choices={"key": (None,)},
    tolerance=256.0,
    covers=("normal",),
)
def stochastic_pool(key: Any, x: Any, *geometry: Any, **options: Any) -> Answer:
    """An element of each window in proportion to its value, or the mean of all, as in `jaxpool.stochastic_pool`."""
    x = np.asarray(x)
    window = make_window(x.shape, *geometry, **options)
    if key is None:
        answer = parts.windowed(x, window, lambda output: _expected, parts.float_dtype(x))
        return parts.summed(answer, np.abs(answer.y.astype(float)))
    chance = np.asarray(_chance(key, x, window))
    return parts.windowed(x, window, lambda output: _drawn(chance[tuple(output)]))
