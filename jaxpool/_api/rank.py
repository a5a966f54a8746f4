"""Public order statistics: `median_pool`, `rank_pool` for any rank, and `k_max_pool` along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import jax
from jax import Array, lax

from jaxpool._api.windowed import check_input
from jaxpool._arguments.arrays import ArrayArgument, MaskArgument, as_array
from jaxpool._arguments.decorator import public
from jaxpool._arguments.sharding import check_unsharded, sharding_from_type
from jaxpool._arguments.sizes import (
    Axes,
    IntOrInts,
    Padding,
    check_choice,
    check_fits_int32_indices,
    checked_int,
    normalise_axis,
    static_sizes,
)
from jaxpool._geometry.window import Window, WindowArguments
from jaxpool._kernels.dtypes import Ties, accumulator_dtype, as_float, cast, mean_dtype
from jaxpool._ops.apply import Autodiff, apply
from jaxpool._ops.masked import masked_rank
from jaxpool._ops.rank_pool import KMax, RankPool, apply_rank_pool
from jaxpool._plan.rank_pool import Rank
from jaxpool._shards.split import on_shards

# Names of methods of `numpy.quantile`.
MedianMethod = Literal["higher", "lower", "midpoint"]


@public
def median_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    method: MedianMethod = "higher",
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the median of each window.

    `y[b, i, j, c]` is the element of rank `n // 2`, counted from 0, among the n real elements
    `x[b, i * s - p + u * d, j * s - p + v * d, c]`, with the letters of `max_pool`. For even n this is the higher of
    the two middle elements; `method` changes that. Padding is not an element.

    Gradient: as in `max_pool`, to the selected element, or in equal parts to all equal elements with `ties="split"`.
    With `method="midpoint"` each middle element gets half of the cotangent. NaN ranks above every number. -0 and 0 tie.

    {x}, also bool.
    {geometry}
      where: the elements to include, as in `max_pool`. A window without a True gives 0.
      method: the median for even n, named as in `numpy.quantile`: the "higher" or the "lower" of the two middle
        elements, or "midpoint", their mean.
    {selection}

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for the "midpoint" of integers
      and bool.

    {errors}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 9.0, 2.0, 3.0])[:, None]
      >>> [jaxpool.median_pool(x, (4,), method=name).item() for name in ("higher", "lower", "midpoint")]
      [3.0, 2.0, 2.5]
      >>> jaxpool.median_pool(x, (3,)).ravel()
      Array([2., 3.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.median_pool(x, (3,)).sum())(x).ravel()
      Array([0., 0., 1., 1.], dtype=float32)

    References:
      `scipy.ndimage.median_filter`, which pads its border with elements; `torch.median` is "lower", `jnp.median` is
      "midpoint"; Batcher, Sorting Networks and their Applications.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    x, _, pool_rank = _check_rank_pool_arguments(x, arguments, where, ties, autodiff)
    check_choice("method", method, ("higher", "lower", "midpoint"))
    if method != "midpoint":
        return pool_rank(method, x)
    dtype = mean_dtype(x.dtype)
    # The cotangents of the two elements are added in the dtype of x, so x is cast to the accumulator dtype first.
    wide_x = cast(x, accumulator_dtype(x.dtype))
    low, high = (as_float(pool_rank(rank, wide_x)) for rank in ("lower", "higher"))
    return cast(_midpoint(low, high), dtype)


@jax.jit  # without it, an eager `vmap` would transfer the number 0.5
def _midpoint(low: Array, high: Array) -> Array:
    # Without the barrier, XLA rewrites a/2 + b/2 as (a + b)/2, which overflows for large values.
    low, high = lax.optimization_barrier((low * 0.5, high * 0.5))
    return low + high


@public
def rank_pool(
    x: ArrayArgument,
    rank: int,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the element of a rank in each window: 0 is the smallest, -1 the largest.

    Gradient: as in `median_pool`, to the selected element. NaN ranks above every number.

    {x}, also bool.
      rank: an int from -n to n - 1, with n the smallest number of real elements in a window.
    {geometry}
      where: the elements to include, as in `max_pool`. A window with too few included elements for the rank gives 0.
    {selection}

    {result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([4, 1, 3, 2])[:, None]
      >>> jaxpool.rank_pool(x, 1, (3,)).ravel()
      Array([3, 2], dtype=int32)

    References:
      `scipy.ndimage.rank_filter`.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    x, window, pool_rank = _check_rank_pool_arguments(x, arguments, where, ties, autodiff)
    element_counts = [dim.num_taps_inside(dim.representative_windows()) for dim in window.dims]
    min_elements = math.prod(int(counts.min()) for counts in element_counts)
    return pool_rank(check_rank_in_range(rank, min_elements), x)


def _check_rank_pool_arguments(
    x: ArrayArgument,
    arguments: WindowArguments,
    where: MaskArgument,
    ties: Ties,
    autodiff: Autodiff,
) -> tuple[Array, Window, Callable[[Rank, Array], Array]]:
    """x as an array, the window, and a function that returns the element at a rank of each window of an array."""
    checked = check_input(x, arguments, ties=ties, autodiff=autodiff)
    window, mask = checked.window, checked.checked_mask(where)

    def pool_element_at_rank(rank: Rank, x: Array) -> Array:
        op = RankPool(window, ties, range(window.size), rank)
        pool = apply_rank_pool if mask is None else masked_rank
        return checked.apply(pool, op, x, mask=mask, autodiff=autodiff)

    return checked.x, window, pool_element_at_rank


def check_rank_in_range(rank: object, num_elements: int) -> int:
    """`rank` as an int; raises unless `rank` is valid for a window of `num_elements` elements."""
    rule = f"an int from {-num_elements} to {num_elements - 1}"
    hint = "0 is the smallest element, -1 the largest."
    return checked_int("rank", rank, rule, hint, range(-num_elements, num_elements))


@public
def k_max_pool(x: ArrayArgument, k: int, *, axis: int = -2) -> Array:
    """Selects the k largest elements along an axis, in their original order.

    Gradient: each cotangent goes to its element, all other elements get zeros. Of equal elements the first are
    selected, and NaN is larger than every number. Forward and reverse mode, to any order.

    Args:
      x: array of at least one axis; floats, integers or bool.
      k: the number of elements, an int from 1 to the size of the axis.
      axis: the axis, of known size; -2 is the axis before the channels.

    Returns:
      Array of the shape of x with k along the axis; the dtype of x.

    {wrong}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.k_max_pool(jnp.array([3, 1, 4, 1, 5]), 3, axis=0)
      Array([3, 4, 5], dtype=int32)

    References:
      Kalchbrenner, Grefenstette and Blunsom, arXiv:1404.2188.
    """
    x = as_array(x)
    int_axis = normalise_axis(axis, x.ndim)
    (size,) = static_sizes(x.shape, (int_axis,))
    check_fits_int32_indices("x", (size,))
    check_unsharded(x, int_axis)
    rule = f"an int from 1 to {size}, the size of axis {int_axis}"
    hint = "Ask for fewer, or name another axis."
    num_elements = checked_int("k", k, rule, hint, range(1, size + 1), "Pass an int.")
    sharding = sharding_from_type(x)
    op = KMax(int_axis, size, num_elements)
    if sharding is None:
        return apply(op, x)
    # XLA would all-gather x along its sharded axes.
    return on_shards(apply, sharding, x, settings=(op,))
