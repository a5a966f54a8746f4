"""Max and min pooling."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._api.windowed import checked, masked
from jaxpool._arguments.calls import public
from jaxpool._arguments.sizes import Ints, Padding
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.dtypes import Kind
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.masked import MaskedSelect, extreme
from jaxpool._ops.select_pool import pool_op
from jaxpool._shards.pools import Select


def extreme_pool(
    kind: Kind,
    x: Any,
    window_shape: Any,
    ties: Any,
    autodiff: Any,
    where: Any = None,
    **geometry: Any,
) -> Array:
    """The max or min pool."""
    options = {"any_length": ties != "split" and where is None, **geometry}
    x, window, split = checked(x, window_shape, ties, autodiff, **options)
    some = masked(x, window, split, where)
    if some:
        return some.run(extreme, MaskedSelect(window, kind, ties), x, autodiff=autodiff)
    if split:
        y: Array = split.run(Select, x, kind, ties, autodiff=autodiff)
        return y
    return apply(pool_op(window, kind, ties), autodiff, x)


@public
def max_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    where: Any = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the largest element of each window.

    `y[b, i, j, c] = max over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, with B
    batch, H W spatial, C channels, strides s, low padding p, dilation d and taps u, v inside the
    window; any number of pooled axes works alike.

    Gradient: the cotangent of each output, the derivative of the result with respect to it, goes to
    the element that was chosen, overlapping windows add up, all others get zeros. The residual is
    one unsigned index per output element (with `ties="split"` one bit per tap; traced for a TPU x itself, of
    windows that one instruction of it takes). NaN is larger than
    every number: the output is NaN and the cotangent goes to the NaN that `ties` chooses. -inf is
    an ordinary value. Padding is never chosen, whatever the type. Overlapping cotangents of 8- and
    16-bit floats add in float32 and are rounded once. The backward holds no scatter (that of a TPU is in a fixed
    order): the same bits on every run.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers and
        bool (where max is "or"). Pooled axes must have a known size; batch and channel axes may be
        of size 0. If the type of x says that pooled axes are sharded, this is
        `jaxpool.sharded(jaxpool.max_pool)`, and the sizes are such as that takes.
      window_shape: one positive int per pooled axis; an int for all of `axes`.
      strides: one positive int per pooled axis, or one for all; None is 1.
      padding: "VALID", "SAME" (what is odd goes to the end), "SAME_LOWER", a non-negative int, or
        one int or one (low, high) pair per pooled axis.
      window_dilation: distance between neighbouring taps, one positive int per pooled axis; None is
        1.
      ceil_mode: round the output size up; a last window that would begin beyond the input and its
        low padding is dropped.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one. Row-major
        order follows `axes`. Channels-first images `(N, C, H, W)` need `axes=(2, 3)`: without it C
        and H are pooled, whatever the sizes.
      where: array of bools that broadcasts to x, the elements that count; None is all. What is left
        out is as padding, whatever stands there; a window in which nothing counts gives the least
        value of the type (-inf, if there is one) and the gradient 0. The mask is kept for the backward.
      ties: which of equal elements gets the cotangent: "first" or "last" in row-major order, or
        "split" among all.
      autodiff: "vjp" for reverse mode to any order and forward-over-reverse; "jvp" for `jax.jvp`,
        `jax.linearize` and `jax.jacfwd` too.

    Returns:
      Array of the shape of x but for the pooled axes, of size `floor((size + low + high - span) /
      stride) + 1` with `span = (window - 1) * dilation + 1`; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding, span more than `2**20` positions beyond the input or hold
        `2**32` elements.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([1.0, 3.0, 2.0, 5.0]).reshape(1, 4, 1)
      >>> jaxpool.max_pool(x, (2,), (2,)).ravel()
      Array([3., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.max_pool(x, (2,), (2,)).sum())(x).ravel()
      Array([0., 1., 0., 1.], dtype=float32)
      >>> mask = jnp.array([True, False, False, False])[:, None]
      >>> jaxpool.max_pool(x, (2,), (2,), where=mask).ravel()
      Array([  1., -inf], dtype=float32)

    References:
      The window arithmetic of `jax.lax.reduce_window`, `ceil_mode` of
      `torch.nn.functional.max_pool2d`.
    """
    geometry = {
        "strides": strides,
        "padding": padding,
        "window_dilation": window_dilation,
        "ceil_mode": ceil_mode,
        "axes": axes,
    }
    return extreme_pool("max", x, window_shape, ties, autodiff, where, **geometry)


@public
def min_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    where: Any = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the smallest element of each window.

    `y[b, i, j, c] = min over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, letters as
    in `max_pool`.

    Gradient: as of `max_pool`, to the element chosen. NaN is smaller than every number, so it is
    chosen before them; +inf is an ordinary value, and padding is never chosen.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers and
        bool (where min is "and").
      window_shape: one positive int per pooled axis; an int for all of `axes`.
      strides: one positive int per pooled axis, or one for all; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      where: array of bools that broadcasts to x, as in `max_pool`; where nothing counts the result is the
        greatest value of the type.
      ties: which of equal elements gets the cotangent: "first", "last" or "split".
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape that `max_pool` gives; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.min_pool(jnp.array([[4, 3], [1, 2], [0, 5]]), (2,))
      Array([[1, 2],
             [0, 2]], dtype=int32)

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """
    geometry = {
        "strides": strides,
        "padding": padding,
        "window_dilation": window_dilation,
        "ceil_mode": ceil_mode,
        "axes": axes,
    }
    return extreme_pool("min", x, window_shape, ties, autodiff, where, **geometry)
