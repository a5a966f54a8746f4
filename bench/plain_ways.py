"""Equivalent `jax.numpy` and `lax` code for each public function, as baselines of `python -m bench --plain`.

A function without code here is timed against the twin of its record in `jaxpool.testing`, which is jax.numpy too.
This module has code for functions that a user would write faster than the twin. The baselines are for timing only:
tests use the oracle.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

import jaxpool
from bench import boxes
from bench._case import numpy_dtype, spans
from jaxpool.testing import Pool, pools

SIZES = ("small", "medium", "large")
DTYPES = ("float32", "bfloat16")
_IMAGES = {"small": (1, 16, 16, 48), "medium": (4, 64, 64, 64), "large": (16, 112, 112, 64)}
_ROWS = {"small": (768, 16), "medium": (65536, 16), "large": (1_000_000, 16)}
_EDGES = {"small": (96, 128), "medium": (8192, 128), "large": (100_000, 128)}
_SEGMENTS = {"small": 50, "medium": 999, "large": 50_000}
_BY_MAXIMUM = "sends the rounding of all gradients of a segment to its largest element"
_DRAWS = "draws other elements from the same key"

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


def settings() -> Iterator[Setting]:
    """All settings of all functions, at three sizes and in two dtypes."""
    for size in SIZES:
        written = [*_of_images(size), *_of_rows(size), *_of_boxes(size)]
        known = {setting.function for setting in written}
        others = [pool for name, pool in pools().items() if name not in known]
        for setting in [*written, *(each for pool in others for each in beside_twin(pool, size))]:
            for dtype in DTYPES:
                yield dataclasses.replace(setting, dtype=dtype)


def beside_twin(pool: Pool, size: str) -> Iterator[Setting]:
    """The usual call of a record and a call with overlapping windows, against the twin."""
    overlapping = {"window_shape": (3, 3), "strides": (1, 1), "padding": "SAME"}
    for words, given in (("beside its twin", {}), ("3x3 beside its twin", overlapping)):
        ours, twin = pool.of(**given), pool.of(pool.twin, **given)
        yield Setting(pool.name, words, size, ours, twin, (_IMAGES[size],))


# Windows


def _reduced(x: Array, kind: str, window: Sequence[int], strides: int, padding: str) -> Array:
    init, join = {
        "max": (-jnp.inf, lax.max),
        "min": (jnp.inf, lax.min),
        "sum": (0.0, lax.add),
    }[kind]
    every = (1, *window, 1)
    apart = (1, strides, strides, 1)
    y: Array = lax.reduce_window(x, np.array(init, x.dtype), join, every, apart, padding)
    return y


def _summed(x: Array, k: int, strides: int = 1, padding: str = "SAME") -> Array:
    """Sums of k x k elements, one axis at a time for long overlapping windows."""
    if k < 5 or strides > 1:
        return _reduced(x, "sum", (k, k), strides, padding)
    return _reduced(_reduced(x, "sum", (k, 1), 1, padding), "sum", (1, k), 1, padding)


def _side_by_side(x: Array, k: int = 2) -> Array:
    """Disjoint windows of k x k elements by a reshape to `(B, H // k, k, W // k, k, C)`."""
    b, h, w, c = x.shape
    return x.reshape(b, h // k, k, w // k, k, c)


def _taps(x: Array, k: int) -> list[Array]:
    """The taps of windows of k x k elements without padding, one slice of x per tap."""
    _, h, w, _ = x.shape
    rows, columns = h - k + 1, w - k + 1
    return [x[:, u : u + rows, v : v + columns] for u in range(k) for v in range(k)]


def _argmax_of_patches(x: Array) -> tuple[Array, Array]:
    b, h, w, c = x.shape
    patches = _side_by_side(x).transpose(0, 1, 3, 5, 2, 4).reshape(b, h // 2, w // 2, c, 4)
    tap = jnp.argmax(patches, -1)
    rows = 2 * jnp.arange(h // 2)[:, None, None] + tap // 2
    columns = 2 * jnp.arange(w // 2)[:, None] + tap % 2
    y = jnp.take_along_axis(patches, tap[..., None], -1)[..., 0]
    return y, (rows * w + columns).astype(jnp.int32)


def _unpooled(y: Array, at: Array, height: int, width: int) -> Array:
    b, _, _, c = y.shape
    flat = jnp.zeros((b, height * width, c), y.dtype)
    place = (jnp.arange(b)[:, None, None], at.reshape(b, -1, c), jnp.arange(c))
    return flat.at[place].set(y.reshape(b, -1, c)).reshape(b, height, width, c)


def _norm(x: Array, p: float, k: int, strides: int) -> Array:
    powers = x * x if p == 2 else jnp.abs(x) ** p
    total = _summed(powers, k, strides, "SAME" if strides == 1 else "VALID")
    return jnp.sqrt(total) if p == 2 else total ** (1 / p)


def _generalised_mean(x: Array, p: Any, k: int) -> Array:
    powers = jnp.maximum(x, 1e-6) ** p
    return (_summed(powers, k) / _summed(jnp.ones_like(x[:1, :, :, :1]), k)) ** (1 / p)


def _softmax(x: Array, k: int) -> Array:
    weights = jnp.exp(x)
    return _summed(weights * x, k) / _summed(weights, k)


def _expected(x: Array, k: int) -> Array:
    weights = jnp.maximum(x, 0)
    return _summed(weights * x, k) / _summed(weights, k)


def _drawn(x: Array) -> Array:
    b, h, w, c = x.shape
    patches = _side_by_side(x).transpose(0, 1, 3, 5, 2, 4).reshape(b, h // 2, w // 2, c, 4)
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


def _k_largest(x: Array, k: int, axis: int) -> Array:
    lanes = jnp.moveaxis(x, axis, -1)
    at = jnp.sort(lax.top_k(lax.stop_gradient(lanes), k)[1])
    return jnp.moveaxis(jnp.take_along_axis(lanes, at, -1), -1, axis)


def _of_images(size: str) -> Iterator[Setting]:
    shape = _IMAGES[size]
    b, h, w, c = shape

    def of(function: str, words: str, ours: Way, plain: Way, *more: Any, **rest: Any) -> Setting:
        return Setting(function, words, size, ours, plain, (shape, *more), **rest)

    for name, kind in (("max_pool", "max"), ("min_pool", "min"), ("sum_pool", "sum")):
        pool = getattr(jaxpool, name)
        yield of(
            name,
            "3x3 stride 1 SAME",
            lambda x, pool=pool: pool(x, (3, 3), padding="SAME"),
            lambda x, kind=kind: _reduced(x, kind, (3, 3), 1, "SAME"),
        )
        yield of(
            name,
            "3x3 stride 2 SAME",
            lambda x, pool=pool: pool(x, (3, 3), (2, 2), "SAME"),
            lambda x, kind=kind: _reduced(x, kind, (3, 3), 2, "SAME"),
        )
        yield of(
            name,
            "2x2 stride 2, plain by reshape",
            lambda x, pool=pool: pool(x, (2, 2), (2, 2)),
            lambda x, kind=kind: getattr(_side_by_side(x), kind)((2, 4)),
        )
    yield of(
        "avg_pool",
        "3x3 stride 1 SAME",
        lambda x: jaxpool.avg_pool(x, (3, 3), padding="SAME"),
        lambda x: _summed(x, 3) / 9,
    )
    yield of(
        "avg_pool",
        "2x2 stride 2, plain by reshape",
        lambda x: jaxpool.avg_pool(x, (2, 2), (2, 2)),
        lambda x: _side_by_side(x).mean((2, 4)),
    )
    yield of(
        "max_pool_with_argmax",
        "2x2 stride 2, plain by reshape",
        lambda x: jaxpool.max_pool_with_argmax(x, (2, 2), (2, 2)),
        _argmax_of_patches,
    )
    yield of(
        "max_pool_with_argmax",
        "3x3 stride 1",
        lambda x: jaxpool.max_pool_with_argmax(x, (3, 3)),
        _argmax_of_taps,
    )
    half = (b, h // 2, w // 2, c)
    apart, colliding = _positions(half, h, w)
    for words, at in (("apart", apart), ("that collide", colliding)):
        yield Setting(
            "max_unpool",
            f"positions {words}",
            size,
            lambda y, at=at: jaxpool.max_unpool(y, lax.optimization_barrier(at()), (h, w)),
            lambda y, at=at: _unpooled(y, lax.optimization_barrier(at()), h, w),
            (half,),
            differs="" if words == "apart" else "leaves open which of several wins",
        )
    for p, k, strides in ((2.0, 3, 1), (2.0, 13, 1), (2.0, 2, 2), (3.0, 3, 1), (3.0, 13, 1)):
        yield of(
            "lp_pool",
            f"p={p:g} {k}x{k} stride {strides}",
            lambda x, p=p, k=k, s=strides: jaxpool.lp_pool(
                x, p, (k, k), (s, s), "SAME" if s == 1 else "VALID"
            ),
            functools.partial(_norm, p=p, k=k, strides=strides),
        )
    for k in (3, 13):
        same = {"window_shape": (k, k), "padding": "SAME"}
        yield of(
            "logsumexp_pool",
            f"{k}x{k}",
            functools.partial(jaxpool.logsumexp_pool, **same),
            lambda x, k=k: jnp.log(_summed(jnp.exp(x), k)),
        )
        yield of(
            "softmax_pool",
            f"{k}x{k}",
            functools.partial(jaxpool.softmax_pool, **same),
            functools.partial(_softmax, k=k),
        )
        yield of(
            "gem_pool",
            f"p=3 {k}x{k}",
            functools.partial(jaxpool.gem_pool, p=3.0, **same),
            functools.partial(_generalised_mean, p=3.0, k=k),
        )
    yield of(
        "gem_pool",
        "p an array 3x3",
        lambda x, p: jaxpool.gem_pool(x, p + 1, (3, 3), padding="SAME"),
        lambda x, p: _generalised_mean(x, p + 1, 3),
        (c,),
    )
    for k in (3, 7):
        yield of(
            "stochastic_pool",
            f"without a key {k}x{k}",
            lambda x, k=k: jaxpool.stochastic_pool(None, x, (k, k), padding="SAME"),
            functools.partial(_expected, k=k),
        )
    yield of(
        "stochastic_pool",
        "2x2 stride 2",
        lambda x: jaxpool.stochastic_pool(jax.random.key(0), x, (2, 2), (2, 2)),
        _drawn,
        differs=_DRAWS,
    )
    for name, mean in (("fractional_max_pool", False), ("fractional_avg_pool", True)):
        for out in (h // 2 + 1, h * 2 // 3):
            yield of(
                name,
                f"2x2 to {out}x{out}",
                lambda x, name=name, out=out: getattr(jaxpool, name)(
                    jax.random.key(0), x, (2, 2), (out, out)
                ),
                functools.partial(_fractional, out=out, mean=mean),
            )
    for name, kind in (("local_maxima", "max"), ("local_minima", "min")):
        for k in (3, 7):
            for ties in ("first", "all"):
                yield of(
                    name,
                    f"{k}x{k}, the {ties} of equals",
                    functools.partial(getattr(jaxpool, name), window_shape=(k, k), ties=ties),
                    lambda x, k=k, kind=kind: x == _reduced(x, kind, (k, k), 1, "SAME"),
                    differs="marks all of equals" if ties == "first" else "",
                )
    for masked, words in ((_mask, "one mask for all channels"), (_own_mask, "a mask of its own")):
        for name, plain in _MASKED.items():
            yield of(
                name,
                f"3x3, {words}",
                functools.partial(_of_some, name, masked),
                lambda x, masked=masked, plain=plain: plain(x, masked(x)),
            )
    for k in (3, 5):
        yield of(
            "median_pool",
            f"{k}x{k}",
            lambda x, k=k: jaxpool.median_pool(x, (k, k)),
            lambda x, k=k: jnp.sort(jnp.stack(_taps(x, k)), 0)[k * k // 2],
        )
        yield of(
            "rank_pool",
            f"1 of {k}x{k}",
            lambda x, k=k: jaxpool.rank_pool(x, 1, (k, k)),
            lambda x, k=k: jnp.sort(jnp.stack(_taps(x, k)), 0)[1],
        )
        for name, sign in (("dilate", 1), ("erode", -1)):
            yield of(
                name,
                f"{k}x{k}",
                lambda x, kernel, name=name: getattr(jaxpool, name)(x, kernel),
                functools.partial(_dilated, sign=sign),
                (k, k),
            )
    for k, strides in ((3, 2), (5, 1), (13, 1)):
        yield of(
            "blur_pool",
            f"{k}x{k} stride {strides}",
            lambda x, k=k, s=strides: jaxpool.blur_pool(x, (k, k), (s, s)),
            functools.partial(_blurred, k=k, strides=strides),
        )
    for k in (3, 5):
        yield of(
            "max_blur_pool",
            f"2x2, {k}x{k} stride 2",
            lambda x, k=k: jaxpool.max_blur_pool(x, (2, 2), (k, k), (2, 2)),
            lambda x, k=k: _blurred(_reduced(x, "max", (2, 2), 1, "SAME"), k, 2),
        )
    for to in ((4, 4), (5, 7)):
        words = f"to {to[0]}x{to[1]}"
        for name, reduce in (("adaptive_max_pool", jnp.max), ("adaptive_avg_pool", jnp.mean)):
            yield of(
                name,
                words,
                lambda x, name=name, to=to: getattr(jaxpool, name)(x, to),
                functools.partial(_adaptive, shape=to, reduce=reduce),
            )
        yield of(
            "adaptive_max_pool_with_argmax",
            words,
            functools.partial(jaxpool.adaptive_max_pool_with_argmax, output_shape=to),
            functools.partial(_adaptive_argmax, shape=to),
        )
    for kind, reduce in (("max", jnp.max), ("avg", jnp.mean)):
        yield of(
            "spatial_pyramid_pool",
            f"{kind} of 1, 2, 4",
            functools.partial(jaxpool.spatial_pyramid_pool, levels=(1, 2, 4), kind=kind),
            functools.partial(_pyramid, levels=(1, 2, 4), reduce=reduce),
        )
        whole = getattr(jaxpool, f"global_{kind}_pool")
        yield of(f"global_{kind}_pool", "", whole, functools.partial(reduce, axis=(1, 2)))
        initial = {"initial": -jnp.inf} if kind == "max" else {}

        def masked(x: Array, reduce: Way = reduce, initial: Any = initial) -> Array:
            y: Array = reduce(x, (1, 2), where=_mask(x), **initial)
            return y

        yield of(
            f"global_{kind}_pool",
            "with a mask",
            lambda x, whole=whole: whole(x, where=_mask(x)),
            masked,
        )
    for name in ("max", "min"):
        for axis in (None, (1, 2), -1):
            yield of(
                name,
                f"over {'all axes' if axis is None else axis}",
                functools.partial(getattr(jaxpool, name), axis=axis),
                functools.partial(getattr(jnp, name), axis=axis),
            )
    for groups in (c // 2, 4):
        yield of(
            "maxout",
            f"{groups} groups",
            lambda x, n=groups: jaxpool.maxout(x, n),
            lambda x, n=groups: x.reshape(*x.shape[:-1], n, -1).max(-1),
        )
    for name in ("maximum", "minimum", "fmax", "fmin"):
        ours, theirs = getattr(jaxpool, name), getattr(jnp, name)
        yield of(name, "of two", ours, theirs, shape)
        yield of(name, "of an array and a row", ours, theirs, (c,))
        yield of(
            name,
            "of an array and a number",
            lambda x, ours=ours: ours(x, 1.5),
            lambda x, theirs=theirs: theirs(x, 1.5),
        )


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
    "max_pool": lambda x, mask: _reduced(jnp.where(mask, x, -jnp.inf), "max", (3, 3), 1, "SAME"),
    "min_pool": lambda x, mask: _reduced(jnp.where(mask, x, jnp.inf), "min", (3, 3), 1, "SAME"),
    "sum_pool": lambda x, mask: _summed(jnp.where(mask, x, 0), 3),
    "avg_pool": _mean_of_some,
    "lp_pool": lambda x, mask: _norm(jnp.where(mask, x, 0), 2.0, 3, 1),
    "logsumexp_pool": _log_of_some,
    "softmax_pool": _softmax_of_some,
    "median_pool": _median_of_some,
}


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


def _of_rows(size: str) -> Iterator[Setting]:
    shape = _ROWS[size]
    for name in ("cummax", "cummin"):
        for axis in (0, 1):
            yield Setting(
                name,
                f"along axis {axis}",
                size,
                functools.partial(getattr(jaxpool, name), axis=axis),
                functools.partial(getattr(lax, name), axis=axis),
                (shape,),
            )
            yield Setting(
                f"{name}_with_argmax",
                f"along axis {axis}",
                size,
                functools.partial(getattr(jaxpool, f"{name}_with_argmax"), axis=axis),
                functools.partial(_running_argmax, name=name, axis=axis),
                (shape,),
            )
        yield Setting(
            name,
            "of episodes along axis 0",
            size,
            lambda x, name=name: getattr(jaxpool, name)(x, 0, reset=_starts(x)),
            functools.partial(_restarted, join=jnp.maximum if name == "cummax" else jnp.minimum),
            (shape,),
        )
    for k in (8, 64, 512):
        if k < shape[0]:
            yield Setting(
                "k_max_pool",
                f"{k}",
                size,
                functools.partial(jaxpool.k_max_pool, k=k, axis=0),
                functools.partial(_k_largest, k=k, axis=0),
                (shape,),
            )
    for name, pool in pools().items():
        if not pool.takes("segment_ids"):
            continue
        for rows in (shape, _EDGES[size]) if pool.takes("temperature") else (shape,):
            for count, ordered in ((7, False), (_SEGMENTS[size], False), (_SEGMENTS[size], True)):
                yield Setting(
                    name,
                    f"{count} segments{', sorted' * ordered}",
                    size,
                    functools.partial(_segments, pool.function, count, ordered),
                    functools.partial(_segments, _plain_segments(name), count, ordered),
                    (rows,),
                    differs="" if count > 7 or not pool.takes("temperature") else _BY_MAXIMUM,
                )


def _running_argmax(x: Array, name: str, axis: int) -> tuple[Array, Array]:
    """A running maximum with indices, for x without ties."""
    y: Array = getattr(lax, name)(x, axis)
    positions = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    return y, lax.cummax(jnp.where(x == lax.stop_gradient(y), positions, 0), axis)


def _starts(x: Array) -> Array:
    """True at the first step of each episode of 128 steps."""
    return jnp.arange(len(x))[:, None] % 128 == 0


def _restarted(x: Array, join: Way) -> Array:
    """A scan of pairs (start, value): the first step of an episode discards the earlier values."""

    def after(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] | b[0], jnp.where(b[0], b[1], join(a[1], b[1]))

    starts = jnp.broadcast_to(_starts(x), x.shape)
    y: Array = lax.associative_scan(after, (starts, x))[1]
    return y


@functools.cache
def _ids(rows: int, count: int, ordered: bool) -> np.ndarray:
    ids = np.random.default_rng(2).integers(0, count, rows, np.int32)
    return np.sort(ids) if ordered else ids


def _segments(function: Way, count: int, ordered: bool, x: Array) -> Any:
    ids = lax.optimization_barrier(jnp.asarray(_ids(x.shape[0], count, ordered)))
    return function(x, ids, count, indices_are_sorted=ordered)


def _plain_segments(name: str) -> Way:
    ways: dict[str, Way] = {
        "segment_softmax": _softmax_of_segments,
        "segment_logsumexp": _logsumexp_of_segments,
        "segment_max_with_argmax": _argmax_of_segments,
    }
    if name in ways:
        return ways[name]
    if name != "segment_mean":
        way: Way = getattr(jax.ops, name)
        return way

    def mean(x: Array, ids: Any, count: int, **options: Any) -> Array:
        rows = jax.ops.segment_sum(jnp.ones(len(ids), x.dtype), ids, count, **options)[:, None]
        return jax.ops.segment_sum(x, ids, count, **options) / jnp.maximum(rows, 1)

    return mean


def _softmax_of_segments(x: Array, ids: Any, count: int, **options: Any) -> Array:
    """The code of `jraph.segment_softmax`."""
    far = x - jax.ops.segment_max(x, ids, count, **options)[ids]
    powers = jnp.exp(far)
    y: Array = powers / jax.ops.segment_sum(powers, ids, count, **options)[ids]
    return y


def _logsumexp_of_segments(x: Array, ids: Any, count: int, **options: Any) -> Array:
    largest = lax.stop_gradient(jax.ops.segment_max(x, ids, count, **options))
    return largest + jnp.log(jax.ops.segment_sum(jnp.exp(x - largest[ids]), ids, count, **options))


def _argmax_of_segments(x: Array, ids: Any, count: int, **options: Any) -> tuple[Array, Array]:
    largest = jax.ops.segment_max(lax.stop_gradient(x), ids, count, **options)
    rows = jnp.arange(len(x), dtype=jnp.int32)[:, None]
    named = jnp.where(x == largest[ids], rows, len(x))
    first = jax.ops.segment_min(named, ids, count, **options)
    return jnp.take_along_axis(x, first, 0, mode="clip"), first


def _in_its_type(way: Way, x: Array) -> Array:
    y: Array = way(x).astype(x.dtype)
    return y


def _of_boxes(size: str) -> Iterator[Setting]:
    shape = _IMAGES[size]
    where, images = boxes.boxes(64, shape)
    for name, plain in (("roi_align", boxes.averaged), ("roi_max_pool", boxes.largest)):
        for cells in ((3, 3), (7, 7)):
            yield Setting(
                name,
                f"64 boxes to {cells[0]}x{cells[1]}",
                size,
                functools.partial(
                    getattr(jaxpool, name), boxes=where, output_shape=cells, batch_indices=images
                ),
                functools.partial(_in_its_type, plain(where, images, cells)),
                (shape,),
            )
    half = (shape[0], shape[1] // 2, shape[2] // 2, shape[3])
    pyramid = {"spatial_scale": 1.0, "canonical_size": shape[1] / 4, "canonical_level": 0}
    ours = functools.partial(_of_levels, boxes=where, batch_indices=images, **pyramid)
    for cells in ((3, 3), (7, 7)):
        yield Setting(
            "multilevel_roi_align",
            f"64 boxes in 2 levels to {cells[0]}x{cells[1]}",
            size,
            functools.partial(ours, output_shape=cells),
            functools.partial(_of_every_level, where, images, cells, shape[1] / 4),
            (shape, half),
        )


def _of_levels(*xs: Array, **options: Any) -> Array:
    return jaxpool.multilevel_roi_align(xs, **options)


def _of_every_level(where: Any, images: Any, cells: Any, size: float, *xs: Array) -> Array:
    """Pool every box from both levels, then select the level of each box."""
    pooled = [
        _in_its_type(boxes.averaged(where / 2**level, images, cells), x)
        for level, x in enumerate(xs)
    ]
    coarse = np.sqrt(np.prod(where[:, 2:] - where[:, :2], 1)) >= 2 * size
    return jnp.where(coarse[:, None, None, None], pooled[1], pooled[0])
