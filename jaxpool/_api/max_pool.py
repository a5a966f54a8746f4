"""Public max and min pooling. `_ops/select_pool.py` has the ops, which differ in what the backward pass reads."""

from __future__ import annotations

from jax import Array

from jaxpool._api.windowed import check_input
from jaxpool._arguments.arrays import ArrayArgument, MaskArgument
from jaxpool._arguments.decorator import public
from jaxpool._arguments.sizes import Axes, IntOrInts, Padding
from jaxpool._geometry.window import WindowArguments
from jaxpool._kernels.dtypes import Kind, Ties
from jaxpool._ops.apply import Autodiff
from jaxpool._ops.masked import MaskedSelect, masked_extremum
from jaxpool._ops.select_pool import select_pool
from jaxpool._shards.windowed import select_pool_of_shard


def max_or_min_pool(
    kind: Kind,
    x: ArrayArgument,
    arguments: WindowArguments,
    *,
    where: MaskArgument = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """The max or min pool of x, by `kind`."""
    checked = check_input(x, arguments, ties=ties, autodiff=autodiff, allow_long_axes=where is None)
    mask = checked.checked_mask(where)
    if mask is not None:
        op = MaskedSelect(checked.window, kind, ties)
        return checked.apply(masked_extremum, op, checked.x, mask=mask, autodiff=autodiff)
    return checked.run(select_pool, select_pool_of_shard, checked.x, kind, ties, autodiff=autodiff)


@public
def max_pool(
    x: ArrayArgument,
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
    """Computes the largest element of each window.

    `y[b, i, j, c] = max over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, with B batch, H W spatial, C
    channels, strides s, low padding p, dilation d and offsets u, v in the window. Any number of axes can be pooled.

    Gradient: the cotangent of each output goes to the selected element, and cotangents of overlapping windows add up.
    NaN is larger than every number: the output is NaN, and the cotangent goes to the NaN that `ties` selects. Padding
    is never selected, for any dtype; -inf is an ordinary value.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats, integers or bool (max is "or").
        Pooled axes must have a known size; batch and channel axes may have size 0. If the type of x shows that pooled
        axes are sharded, the call equals `jaxpool.sharded(jaxpool.max_pool)` and has its limits on sizes.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: "VALID", "SAME" (an odd position is added at the end) or "SAME_LOWER" (at the start). Or a non-negative
        int, one int per pooled axis, or one (low, high) pair per pooled axis.
      window_dilation: distance between neighbouring window elements, one positive int per pooled axis; None is 1.
      ceil_mode: whether to round the output size up. Windows that would start in the high padding are dropped.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis. Row-major order follows
        `axes`. Channels-first images `(N, C, H, W)` need `axes=(2, 3)`: the default would pool C and H.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Excluded elements are treated
        as padding, even NaN. A window without a True gives the lowest value (-inf for most floats) and gradient 0.
      ties: which of equal elements gets the cotangent: the "first" or the "last" in row-major order, or all of them,
        equal parts ("split").
      autodiff: "vjp" for reverse mode to any order and forward-over-reverse; "jvp" for `jax.jvp`,
        `jax.linearize` and `jax.jacfwd` too.

    Returns:
      Array of the shape of x, except that pooled axes have size `floor((size + low + high - span) / stride) + 1` with
      `span = (window - 1) * dilation + 1`; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.
        A window extends at most `2**20` positions beyond the input, and has fewer than `2**32` elements.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 2.0, 5.0]).reshape(1, 4, 1)
      >>> jaxpool.max_pool(x, (2,), (2,)).ravel()
      Array([3., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.max_pool(x, (2,), (2,)).sum())(x).ravel()
      Array([0., 1., 0., 1.], dtype=float32)
      >>> mask = jnp.array([True, False, False, False])[:, None]
      >>> jaxpool.max_pool(x, (2,), (2,), where=mask).ravel()
      Array([  1., -inf], dtype=float32)

    References:
      The window arithmetic of `jax.lax.reduce_window`, `ceil_mode` of `torch.nn.functional.max_pool2d`.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    return max_or_min_pool("max", x, arguments, where=where, ties=ties, autodiff=autodiff)


@public
def min_pool(
    x: ArrayArgument,
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
    """Computes the smallest element of each window.

    `y[b, i, j, c] = min over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, as in `max_pool`.

    Gradient: as in `max_pool`, to the selected element. NaN is smaller than every number; +inf is an ordinary value.

    {x}, also bool (min is "and").
    {geometry}
      where: the elements to include, as in `max_pool`. A window without a True gives the highest value of the dtype.
    {selection}

    {result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.min_pool(jnp.array([[4, 3], [1, 2], [0, 5]]), (2,))
      Array([[1, 2],
             [0, 2]], dtype=int32)

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """
    arguments = WindowArguments(window_shape, strides, padding, window_dilation, ceil_mode, axes)
    return max_or_min_pool("min", x, arguments, where=where, ties=ties, autodiff=autodiff)
