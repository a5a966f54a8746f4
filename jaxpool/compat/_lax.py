"""`lax.reduce_window` by our kernels: what Flax, Haiku and Equinox pool with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window, make_window
from jaxpool._kernels import dtypes
from jaxpool._ops.select_pool import pool_op
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.pools import windowed

Reducer = Callable[[Any, Any], Any]
Pads = str | Sequence[tuple[int, int]]


def _kind(init: Any, reducer: Reducer) -> Literal["max", "min", "sum"] | None:
    """Which of our pools a reduction is: it starts from the known identity, or lax has no gradient either."""
    if isinstance(init, jax.core.Tracer) or np.shape(init) != () or not is_real(init):
        return None
    start, dtype = np.asarray(init), jnp.result_type(init)
    if reducer is lax.add and start == 0:
        return "sum"
    if reducer is lax.max and start == dtypes.losing(dtype, "max"):
        return "max"
    if reducer is lax.min and start == dtypes.losing(dtype, "min"):
        return "min"
    return None


def is_real(x: Any) -> bool:
    """Whether x holds floats, integers or bools."""
    number = isinstance(x, (jax.Array, np.ndarray, np.generic, bool, int, float))
    kinds = (np.bool_, np.integer, jnp.floating)
    return number and any(jnp.issubdtype(jnp.result_type(x), kind) for kind in kinds)


def _window(
    shape: Sequence[Any], window_shape: Sequence[int], strides: Sequence[int], padding: Pads
) -> Window | None:
    """The pooled axes of a window over every axis; None where lax knows what to say and we do not.

    That is where an argument is wrong, and where padding crops, an output is empty or a pooled size
    is not known.
    """
    pads = ((0, 0),) * len(shape) if isinstance(padding, str) else padding
    if any(isinstance(size, jax.Array) for size in (*window_shape, *strides)):
        return None
    if not len(shape) == len(window_shape) == len(strides) == len(pads):
        return None
    every = zip(window_shape, strides, map(tuple, pads), strict=True)
    axes = [axis for axis, trivial in enumerate(every) if trivial != (1, 1, (0, 0))]
    if not axes:
        return Window(())
    try:
        return make_window(
            shape,
            [window_shape[axis] for axis in axes],
            [strides[axis] for axis in axes],
            padding.upper() if isinstance(padding, str) else [pads[axis] for axis in axes],
            axes=axes,
            empty="keep",
        )
    except ArgumentError:
        return None


def reduce_window(
    x: Any,
    init: Any,
    reducer: Reducer,
    window_shape: Sequence[int],
    strides: Sequence[int],
    padding: Pads,
) -> Array:
    """`lax.reduce_window(x, init, reducer, window_shape, strides, padding)`, in forward and reverse mode.

    A maximum, minimum or sum from its identity runs on our kernels. Anything else, and whatever they
    refuse, is lax's own, its errors too. A window of padding alone keeps lax's value.
    """
    x = jnp.asarray(x)
    kind, window = _kind(init, reducer), None
    if kind is not None and is_real(x) and not (kind == "sum" and x.dtype == jnp.bool_):
        window = _window(x.shape, window_shape, strides, padding)
    if kind is None or window is None:
        return lax.reduce_window(x, init, reducer, window_shape, strides, padding)
    if not window.dims:
        return x
    try:
        return windowed(SumPool(window) if kind == "sum" else pool_op(window, kind, "first"), x)
    except ArgumentError:
        return lax.reduce_window(x, init, reducer, window_shape, strides, padding)


def window_sum(
    x: Array, window_shape: Sequence[int], strides: Sequence[int], padding: Pads
) -> Array:
    """The sums of an average: those of narrow floats stay in float32, to be rounded once after the division."""
    wide = x.astype(dtypes.accumulator(x.dtype))
    return reduce_window(wide, 0, lax.add, window_shape, strides, padding)


def window_mean(
    x: Array, window_shape: Sequence[int], strides: Sequence[int], padding: Pads
) -> Array:
    """The sum of each window over the size of the window, in the type of x for floats.

    Where it runs on our kernels it is `avg_pool`, whose backward divides once an element of x.
    """
    size = np.prod(window_shape)
    real = dtypes.is_float(x.dtype)
    window = _window(x.shape, window_shape, strides, padding) if real else None
    if window is not None and window.dims:
        with contextlib.suppress(ArgumentError):
            return windowed(SumPool(window, float(size)), x)
    mean = window_sum(x, window_shape, strides, padding) / size
    return mean.astype(x.dtype) if real else mean
