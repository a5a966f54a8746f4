"""Public `local_maxima` and `local_minima`: masks of the elements that a pool of stride 1 around them selects."""

from __future__ import annotations

from typing import Literal, get_args

from jax import Array, lax

from jaxpool._api.windowed import check_input
from jaxpool._arguments.arrays import ArrayArgument
from jaxpool._arguments.decorator import public
from jaxpool._arguments.sizes import Axes, IntOrInts, check_choice
from jaxpool._geometry.window import Window, WindowArguments
from jaxpool._kernels.dtypes import Kind, reduction_identity
from jaxpool._ops.apply import apply
from jaxpool._ops.select_pool import CentreMask, LocalExtremumMask, is_centre
from jaxpool._shards.halo import ShardedWindows
from jaxpool._shards.windowed import select_pool_with_tap_of_shard

PeakTies = Literal["first", "last", "all"]
PEAK_TIES: tuple[PeakTies, ...] = get_args(PeakTies)


def _mark_local_extrema(
    kind: Kind, x: ArrayArgument, window_shape: IntOrInts, axes: Axes, ties: PeakTies
) -> Array:
    checked = check_input(x, WindowArguments(window_shape, padding="SAME", axes=axes))
    check_choice("ties", ties, PEAK_TIES)
    x = lax.stop_gradient(checked.x)
    return checked.run(_local_extrema, _local_extrema_of_shard, x, kind, ties)


def _local_extrema(window: Window, kind: Kind, ties: PeakTies, x: Array) -> Array:
    """True for elements of x that are the extremum of their window."""
    if ties == "all":
        return apply(LocalExtremumMask(window, kind), x)
    return apply(CentreMask(window, kind, ties), x)


def _local_extrema_of_shard(windows: ShardedWindows, kind: Kind, ties: PeakTies, x: Array) -> Array:
    """True for elements of the shard x that are the extremum of their window."""
    if ties == "all":
        op = LocalExtremumMask(windows.extended_window, kind)
        return apply(op, windows.extend(x, reduction_identity(x.dtype, kind)))
    return is_centre(select_pool_with_tap_of_shard(windows, kind, ties, x)[1], windows.window)


@public
def local_maxima(
    x: ArrayArgument, window_shape: IntOrInts, *, axes: Axes = None, ties: PeakTies = "first"
) -> Array:
    """Marks each element that is the largest of its window, such as the peaks of a heatmap.

    `y[b, i, j, c] = (max_pool selects x[b, i, j, c] in the window around it)`, with B batch, H W spatial and C
    channels. Any number of axes can be pooled. Windows have stride 1 and the padding "SAME": a window of even size
    extends one element further towards the end.

    Gradient: none, because the result is boolean. NaN is larger than every number. -inf is an ordinary value: in a
    window of -inf, one element is the largest. Padding is never selected.

    {x}, also bool.
    {window}
    {axes}
      ties: which elements equal to the maximum of their window are marked: the "first" or the "last" in row-major
        order of `axes`, or "all". Equal neighbours have different windows, so several neighbours can be marked.

    Returns:
      Boolean array of the shape of x.

    {wrong}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> heatmap = jnp.array([0.1, 0.7, 0.7, 0.2, 0.3, 0.1])
      >>> jaxpool.local_maxima(heatmap, 3, axes=(0,))
      Array([False,  True, False, False,  True, False], dtype=bool)
      >>> jaxpool.local_maxima(heatmap, 3, axes=(0,), ties="all")
      Array([False,  True,  True, False,  True, False], dtype=bool)

    References:
      Zhou et al., Objects as Points, arXiv:1904.07850, with peaks that a 3x3 max pool keeps: `ties="all"`.
    """
    return _mark_local_extrema("max", x, window_shape, axes, ties)


@public
def local_minima(
    x: ArrayArgument, window_shape: IntOrInts, *, axes: Axes = None, ties: PeakTies = "first"
) -> Array:
    """Marks each element that is the smallest of its window.

    `y[b, i, j, c] = (min_pool selects x[b, i, j, c] in the window around it)`, with the windows of `local_maxima`.

    Gradient: none, the result is boolean. NaN is smaller than every number.

    {x}, also bool.
    {window}
    {axes}
      ties: which elements equal to the minimum of their window are marked: the "first", the "last" or "all".

    Returns:
      Boolean array of the shape of x.

    {wrong}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.local_minima(jnp.array([3, 1, 2, 0, 4]), 3, axes=(0,))
      Array([False,  True, False,  True, False], dtype=bool)

    References:
      `local_maxima`.
    """
    return _mark_local_extrema("min", x, window_shape, axes, ties)
