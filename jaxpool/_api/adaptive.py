"""Adaptive pooling: as many windows as were asked for, whatever the size of the input."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._api.avg_pool import SumPool, element_counts
from jaxpool._api.max_pool import SelectPool, pool_op
from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.errors import calling
from jaxpool._geometry.adaptive import Sizes, adaptive_window
from jaxpool._geometry.taps import Cut
from jaxpool._geometry.window import Axis, Window, check_countable
from jaxpool._kernels import adaptive
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.reduce import pack, unpack
from jaxpool._kernels.regions import missing
from jaxpool._kernels.select import Order, Ties
from jaxpool._ops.op import Autodiff, Op, apply, apply_kept, choice


class OnGrid(Op):
    """An op over the windows of a grid that describes its transpose alone.

    The other direction is left to jax: where forward mode is asked for, it scatters, each element
    to places of its own; the transpose never does.
    """

    window: Window

    def linear(self, residual: Any, *tangents: Array) -> Array:
        (x_dot,) = tangents
        y = missing(x_dot, self.window.axes, [Cut(0, dim.out, 1) for dim in self.window.dims], 0)
        (y_dot,) = jax.linear_transpose(functools.partial(self.transpose, residual), y)((x_dot,))
        return y_dot

    def on_grid(self, ndim: int) -> Window:
        """The windows on the grid of an array of rank `ndim`."""
        return adaptive.grid_window(self.window, ndim)

    def sent(self, share: Array, dtype: kernels.DType, won: Array | None = None) -> tuple[Array]:
        """The cotangent of x if each window's share goes to all of its elements, or those that won."""
        grid = adaptive.spread(share, self.on_grid(share.ndim))
        if won is not None:
            grid = lax.select(won, grid, lax.full_like(grid, 0))
        return (adaptive.from_grid(grid, self.window).astype(dtype),)

    def share(self, dy: Array) -> Array:
        """The cotangent of each window as the grid has it, in the type in which it is added up."""
        return adaptive.to_front(dy.astype(kernels.accumulator(dy.dtype)), self.window)


@dataclasses.dataclass(frozen=True)
class AdaptiveSelect(OnGrid):
    """An adaptive max pool whose cotangent goes to one element; keeps its tap."""

    window: Window
    ties: Order

    def value(self, x: Array) -> Array:
        grid = adaptive.to_grid(x, self.window, kernels.least(x.dtype))
        y = adaptive.extreme_value(grid, self.on_grid(x.ndim), self.ties)
        return adaptive.from_front(y, self.window)

    def primal(self, x: Array) -> tuple[Array, Array]:
        grid = _kept_grid(x, self.window, kernels.least(x.dtype))
        y, tap = adaptive.extreme(grid, self.on_grid(x.ndim), self.ties)
        return adaptive.from_front(y, self.window), tap

    def transpose(self, tap: Array, dy: Array) -> tuple[Array]:
        won = adaptive.stands_at(tap, self.on_grid(dy.ndim))
        return self.sent(self.share(dy), dy.dtype, won)


@dataclasses.dataclass(frozen=True)
class AdaptiveSplit(OnGrid):
    """An adaptive max pool whose cotangent is split among tied elements; keeps one bit a tap."""

    window: Window

    def value(self, x: Array) -> Array:
        return AdaptiveSelect(self.window, "first").value(x)

    def primal(self, x: Array) -> tuple[Array, Array]:
        grid, placed = _kept_grid(x, self.window, kernels.least(x.dtype)), self.on_grid(x.ndim)
        y = kernels.materialise(lambda grid: adaptive.extreme_value(grid, placed, "first"), grid)
        won = adaptive.attained(grid, y, placed)
        return adaptive.from_front(y, self.window), pack(won, _longest(placed).axis)

    def transpose(self, bits: Array, dy: Array) -> tuple[Array]:
        placed, share = self.on_grid(dy.ndim), self.share(dy)
        won = unpack(bits, _longest(placed).size, _longest(placed).axis)
        count = adaptive.block_sum(won.astype(np.int32), placed)
        return self.sent(share / count.astype(share.dtype), dy.dtype, won)


