"""Padding, slicing, interleaving and broadcasting along pooled axes: building blocks of the dense kernels."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import reshard

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import cast, widen_to_8_bits

PaddingConfig = tuple[int, int, int]  # (low, high, interior), as in `lax.pad`
T = TypeVar("T")  # an array or a tuple of arrays


def pad(x: Array, axes: Sequence[int], configs: Sequence[PaddingConfig], fill: Any) -> Array:
    """Pad `axes` of x by (low, high, interior) as in `lax.pad`; negative low or high padding crops."""
    if not any(any(axis_config) for axis_config in configs):
        return x
    config = [(0, 0, 0)] * x.ndim
    for axis, axis_config in zip(axes, configs, strict=True):
        config[axis] = axis_config
    # XLA for CPU aborts if a pad that is not fused has an operand of 2- or 4-bit integers.
    wide = widen_to_8_bits(x)
    return cast(lax.pad(wide, jnp.asarray(fill, wide.dtype), config), x.dtype)


def pad_input(x: Array, window: Window, fill: Any) -> Array:
    """Pad x to the positions that windows cover, and crop elements at the high ends that no window covers."""
    return pad(x, window.axes, [(dim.low, dim.used_high, 0) for dim in window.dims], fill)


def strided_slice(
    x: Array,
    axes: Sequence[int],
    starts: Sequence[int],
    num_outputs: Sequence[int],
    strides: Sequence[int],
) -> Array:
    """Slice x along `axes`: `num_outputs` positions per axis, from `starts` on, at distances of `strides`."""
    begin, end, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for axis, start, out, stride in zip(axes, starts, num_outputs, strides, strict=True):
        begin[axis], end[axis], step[axis] = start, start + (out - 1) * stride + 1, stride
    return lax.slice(x, begin, end, step)


def elements_at_tap(padded_input: Array, window: Window, flat_tap: int) -> Array:
    """Element of each window at the row-major tap `flat_tap`; `padded_input` comes from `pad_input`."""
    dims = window.dims
    starts = [tap * dim.dilation for tap, dim in zip(window.unravel(flat_tap), dims, strict=True)]
    return strided_slice(
        padded_input, window.axes, starts, window.output_shape, [dim.stride for dim in dims]
    )


def empty_along_axes(x: Array, axes: Sequence[int]) -> Array:
    """Slice x to size 0 along `axes`, which preserves the sharding of x."""
    for axis in axes:
        x = lax.slice_in_dim(x, 0, 0, axis=axis)
    return x


def zeros_like_with_sizes(x: Array, axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Zeros with the dtype and sharding of x, and the shape of x except for `sizes` along `axes`."""
    return pad(empty_along_axes(x, axes), axes, [(0, size, 0) for size in sizes], 0)


def join_parts(
    part_at_index: Mapping[tuple[int, ...], T],
    axis_order: Sequence[int],
    join_along_axis: Callable[[list[T], int], T],
) -> T:
    """Join parts along one axis after another by `join_along_axis(row, axis)`; keys are grid indices of the parts."""
    for axis in axis_order:
        rows: dict[tuple[int, ...], list[T]] = {}
        for index, part in part_at_index.items():
            rows.setdefault((*index[:axis], 0, *index[axis + 1 :]), []).append(part)
        part_at_index = {index: join_along_axis(row, axis) for index, row in rows.items()}
    (whole,) = part_at_index.values()
    return whole


def interleave(parts: Sequence[Array], axis: int, period: int) -> Array:
    """Interleave parts along an axis: part p gets the positions p, p + period, ... Missing parts are zeros."""
    if period == 1:
        return parts[0]
    padding = (0, period - len(parts), 0)
    return lax.collapse(pad(jnp.stack(parts, axis + 1), [axis + 1], [padding], 0), axis, axis + 2)


def where_or_zero(where: Array, x: Array) -> Array:
    """Elements of x where `where` is True, zeros elsewhere."""
    return lax.select(where, x, lax.full_like(x, 0))


def is_tap_chosen(tap: Array, chosen_tap: Array) -> Array:
    """Mask of the elements of `chosen_tap` that equal the scalar `tap`, which may be traced."""
    return lax.eq(chosen_tap, lax.broadcast(jnp.asarray(tap, chosen_tap.dtype), chosen_tap.shape))


def concatenate(parts: Sequence[Array], axis: int) -> Array:
    """Concatenate parts along an axis.

    XLA for CPU does not fuse a concatenation along the last axis with its operands (jax 0.12; in jax 0.10 only for
    one-dimensional arrays). A trailing axis of size 1 makes XLA fuse the concatenation.
    """
    if len(parts) == 1:
        return parts[0]
    if axis < parts[0].ndim - 1:
        return lax.concatenate(parts, axis)
    expanded = [lax.expand_dims(part, [part.ndim]) for part in parts]
    return lax.squeeze(lax.concatenate(expanded, axis), [parts[0].ndim])


def reshape_along_axis(vector: Any, axis: int, ndim: int) -> Any:
    """Reshape a vector to rank `ndim`, with size 1 along all axes but `axis`."""
    return vector.reshape([-1 if other == axis else 1 for other in range(ndim)])


def outer_broadcast(
    binary_op: Callable[[Array, Array], Array],
    vectors: Sequence[Any],
    axes: Sequence[int],
    ndim: int,
) -> Array:
    """Combine `vectors`, one per axis, by broadcasting `binary_op` to an array of rank `ndim`.

    The program computes the array at run time, because a constant would be as large as an image.
    """
    other_axes = [[other for other in range(ndim) if other != axis] for axis in axes]
    xs = [lax.expand_dims(jnp.asarray(a), b) for a, b in zip(vectors, other_axes, strict=True)]
    return functools.reduce(binary_op, xs)


def broadcast_like(value: Any, like: Array) -> Array:
    """Broadcast `value` to the shape and the sharding of `like`."""
    y = jnp.broadcast_to(jnp.asarray(value), like.shape)
    sharding, like_sharding = jax.typeof(y).sharding, jax.typeof(like).sharding
    has_spec = any(sharding.spec) or any(like_sharding.spec)
    return reshard(y, like_sharding) if has_spec and sharding.spec != like_sharding.spec else y


def is_empty(x: Array) -> bool:
    """True if an axis of x has size 0.

    Callers skip scaled (log-domain) evaluation of empty x, because jax's transpose would drop varying mesh axes of x.
    """
    return any(is_int(n) and n == 0 for n in x.shape)


def is_sharded(x: Array) -> bool:
    """True if the type of x has a sharded axis. Shardings over automatic mesh axes are not part of the type."""
    return any(part for part in jax.typeof(x).sharding.spec)
