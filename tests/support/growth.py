"""Calls with windows, kernels, samples, ranks and axes as large as users are likely to pass."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import Pool, pools

LONG = 63  # elements along an axis of a window, a kernel or a pyramid
AXIS = 10_000_000
IMAGE = (1, 224, 224, 4)
ROWS = (AXIS, 1)
WINDOWS = (
    ("63x63", IMAGE, (LONG, LONG), (1, 1)),
    ("63x63 stride 16", IMAGE, (LONG, LONG), (16, 16)),
    ("63 of 1e7", ROWS, (LONG,), (1,)),
)


@dataclasses.dataclass(frozen=True)
class Large:
    """A call, and the shapes of the arrays with respect to which it is differentiated."""

    name: str
    call: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]


def _large_call(pool: Pool, words: str, shape: Any, **settings: Any) -> Large:
    """Return the call of an array of `shape`, with `settings` in place of the record's usual arguments."""

    def call(x: Any) -> Any:
        return pool.run(pool.given(x, **settings))

    return Large(f"{pool.name} {words}", call, (shape,))


def _windowed(pool: Pool) -> Iterator[Large]:
    several = pool.modes and not pool.takes("rank") and len(pool.ties) > 2
    every: list[dict[str, Any]] = (
        [{"ties": ties} for ties in ("first", "split")] if several else [{}]
    )
    if pool.takes("p") and not pool.coefficients:
        every = [{"p": 2.0}, {"p": 3.0}]
    for key in pool.choices.get("key", ()):
        every = [{"key": key}, {}]
    for options in every:
        for words, shape, window, strides in WINDOWS:
            given = {"window_shape": window, "strides": strides, "padding": "SAME"} | options
            yield _large_call(pool, f"{options or ''} {words}", shape, **given)
    for coefficient in pool.coefficients:
        for words, shape in (("a channel", (4,)), ("an output", IMAGE)):

            def heated(x: Any, heat: Any, coefficient: str = coefficient) -> Any:
                given = {"window_shape": (LONG, LONG), "padding": "SAME", coefficient: heat}
                return pool.run(pool.given(x, **given))

            yield Large(f"{pool.name} 63x63, {coefficient} {words}", heated, (IMAGE, shape))


def _blurred(pool: Pool) -> Iterator[Large]:
    for blur, strides in (((LONG, LONG), (1, 1)), ((31, 31), (16, 16))):
        given = {"window_shape": (LONG, LONG), "blur_shape": blur, "strides": strides}
        yield _large_call(pool, f"63x63, {blur} stride {strides}", IMAGE, **given)


def _fractional(pool: Pool) -> Iterator[Large]:
    for shape, window, outs in (
        (IMAGE, (LONG, LONG), (100, 100)),
        (ROWS, (LONG,), (AXIS // 50,)),
    ):
        yield _large_call(
            pool, f"{window} to {outs}", shape, window_shape=window, output_shape=outs
        )


def _morphology(pool: Pool) -> Iterator[Large]:
    f = pool.function
    for ties in ("first", "split"):
        same = {"padding": "SAME", "ties": ties}
        both = functools.partial(f, **same)
        yield Large(f"{pool.name} {ties} 63x63", both, (IMAGE, (LONG, LONG)))
    kernel = np.sin(np.arange(LONG * LONG, dtype=np.float32)).reshape(LONG, LONG)
    yield _large_call(pool, "constant 63x63", IMAGE, kernel=kernel, padding="SAME")
    along = functools.partial(f, padding="SAME", axes=(0,))
    yield Large(f"{pool.name} 63 of 1e7", along, (ROWS, (LONG,)))


def _segments(pool: Pool) -> Iterator[Large]:
    for count in (LONG, AXIS // 10):

        def call(x: Any, count: int = count) -> Any:
            return pool.function(x, jnp.arange(AXIS) % count, count)

        yield Large(f"{pool.name} {count}", call, (ROWS,))


def _boxes(pool: Pool) -> Iterator[Large]:
    every: list[dict[str, Any]] = [{"output_shape": (LONG, LONG)}]
    if pool.takes("samples"):
        every += [{"output_shape": (7, 7), "samples": LONG}]
    if pool.takes("samples", "kind"):
        every += [{"output_shape": (7, 7), "samples": LONG, "kind": "max"}]
    for options in every:

        def call(x: Any, options: Any = options) -> Any:
            boxes, images = jnp.linspace(0, 200, 4 * 16).reshape(16, 4), jnp.zeros(16, int)
            return pool.run(pool.given(x, boxes=boxes, batch_indices=images, **options))

        yield Large(f"{pool.name} {options}", call, (IMAGE,))


def _unpooled(pool: Pool) -> Iterator[Large]:
    def call(y: Any) -> Any:
        return pool.function(y, jnp.arange(AXIS // 2)[:, None] // 2, (AXIS,))

    yield Large(pool.name, call, ((AXIS // 2, 1),))


def _adaptive(pool: Pool) -> Iterator[Large]:
    for shape, to in ((IMAGE, (LONG, LONG)), (ROWS, (LONG,)), (ROWS, (AXIS // 7 + 1,))):
        yield _large_call(pool, f"{to}", shape, output_shape=to)


def _pyramid(pool: Pool) -> Iterator[Large]:
    for kind in ("max", "avg"):
        yield _large_call(
            pool, f"{kind} of 3 levels", IMAGE, levels=(1, LONG // 2, LONG), kind=kind
        )


def _k_max(pool: Pool) -> Iterator[Large]:
    for shape, k, axis in (((8, 16384), 4096, 1), (ROWS, 4096, 0), (IMAGE, LONG, 1)):
        yield _large_call(pool, f"{k} of {shape}", shape, k=k, axis=axis)


def _grouped(pool: Pool) -> Iterator[Large]:
    yield _large_call(pool, "", (AXIS // LONG * LONG, 1), groups=AXIS // LONG, axis=0)


def _along_axis(pool: Pool) -> Iterator[Large]:
    yield _large_call(pool, "", ROWS, axis=0, axes=(0,))


def _broadcast(pool: Pool) -> Iterator[Large]:
    yield Large(pool.name, pool.function, (ROWS, (1,)))


# The large calls of a function, by the first of these sets of arguments in its signature.
BUILDERS_BY_ARGUMENTS: tuple[tuple[tuple[str, ...], Callable[[Pool], Iterator[Large]]], ...] = (
    (("window_shape", "output_shape"), _fractional),
    (("blur_shape",), _blurred),
    (("window_shape",), _windowed),
    (("kernel",), _morphology),
    (("segment_ids",), _segments),
    (("boxes",), _boxes),
    (("indices",), _unpooled),
    (("output_shape",), _adaptive),
    (("levels",), _pyramid),
    (("k",), _k_max),
    (("groups",), _grouped),
    (("axis",), _along_axis),
    (("axes",), _along_axis),
    (("xs",), _broadcast),
    (("x", "y"), _broadcast),
)


def calls() -> Iterator[Large]:
    """Yield large calls of every public function of an array."""
    for pool in pools().values():
        found = (make for arguments, make in BUILDERS_BY_ARGUMENTS if pool.takes(*arguments))
        yield from next(found)(pool)