@dataclasses.dataclass(frozen=True)
class AdaptiveMean(OnGrid):
    """An adaptive average pool; keeps nothing."""

    window: Window

    keeps = False

    def primal(self, x: Array) -> tuple[Array, tuple[()]]:
        wide = x.astype(kernels.accumulator(x.dtype))
        total = adaptive.block_sum(adaptive.to_grid(wide, self.window, 0), self.on_grid(x.ndim))
        return adaptive.from_front(self._divided(total), self.window).astype(x.dtype), ()

    def transpose(self, residual: tuple[()], dy: Array) -> tuple[Array]:
        return self.sent(self._divided(self.share(dy)), dy.dtype)

    def _divided(self, y: Array) -> Array:
        return y / jnp.asarray(element_counts(self.on_grid(y.ndim), "real", y))


def _longest(window: Window) -> Axis:
    """The axis of the grid along which bits are packed."""
    return max(window.dims, key=lambda dim: dim.size)


def _kept_grid(x: Array, window: Window, fill: Any) -> Array:
    return kernels.materialise(functools.partial(adaptive.to_grid, window=window, fill=fill), x)


def adaptive_max_op(window: Window, ties: Ties | Order) -> Op:
    """The op of an adaptive max pool."""
    ordinary = adaptive.ordinary(window)
    if ties == "split":
        return pool_op(window, "max", ties) if ordinary else AdaptiveSplit(window)
    if not ordinary:
        return AdaptiveSelect(window, ties)
    # The residual of these is the chosen tap: with "last" that of a whole window would be counted from the end.
    return pool_op(window, "max", ties) if ties == "first" else SelectPool(window, "max", ties)


def adaptive_avg_op(window: Window) -> Op:
    """The op of an adaptive average pool."""
    return SumPool(window, "counted") if adaptive.ordinary(window) else AdaptiveMean(window)


def _checked(
    name: str, x: Any, output_shape: Any, axes: Any, autodiff: Any, ties: Any = "first"
) -> tuple[Array, Window]:
    x = as_array(name, x)
    with calling(name, **{"x.shape": x.shape, "output_shape": output_shape}):
        window = adaptive_window(x.shape, output_shape, axes)
        choice("ties", ties, ("first", "last", "split"))
        choice("autodiff", autodiff, ("vjp", "jvp"))
    return x, window


