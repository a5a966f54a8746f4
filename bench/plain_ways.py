"""Equivalent `jax.numpy` and `lax` code for pools of images, as baselines of `python -m bench --plain`.

A user would write it, and it is faster than the twins in `jaxpool.testing`. `plain_rows.py` has the code for rows,
segments and boxes. Each function takes the arguments of the public function that it stands for, as far as its settings
pass them. The baselines are for timing only: tests use the oracle.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from bench._case import Given
from bench._jax_peer import reduce_window
from jaxpool.testing import pools

IMAGES = {"small": (1, 16, 16, 48), "medium": (4, 64, 64, 64), "large": (16, 112, 112, 64)}

Way = Callable[..., Any]  # returns y, or y and positions
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Setting:
    """One call of a function, and the equivalent code for it, at one size.

    `shapes` are the shapes of the input arrays, in the order of `operands` in the record of `jaxpool.testing`.
    An argument that depends on the input arrays is a function of them. `differs` says why the results are not
    comparable; if it is empty, they are compared.
    """

    function: str
    size: str
    shapes: tuple[Shape, ...]
    arguments: Mapping[str, Any]
    equivalent: Way
    dtype: str = "float32"
    differs: str = ""

    @property
    def name(self) -> str:
        words = [repr(Given(shape, self.dtype)) for shape in self.shapes]
        for name, value in self.arguments.items():
            if isinstance(value, np.ndarray):
                value = Given(value.shape, value.dtype.name)
            words.append(f"{name}={value.__name__ if callable(value) else value}")
        return f"{self.function}({', '.join(words)}) [{self.size}]"

    def ours(self, *xs: Array) -> Any:
        return self._run(xs, None)

    def plain(self, *xs: Array) -> Any:
        return self._run(xs, self.equivalent)

    def _run(self, xs: tuple[Array, ...], function: Way | None) -> Any:
        """Call the public function, or `function`. Arguments that are missing have the usual value of the record."""
        pool = pools()[self.function]
        named = {
            name: value(*xs) if callable(value) else value for name, value in self.arguments.items()
        }
        tuples = pool.operands[0] in ("xs", "features")
        operands = {pool.operands[0]: xs} if tuples else dict(zip(pool.operands, xs, strict=False))
        return pool.run(pool.given(xs[0], **operands | named), function)

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Numbers between 0.1 and 3, without ties in float32 arrays unless the size is "large"."""
        arrays = []
        for seed, shape in enumerate(self.shapes):
            count = math.prod(shape)
            order = np.random.default_rng(seed).permutation(count) + 0.3 * (seed + 1)
            values = (order / max(count, 1) * 2.9 + 0.1).astype(np.float32)
            arrays.append(values.reshape(shape).astype(self.dtype))
        return tuple(arrays)


# Windows

_ONES = (1, 1)


def _reduced(
    x: Array, kind: str, window: Shape, strides: Shape = _ONES, padding: str = "SAME"
) -> Array:
    return reduce_window(x, kind, (1, *window, 1), (1, *strides, 1), padding)


