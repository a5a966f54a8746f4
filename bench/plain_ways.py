"""Equivalent `jax.numpy` and `lax` code for pools of images, as baselines of `python -m bench --plain`.

A user would write it, and it is faster than the twins in `jaxpool.testing`. `plain_rows.py` has the code for rows,
segments and boxes. The baselines are for timing only: tests use the oracle.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

import jaxpool
from bench._case import numpy_dtype
from bench._jax_peer import reduce_window

IMAGES = {"small": (1, 16, 16, 48), "medium": (4, 64, 64, 64), "large": (16, 112, 112, 64)}
_BY_RESHAPE = "2x2 stride 2, plain by reshape"

Way = Callable[..., Any]  # takes arrays; returns y, or y and positions


@dataclasses.dataclass(frozen=True)
class Setting:
    """One function in one setting at one size: our call, the equivalent code, and the shapes of the arguments.

    `differs` says why the results are not comparable. If it is not empty, they are not compared.
    """

    function: str
    words: str
    ours: Way
    plain: Way
    size: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    differs: str = ""

    @property
    def name(self) -> str:
        shapes = " and ".join("x".join(map(str, shape)) for shape in self.shapes)
        kind = "" if self.dtype == "float32" else f" {self.dtype}"
        return f"{self.function} {self.words}{kind}, {shapes} [{self.size}]"

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Numbers between 0.1 and 3, without ties in float32 arrays unless the size is "large"."""
        return tuple(self._array(seed, shape) for seed, shape in enumerate(self.shapes))

    def _array(self, seed: int, shape: tuple[int, ...]) -> np.ndarray:
        count = math.prod(shape)
        order = np.random.default_rng(seed).permutation(count) + 0.3 * (seed + 1)
        values = (order / max(count, 1) * 2.9 + 0.1).astype(np.float32)
        return values.reshape(shape).astype(numpy_dtype(self.dtype))


def call(name: str, *arguments: Any, **options: Any) -> Way:
    """A function of jaxpool with these arguments after the arrays."""
    return lambda *xs: getattr(jaxpool, name)(*xs, *arguments, **options)


# Windows


def _reduced(
    x: Array, kind: str, window: Sequence[int], strides: int = 1, padding: str = "SAME"
) -> Array:
    return reduce_window(x, kind, (1, *window, 1), (1, strides, strides, 1), padding)


def _summed(x: Array, k: int, strides: int = 1, padding: str = "SAME") -> Array:
    """Sums of k x k elements, one axis at a time for long overlapping windows."""
    if k < 5 or strides > 1:
        return _reduced(x, "sum", (k, k), strides, padding)
    return _reduced(_reduced(x, "sum", (k, 1), 1, padding), "sum", (1, k), 1, padding)


