"""Splits an array into shards: `on_shards` runs a function on them, `split_windows` distributes the windows of a pool.

`on_shards` makes a new `jax.shard_map`, or calls the function directly if the call is already inside a `shard_map`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
from jax import Array, lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, reshard

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import (
    ArraySharding,
    axes_of_type,
    join_or,
    keep_axes,
    multiples_near,
    sharding_from_type,
)
from jaxpool._arguments.sizes import Shape
from jaxpool._geometry.window import Axis, Window, make_window
from jaxpool._ops.apply import Autodiff, call_in_reverse_mode
from jaxpool._shards.halo import Halo, ShardedWindows

R = TypeVar("R")  # an array or a tuple of arrays


def all_gather_axes(sharding: ArraySharding, x: Array, axes: Sequence[int]) -> Array:
    """x, whose sharding is `sharding`, all-gathered along `axes`."""
    axes = [axis for axis in axes if sharding.mesh_axes[axis]]
    if axes and not sharding.is_manual:
        spec = sharding.replicate_axes(axes).spec
        return reshard(x, NamedSharding(jax.typeof(x).sharding.mesh, spec))
    for axis in axes:
        names = sharding.mesh_axes[axis]
        x = lax.all_gather(x, names, axis=axis, tiled=True, to="invarying")
    return x


def drop_unit_axes(sharding: ArraySharding | None, x: Array, axes: Sequence[int]) -> Array:
    """x without mesh axes of size 1 along `axes` in its type, which ops would treat as sharded axes."""
    if sharding is None or sharding.is_manual:
        return x
    return all_gather_axes(sharding, x, [axis for axis in axes if sharding.num_shards(axis) == 1])


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _shard_map(
    body: Callable[..., R],
    settings: tuple[object, ...],
    sharding: ArraySharding,
    out_spec: PartitionSpec,
    *xs: Array,
) -> R:
    shardings = [sharding.operand_sharding(x.shape) for x in xs]
    mapped_body: Callable[..., R] = jax.shard_map(
        functools.partial(body, *settings),
        mesh=sharding.mesh,
        in_specs=tuple(each.spec for each in shardings),
        out_specs=out_spec,
        axis_names=sharding.mapped_axes,
    )
    return mapped_body(*map(_reshard_explicit, xs, shardings))


def _reshard_explicit(x: Array, sharding: ArraySharding) -> Array:
    """x resharded along the explicit mesh axes of `sharding`, or x itself if its type already has this sharding."""
    explicit, type_sharding = axes_of_type(sharding.mesh, AxisType.Explicit), jax.typeof(x).sharding
    spec = PartitionSpec(*[entry or None for entry in keep_axes(explicit, sharding.mesh_axes)])
    if not explicit or (not type_sharding.mesh.empty and type_sharding.spec == spec):
        return x
    return reshard(x, NamedSharding(sharding.mesh, spec))


def on_shards(
    body: Callable[..., R],
    sharding: ArraySharding,
    *xs: Array,
    settings: tuple[object, ...] = (),
    out_spec: PartitionSpec | None = None,
    autodiff: Autodiff | None = None,
) -> R:
    """Call `body(*settings, *xs)` on the shards of `xs`, which `sharding.operand_sharding` describes.

    Results are sharded by `out_spec`, by default `sharding.spec`. Calls with equal `settings` are traced once.
    """
    out_spec = sharding.spec if out_spec is None else out_spec
    shard_body: Callable[..., R] = functools.partial(body, *settings)
    if not sharding.is_manual:
        shard_body = functools.partial(_shard_map, body, settings, sharding, out_spec)
    result: R = call_in_reverse_mode(shard_body, *xs) if autodiff == "vjp" else shard_body(*xs)
    return result


def run_on_shards(
    body: Callable[..., R],
    windows: ShardedWindows,
    x: Array,
    *settings: object,
    autodiff: Autodiff | None = None,
) -> R:
    """Call `body(windows, *settings, x)` on each shard of x."""
    return on_shards(body, windows.sharding, x, settings=(windows, *settings), autodiff=autodiff)


# A function from the shape of an array to the `Window` over the array
WindowOver = Callable[[Shape], Window]


def split_windows(sharding: ArraySharding, shape: Shape, window_over: WindowOver) -> ShardedWindows:
    """The windows of a pool over the shards of an array; `shape` is the shape of a shard inside a `shard_map`.

    Raises `ArgumentError` if shards would differ in size.
    """
    shape = sharding.global_shape(shape)
    window, halos = window_over(shape), []
    for dim_index, dim in enumerate(window.dims):
        num_shards = sharding.num_shards(dim.axis)
        if dim.size % num_shards or dim.out % num_shards:
            raise _uneven_shards_error(shape, dim_index, dim, num_shards, window_over)
        if num_shards > 1:
            halos.append(Halo(dim, sharding.mesh_axes[dim.axis], num_shards))
    return ShardedWindows(window, tuple(halos), sharding)


def sharded_windows(x: Array, window: Window) -> ShardedWindows | None:
    """The windows of a pool over the shards of x; None if the type of x has no sharding.

    Inside a `shard_map` for which `jaxpool.sharded` set the sharding, `window` is over one shard: the result is None if
    no axis of the window is sharded, and otherwise this raises.
    """
    sharding = sharding_from_type(x)
    if sharding is None:
        return None
    if sharding.is_manual:
        if all(sharding.num_shards(axis) == 1 for axis in window.axes):
            return None
        rule = "whole: inside a shard_map its window is not known"
        hint = "Pass a function of jaxpool itself."
        raise ArgumentError("x", rule, x.shape, hint, attribute="shape")

    def window_over(shape: Shape) -> Window:
        if [shape[axis] for axis in window.axes] == list(window.input_shape):
            return window
        return make_window(
            shape,
            window.window_shape,
            [dim.stride for dim in window.dims],
            [(dim.low, dim.high) for dim in window.dims],
            [dim.dilation for dim in window.dims],
            axes=window.axes,
        )

    return split_windows(sharding, x.shape, window_over)


def _uneven_shards_error(
    shape: Sequence[int], dim_index: int, dim: Axis, num_shards: int, window_over: WindowOver
) -> ArgumentError:
    """The error for an axis whose shards would differ in size; the message suggests the nearest valid sizes."""
    valid_sizes: list[int] = []
    for size in multiples_near(dim.size, num_shards, 4 * dim.stride):
        new_shape = [*shape[: dim.axis], size, *shape[dim.axis + 1 :]]
        try:
            out = window_over(new_shape).dims[dim_index].out
        except ArgumentError:
            continue
        same_side = [n for n in valid_sizes if (n < dim.size) == (size < dim.size)]
        if out % num_shards == 0 and not same_side:
            valid_sizes.append(size)
    rule = f"of a size along axis {dim.axis} that its {num_shards} shards divide, "
    rule += f"as they must the {dim.out} of the output"
    hint = 'With this window, stride and padding no size near it works: pad by "SAME", '
    hint += f"and use one that {num_shards * dim.stride} divides."
    if valid_sizes:
        hint = f"Use {join_or(valid_sizes)} there."
    return ArgumentError("x", rule, dim.size, hint, attribute=f"shape[{dim.axis}]")
