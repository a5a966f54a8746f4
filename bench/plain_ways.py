"""Equivalent `jax.numpy` and `lax` code for pools of images, as baselines of `python -m bench --plain`.

A user would write it, and it is faster than the twins in `jaxpool.testing`. `plain_rows.py` has the code for rows,
segments and boxes. The baselines are for timing only: tests use the oracle.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

import jaxpool
from bench._case import numpy_dtype, spans

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
    size: str
    ours: Way
    plain: Way
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    differs: str = ""

    @property
    def name(self) -> str:
        shapes = " and ".join("x".join(map(str, shape)) for shape in self.shapes)
        kind = "" if self.dtype == "float32" else f" {self.dtype}"
        return f"{self.function} {self.words}{kind}, {shapes}"

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Numbers between 0.1 and 3, without ties in float32 arrays unless the size is "large"."""
        arrays_of_setting = []
        for seed, shape in enumerate(self.shapes):
            count = int(np.prod(shape))
            order = np.random.default_rng(seed).permutation(count) + 0.3 * (seed + 1)
            values = order / max(count, 1) * 2.9 + 0.1
            arrays_of_setting.append(
                values.astype(np.float32).reshape(shape).astype(numpy_dtype(self.dtype))
            )
        return tuple(arrays_of_setting)


def call(name: str, *arguments: Any, **options: Any) -> Way:
    """A function of jaxpool with these arguments after the arrays."""
    return lambda *xs: getattr(jaxpool, name)(*xs, *arguments, **options)


# Windows


def _reduced(
    x: Array, kind: str, window: Sequence[int], strides: int = 1, padding: str = "SAME"
) -> Array:
    init, join = {
        "max": (-jnp.inf, lax.max),
        "min": (jnp.inf, lax.min),
        "sum": (0.0, lax.add),
    }[kind]
    every, apart = (1, *window, 1), (1, strides, strides, 1)
    y: Array = lax.reduce_window(x, np.array(init, x.dtype), join, every, apart, padding)
    return y


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
    y: Array = getattr(side_by_side(x), kind)((2, 4))
    return y


def _taps(x: Array, k: int) -> list[Array]:
    """The taps of windows of k x k elements without padding, one slice of x per tap."""
    _, h, w, _ = x.shape
    rows, columns = h - k + 1, w - k + 1
    return [x[:, u : u + rows, v : v + columns] for u in range(k) for v in range(k)]


def _ranked(x: Array, rank: int, k: int) -> Array:
    return jnp.sort(jnp.stack(_taps(x, k)), 0)[rank]


