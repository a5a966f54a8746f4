"""Padding, slicing and interleaving along pooled axes: what every dense kernel is built from."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import reshard

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import cast, in_bytes

Sides = tuple[int, int, int]
T = TypeVar("T")  # an array, or some


def pad(x: Array, axes: Sequence[int], sides: Sequence[Sides], fill: Any) -> Array:
    """Pads `axes` of x by (low, high, interior) each; a negative side crops."""
    if not any(any(side) for side in sides):
        return x
    config = [(0, 0, 0)] * x.ndim
    for axis, side in zip(axes, sides, strict=True):
        config[axis] = side
    # XLA for CPU aborts where it pads integers of 2 and 4 bits in an operation of its own.
    wide = in_bytes(x)
    return cast(lax.pad(wide, jnp.asarray(fill, wide.dtype), config), x.dtype)


def pad_input(x: Array, window: Window, fill: Any) -> Array:
    """x with the positions before and after it that the windows reach, cropped where they reach none."""
    return pad(x, window.axes, [(dim.low, dim.tail, 0) for dim in window.dims], fill)


def view(
    x: Array,
    axes: Sequence[int],
    starts: Sequence[int],
    outs: Sequence[int],
    strides: Sequence[int],
) -> Array:
    """`outs` positions along each of `axes`, from `starts` on, `strides` apart."""
    begin, end, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for axis, start, out, stride in zip(axes, starts, outs, strides, strict=True):
        begin[axis], end[axis], step[axis] = start, start + (out - 1) * stride + 1, stride
    return lax.slice(x, begin, end, step)


def tap_of(padded: Array, window: Window, flat: int) -> Array:
    """The element at the flat tap of each window, of an input that `pad_input` gave."""
    dims = window.dims
    starts = [tap * dim.dilation for tap, dim in zip(window.unravel(flat), dims, strict=True)]
    return view(padded, window.axes, starts, window.output_shape, [dim.stride for dim in dims])


def empty_along(x: Array, axes: Sequence[int]) -> Array:
    """x without any position along `axes`, sharded as x."""
    for axis in axes:
        x = lax.slice_in_dim(x, 0, 0, axis=axis)
    return x


def zeros_like(x: Array, axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Zeros of the type of x but for the sizes of `axes`, sharded as x."""
    return pad(empty_along(x, axes), axes, [(0, size, 0) for size in sizes], 0)


def put_together(
    parts: Mapping[tuple[int, ...], T], order: Sequence[int], join: Callable[[list[T], int], T]
) -> T:
    """One of parts that are numbered along each axis: `join(row, axis)` of each row of them, axes in `order`."""
    for which in order:
        rows: dict[tuple[int, ...], list[T]] = {}
        for place, part in parts.items():
            rows.setdefault((*place[:which], 0, *place[which + 1 :]), []).append(part)
        parts = {place: join(row, which) for place, row in rows.items()}
    (whole,) = parts.values()
    return whole


def interleaved(parts: Sequence[Array], axis: int, count: int) -> Array:
    """Elements of each part in turn along an axis, and zeros until each turn is `count` long."""
    if count == 1:
        return parts[0]
    rest = (0, count - len(parts), 0)
    return lax.collapse(pad(jnp.stack(parts, axis + 1), [axis + 1], [rest], 0), axis, axis + 2)


def only(where: Array, x: Array) -> Array:
    """x where `where` is true, zeros elsewhere."""
    return lax.select(where, x, lax.full_like(x, 0))


def at_tap(tap: Array, x: Array, chosen: Array) -> Array:
    """x where the `tap`, which may be traced, is the one that was chosen, and 0 elsewhere."""
    return only(lax.eq(chosen, lax.broadcast(tap.astype(chosen.dtype), chosen.shape)), x)


def concatenate(parts: Sequence[Array], axis: int) -> Array:
    """The parts one after another along an axis.

    XLA for CPU does not fuse a concatenation along the last axis with what makes its parts (jax 0.12; 0.10 for
    one axis alone), and along the last but one it does: an axis of size 1 stands after it.
    """
    if len(parts) == 1:
        return parts[0]
    if axis < parts[0].ndim - 1:
        return lax.concatenate(parts, axis)
    apart = [lax.expand_dims(part, [part.ndim]) for part in parts]
    return lax.squeeze(lax.concatenate(apart, axis), [parts[0].ndim])


def along(values: Any, axis: int, ndim: int) -> Any:
    """A vector, of NumPy or of jax, as an array of rank `ndim` that lies along `axis`."""
    return values.reshape([-1 if other == axis else 1 for other in range(ndim)])


def crossed(
    join: Callable[[Array, Array], Array], lines: Sequence[Any], axes: Sequence[int], ndim: int
) -> Array:
    """Vectors that lie along different axes, joined: by the program, as a constant would be as large as an image."""
    others = [[other for other in range(ndim) if other != axis] for axis in axes]
    spread = [lax.expand_dims(jnp.asarray(a), b) for a, b in zip(lines, others, strict=True)]
    return functools.reduce(join, spread)


def broadcast_like(value: Any, like: Array) -> Array:
    """What broadcasts to the shape of `like`, in that shape and sharded as its type says."""
    whole = jnp.broadcast_to(jnp.asarray(value), like.shape)
    given, wanted = jax.typeof(whole).sharding, jax.typeof(like).sharding
    known = any(given.spec) or any(wanted.spec)
    return reshard(whole, wanted) if known and given.spec != wanted.spec else whole


def holds_nothing(x: Array) -> bool:
    """Whether x has no element. Care is not needed then, and transposes by jax forget how x varies over devices."""
    return any(is_int(n) and n == 0 for n in x.shape)


def is_sharded(x: Array) -> bool:
    """Whether the type of x says that it is sharded; of a mesh whose axes XLA alone knows it does not."""
    return any(part for part in jax.typeof(x).sharding.spec)
