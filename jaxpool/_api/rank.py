"""Medians, elements of any rank, and the k largest along an axis."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._api.max_pool import checked
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool._arguments.sizes import Ints, Padding, is_int, known_sizes, normalise_axes
from jaxpool._geometry.window import Window
from jaxpool._kernels.compare import Ties
from jaxpool._ops import rank_pool as ops
from jaxpool._ops.k_max import KMax
from jaxpool._ops.op import Autodiff, apply


def median_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the median of each window.

    `y[b, i, j, c]` is the element of rank `n // 2`, counted from 0, of the n real elements
    `x[b, i * s - p + u * d, j * s - p + v * d, c]`, letters as in `max_pool`: of an even n the upper of the two
    in the middle. Padding is not an element.

    Gradient: to the element chosen, as of `max_pool`; with `ties="split"` shared by all that are
    equal to it. NaN ranks above every number, zeros of both signs are equal. The residual is one
    unsigned index an output (with "split" one bit a tap). No scatter.

    Windows of up to 64 taps are ranked in place. Of larger ones each gets its own copy of its elements.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or
        bool.
      window_shape: one positive int a pooled axis; an int for all of `axes`.
      strides: likewise; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      ties: which of equal elements gets the cotangent: "first", "last" or "split".
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape that `max_pool` gives; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would
        hold nothing but padding.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([1.0, 9.0, 2.0, 3.0])[:, None]
      >>> jaxpool.median_pool(x, (3,)).ravel()
      Array([2., 3.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.median_pool(x, (3,)).sum())(x).ravel()
      Array([0., 0., 1., 1.], dtype=float32)

    References:
      `scipy.ndimage.median_filter`, whose border is part of the window; the comparators of Batcher, Sorting
      Networks and their Applications.
    """
    geometry = (strides, padding, window_dilation, ceil_mode, axes)
    return _pool("median_pool", x, None, window_shape, geometry, ties, autodiff)


def rank_pool(
    x: Any,
    rank: int,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the element of a rank of each window: 0 is the smallest, -1 the largest.

    Gradient: as of `median_pool`, to the element chosen. NaN ranks above every number.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or
        bool.
      rank: an int from -n to n - 1, where n is how many real elements the window with the fewest has.
      window_shape: one positive int a pooled axis; an int for all of `axes`.
      strides: likewise; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
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
      >>> jaxpool.rank_pool(jnp.array([4, 1, 3, 2])[:, None], 1, (3,)).ravel()
      Array([3, 2], dtype=int32)

    References:
      `scipy.ndimage.rank_filter`.
    """
    geometry = (strides, padding, window_dilation, ceil_mode, axes)
    return _pool("rank_pool", x, rank, window_shape, geometry, ties, autodiff)


_GEOMETRY = ("strides", "padding", "window_dilation", "ceil_mode", "axes")


def _pool(
    name: str, x: Any, rank: Any, window_shape: Any, geometry: Any, ties: Any, autodiff: Any
) -> Array:
    named = dict(zip(_GEOMETRY, geometry, strict=True))
    x, window = checked(name, x, window_shape, ties, autodiff, **named)
    with calling(name, **{"x.shape": x.shape, "window_shape": window_shape}):
        if name == "rank_pool":
            _check_rank(rank, window)
    return ops.rank_pool(x, window, rank, ties, autodiff)


def _check_rank(rank: Any, window: Window) -> None:
    fewest = 1
    for dim in window.dims:
        fewest *= min(dim.real(output) for output in range(dim.out))
    rule = f"an int from {-fewest} to {fewest - 1}, so that every window has it"
    hint = "0 is the smallest element, -1 the largest."
    if not is_int(rank):
        raise ArgumentError("rank", rule, rank, hint, TypeError)
    if not -fewest <= rank < fewest:
        raise ArgumentError("rank", rule, rank, hint)


def k_max_pool(x: Any, k: int, *, axis: int = -2) -> Array:
    """Takes the k largest elements along an axis, in the order in which they stand.

    Gradient: each cotangent goes to the element it belongs to, all others get zeros; of equal
    elements the first are taken. NaN is larger than every number. The residual is one unsigned index an
    output. Forward and reverse mode, to any order; no scatter.

    Args:
      x: array of at least one axis; floats, integers or bool.
      k: how many, an int from 1 to the size of the axis.
      axis: the axis; negative ones count from the end, and -2 is the one before the channels.

    Returns:
      Array of the shape of x with k along the axis; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.k_max_pool(jnp.array([3, 1, 4, 1, 5]), 3, axis=0)
      Array([3, 4, 5], dtype=int32)

    References:
      Kalchbrenner, Grefenstette and Blunsom, A Convolutional Neural Network for Modelling Sentences,
      arXiv:1404.2188.
    """
    x = as_array("k_max_pool", x)
    with calling("k_max_pool", **{"x.shape": x.shape}):
        (at,) = normalise_axes((axis,) if is_int(axis) else axis, x.ndim, 1)
        (size,) = known_sizes(x.shape, (at,))
        rule = f"an int from 1 to {size}, the size of axis {at}"
        if not is_int(k):
            raise ArgumentError("k", rule, k, "Pass an int.", TypeError)
        if not 1 <= k <= size:
            raise ArgumentError("k", rule, k, "Ask for fewer, or name another axis.")
    return apply(KMax(at, size, int(k)), "jvp", x)
