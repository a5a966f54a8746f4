"""Calls whose windows, kernels, samples, ranks and axes are as large as anybody asks for."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpool

LONG = 63  # elements along an axis of a window, a kernel or a pyramid
AXIS = 10_000_000
IMAGE = (1, 224, 224, 4)
ROWS = (AXIS, 1)


@dataclasses.dataclass(frozen=True)
class Large:
    """A call, and the shapes of the arrays that it is differentiated by."""

    name: str
    call: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]


def _windowed(name: str, *before: Any, label: str = "", **options: Any) -> Iterator[Large]:
    pool = getattr(jaxpool, name)
    for words, shape, window, strides in (
        ("63x63", IMAGE, (LONG, LONG), (1, 1)),
        ("63x63 stride 16", IMAGE, (LONG, LONG), (16, 16)),
        ("63 of 1e7", ROWS, (LONG,), (1,)),
    ):

        def call(x: Any, window: Any = window, strides: Any = strides) -> Any:
            return pool(x, *before, window, strides, "SAME", **options)

        yield Large(f"{name}{label} {words}", call, (shape,))


def _reducing(name: str, **options: Any) -> Large:
    return Large(name, functools.partial(getattr(jaxpool, name), **options), (ROWS,))


def _drawn(name: str, shape: Any, window: Any, outs: Any) -> Large:
    def call(x: Any) -> Any:
        return getattr(jaxpool, name)(jax.random.key(0), x, window, outs)

    return Large(f"{name} {window} to {outs}", call, (shape,))


def _morphology(name: str) -> Iterator[Large]:
    pool = getattr(jaxpool, name)
    for ties in ("first", "split"):
        same = {"padding": "SAME", "ties": ties}
        yield Large(f"{name} {ties} 63x63", functools.partial(pool, **same), (IMAGE, (LONG, LONG)))
    kernel = np.sin(np.arange(LONG * LONG, dtype=np.float32)).reshape(LONG, LONG)
    yield Large(f"{name} constant 63x63", lambda x: pool(x, kernel, padding="SAME"), (IMAGE,))
    yield Large(
        f"{name} 63 of 1e7",
        functools.partial(pool, padding="SAME", axes=(0,)),
        (ROWS, (LONG,)),
    )


def _segments(name: str) -> Iterator[Large]:
    pool = getattr(jaxpool, name)
    for count in (LONG, AXIS // 10):
        yield Large(f"{name} {count}", lambda x, n=count: pool(x, jnp.arange(AXIS) % n, n), (ROWS,))


def _boxes(name: str, **options: Any) -> Large:
    def call(x: Any) -> Any:
        boxes = jnp.linspace(0, 200, 4 * 16).reshape(16, 4)
        images = jnp.zeros(16, int)
        return getattr(jaxpool, name)(x, boxes, batch_indices=images, **options)

    return Large(f"{name} {options}", call, (IMAGE,))


def _unpooled(y: Any) -> Any:
    return jaxpool.max_unpool(y, jnp.arange(AXIS // 2)[:, None] // 2, (AXIS,))


def calls() -> Iterator[Large]:
    """Each public function of an array, as large as it gets."""
    for name in ("max_pool", "min_pool", "median_pool"):
        for ties in ("first", "split"):
            yield from _windowed(name, label=f" {ties}", ties=ties)
    for name in ("avg_pool", "sum_pool", "max_pool_with_argmax"):
        yield from _windowed(name)
    yield from _windowed("rank_pool", 7)
    yield from _windowed("lp_pool", 2.0, label=" 2")
    yield from _windowed("lp_pool", 3.0, label=" 3")
    yield from _windowed("gem_pool", 3.0)
    yield from _windowed("logsumexp_pool")
    yield from _windowed("softmax_pool")
    for key in (None, jax.random.key(0)):
        words = " without a key" if key is None else ""
        for shape, window in ((IMAGE, (LONG, LONG)), (ROWS, (LONG,))):

            def stochastic(x: Any, key: Any = key, window: Any = window) -> Any:
                return jaxpool.stochastic_pool(key, x, window, padding="SAME")

            yield Large(f"stochastic_pool{words} {window}", stochastic, (shape,))
    for name in ("fractional_max_pool", "fractional_avg_pool"):
        yield _drawn(name, IMAGE, (LONG, LONG), (100, 100))
        yield _drawn(name, ROWS, (LONG,), (AXIS // 50,))
    for name in ("logsumexp_pool", "softmax_pool"):
        for words, shape in (("a channel", (4,)), ("an output", IMAGE)):
            pool = getattr(jaxpool, name)

            def heated(x: Any, heat: Any, pool: Any = pool) -> Any:
                return pool(x, (LONG, LONG), padding="SAME", temperature=heat)

            yield Large(f"{name} 63x63, temperature {words}", heated, (IMAGE, shape))
    for words, shape in (("a channel", (4,)), ("an output", IMAGE)):

        def mean(x: Any, p: Any) -> Any:
            return jaxpool.gem_pool(x, p, (LONG, LONG), padding="SAME")

        yield Large(f"gem_pool 63x63, p {words}", mean, (IMAGE, shape))
    for name in ("dilate", "erode"):
        yield from _morphology(name)
    yield from _windowed("blur_pool")
    for blur, strides in (((LONG, LONG), (1, 1)), ((31, 31), (16, 16))):
        both = functools.partial(jaxpool.max_blur_pool, window_shape=(LONG, LONG), blur_shape=blur)
        name = f"max_blur_pool 63x63, {blur} stride {strides}"
        yield Large(name, functools.partial(both, strides=strides), (IMAGE,))
    for name in ("adaptive_max_pool", "adaptive_avg_pool", "adaptive_max_pool_with_argmax"):
        pool = getattr(jaxpool, name)
        for shape, to in ((IMAGE, (LONG, LONG)), (ROWS, (LONG,)), (ROWS, (AXIS // 7 + 1,))):
            yield Large(f"{name} {to}", functools.partial(pool, output_shape=to), (shape,))
    for kind in ("max", "avg"):
        levels = tuple(range(1, LONG + 1))
        pool = functools.partial(jaxpool.spatial_pyramid_pool, levels=levels, kind=kind)
        yield Large(f"spatial_pyramid_pool {kind} of 63 levels", pool, (IMAGE,))
    for name in ("max", "min", "cummax", "cummin"):
        yield _reducing(name, axis=0)
    for name in ("global_max_pool", "global_avg_pool"):
        yield _reducing(name, axes=(0,))
    yield Large(
        "maxout",
        functools.partial(jaxpool.maxout, groups=AXIS // LONG, axis=0),
        ((AXIS // LONG * LONG, 1),),
    )
    for shape, k, axis in (((8, 16384), 4096, 1), (ROWS, 4096, 0), (IMAGE, LONG, 1)):
        yield Large(
            f"k_max_pool {k} of {shape}",
            functools.partial(jaxpool.k_max_pool, k=k, axis=axis),
            (shape,),
        )
    for name in ("maximum", "minimum", "fmax", "fmin"):
        yield Large(name, getattr(jaxpool, name), (ROWS, (1,)))
    for name in ("segment_max", "segment_min", "segment_mean"):
        yield from _segments(name)
    yield _boxes("roi_align", output_shape=(LONG, LONG))
    yield _boxes("roi_align", output_shape=(7, 7), samples=LONG)
    yield _boxes("roi_align", output_shape=(7, 7), samples=LONG, kind="max")
    yield _boxes("roi_max_pool", output_shape=(LONG, LONG))
    yield Large("max_unpool", _unpooled, ((AXIS // 2, 1),))
