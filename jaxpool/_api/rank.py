"""Medians, elements of any rank, and the k largest along an axis."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Literal

from jax import Array

from jaxpool._api.shared_text import filled
from jaxpool._api.windowed import checked, masked
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.calls import public
from jaxpool._arguments.choices import choice
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import Ints, Padding, check_countable, is_int, known_sizes, one_axis
from jaxpool._geometry.window import Window
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.dtypes import accumulator, float_dtype
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.k_max import KMax
from jaxpool._ops.masked import rank as masked_rank
from jaxpool._ops.rank_pool import RankPool, ranked
from jaxpool._plan.rank_pool import Rank
from jaxpool._shards.place import on_shards, place_by_type
from jaxpool._shards.split import check_whole
from jaxpool._shards.whole import Local

# In the words of `numpy.quantile`.
Method = Literal["higher", "lower", "midpoint"]


@public
@filled
def median_pool(
    x: Any,
    window_shape: Ints,
    strides: Ints | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: Ints | None = None,
    ceil_mode: bool = False,
    axes: tuple[int, ...] | None = None,
    where: Any = None,
    method: Method = "higher",
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the median of each window.

    `y[b, i, j, c]` is the element of rank `n // 2`, counted from 0, of the n real elements
    `x[b, i * s - p + u * d, j * s - p + v * d, c]`, letters as in `max_pool`. Of an even n it is the
    higher of the two in the middle, unless `method` says otherwise. Padding is not an element. Small
    windows are ranked by comparators, large ones by a loop that counts, tap by tap; both hold a few
    arrays of the size of the output.

    Gradient: to the element chosen, as of `max_pool`; with `ties="split"` shared by all that equal
    it. With `method="midpoint"` each of the two gets half of the cotangent. NaN ranks above every
    number, zeros of both signs are equal. The residual is one unsigned index per output (with "split" a
    bit per tap, or of more than 64 taps x and y), and with "midpoint" two of them. No scatter.

    {x}
    {sizes}
      ceil_mode: round the output size up.
      where: array of bools that broadcasts to x, the elements that count; None is all. What is left
        out is as padding, whatever stands there; a window in which nothing counts gives 0.
      method: the median of an even n, in the words of `numpy.quantile`: the "higher" or the "lower" of
        the two elements in the middle, or "midpoint", their mean.
    {choice}

    Returns:
      Array of the shape that `max_pool` gives; the dtype of x, but that of `jnp.mean` for the "midpoint"
      of integers and bools.

    {errors}

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([1.0, 9.0, 2.0, 3.0])[:, None]
      >>> [jaxpool.median_pool(x, (4,), method=name).item() for name in ("higher", "lower", "midpoint")]
      [3.0, 2.0, 2.5]
      >>> jaxpool.median_pool(x, (3,)).ravel()
      Array([2., 3.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.median_pool(x, (3,)).sum())(x).ravel()
      Array([0., 0., 1., 1.], dtype=float32)
      >>> mask = jnp.array([True, False, True, True])[:, None]
      >>> jaxpool.median_pool(x, (3,), where=mask).ravel()
      Array([2., 3.], dtype=float32)

    References:
      `scipy.ndimage.median_filter`, whose border has elements; `torch.median` has the "lower" one,
      `jnp.median` the "midpoint"; Batcher, Sorting Networks and their Applications.
    """
    x, _, element = _checked(
        x,
        window_shape,
        where,
        ties,
        autodiff,
        strides=strides,
        padding=padding,
        window_dilation=window_dilation,
        ceil_mode=ceil_mode,
        axes=axes,
    )
    choice("method", method, ("higher", "lower", "midpoint"))
    if method != "midpoint":
        return element(method)
    dtype = float_dtype(x.dtype)
    low, high = [element(each).astype(accumulator(dtype)) for each in ("lower", "higher")]
    return (low * 0.5 + high * 0.5).astype(dtype)