def side_by_side(x: Array, k: int = 2) -> Array:
    """Disjoint windows of k x k elements by a reshape to `(B, H // k, k, W // k, k, C)`."""
    b, h, w, c = x.shape
    return x.reshape(b, h // k, k, w // k, k, c)


def _patches(x: Array) -> Array:
    """Disjoint windows of 2x2 elements along a last axis of 4."""
    b, h, w, c = x.shape
    return side_by_side(x).transpose(0, 1, 3, 5, 2, 4).reshape(b, h // 2, w // 2, c, 4)


def _by_reshape(x: Array, kind: str) -> Array:
    return getattr(side_by_side(x), kind)((2, 4))


def _taps(x: Array, k: int) -> list[Array]:
    """The taps of windows of k x k elements without padding, one slice of x per tap."""
    rows, columns = (size - k + 1 for size in x.shape[1:3])
    return [x[:, u : u + rows, v : v + columns] for u in range(k) for v in range(k)]


def _ranked(x: Array, rank: int, k: int) -> Array:
    return jnp.sort(jnp.stack(_taps(x, k)), 0)[rank]


def image_positions(tap: Any, k: int, strides: int, width: int) -> Any:
    """The flat position in the image of one tap of each k x k window."""
    rows, columns = (strides * np.arange(size)[:, None] for size in tap.shape[1:3])
    return (rows[:, None] + tap // k) * width + columns + tap % k


def _argmax(taps: Array, axis: int, k: int, strides: int, width: int) -> tuple[Array, Array]:
    """The maxima of k x k windows whose taps are along an axis, and their positions in the image."""
    tap = jnp.argmax(taps, axis)
    y = jnp.take_along_axis(taps, jnp.expand_dims(tap, axis), axis).squeeze(axis)
    return y, image_positions(tap, k, strides, width).astype(jnp.int32)


def unpooled(y: Array, at: Array, height: int, width: int, unique: bool = False) -> Array:
    b, _, _, c = y.shape
    flat = jnp.zeros((b, height * width, c), y.dtype)
    place = (jnp.arange(b)[:, None, None], at.reshape(b, -1, c), jnp.arange(c))
    filled = flat.at[place].set(y.reshape(b, -1, c), unique_indices=unique)
    return filled.reshape(b, height, width, c)


def _norm(x: Array, p: float, k: int, strides: int) -> Array:
    powers = x * x if p == 2 else jnp.abs(x) ** p
    total = _summed(powers, k, strides, "SAME" if strides == 1 else "VALID")
    return jnp.sqrt(total) if p == 2 else total ** (1 / p)


def _generalised_mean(x: Array, p: Any, k: int) -> Array:
    powers = jnp.maximum(x, 1e-6) ** p
    return (_summed(powers, k) / _summed(jnp.ones_like(x[:1, :, :, :1]), k)) ** (1 / p)


def _weighted_mean(x: Array, weights: Array, k: int) -> Array:
    return _summed(weights * x, k) / _summed(weights, k)


def _drawn(x: Array) -> Array:
    patches = _patches(x)
    weights = jnp.log(jnp.maximum(lax.stop_gradient(patches), 0))
    tap = jax.random.categorical(jax.random.key(0), weights)
    return jnp.take_along_axis(patches, tap[..., None], -1)[..., 0]


def _fractional(x: Array, out: int, *, mean: bool) -> Array:
    """Windows of 2x2 at the same random positions, gathered along one axis at a time."""
    samples = jax.random.uniform(jax.random.key(0), (2, len(x), 1, 1, x.shape[-1]), jnp.float32)
    for axis, sample in zip((1, 2), samples, strict=True):
        most = x.shape[axis] - 2
        alpha = most / (out - 1)
        i = jnp.arange(out).reshape([-1 if a == axis else 1 for a in range(4)])
        starts = ((i + sample) * alpha).astype(int) - (sample * alpha).astype(int)
        starts = jnp.where(i == out - 1, most, starts)
        both = [jnp.take_along_axis(x, starts + tap, axis) for tap in (0, 1)]
        x = sum(both) / 2 if mean else jnp.maximum(*both)
    return x


def _dilated(x: Array, kernel: Array, sign: int) -> Array:
    moved = [a + sign * b for a, b in zip(_taps(x, len(kernel)), kernel.ravel(), strict=True)]
    return functools.reduce(jnp.maximum if sign > 0 else jnp.minimum, moved)


def _blurred(x: Array, k: int, strides: int) -> Array:
    weights = [math.comb(k - 1, tap) / 2 ** (k - 1) for tap in range(k)]
    for axis in (1, 2):
        size = x.shape[axis]
        reach = (size - 1) // strides * strides + 1
        pad = max(reach + k - 1 - size, 0)
        sides = [(pad // 2, pad - pad // 2) if a == axis else (0, 0) for a in range(4)]
        wide = jnp.pad(x, sides, mode="reflect")
        taps = [lax.slice_in_dim(wide, u, u + reach, strides, axis) for u in range(k)]
        terms = [weight * tap for weight, tap in zip(weights, taps, strict=True)]
        x = sum(terms[1:], terms[0])
    return x


def spans(size: int, count: int) -> list[tuple[int, int]]:
    """Start and stop of each of the `count` windows of an adaptive pool over `size` elements."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _adaptive(x: Array, shape: tuple[int, int], reduce: Way) -> Array:
    rows, columns = map(spans, x.shape[1:3], shape)
    lines = [jnp.stack([reduce(x[:, a:b, c:d], (1, 2)) for c, d in columns], 1) for a, b in rows]
    return jnp.stack(lines, 1)


def _pyramid(x: Array, levels: Sequence[int], reduce: Way) -> Array:
    levelled = [_adaptive(x, (n, n), reduce).reshape(x.shape[0], -1) for n in levels]
    return jnp.concatenate(levelled, -1)


def _adaptive_argmax(x: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    batch, height, width, channels = x.shape
    cells = []
    for (a, b), (c, d) in itertools.product(spans(height, shape[0]), spans(width, shape[1])):
        flat = x[:, a:b, c:d].reshape(batch, -1, channels)
        first = jnp.argmax(flat, 1)[:, None]
        positions = (a + first // (d - c)) * width + c + first % (d - c)
        cells.append((jnp.take_along_axis(flat, first, 1), positions.astype(jnp.int32)))
    y, indices = (jnp.concatenate(each, 1) for each in zip(*cells, strict=True))
    return y.reshape(batch, *shape, channels), indices.reshape(batch, *shape, channels)


def _maxout(x: Array, groups: int) -> Array:
    return x.reshape(*x.shape[:-1], groups, -1).max(-1)


def _mask(x: Array) -> Array:
    rows, columns = (jnp.arange(size) for size in x.shape[1:3])
    return ((rows[:, None] + columns) % 3 > 0)[None, :, :, None]


def _masked_mean(x: Array, mask: Array) -> Array:
    count = _summed(mask.astype(x.dtype), 3)
    return _summed(jnp.where(mask, x, 0), 3) / jnp.maximum(count, 1)


def _masked_softmax(x: Array, mask: Array) -> Array:
    weights = jnp.where(mask, jnp.exp(x), 0)
    total = _summed(weights, 3)
    return _summed(weights * x, 3) / jnp.where(total > 0, total, 1)


def _masked_median(x: Array, mask: Array) -> Array:
    sides = ((0, 0), (1, 1), (1, 1), (0, 0))
    counts = _summed(jnp.broadcast_to(mask, x.shape[:3] + mask.shape[3:]).astype(jnp.int32), 3)
    wide = jnp.pad(jnp.where(mask, x, jnp.inf), sides, constant_values=jnp.inf)
    order = jnp.sort(jnp.stack(_taps(wide, 3)), 0)
    at = jnp.broadcast_to(counts // 2, x.shape)[None]
    return jnp.where(counts > 0, jnp.take_along_axis(order, at, 0)[0], 0)


_SAME = {"window_shape": (3, 3), "padding": "SAME"}
# Pools of 3x3 windows with a `where` mask: more arguments, and the equivalent of x and the mask.
_MASKED: dict[str, tuple[dict[str, Any], Way]] = {
    "max_pool": ({}, lambda x, mask: _reduced(jnp.where(mask, x, -jnp.inf), "max", (3, 3))),
    "min_pool": ({}, lambda x, mask: _reduced(jnp.where(mask, x, jnp.inf), "min", (3, 3))),
    "sum_pool": ({}, lambda x, mask: _summed(jnp.where(mask, x, 0), 3)),
    "avg_pool": ({"count_include_pad": False}, _masked_mean),
    "lp_pool": ({"p": 2.0}, lambda x, mask: _norm(jnp.where(mask, x, 0), 2.0, 3, 1)),
    "logsumexp_pool": ({}, lambda x, mask: jnp.log(_summed(jnp.where(mask, jnp.exp(x), 0), 3))),
    "softmax_pool": ({}, _masked_softmax),
    "median_pool": ({}, _masked_median),
}

# Settings

Of = Callable[..., Setting]  # `Setting` of one size, with the shape of the images as the default


def of_images(size: str) -> Iterator[Setting]:
    """The settings of pools of images."""
    shape = IMAGES[size]
    of = partial(Setting, size=size, shapes=(shape,))
    yield from _windows(of)
    yield from _unpools(of, shape)
    yield from _soft(of, shape)
    yield from _random(of, shape[1])
    yield from _peaks_and_masks(of)
    yield from _ranks_and_morphology(of, shape)
    yield from _regions(of)
    yield from _reductions(of, shape)


def _windows(of: Of) -> Iterator[Setting]:
    for kind in ("max", "min", "sum", "mean"):
        name = "avg_pool" if kind == "mean" else f"{kind}_pool"
        for n in (1,) if kind == "mean" else (1, 2):
            plain = partial(_reduced, kind=kind, window=(3, 3), strides=n)
            yield of(name, f"3x3 stride {n} SAME", call(name, (3, 3), (n, n), "SAME"), plain)
        plain = partial(_by_reshape, kind=kind)
        yield of(name, _BY_RESHAPE, call(name, (2, 2), (2, 2)), plain)
    name = "max_pool_with_argmax"
    yield of(
        name,
        _BY_RESHAPE,
        call(name, (2, 2), (2, 2)),
        lambda x: _argmax(_patches(x), -1, 2, 2, x.shape[2]),
    )
    yield of(
        name,
        "3x3 stride 1",
        call(name, (3, 3)),
        lambda x: _argmax(jnp.stack(_taps(x, 3)), 0, 3, 1, x.shape[2]),
    )


def _unpools(of: Of, shape: tuple[int, ...]) -> Iterator[Setting]:
    b, h, w, c = shape
    half = (b, h // 2, w // 2, c)

    @functools.cache
    def apart() -> np.ndarray:
        taps = np.random.default_rng(5).integers(0, 4, half)
        return image_positions(taps, 2, 2, w).astype(np.int32)

    @functools.cache
    def colliding() -> np.ndarray:
        return np.random.default_rng(6).integers(0, h * w, half, np.int32)

    open_which = "leaves open which of several wins"
    for words, at, differs in (("apart", apart, ""), ("that collide", colliding, open_which)):
        yield of(
            "max_unpool",
            f"positions {words}",
            lambda y, at=at: jaxpool.max_unpool(y, lax.optimization_barrier(at()), (h, w)),
            lambda y, at=at: unpooled(y, lax.optimization_barrier(at()), h, w),
            shapes=(half,),
            differs=differs,
        )


def _soft(of: Of, shape: tuple[int, ...]) -> Iterator[Setting]:
    for p, k, n in ((2.0, 3, 1), (2.0, 13, 1), (2.0, 2, 2), (3.0, 3, 1), (3.0, 13, 1)):
        ours = call("lp_pool", p, (k, k), (n, n), "SAME" if n == 1 else "VALID")
        plain = partial(_norm, p=p, k=k, strides=n)
        yield of("lp_pool", f"p={p:g} {k}x{k} stride {n}", ours, plain)
    for k in (3, 13):
        same = _SAME | {"window_shape": (k, k)}
        for name, words, options, plain in (
            ("logsumexp_pool", "", {}, lambda x, k: jnp.log(_summed(jnp.exp(x), k))),
            ("softmax_pool", "", {}, lambda x, k: _weighted_mean(x, jnp.exp(x), k)),
            ("gem_pool", "p=3 ", {"p": 3.0}, lambda x, k: _generalised_mean(x, 3.0, k)),
        ):
            ours = call(name, **same, **options)
            yield of(name, f"{words}{k}x{k}", ours, partial(plain, k=k))
    yield of(
        "gem_pool",
        "p an array 3x3",
        lambda x, p: jaxpool.gem_pool(x, p + 1, **_SAME),
        lambda x, p: _generalised_mean(x, p + 1, 3),
        shapes=(shape, shape[-1:]),
    )


def _random(of: Of, height: int) -> Iterator[Setting]:
    def keyed(name: str, *arguments: Any) -> Way:
        return lambda x: getattr(jaxpool, name)(jax.random.key(0), x, *arguments)

    name = "stochastic_pool"
    for k in (3, 7):
        yield of(
            name,
            f"without a key {k}x{k}",
            partial(jaxpool.stochastic_pool, None, window_shape=(k, k), padding="SAME"),
            lambda x, k=k: _weighted_mean(x, jnp.maximum(x, 0), k),
        )
    differs = "draws other elements from the same key"
    yield of(name, "2x2 stride 2", keyed(name, (2, 2), (2, 2)), _drawn, differs=differs)
    for name, mean in (("fractional_max_pool", False), ("fractional_avg_pool", True)):
        for n in (height // 2 + 1, height * 2 // 3):
            plain = partial(_fractional, out=n, mean=mean)
            yield of(name, f"2x2 to {n}x{n}", keyed(name, (2, 2), (n, n)), plain)


def _peaks_and_masks(of: Of) -> Iterator[Setting]:
    for (name, kind), k in itertools.product(
        (("local_maxima", "max"), ("local_minima", "min")), (3, 7)
    ):
        for ties, differs in (("first", "marks all of equals"), ("all", "")):
            yield of(
                name,
                f"{k}x{k}, the {ties} of equals",
                call(name, window_shape=(k, k), ties=ties),
                lambda x, k=k, kind=kind: x == _reduced(x, kind, (k, k)),
                differs=differs,
            )
    masks = {"one mask for all channels": _mask, "a mask of its own": lambda x: x > 1}
    for words, mask in masks.items():
        for name, (options, plain) in _MASKED.items():
            ours = partial(getattr(jaxpool, name), **_SAME, **options)
            yield of(
                name,
                f"3x3, {words}",
                lambda x, mask=mask, ours=ours: ours(x, where=mask(x)),
                lambda x, mask=mask, plain=plain: plain(x, mask(x)),
            )


def _ranks_and_morphology(of: Of, shape: tuple[int, ...]) -> Iterator[Setting]:
    for k in (3, 5):
        middle = partial(_ranked, rank=k * k // 2, k=k)
        yield of("median_pool", f"{k}x{k}", call("median_pool", (k, k)), middle)
        second = partial(_ranked, rank=1, k=k)
        yield of("rank_pool", f"1 of {k}x{k}", call("rank_pool", 1, (k, k)), second)
        for name, sign in (("dilate", 1), ("erode", -1)):
            plain = partial(_dilated, sign=sign)
            yield of(name, f"{k}x{k}", call(name), plain, shapes=(shape, (k, k)))
        yield of(
            "max_blur_pool",
            f"2x2, {k}x{k} stride 2",
            call("max_blur_pool", (2, 2), (k, k), (2, 2)),
            lambda x, k=k: _blurred(_reduced(x, "max", (2, 2)), k, 2),
        )
    for k, n in ((3, 2), (5, 1), (13, 1)):
        ours = call("blur_pool", (k, k), (n, n))
        yield of("blur_pool", f"{k}x{k} stride {n}", ours, partial(_blurred, k=k, strides=n))


def _regions(of: Of) -> Iterator[Setting]:
    for to in ((4, 4), (5, 7)):
        words = f"to {to[0]}x{to[1]}"
        for name, reduce in (("adaptive_max_pool", jnp.max), ("adaptive_avg_pool", jnp.mean)):
            yield of(name, words, call(name, to), partial(_adaptive, shape=to, reduce=reduce))
        name = "adaptive_max_pool_with_argmax"
        yield of(name, words, call(name, output_shape=to), partial(_adaptive_argmax, shape=to))
    levels = (1, 2, 4)
    for kind, reduce, least in (("max", jnp.max, {"initial": -jnp.inf}), ("avg", jnp.mean, {})):
        ours = call("spatial_pyramid_pool", levels=levels, kind=kind)
        plain = partial(_pyramid, levels=levels, reduce=reduce)
        yield of("spatial_pyramid_pool", f"{kind} of 1, 2, 4", ours, plain)
        name = f"global_{kind}_pool"
        yield of(name, "", call(name), partial(reduce, axis=(1, 2)))
        yield of(
            name,
            "with a mask",
            lambda x, name=name: getattr(jaxpool, name)(x, where=_mask(x)),
            lambda x, reduce=reduce, least=least: reduce(x, (1, 2), where=_mask(x), **least),
        )


def _reductions(of: Of, shape: tuple[int, ...]) -> Iterator[Setting]:
    channels = shape[-1]
    for name, axis in itertools.product(("max", "min"), (None, (1, 2), -1)):
        words = f"over {'all axes' if axis is None else axis}"
        yield of(name, words, call(name, axis=axis), partial(getattr(jnp, name), axis=axis))
    for n in (channels // 2, 4):
        yield of("maxout", f"{n} groups", call("maxout", n), partial(_maxout, groups=n))
    for name in ("maximum", "minimum", "fmax", "fmin"):
        theirs = getattr(jnp, name)
        yield of(name, "of two", call(name), theirs, shapes=(shape, shape))
        yield of(name, "of an array and a row", call(name), theirs, shapes=(shape, (channels,)))
        yield of(name, "of an array and a number", call(name, 1.5), partial(theirs, 1.5))