def _argmax_of_patches(x: Array) -> tuple[Array, Array]:
    _, h, w, _ = x.shape
    patches = _patches(x)
    tap = jnp.argmax(patches, -1)
    rows = 2 * jnp.arange(h // 2)[:, None, None] + tap // 2
    columns = 2 * jnp.arange(w // 2)[:, None] + tap % 2
    y = jnp.take_along_axis(patches, tap[..., None], -1)[..., 0]
    return y, (rows * w + columns).astype(jnp.int32)


def _argmax_of_taps(x: Array) -> tuple[Array, Array]:
    _, h, w, _ = x.shape
    taps = jnp.stack(_taps(x, 3))
    tap = jnp.argmax(taps, 0)
    y = jnp.take_along_axis(taps, tap[None], 0)[0]
    rows = jnp.arange(h - 2)[:, None, None] + tap // 3
    columns = jnp.arange(w - 2)[:, None] + tap % 3
    return y, (rows * w + columns).astype(jnp.int32)


def _positions(shape: tuple[int, ...], height: int, width: int) -> tuple[Way, Way]:
    """Random positions: one per disjoint 2x2 window, and anywhere in the image."""

    @functools.cache
    def apart() -> np.ndarray:
        rng = np.random.default_rng(5)
        rows = 2 * np.arange(shape[1])[:, None, None] + rng.integers(0, 2, shape)
        columns = 2 * np.arange(shape[2])[:, None] + rng.integers(0, 2, shape)
        return (rows * width + columns).astype(np.int32)

    @functools.cache
    def colliding() -> np.ndarray:
        return np.random.default_rng(6).integers(0, height * width, shape, np.int32)

    return apart, colliding


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


def _logsumexp(x: Array, k: int) -> Array:
    return jnp.log(_summed(jnp.exp(x), k))


def _softmax(x: Array, k: int) -> Array:
    weights = jnp.exp(x)
    return _summed(weights * x, k) / _summed(weights, k)


def _expected(x: Array, k: int) -> Array:
    weights = jnp.maximum(x, 0)
    return _summed(weights * x, k) / _summed(weights, k)


def _drawn(x: Array) -> Array:
    patches = _patches(x)
    weights = jnp.log(jnp.maximum(lax.stop_gradient(patches), 0))
    tap = jax.random.categorical(jax.random.key(0), weights)
    return jnp.take_along_axis(patches, tap[..., None], -1)[..., 0]


def _fractional(x: Array, out: int, *, mean: bool) -> Array:
    """Windows of 2x2 at the same random positions, gathered along one axis at a time."""
    b, h, w, c = x.shape
    samples = jax.random.uniform(jax.random.key(0), (2, b, 1, 1, c), jnp.float32)
    for axis, size, sample in ((1, h, samples[0]), (2, w, samples[1])):
        alpha = (size - 2) / (out - 1)
        i = jnp.arange(out - 1).reshape([-1 if a == axis else 1 for a in range(4)])
        starts = ((i + sample) * alpha).astype(int) - (sample * alpha).astype(int)
        last = jnp.full_like(lax.slice_in_dim(starts, 0, 1, axis=axis), size - 2)
        starts = jnp.concatenate([starts, last], axis)
        both = [jnp.take_along_axis(x, starts + tap, axis) for tap in (0, 1)]
        x = sum(both) / 2 if mean else jnp.maximum(*both)  # type: ignore[assignment]
    return x


def _dilated(x: Array, kernel: Array, sign: int) -> Array:
    moved = [a + sign * b for a, b in zip(_taps(x, len(kernel)), kernel.ravel(), strict=True)]
    return functools.reduce(jnp.maximum if sign > 0 else jnp.minimum, moved)


def _blurred(x: Array, k: int, strides: int) -> Array:
    line = np.array([1.0])
    for _ in range(k - 1):
        line = np.convolve(line, [0.5, 0.5])
    for axis in (1, 2):
        size = x.shape[axis]
        out = -(-size // strides)
        pad = max((out - 1) * strides + k - size, 0)
        sides = [(pad // 2, pad - pad // 2) if a == axis else (0, 0) for a in range(4)]
        wide = jnp.pad(x, sides, mode="reflect")
        reach = (out - 1) * strides + 1
        terms = [
            float(weight) * lax.slice_in_dim(wide, u, u + reach, strides, axis)
            for u, weight in enumerate(line)
        ]
        x = sum(terms[1:], terms[0])
    return x


def _adaptive(x: Array, shape: tuple[int, int], reduce: Way) -> Array:
    rows, columns = map(spans, x.shape[1:3], shape)
    lines = [jnp.stack([reduce(x[:, a:b, c:d], (1, 2)) for c, d in columns], 1) for a, b in rows]
    return jnp.stack(lines, 1)


def _pyramid(x: Array, levels: Sequence[int], reduce: Way) -> Array:
    levelled = [_adaptive(x, (n, n), reduce).reshape(x.shape[0], -1) for n in levels]
    return jnp.concatenate(levelled, -1)


def _adaptive_argmax(x: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    width = x.shape[2]
    y, indices = [], []
    for a, b in spans(x.shape[1], shape[0]):
        for c, d in spans(width, shape[1]):
            flat = x[:, a:b, c:d].reshape(x.shape[0], -1, x.shape[-1])
            first = jnp.argmax(flat, 1)[:, None]
            y.append(jnp.take_along_axis(flat, first, 1))
            indices.append((a + first // (d - c)) * width + c + first % (d - c))
    joined = [jnp.concatenate(each, 1) for each in (y, indices)]
    both = [each.reshape(x.shape[0], *shape, x.shape[-1]) for each in joined]
    return both[0], both[1].astype(jnp.int32)


def _with_number(function: Way, x: Array) -> Any:
    return function(x, 1.5)


def _mask(x: Array) -> Array:
    rows, columns = (jnp.arange(size) for size in x.shape[1:3])
    return ((rows[:, None] + columns) % 3 > 0)[None, :, :, None]


def _own_mask(x: Array) -> Array:
    return x > 1


def _of_some(name: str, mask: Way, x: Array) -> Array:
    """A 3x3 pool with a `where` mask. Averages only count the elements of the mask."""
    options: dict[str, Any] = {"where": mask(x)}
    options |= {"p": 2.0} if name == "lp_pool" else {}
    options |= {"count_include_pad": False} if name == "avg_pool" else {}
    y: Array = getattr(jaxpool, name)(x, window_shape=(3, 3), padding="SAME", **options)
    return y


def _mean_of_some(x: Array, mask: Array) -> Array:
    count = _summed(mask.astype(x.dtype), 3)
    return _summed(jnp.where(mask, x, 0), 3) / jnp.maximum(count, 1)


def _median_of_some(x: Array, mask: Array) -> Array:
    sides = ((0, 0), (1, 1), (1, 1), (0, 0))
    counts = _summed(jnp.broadcast_to(mask, x.shape[:3] + mask.shape[3:]).astype(jnp.int32), 3)
    wide = jnp.pad(jnp.where(mask, x, jnp.inf), sides, constant_values=jnp.inf)
    order = jnp.sort(jnp.stack(_taps(wide, 3)), 0)
    at = jnp.broadcast_to(counts // 2, x.shape)[None]
    return jnp.where(counts > 0, jnp.take_along_axis(order, at, 0)[0], 0)


def _log_of_some(x: Array, mask: Array) -> Array:
    return jnp.log(_summed(jnp.where(mask, jnp.exp(x), 0), 3))


def _softmax_of_some(x: Array, mask: Array) -> Array:
    weights = jnp.where(mask, jnp.exp(x), 0)
    total = _summed(weights, 3)
    return _summed(weights * x, 3) / jnp.where(total > 0, total, 1)


_MASKED: dict[str, Way] = {
    "max_pool": lambda x, mask: _reduced(jnp.where(mask, x, -jnp.inf), "max", (3, 3)),
    "min_pool": lambda x, mask: _reduced(jnp.where(mask, x, jnp.inf), "min", (3, 3)),
    "sum_pool": lambda x, mask: _summed(jnp.where(mask, x, 0), 3),
    "avg_pool": _mean_of_some,
    "lp_pool": lambda x, mask: _norm(jnp.where(mask, x, 0), 2.0, 3, 1),
    "logsumexp_pool": _log_of_some,
    "softmax_pool": _softmax_of_some,
    "median_pool": _median_of_some,
}


# Settings

Of = Callable[..., Setting]  # of(function, words, ours, plain, *shapes of more arrays, differs="")


def of_images(size: str) -> Iterator[Setting]:
    """The settings of pools of images."""
    shape = IMAGES[size]

    def of(function: str, words: str, ours: Way, plain: Way, *more: Any, **rest: Any) -> Setting:
        return Setting(function, words, size, ours, plain, (shape, *more), **rest)

    yield from _extremes_and_sums(of)
    yield from _unpools(size)
    yield from _soft(of, shape[-1])
    yield from _random(of, shape[1])
    yield from _peaks_and_masks(of)
    yield from _ranks_and_morphology(of)
    yield from _regions(of)
    yield from _reductions(of, shape)


def _extremes_and_sums(of: Of) -> Iterator[Setting]:
    for name, kind in (("max_pool", "max"), ("min_pool", "min"), ("sum_pool", "sum")):
        for n in (1, 2):
            plain = partial(_reduced, kind=kind, window=(3, 3), strides=n)
            yield of(name, f"3x3 stride {n} SAME", call(name, (3, 3), (n, n), "SAME"), plain)
        plain = partial(_by_reshape, kind=kind)
        yield of(name, _BY_RESHAPE, call(name, (2, 2), (2, 2)), plain)
    name, ours = "avg_pool", call("avg_pool", (3, 3), padding="SAME")
    yield of(name, "3x3 stride 1 SAME", ours, lambda x: _summed(x, 3) / 9)
    yield of(name, _BY_RESHAPE, call(name, (2, 2), (2, 2)), partial(_by_reshape, kind="mean"))
    name = "max_pool_with_argmax"
    yield of(name, _BY_RESHAPE, call(name, (2, 2), (2, 2)), _argmax_of_patches)
    yield of(name, "3x3 stride 1", call(name, (3, 3)), _argmax_of_taps)


def _unpools(size: str) -> Iterator[Setting]:
    b, h, w, c = IMAGES[size]
    half = (b, h // 2, w // 2, c)
    apart, colliding = _positions(half, h, w)
    open_which = "leaves open which of several wins"
    for words, at, differs in (("apart", apart, ""), ("that collide", colliding, open_which)):
        yield Setting(
            "max_unpool",
            f"positions {words}",
            size,
            lambda y, at=at: jaxpool.max_unpool(y, lax.optimization_barrier(at()), (h, w)),
            lambda y, at=at: unpooled(y, lax.optimization_barrier(at()), h, w),
            (half,),
            differs=differs,
        )


def _soft(of: Of, channels: int) -> Iterator[Setting]:
    for p, k, n in ((2.0, 3, 1), (2.0, 13, 1), (2.0, 2, 2), (3.0, 3, 1), (3.0, 13, 1)):
        ours = call("lp_pool", p, (k, k), (n, n), "SAME" if n == 1 else "VALID")
        plain = partial(_norm, p=p, k=k, strides=n)
        yield of("lp_pool", f"p={p:g} {k}x{k} stride {n}", ours, plain)
    for k in (3, 13):
        same = {"window_shape": (k, k), "padding": "SAME"}
        for name, plain in (("logsumexp_pool", _logsumexp), ("softmax_pool", _softmax)):
            yield of(name, f"{k}x{k}", call(name, **same), partial(plain, k=k))
        plain = partial(_generalised_mean, p=3.0, k=k)
        yield of("gem_pool", f"p=3 {k}x{k}", call("gem_pool", p=3.0, **same), plain)
    yield of(
        "gem_pool",
        "p an array 3x3",
        lambda x, p: jaxpool.gem_pool(x, p + 1, (3, 3), padding="SAME"),
        lambda x, p: _generalised_mean(x, p + 1, 3),
        (channels,),
    )


def _random(of: Of, height: int) -> Iterator[Setting]:
    def keyed(name: str, *arguments: Any) -> Way:
        return lambda x: getattr(jaxpool, name)(jax.random.key(0), x, *arguments)

    name = "stochastic_pool"
    for k in (3, 7):
        ours = partial(jaxpool.stochastic_pool, None, window_shape=(k, k), padding="SAME")
        yield of(name, f"without a key {k}x{k}", ours, partial(_expected, k=k))
    differs = "draws other elements from the same key"
    yield of(name, "2x2 stride 2", keyed(name, (2, 2), (2, 2)), _drawn, differs=differs)
    for name, mean in (("fractional_max_pool", False), ("fractional_avg_pool", True)):
        for n in (height // 2 + 1, height * 2 // 3):
            plain = partial(_fractional, out=n, mean=mean)
            yield of(name, f"2x2 to {n}x{n}", keyed(name, (2, 2), (n, n)), plain)


def _peaks_and_masks(of: Of) -> Iterator[Setting]:
    for name, kind in (("local_maxima", "max"), ("local_minima", "min")):
        for k in (3, 7):
            for ties, differs in (("first", "marks all of equals"), ("all", "")):
                yield of(
                    name,
                    f"{k}x{k}, the {ties} of equals",
                    call(name, window_shape=(k, k), ties=ties),
                    lambda x, k=k, kind=kind: x == _reduced(x, kind, (k, k)),
                    differs=differs,
                )
    for mask, words in ((_mask, "one mask for all channels"), (_own_mask, "a mask of its own")):
        for name, plain in _MASKED.items():
            yield of(
                name,
                f"3x3, {words}",
                partial(_of_some, name, mask),
                lambda x, mask=mask, plain=plain: plain(x, mask(x)),
            )


def _ranks_and_morphology(of: Of) -> Iterator[Setting]:
    for k in (3, 5):
        middle = partial(_ranked, rank=k * k // 2, k=k)
        yield of("median_pool", f"{k}x{k}", call("median_pool", (k, k)), middle)
        second = partial(_ranked, rank=1, k=k)
        yield of("rank_pool", f"1 of {k}x{k}", call("rank_pool", 1, (k, k)), second)
        for name, sign in (("dilate", 1), ("erode", -1)):
            yield of(name, f"{k}x{k}", call(name), partial(_dilated, sign=sign), (k, k))
    for k, n in ((3, 2), (5, 1), (13, 1)):
        ours = call("blur_pool", (k, k), (n, n))
        yield of("blur_pool", f"{k}x{k} stride {n}", ours, partial(_blurred, k=k, strides=n))
    for k in (3, 5):
        yield of(
            "max_blur_pool",
            f"2x2, {k}x{k} stride 2",
            call("max_blur_pool", (2, 2), (k, k), (2, 2)),
            lambda x, k=k: _blurred(_reduced(x, "max", (2, 2)), k, 2),
        )


def _regions(of: Of) -> Iterator[Setting]:
    for to in ((4, 4), (5, 7)):
        words = f"to {to[0]}x{to[1]}"
        for name, reduce in (("adaptive_max_pool", jnp.max), ("adaptive_avg_pool", jnp.mean)):
            yield of(name, words, call(name, to), partial(_adaptive, shape=to, reduce=reduce))
        name = "adaptive_max_pool_with_argmax"
        yield of(name, words, call(name, output_shape=to), partial(_adaptive_argmax, shape=to))
    levels = (1, 2, 4)
    for kind, reduce in (("max", jnp.max), ("avg", jnp.mean)):
        name = "spatial_pyramid_pool"
        plain = partial(_pyramid, levels=levels, reduce=reduce)
        yield of(name, f"{kind} of 1, 2, 4", call(name, levels=levels, kind=kind), plain)
        name = f"global_{kind}_pool"
        yield of(name, "", call(name), partial(reduce, axis=(1, 2)))
        least = {"initial": -jnp.inf} if kind == "max" else {}
        yield of(
            name,
            "with a mask",
            lambda x, name=name: getattr(jaxpool, name)(x, where=_mask(x)),
            lambda x, reduce=reduce, least=least: reduce(x, (1, 2), where=_mask(x), **least),
        )


def _reductions(of: Of, shape: tuple[int, ...]) -> Iterator[Setting]:
    channels = shape[-1]
    for name in ("max", "min"):
        for axis in (None, (1, 2), -1):
            words = f"over {'all axes' if axis is None else axis}"
            yield of(name, words, call(name, axis=axis), partial(getattr(jnp, name), axis=axis))
    for groups in (channels // 2, 4):
        yield of(
            "maxout",
            f"{groups} groups",
            call("maxout", groups),
            lambda x, n=groups: x.reshape(*x.shape[:-1], n, -1).max(-1),
        )
    for name in ("maximum", "minimum", "fmax", "fmin"):
        ours, theirs = call(name), getattr(jnp, name)
        yield of(name, "of two", ours, theirs, shape)
        yield of(name, "of an array and a row", ours, theirs, (channels,))
        plain = partial(_with_number, theirs)
        yield of(name, "of an array and a number", call(name, 1.5), plain)