@public
@filled
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
    where: Any = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the element of a rank of each window: 0 is the smallest, -1 the largest.

    Gradient: as of `median_pool`, to the element chosen. NaN ranks above every number.

    {x}
      rank: an int from -n to n - 1, n being the real elements of the window that has the fewest.
    {sizes}
      ceil_mode: round the output size up.
      where: array of bools that broadcasts to x, the elements that count; None is all. What is left
        out is as padding, whatever stands there; a window in which too few count for the rank gives 0.
    {choice}

    {result}

    {errors}

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([4, 1, 3, 2])[:, None]
      >>> jaxpool.rank_pool(x, 1, (3,)).ravel()
      Array([3, 2], dtype=int32)
      >>> jaxpool.rank_pool(x, 1, (3,), where=x != 1).ravel()
      Array([4, 3], dtype=int32)

    References:
      `scipy.ndimage.rank_filter`.
    """
    x, window, element = _checked(
        x,
        window_shape,
        where,
        ties,
        autodiff,
        strides=strides,
        padding=padding,
        window_dilation=window_dilation,
        ceil_mode=ceil_mode,
        axes=axes,
    )
    real = [dim.real(dim.kinds()) for dim in window.dims]
    fewest = math.prod(int(each.min()) for each in real)
    return element(check_rank(rank, fewest))


def _checked(
    x: Any, window_shape: Any, where: Any, ties: Any, autodiff: Any, **geometry: Any
) -> tuple[Array, Window, Callable[[Rank], Array]]:
    """The checked x, the window, and the function that pools the element of a rank of each window."""
    x, window, split = checked(x, window_shape, ties, autodiff, **geometry)
    mask = masked(x, window, split, where)

    def element(rank: Rank) -> Array:
        op = RankPool(window, ties, range(window.size), rank)
        if mask:
            return mask.run(masked_rank, op, x, autodiff=autodiff)
        if split:
            y: Array = split.apply(ranked, op, x, autodiff=autodiff)
            return y
        return ranked(op, x, autodiff=autodiff)

    return x, window, element


def check_rank(rank: Any, count: int) -> int:
    """The rank as an int; raises unless each window of at least `count` elements has one of it."""
    rule = f"an int from {-count} to {count - 1}"
    hint = "0 is the smallest element, -1 the largest."
    if not is_int(rank):
        raise ArgumentError("rank", rule, rank, hint, TypeError)
    if not -count <= operator.index(rank) < count:
        raise ArgumentError("rank", rule, rank, hint)
    return operator.index(rank)


@public
@filled
def k_max_pool(x: Any, k: int, *, axis: int = -2) -> Array:
    """Takes the k largest elements along an axis, in the order in which they stand.

    Gradient: each cotangent goes to the element it belongs to, all others get zeros; of equal
    elements the first are taken, and NaN is larger than every number. The residual is one unsigned
    index per output element; the backward writes each place at most once, so its bits are the same on
    every run. Forward and reverse mode, to any order.

    Args:
      x: array of at least one axis; floats, integers or bool.
      k: how many, an int from 1 to the size of the axis.
      axis: the axis, of known size; -2 is the one before the channels.

    Returns:
      Array of the shape of x with k along the axis; the dtype of x.

    {wrong}

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.k_max_pool(jnp.array([3, 1, 4, 1, 5]), 3, axis=0)
      Array([3, 4, 5], dtype=int32)

    References:
      Kalchbrenner, Grefenstette and Blunsom, arXiv:1404.2188.
    """
    x = as_array(x)
    at = one_axis(axis, x.ndim)
    (size,) = known_sizes(x.shape, (at,))
    check_countable("x", (size,))
    check_whole(x, at)
    rule = f"an int from 1 to {size}, the size of axis {at}"
    if not is_int(k):
        raise ArgumentError("k", rule, k, "Pass an int.", TypeError)
    if not 1 <= operator.index(k) <= size:
        raise ArgumentError("k", rule, k, "Ask for fewer, or name another axis.")
    place = place_by_type(x)
    op = KMax(at, size, operator.index(k))
    if place:  # else XLA gathers the axes along which nothing is chosen
        y: Array = on_shards(Local(op), place, x)
        return y
    return apply(op, "jvp", x)