def side_by_side(x: Array, k: int = 2) -> Array:
    """Disjoint windows of k x k elements by a reshape to `(B, H // k, k, W // k, k, C)`."""
    b, h, w, c = x.shape
    return x.reshape(b, h // k, k, w // k, k, c)


def _patches(x: Array) -> Array:
    """Disjoint windows of 2x2 elements along a last axis of 4."""
    b, h, w, c = x.shape
    return side_by_side(x).transpose(0, 1, 3, 5, 2, 4).reshape(b, h // 2, w // 2, c, 4)


def _extremum(
    kind: str, x: Array, window_shape: Shape, strides: Shape = _ONES, where: Any = None, **how: Any
) -> Array:
    if strides == window_shape:
        return getattr(side_by_side(x, strides[0]), kind)((2, 4))
    if where is not None:
        x = jnp.where(where, x, -jnp.inf if kind == "max" else jnp.inf)
    return _reduced(x, kind, window_shape, strides, **how)


def _sum(
    x: Array, window_shape: Shape, strides: Shape = _ONES, padding: str = "VALID", where: Any = None
) -> Array:
    """Sums of windows, one axis at a time for long overlapping windows."""
    x = x if where is None else jnp.where(where, x, 0)
    if strides == window_shape:
        return side_by_side(x, strides[0]).sum((2, 4))
    if window_shape[0] < 5 or strides != _ONES:
        return _reduced(x, "sum", window_shape, strides, padding)
    rows = _reduced(x, "sum", (window_shape[0], 1), padding=padding)
    return _reduced(rows, "sum", (1, window_shape[1]), padding=padding)


def _mean(
    x: Array, window_shape: Shape, where: Any = None, count_include_pad: bool = True, **how: Any
) -> Array:
    total = _sum(x, window_shape, where=where, **how)
    if count_include_pad:
        return total / math.prod(window_shape)
    return total / jnp.maximum(_sum(where.astype(x.dtype), window_shape, **how), 1)


def _taps(x: Array, window_shape: Shape) -> list[Array]:
    """The taps of windows without padding, one slice of x per tap."""
    rows, columns = (size - k + 1 for size, k in zip(x.shape[1:3], window_shape, strict=True))
    return [x[:, u : u + rows, v : v + columns] for u, v in np.ndindex(window_shape)]


def _rank(x: Array, rank: int, window_shape: Shape) -> Array:
    return jnp.sort(jnp.stack(_taps(x, window_shape)), 0)[rank]


def _median(x: Array, window_shape: Shape, padding: str = "VALID", where: Any = None) -> Array:
    if where is None:
        return _rank(x, math.prod(window_shape) // 2, window_shape)
    sides = ((0, 0), (1, 1), (1, 1), (0, 0))
    mask = jnp.broadcast_to(where, x.shape[:3] + where.shape[3:])
    counts = _sum(mask.astype(jnp.int32), window_shape, padding=padding)
    wide = jnp.pad(jnp.where(where, x, jnp.inf), sides, constant_values=jnp.inf)
    order = jnp.sort(jnp.stack(_taps(wide, window_shape)), 0)
    at = jnp.broadcast_to(counts // 2, x.shape)[None]
    return jnp.where(counts > 0, jnp.take_along_axis(order, at, 0)[0], 0)


def image_positions(tap: Any, k: int, strides: int, width: int) -> Any:
    """The flat position in the image of one tap of each k x k window."""
    rows, columns = (strides * np.arange(size)[:, None] for size in tap.shape[1:3])
    return (rows[:, None] + tap // k) * width + columns + tap % k


def _argmax(x: Array, window_shape: Shape, strides: Shape = _ONES) -> tuple[Array, Array]:
    """The maxima of windows, and their positions in the image."""
    disjoint = strides == window_shape
    taps, axis = (_patches(x), -1) if disjoint else (jnp.stack(_taps(x, window_shape)), 0)
    tap = jnp.argmax(taps, axis)
    y = jnp.take_along_axis(taps, jnp.expand_dims(tap, axis), axis).squeeze(axis)
    positions = image_positions(tap, window_shape[0], strides[0], x.shape[2])
    return y, positions.astype(jnp.int32)


def unpooled(y: Array, indices: Array, spatial_shape: Shape, unique: bool = False) -> Array:
    b, _, _, c = y.shape
    flat = jnp.zeros((b, math.prod(spatial_shape), c), y.dtype)
    place = (jnp.arange(b)[:, None, None], indices.reshape(b, -1, c), jnp.arange(c))
    filled = flat.at[place].set(y.reshape(b, -1, c), unique_indices=unique)
    return filled.reshape(b, *spatial_shape, c)


def _lp(x: Array, p: float, window_shape: Shape, **how: Any) -> Array:
    total = _sum(x * x if p == 2 else jnp.abs(x) ** p, window_shape, **how)
    return jnp.sqrt(total) if p == 2 else total ** (1 / p)


def _logsumexp(x: Array, window_shape: Shape, **how: Any) -> Array:
    return jnp.log(_sum(jnp.exp(x), window_shape, **how))


def _softmax(x: Array, window_shape: Shape, padding: str, where: Any = None) -> Array:
    weights = jnp.exp(x) if where is None else jnp.where(where, jnp.exp(x), 0)
    total = _sum(weights, window_shape, padding=padding)
    total = total if where is None else jnp.where(total > 0, total, 1)
    return _sum(weights * x, window_shape, padding=padding) / total


def _gem(x: Array, p: Any, window_shape: Shape, padding: str) -> Array:
    total = _sum(jnp.maximum(x, 1e-6) ** p, window_shape, padding=padding)
    return (total / _sum(jnp.ones_like(x[:1, :, :, :1]), window_shape, padding=padding)) ** (1 / p)


def _stochastic(x: Array, key: Any, window_shape: Shape, **how: Any) -> Array:
    if key is None:
        weights = jnp.maximum(x, 0)
        return _sum(weights * x, window_shape, **how) / _sum(weights, window_shape, **how)
    patches = _patches(x)
    tap = jax.random.categorical(key, jnp.log(jnp.maximum(lax.stop_gradient(patches), 0)))
    return jnp.take_along_axis(patches, tap[..., None], -1)[..., 0]


def _local(kind: str, x: Array, window_shape: Shape, ties: str) -> Array:
    return x == _reduced(x, kind, window_shape)


def _morphology(sign: int, x: Array, kernel: Array) -> Array:
    pairs = zip(_taps(x, kernel.shape), kernel.ravel(), strict=True)
    moved = [tap + sign * entry for tap, entry in pairs]
    return functools.reduce(jnp.maximum if sign > 0 else jnp.minimum, moved)


def _blur(x: Array, window_shape: Shape, strides: Shape) -> Array:
    for axis, k, stride in zip((1, 2), window_shape, strides, strict=True):
        size = x.shape[axis]
        reach = (size - 1) // stride * stride + 1
        pad = max(reach + k - 1 - size, 0)
        sides = [(pad // 2, pad - pad // 2) if a == axis else (0, 0) for a in range(4)]
        wide = jnp.pad(x, sides, mode="reflect")
        taps = [lax.slice_in_dim(wide, u, u + reach, stride, axis) for u in range(k)]
        terms = [math.comb(k - 1, u) / 2 ** (k - 1) * tap for u, tap in enumerate(taps)]
        x = sum(terms[1:], terms[0])
    return x


def _max_blur(x: Array, window_shape: Shape, blur_shape: Shape, strides: Shape) -> Array:
    return _blur(_reduced(x, "max", window_shape), blur_shape, strides)


def spans(size: int, count: int) -> list[tuple[int, int]]:
    """Start and stop of each of the `count` windows of an adaptive pool over `size` elements."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _adaptive(reduce: Way, x: Array, output_shape: Shape) -> Array:
    rows, columns = map(spans, x.shape[1:3], output_shape)
    lines = [jnp.stack([reduce(x[:, a:b, c:d], (1, 2)) for c, d in columns], 1) for a, b in rows]
    return jnp.stack(lines, 1)


def _pyramid(x: Array, levels: Sequence[int], kind: str) -> Array:
    reduce = jnp.max if kind == "max" else jnp.mean
    levelled = [_adaptive(reduce, x, (n, n)).reshape(x.shape[0], -1) for n in levels]
    return jnp.concatenate(levelled, -1)


def _adaptive_argmax(x: Array, output_shape: Shape) -> tuple[Array, Array]:
    batch, height, width, channels = x.shape
    cells = []
    for (a, b), (c, d) in itertools.product(
        spans(height, output_shape[0]), spans(width, output_shape[1])
    ):
        flat = x[:, a:b, c:d].reshape(batch, -1, channels)
        first = jnp.argmax(flat, 1)[:, None]
        positions = (a + first // (d - c)) * width + c + first % (d - c)
        cells.append((jnp.take_along_axis(flat, first, 1), positions.astype(jnp.int32)))
    shape = (batch, *output_shape, channels)
    y, indices = (jnp.concatenate(each, 1).reshape(shape) for each in zip(*cells, strict=True))
    return y, indices


def _global(kind: str, x: Array, where: Any = None) -> Array:
    least = {"initial": -jnp.inf} if kind == "max" and where is not None else {}
    return getattr(jnp, kind)(x, (1, 2), where=where, **least)


def _maxout(x: Array, groups: int) -> Array:
    return x.reshape(*x.shape[:-1], groups, -1).max(-1)


def positional(function: Way) -> Way:
    """A function whose arguments have other names, in the same order."""
    return lambda *xs, **named: function(*xs, *named.values())


# Arguments that are functions of the arrays


def shared_mask(x: Array) -> Array:
    """A mask for all images and channels."""
    rows, columns = (jnp.arange(size) for size in x.shape[1:3])
    return ((rows[:, None] + columns) % 3 > 0)[None, :, :, None]


def own_mask(x: Array) -> Array:
    """A mask for each element."""
    return x > 1


def fixed_key(*xs: Array) -> Any:
    return jax.random.key(0)


def with_number(x: Array) -> tuple[Any, ...]:
    return x, 1.5


def positive_power(x: Array, p: Array) -> Array:
    return p + 1


def apart(y: Array) -> Any:
    """Positions in disjoint windows of 2x2."""
    taps = np.random.default_rng(5).integers(0, 4, y.shape)
    return lax.optimization_barrier(image_positions(taps, 2, 2, 2 * y.shape[2]).astype(np.int32))


def colliding(y: Array) -> Any:
    count = 4 * math.prod(y.shape[1:3])
    return lax.optimization_barrier(np.random.default_rng(6).integers(0, count, y.shape, np.int32))


# Settings


def of_images(size: str) -> Iterator[Setting]:
    """The settings of pools of images."""
    shape = b, h, w, c = IMAGES[size]

    def of(
        function: str, plain: Way, *calls: Any, shapes: Any = (shape,), differs: str = ""
    ) -> Iterator[Setting]:
        for arguments in calls:
            yield Setting(function, size, shapes, arguments, plain, differs=differs)

    def window(k: int, stride: int = 1, **more: Any) -> dict[str, Any]:
        strides = {"strides": (stride, stride)} if stride > 1 else {}
        return {"window_shape": (k, k)} | strides | more

    def same(k: int, stride: int = 1, **more: Any) -> dict[str, Any]:
        return window(k, stride, padding="SAME", **more)

    masked = [same(3, where=mask) for mask in (shared_mask, own_mask)]
    for kind, sign, morphology in (("max", 1, "dilate"), ("min", -1, "erode")):
        calls = (same(3), same(3, 2), window(2, 2), *masked)
        yield from of(f"{kind}_pool", partial(_extremum, kind), *calls)
        for ties, differs in (("first", "marks all of equals"), ("all", "")):
            calls = (window(3, ties=ties), window(7, ties=ties))
            yield from of(f"local_{kind}ima", partial(_local, kind), *calls, differs=differs)
        for k in (3, 5):
            yield from of(morphology, partial(_morphology, sign), {}, shapes=(shape, (k, k)))
        axes = ({"axis": None}, {"axis": (1, 2)}, {"axis": -1})
        yield from of(kind, positional(getattr(jnp, kind)), *axes)
    yield from of("sum_pool", _sum, same(3), same(3, 2), window(2, 2), *masked)
    uncounted = [call | {"count_include_pad": False} for call in masked]
    yield from of("avg_pool", _mean, same(3), window(2, 2), *uncounted)
    yield from of("max_pool_with_argmax", _argmax, window(2, 2), window(3))
    half, to = ((b, h // 2, w // 2, c),), {"spatial_shape": (h, w)}
    for indices, differs in ((apart, ""), (colliding, "leaves open which of several wins")):
        call = {"indices": indices} | to
        yield from of("max_unpool", unpooled, call, shapes=half, differs=differs)

    powers = [same(k, p=p) for k, p in itertools.product((3, 13), (2.0, 3.0))]
    norms_of_2x2 = [call | {"p": 2.0} for call in (window(2, 2), *masked)]
    yield from of("lp_pool", _lp, *powers, *norms_of_2x2)
    for name, soft in (("logsumexp_pool", _logsumexp), ("softmax_pool", _softmax)):
        yield from of(name, soft, same(3), same(13), *masked)
    yield from of("gem_pool", _gem, same(3, p=3.0), same(13, p=3.0))
    yield from of("gem_pool", _gem, same(3, p=positive_power), shapes=(shape, (c,)))
    name, differs = "stochastic_pool", "draws other elements from the same key"
    yield from of(name, _stochastic, same(3, key=None), same(7, key=None))
    yield from of(name, _stochastic, window(2, 2, key=fixed_key), differs=differs)
    for name in ("fractional_max_pool", "fractional_avg_pool"):
        sizes = [{"output_shape": (n, n)} for n in (h // 2 + 1, h * 2 // 3)]
        calls = [window(2, key=fixed_key) | each for each in sizes]
        yield from of(name, pools()[name].twin, *calls)

    yield from of("median_pool", _median, window(3), window(5), *masked)
    yield from of("rank_pool", _rank, window(3, rank=1), window(5, rank=1))
    yield from of(
        "blur_pool", _blur, window(3, 2), window(5, strides=_ONES), window(13, strides=_ONES)
    )
    blurs = [window(2, strides=(2, 2), blur_shape=(k, k)) for k in (3, 5)]
    yield from of("max_blur_pool", _max_blur, *blurs)
    regions = ({"output_shape": (4, 4)}, {"output_shape": (5, 7)})
    for kind, reduce in (("max", jnp.max), ("avg", jnp.mean)):
        yield from of(f"adaptive_{kind}_pool", partial(_adaptive, reduce), *regions)
        yield from of("spatial_pyramid_pool", _pyramid, {"levels": (1, 2, 4), "kind": kind})
        over = partial(_global, reduce.__name__)
        yield from of(f"global_{kind}_pool", over, {}, {"where": shared_mask})
    yield from of("adaptive_max_pool_with_argmax", _adaptive_argmax, *regions)
    yield from of("maxout", _maxout, {"groups": c // 2}, {"groups": 4})
    for name in ("maximum", "minimum", "fmax", "fmin"):
        number = {"xs": with_number} if name.endswith("imum") else {"y": 1.5}
        for shapes, call in (((shape, shape), {}), ((shape, (c,)), {}), ((shape,), number)):
            yield from of(name, positional(getattr(jnp, name)), call, shapes=shapes)
