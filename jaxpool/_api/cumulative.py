"""Public running maxima and minima along an axis, with a scan that saves the position of each selected element."""

from __future__ import annotations

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._api.reduce import normalise_reduced_axes
from jaxpool._arguments.arrays import ArrayArgument, MaskArgument, as_array, as_broadcast_mask
from jaxpool._arguments.decorator import public
from jaxpool._arguments.sharding import check_unsharded
from jaxpool._arguments.sizes import (
    check_bool,
    check_choice,
    check_fits_int32_indices,
    normalise_axis,
)
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.slices import reshard_like
from jaxpool._ops.apply import Autodiff, apply, apply_with_residual
from jaxpool._ops.cumulative import FirstOrLast, RunningExtremum


def _cumulative_op_and_arrays(
    kind: Kind,
    x: ArrayArgument,
    axis: int,
    reverse: bool,
    reset: MaskArgument,
    ties: FirstOrLast,
    autodiff: Autodiff,
) -> tuple[RunningExtremum, tuple[Array, ...]]:
    """The scan op and its operands: x and, if given, the `reset` mask.

    The mask has the size of x along `axis` and the sharding of x.
    """
    x = as_array(x)
    checked_axis = normalise_axis(axis, x.ndim, non_int_hint="Reshape x to run along several.")
    (at,) = normalise_reduced_axes(checked_axis, x.shape)
    check_fits_int32_indices("x", (x.shape[at],))
    check_bool("reverse", reverse)
    check_choice("ties", ties, ("first", "last"))
    check_unsharded(x, at, checks_types=False)
    check_choice("autodiff", autodiff, ("vjp", "jvp"))
    op = RunningExtremum(kind, ties, at, reverse)
    if reset is None:
        return op, (x,)
    mask = as_broadcast_mask(reset, x.shape, "reset")
    shape = [x.shape[at] if axis == at else size for axis, size in enumerate(mask.shape)]
    return op, (x, reshard_like(jnp.broadcast_to(mask, shape), x))


@public
def cummax(
    x: ArrayArgument,
    axis: int = -1,
    *,
    reverse: bool = False,
    reset: MaskArgument = None,
    ties: FirstOrLast = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the running maximum along an axis.

    `y[..., i] = max over j <= i of x[..., j]`, or `j >= i` in reverse; with `reset` only over j in the episode of i.

    Gradient: each element gets the sum of the cotangents of all outputs that selected the element. NaN is larger than
    every number: from the first NaN on, the output is NaN and a NaN gets the cotangent.

    {run_result}

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 2.0, 3.0, 4.0])
      >>> jaxpool.cummax(x)
      Array([1., 3., 3., 3., 4.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.cummax(x).sum())(x)
      Array([1., 3., 0., 0., 1.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.cummax(x, ties="last").sum())(x)
      Array([1., 2., 0., 1., 1.], dtype=float32)
      >>> jaxpool.cummax(x, reset=jnp.array([False, False, True, False, False]))
      Array([1., 3., 2., 3., 4.], dtype=float32)

    References:
      `jax.lax.cummax` splits ties by the shape of its scan; `torch.cummax` selects the last.
    """
    op, args = _cumulative_op_and_arrays("max", x, axis, reverse, reset, ties, autodiff)
    return apply(op, *args, autodiff=autodiff)


@public
def cummin(
    x: ArrayArgument,
    axis: int = -1,
    *,
    reverse: bool = False,
    reset: MaskArgument = None,
    ties: FirstOrLast = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the running minimum along an axis.

    `y[..., i] = min over j <= i of x[..., j]`, or over `j >= i` in reverse.

    Gradient: as in `cummax`, to the selected element. NaN is smaller than every number.

    {run_result}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.cummin(jnp.array([[4, 3, 5], [1, 2, 0]]), reverse=True)
      Array([[3, 3, 5],
             [0, 0, 0]], dtype=int32)

    References:
      `jax.lax.cummin`, `torch.cummin`.
    """
    op, args = _cumulative_op_and_arrays("min", x, axis, reverse, reset, ties, autodiff)
    return apply(op, *args, autodiff=autodiff)


@public
def cummax_with_argmax(
    x: ArrayArgument,
    axis: int = -1,
    *,
    reverse: bool = False,
    reset: MaskArgument = None,
    ties: FirstOrLast = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the running maximum along an axis and its position.

    `y[..., i] = x[..., indices[..., i]]`, the largest of the `x[..., j]` with `j <= i`, or `j >= i` in reverse; with
    `reset` only over j in the episode of i.

    Gradient: y has the gradient of `cummax`; the integers `indices` have no gradient. From the first NaN of an
    episode on, the index is the index of a NaN.

    {run_with_index}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.cummax_with_argmax(jnp.array([1, 3, 2, 3]), ties="last")
      (Array([1, 3, 3, 3], dtype=int32), Array([0, 1, 1, 3], dtype=int32))

    References:
      `torch.cummax`, which returns the index of the last of equal elements.
    """
    op, args = _cumulative_op_and_arrays("max", x, axis, reverse, reset, ties, autodiff)
    y, index = apply_with_residual(op, *args, autodiff=autodiff)
    return y, index.astype(np.int32)


@public
def cummin_with_argmax(
    x: ArrayArgument,
    axis: int = -1,
    *,
    reverse: bool = False,
    reset: MaskArgument = None,
    ties: FirstOrLast = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the running minimum along an axis and its position.

    `y[..., i] = x[..., indices[..., i]]`, the smallest of the `x[..., j]` with `j <= i`, or `j >= i` in reverse; with
    `reset` only over j in the episode of i.

    Gradient: y has the gradient of `cummin`; the integers `indices` have no gradient.

    {run_with_index}

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> starts = jnp.array([True, False, False, True, False])
      >>> jaxpool.cummin_with_argmax(jnp.array([4, 3, 5, 7, 6]), reset=starts)
      (Array([4, 3, 3, 7, 6], dtype=int32), Array([0, 1, 1, 3, 4], dtype=int32))

    References:
      `torch.cummin`.
    """
    op, args = _cumulative_op_and_arrays("min", x, axis, reverse, reset, ties, autodiff)
    y, index = apply_with_residual(op, *args, autodiff=autodiff)
    return y, index.astype(np.int32)