def adaptive_max_pool(
    x: Any,
    output_shape: Sizes,
    *,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the largest element of each of a given number of windows.

    `y[b, i, j, c] = max of x[b, h, w, c]` over `floor(i * H / N) <= h < ceil((i + 1) * H / N)` and
    `floor(j * W / M) <= w < ceil((j + 1) * W / M)`, with B batch, H W spatial, C channels, and N M
    the `output_shape`; any number of pooled axes works alike. Windows cover the input; neighbours
    may overlap, by one position if there are no more windows than positions. Where N divides H and
    M divides W this is `max_pool` with windows of `(H / N, W / M)` as far apart.

    Gradient: the cotangent of each output goes to the element that was chosen, overlapping windows
    add up, all others get zeros. The residual is one unsigned index an output element (with
    `ties="split"` one bit a tap). NaN is larger than every number: the output is NaN and the
    cotangent goes to the NaN that `ties` chooses. -inf is an ordinary value. Overlapping cotangents
    of 8- and 16-bit floats add in float32 and are rounded once. The backward holds no scatter.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers and
        bool (where max is "or"). Pooled axes have a known size of at least 1; batch and channel
        axes may be of size 0.
      output_shape: the number of windows along each pooled axis, positive ints, also more than
        there are positions; None keeps an axis as it is. An int counts for all of `axes`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last one. Row-major
        order follows `axes`.
      ties: which of equal elements gets the cotangent: "first" or "last" in row-major order, or
        "split" among all.
      autodiff: "vjp" for reverse mode to any order and forward-over-reverse; "jvp" for `jax.jvp`,
        `jax.linearize` and `jax.jacfwd` too.

    Returns:
      Array of the shape of x but for the pooled axes, which have the sizes `output_shape`; the
      dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([1.0, 3.0, 2.0, 5.0, 4.0])[:, None]
      >>> jaxpool.adaptive_max_pool(x, (3,)).ravel()
      Array([3., 5., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.adaptive_max_pool(x, (3,)).sum())(x).ravel()
      Array([0., 1., 0., 2., 0.], dtype=float32)

    References:
      The windows of `torch.nn.functional.adaptive_max_pool2d`, which takes the last NaN of a window.
    """
    x, window = _checked("adaptive_max_pool", x, output_shape, axes, autodiff, ties)
    return apply(adaptive_max_op(window, ties), autodiff, x)


def adaptive_max_pool_with_argmax(
    x: Any,
    output_shape: Sizes,
    *,
    axes: tuple[int, ...] | None = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the largest element of each of a given number of windows, and where it stands.

    `y` as of `adaptive_max_pool`, and `indices[b, i, j, c] = h * W + w` for the element
    `x[b, h, w, c]` that was chosen, with B batch, H W spatial, C channels; any number of pooled axes
    works alike. `max_unpool` takes these indices.

    Gradient: of y, exactly as of `adaptive_max_pool`; `indices` are integers and have none. With a
    NaN in a window the index is that of the NaN that `ties` chooses.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers and
        bool. The pooled axes hold fewer than 2**31 positions.
      output_shape: the number of windows along each pooled axis, positive ints; None keeps an axis
        as it is. An int counts for all of `axes`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last one. Indices are
        row-major in the order of `axes`.
      ties: which of equal elements gets the cotangent and is named by `indices`: "first" or "last"
        in row-major order. "split" divides the cotangent among all of them and names the first.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      y, an array of the shape and dtype that `adaptive_max_pool` gives, and `indices`, an int32
      array of the same shape.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, a pooled axis has no elements, or there are too
        many positions for int32.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([[1, 3, 2], [7, 5, 6]])
      >>> y, indices = jaxpool.adaptive_max_pool_with_argmax(x, (1, 2), axes=(0, 1))
      >>> y, indices
      (Array([[7, 6]], dtype=int32), Array([[3, 5]], dtype=int32))

    References:
      `torch.nn.functional.adaptive_max_pool2d` with `return_indices=True`.
    """
    name = "adaptive_max_pool_with_argmax"
    x, window = _checked(name, x, output_shape, axes, autodiff, ties)
    with calling(name, **{"x.shape": x.shape, "output_shape": output_shape}):
        check_countable("x", [x.shape[axis] for axis in window.axes])
    if ties == "split":
        y = apply(adaptive_max_op(window, ties), autodiff, x)
        first = adaptive_max_op(window, "first")
        _, tap = apply_kept(first, autodiff, lax.stop_gradient(x))
    else:
        y, tap = apply_kept(adaptive_max_op(window, ties), autodiff, x)
    return y, adaptive.adaptive_position(tap, window)


def adaptive_avg_pool(
    x: Any,
    output_shape: Sizes,
    *,
    axes: tuple[int, ...] | None = None,
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the average of each of a given number of windows.

    `y[b, i, j, c] = mean of x[b, h, w, c]` over `floor(i * H / N) <= h < ceil((i + 1) * H / N)` and
    `floor(j * W / M) <= w < ceil((j + 1) * W / M)`, with B batch, H W spatial, C channels, and N M
    the `output_shape`; any number of pooled axes works alike. Where N divides H and M divides W
    this is `avg_pool` with windows of `(H / N, W / M)` as far apart.

    Gradient: each cotangent is spread evenly over its window; overlapping windows add up. Nothing
    is kept for the backward, which holds no scatter. 8- and 16-bit floats are added in float32 and
    rounded once, forward and backward.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or
        bool. Pooled axes have a known size of at least 1.
      output_shape: the number of windows along each pooled axis, positive ints, also more than
        there are positions; None keeps an axis as it is. An int counts for all of `axes`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last one.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape of x but for the pooled axes, which have the sizes `output_shape`; the
      dtype of x for floats, float32 for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.arange(10.0)[:, None]
      >>> jaxpool.adaptive_avg_pool(x, (4,)).ravel()
      Array([1., 3., 6., 8.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.adaptive_avg_pool(x, (2,)).sum())(x[:4]).ravel()
      Array([0.5, 0.5, 0.5, 0.5], dtype=float32)

    References:
      The windows of `torch.nn.functional.adaptive_avg_pool2d`; those of
      `equinox.nn.AdaptiveAvgPool2d` differ where N does not divide H.
    """
    x, window = _checked("adaptive_avg_pool", x, output_shape, axes, autodiff)
    if not kernels.is_float(x.dtype):
        x = x.astype(jnp.float32)
    return apply(adaptive_avg_op(window), autodiff, x)
