"""Pools with a key in the search: the same numbers of chance as theirs, drawn again, and what they then should give."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from jax import Array, lax

import jaxpool
from jaxpool._geometry.window import make_window
from jaxpool.testing import pools
from tests.search.reference import Shares, Table, chosen, windows

POOLS = {name: pool for name, pool in pools().items() if pool.takes("key")}
FRACTIONAL = tuple(name for name, pool in POOLS.items() if pool.takes("output_shape"))
DRAWING = tuple(name for name in POOLS if name not in FRACTIONAL)
NAMES = tuple(POOLS)
CHEAP = "rbg"  # of keys: compiles fastest
NEAR = 1e-6  # of the total weight, from one tap to the next: which of them is drawn rounding may decide
GEOMETRY = ("window_shape", "strides", "padding", "axes")


def adds(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether the function rounds sums: a mean of windows, or of draws."""
    return POOLS[name].rounds({"key": kwargs["draw"]})


def is_mean(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether it is the mean of all draws, of no key."""
    return name in DRAWING and kwargs["draw"] is None


@st.composite
def arguments(draw: st.DrawFn, name: str, pooled: st.SearchStrategy[Any]) -> Any:
    """Shapes, arguments, and how many members all outputs have; `draw` is the seed of the key."""
    shape, kwargs = draw(pooled)
    kwargs = {key: value for key, value in kwargs.items() if key in GEOMETRY}
    seed = draw(st.integers(0, 99))
    if name in DRAWING:
        window = make_window(shape, **kwargs)
        kwargs["draw"] = draw(st.sampled_from([seed, seed, seed, None]))
        return (shape,), kwargs, 2 * math.prod(window.pooled(shape)) * window.size
    width = kwargs["window_shape"]
    axes = kwargs.get("axes") or tuple(range(len(shape) - 1 - len(width), len(shape) - 1))
    most = [shape[axis] - w + 1 for axis, w in zip(axes, width, strict=True)]
    assume(min(most) > 0)
    outs = tuple(draw(st.integers(1, n)) for n in most)
    kwargs = {"window_shape": width, "output_shape": outs, "axes": axes, "draw": seed}
    lanes = math.prod(n for axis, n in enumerate(shape) if axis not in axes)
    return (shape,), kwargs, lanes * math.prod(outs) * math.prod(width)


def call(spec: Any, kwargs: dict[str, Any], x: Array) -> Array:
    """The function with its key, which is read behind a barrier."""
    seed = kwargs.pop("draw")
    key = None
    if seed is not None:
        words = lax.optimization_barrier(jax.random.key_data(jax.random.key(seed, impl=CHEAP)))
        key = jax.random.wrap_key_data(words, impl=CHEAP)
    y: Array = getattr(jaxpool, spec.function)(key, x, **kwargs)
    return y


def starts(size: int, width: int, out: int, sample: np.ndarray) -> np.ndarray:
    """Where `out` windows begin, along the first axis, of each sample; in its type, as PyTorch writes it."""
    last = np.full((1, *sample.shape), size - width)
    if out == 1:
        return last
    alpha = sample.dtype.type(size - width) / sample.dtype.type(out - 1)
    each = np.arange(out - 1, dtype=sample.dtype).reshape(-1, *[1] * sample.ndim)
    begun = ((each + sample) * alpha).astype(int) - (sample * alpha).astype(int)
    return np.concatenate([begun, last])


def table(spec: Any) -> Table:
    """Which elements each output sees: of fractional pools each lane has windows of its own."""
    shape, kwargs = spec.shapes[0], spec.kwargs
    if spec.function not in FRACTIONAL:
        names = ("axes", "padding", "strides", "window_shape")
        return windows(shape, make_window(shape, **{k: kwargs[k] for k in names if k in kwargs}))
    axes, widths, outs = kwargs["axes"], kwargs["window_shape"], kwargs["output_shape"]
    lanes = [1 if axis in axes else size for axis, size in enumerate(shape)]
    key = jax.random.key(kwargs["draw"], impl=CHEAP)
    samples = np.asarray(jax.random.uniform(key, (len(axes), *lanes), np.float32))
    out = [dict(zip(axes, outs, strict=True)).get(axis, size) for axis, size in enumerate(shape)]
    at = [index[..., None] for index in np.indices(out)]
    taps = np.indices(widths).reshape(len(axes), -1)
    for axis, width, count, tap, sample in zip(axes, widths, outs, taps, samples, strict=True):
        begun = np.moveaxis(starts(shape[axis], width, count, sample), 0, axis)
        place = np.squeeze(begun, axis + 1)  # of one sample along the axis
        at[axis] = np.broadcast_to(place, out)[..., None] + tap
    flat = np.ravel_multi_index(np.broadcast_arrays(*at), shape)
    return Table(flat.reshape(math.prod(out), -1), tuple(out))


@functools.lru_cache(maxsize=8)
def _chance(spec: Any) -> np.ndarray:
    """The share of its total weight at which each window draws."""
    shape, kwargs = spec.shapes[0], spec.kwargs
    window = make_window(shape, **{k: kwargs[k] for k in GEOMETRY if k in kwargs})
    key = jax.random.key(kwargs["draw"], impl=CHEAP)
    return np.asarray(jax.random.uniform(key, window.pooled(shape), np.float32), np.float64).ravel()


def _covered(spec: Any, at: Table, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far the weights up to each tap reach, and where the share of each window falls."""
    weight = np.where(at.real, np.maximum(at.of(x).astype(np.float32), 0), 0).astype(np.float64)
    reach = weight.cumsum(-1)
    return reach, _chance(spec)[:, None] * reach[..., -1:]


def _drawn(spec: Any, at: Table, x: np.ndarray) -> np.ndarray:
    """1 at the tap that is drawn, 0 at the others: a NaN before all else, then an infinity."""
    reach, share = _covered(spec, at, x)
    total = reach[..., -1:]
    covered = np.where(np.isinf(total), np.isinf(reach), reach > share)
    covered = np.where(np.isnan(total), np.isnan(reach), covered)
    tap = np.where(total == 0, at.real, covered).argmax(-1)
    return np.eye(reach.shape[-1])[tap]


def unsure(spec: Any, at: Table, x: np.ndarray) -> np.ndarray:
    """Of arrays (cases, elements), which have a window that rounding decides."""
    if spec.function not in DRAWING or spec.kwargs["draw"] is None or at.members.shape[1] < 2:
        return np.zeros(len(x), bool)
    with np.errstate(invalid="ignore"):
        reach, share = _covered(spec, at, x)
        near = (np.abs(reach - share) < NEAR * reach[..., -1:]) & np.isfinite(share)
    return near.any((-2, -1))


def wanted(spec: Any, at: Table, x: np.ndarray) -> Shares:
    """What each function should give of arrays (cases, elements)."""
    values, real = at.of(x), np.broadcast_to(at.real, (len(x), *at.members.shape))
    if spec.function in FRACTIONAL and not POOLS[spec.function].adds:
        return Shares(at, *chosen(values, real, "max", "first"))
    if spec.function in FRACTIONAL:
        share = np.full(values.shape, 1 / values.shape[-1])
        return Shares(at, values.mean(-1), share, np.nan_to_num(np.abs(values)).mean(-1))
    first = np.arange(values.shape[-1]) == at.real.argmax(-1)[:, None]
    if spec.kwargs["draw"] is not None:
        share = _drawn(spec, at, x)
        return Shares(at, np.where(share > 0, values, 0).sum(-1), share)
    weight = np.where(real, np.maximum(values, 0), 0)
    total = weight.sum(-1, keepdims=True)
    none, safe = total == 0, np.where(total == 0, 1, total)
    y = np.where(none, np.where(first, values, 0), weight**2 / safe).sum(-1, keepdims=True)
    slope = np.where(weight > 0, (2 * weight - y) / safe, 0)
    parts = np.where(weight > 0, (2 * weight + np.abs(y)) / safe, 0)
    return Shares(
        at, y[..., 0], np.where(none, first, slope), np.abs(y[..., 0]), np.where(none, first, parts)
    )
