"""Max pooling that also says where each maximum stands, and its inverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._api.windowed import checked
from jaxpool._arguments.arrays import as_array, wrong_dtype
from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import (
    Ints,
    Padding,
    check_countable,
    example_axes,
    is_int,
    is_sequence,
    listed,
    normalise_axes,
    per_axis,
)
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.positions import window_position
from jaxpool._ops.apply import Autodiff, applied, apply, apply_kept
from jaxpool._ops.select_pool import SelectPool, pool_op
from jaxpool._ops.unpool import Unpool
from jaxpool._shards.place import place_by_type
from jaxpool._shards.pools import Argmax
from jaxpool._shards.unpool import unpool


@public
def max_pool_with_argmax(
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
) -> tuple[Array, Array]:
    """Computes the largest element of each window, and where in the input it stands.

    `y[b, i, j, c] = max over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]` as in
    `max_pool`, and `indices[b, i, j, c] = h * W + w` for the element `x[b, h, w, c]` that was
    chosen, with B batch, H W spatial, C channels, strides s, low padding p, dilation d and taps
    u, v inside the window; any number of pooled axes works alike.

    Gradient: of y, exactly as of `max_pool`; `indices` are integers and have none. With a NaN in a
    window the index is that of the NaN that `ties` chooses. A window of nothing but -inf, or of the
    least value of its type, has the index of a real element: never that of padding.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers and
        bool. The pooled axes hold fewer than 2**31 positions.
      window_shape: one positive int per pooled axis; an int for all of `axes`.
      strides: one positive int per pooled axis, or one for all; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring taps; None is 1.
      ceil_mode: round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one. Indices are
        row-major in the order of `axes`.
      ties: which of equal elements gets the cotangent and is named by `indices`: "first" or "last"
        in row-major order. "split" divides the cotangent among all of them and names the first.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      y, an array of the shape that `max_pool` gives and of the dtype of x, and `indices`, an int32
      array of the same shape: positions from 0 to the product of the unpadded pooled axes less 1.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, a window would hold
        nothing but padding, or there are too many positions for int32.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([[1, 3, 2], [7, 5, 5]])
      >>> y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), axes=(0, 1))
      >>> y, indices
      (Array([[7, 5]], dtype=int32), Array([[3, 4]], dtype=int32))

    References:
      `torch.nn.functional.max_pool2d` with `return_indices=True`, which names the last NaN of a
      window though the first of equal numbers. `tf.nn.max_pool_with_argmax` counts channels too.
    """
    geometry: dict[str, Any] = {
        "strides": strides,
        "padding": padding,
        "window_dilation": window_dilation,
        "ceil_mode": ceil_mode,
        "axes": axes,
    }
    return chosen(x, window_shape, ties, autodiff, **geometry)


def chosen(
    x: Any, window_shape: Any, ties: Any, autodiff: Any, **geometry: Any
) -> tuple[Array, Array]:
    """Maxima and where they stand."""
    x, window, split = checked(x, window_shape, ties, autodiff, **geometry)
    check_countable("x", window.input_shape)
    if split:
        y, indices = split.run(Argmax, x, ties, autodiff=autodiff)
        return y, indices
    if ties == "split":
        y = apply(pool_op(window, "max", "split"), autodiff, x)
        _, index = apply_kept(SelectPool(window, "max", "first"), autodiff, lax.stop_gradient(x))
    else:
        y, index = apply_kept(SelectPool(window, "max", ties), autodiff, x)
    return y, window_position(index, window)


@public
def max_unpool(
    y: Any, indices: Any, spatial_shape: Sequence[int], *, axes: tuple[int, ...] | None = None
) -> Array:
    """Puts each element back where `max_pool_with_argmax` found it, among zeros.

    `x[b, h, w, c] = y[b, i, j, c]` for the last (i, j) in row-major order whose
    `indices[b, i, j, c] == h * W + w`, and 0 if there is none, with B batch, H W spatial, C
    channels; any number of pooled axes works alike. Which of the elements that collide stays is the
    same on every platform.

    Gradient: an element of y that stays gets the cotangent at its index. An element that a later one
    overwrites, or whose index was dropped, gets 0. Forward mode agrees: the tangent of x holds those of
    the elements that stay. Values and derivatives have the same bits on every run.

    Args:
      y: array of shape `(..., *pooled, C)`, or any shape with `axes` given; floats, integers or
        bool. If its type says that `axes` are sharded, an element belongs to its own shard or to one
        beside it, as what a pool found does where windows are no longer than a shard; an index further
        away raises where its value is known, and is dropped where it is traced.
      indices: integers of the shape of y; positions flat and row-major over `spatial_shape`. One
        that is out of range raises where its value is known, and is dropped where it is traced.
      spatial_shape: the sizes of `axes` in the result, a tuple with one positive int each.
      axes: the axes to unpool; None is the `len(spatial_shape)` axes before the last one. Indices
        are row-major in the order of `axes`.

    Returns:
      Array of the shape of y but for `axes`, which have the sizes `spatial_shape`; the dtype of y.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or shapes that do not go together.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> x = jnp.array([[1, 3, 2], [7, 5, 5]])
      >>> y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), axes=(0, 1))
      >>> jaxpool.max_unpool(y, indices, (2, 3), axes=(0, 1))
      Array([[0, 0, 0],
             [7, 5, 0]], dtype=int32)

    References:
      `torch.nn.functional.max_unpool2d`. Where indices collide its result is not determined, and its
      gradient goes to overwritten elements too.
    """
    known = indices if isinstance(indices, np.ndarray) else None
    y, indices, where, sizes = checked_unpool(y, indices, spatial_shape, axes)
    place = place_by_type(y)
    if place:
        return unpool(place, y, indices, where, sizes, known)
    return applied(Unpool(where, sizes), y, indices)


def checked_unpool(
    y: Any, indices: Any, spatial_shape: Any, axes: Any
) -> tuple[Array, Array, tuple[int, ...], tuple[int, ...]]:
    """The arrays of `max_unpool`, its axes and their sizes."""
    given = indices
    y, indices = as_array(y, "y"), as_array(indices, "indices")
    spatial_shape = listed(spatial_shape)
    if not is_sequence(spatial_shape) or not spatial_shape:
        rule = "a tuple of positive ints, one an unpooled axis"
        hint = "Pass a tuple such as (4, 4)."
        kind = ValueError if is_sequence(spatial_shape) else TypeError
        raise ArgumentError("spatial_shape", rule, spatial_shape, hint, kind)
    rank = len(spatial_shape)
    if rank == y.ndim > 2 and all(map(is_int, spatial_shape)):
        _check_not_whole(spatial_shape, y.shape, axes)
    where = normalise_axes(axes, y.ndim, rank, "y")
    sizes = per_axis("spatial_shape", spatial_shape, rank, or_int=False)
    check_countable("spatial_shape", sizes)
    if all(is_int(y.shape[axis]) for axis in where):
        check_countable("y", [y.shape[axis] for axis in where])
    check_indices(indices, given, y, math.prod(sizes))
    return y, indices, where, sizes


def _check_not_whole(spatial_shape: Sequence[int], shape: Sequence[Any], axes: Any) -> None:
    """Raises for the shape of the whole result in place of the sizes of its unpooled `axes`."""
    ndim = len(shape)
    pooled = example_axes(ndim) if axes is None else normalise_axes(axes, ndim, None, "y")
    others = [axis for axis in range(ndim) if axis not in pooled]
    if others and all(spatial_shape[axis] == shape[axis] for axis in others):
        hint = f"Pass {tuple(spatial_shape[axis] for axis in pooled)}."
        rule = "the sizes of unpooled axes alone"
        raise ArgumentError("spatial_shape", rule, spatial_shape, hint)


def check_indices(
    indices: Array,
    given: Any,
    y: Array,
    count: int,
    name: str = "y",
    pool: str = "max_pool_with_argmax",
) -> None:
    """Raises unless `indices` go with y, which the user calls `name`, and, where they are known, with `count`.

    They were `given` as an array that may be known where, inside a trace, `indices` are not.
    """
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise wrong_dtype("indices", "an array of integers", indices, f"Pass what {pool} gave.")
    if indices.shape != y.shape:
        hint = f"Pass what {pool} gave beside {name}."
        raise ArgumentError("indices", f"of the shape of {name}", indices.shape, hint, of="shape")
    known = given if isinstance(given, np.ndarray) else indices
    if isinstance(known, jax.core.Tracer) or not getattr(known, "is_fully_addressable", True):
        return
    values = np.asarray(known)
    beyond = values[(values < 0) | (values >= count)]
    if beyond.size:
        rule = f"from 0 to {count - 1}, positions in spatial_shape"
        hint = "Pass the sizes of the axes that were pooled."
        raise ArgumentError("indices", rule, int(beyond[0]), hint)
