"""`ShardedPool`, the windows of a pool and the sharding of the pooled array, and checks of shard sizes.

Windowed pools of `_api` and `compat` create a `ShardedPool` by `shard_pool_by_type` or `shard_pool_by_window`, and call
its `run` or `apply` method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jax import Array

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Axis, Window, make_window
from jaxpool._shards.extended import pool_with_halo
from jaxpool._shards.halo import Halo, ShardGeometry
from jaxpool._shards.place import ArraySharding, context_axes, on_shards, sharding_from_type

R = TypeVar("R")  # an array or a tuple of arrays
# A function from the shape of an array to the `Window` over the array
WindowFn = Callable[[Sequence[Any]], Window]


@dataclasses.dataclass(frozen=True)
class ShardedPool:
    """The windows of a pool over the shards of an array, and the array's sharding; None if it is not sharded."""

    geometry: ShardGeometry
    sharding: ArraySharding | None

    @property
    def window(self) -> Window:
        """The `Window` over the global array."""
        return self.geometry.window

    def run(self, body: Callable[..., R], x: Array, *settings: Any, **kwargs: Any) -> R:
        """Call `body(geometry, *settings, x)` on x, or on each shard of a sharded x; `kwargs` may set `autodiff`."""
        if self.sharding is None:
            return body(self.geometry, *settings, x, **kwargs)
        return on_shards(body, self.sharding, x, settings=(self.geometry, *settings), **kwargs)

    def apply(
        self,
        pool: Callable[..., Array],
        op: Any,
        x: Array,
        *operands: Array,
        mask: Array | None = None,
        **kwargs: Any,
    ) -> Array:
        """Call `pool(op, x, *operands)`, or `pool(op, x, mask, *operands)`, on x or on each shard of a sharded x.

        All arrays must broadcast against x; `mask` is a `where` mask. `kwargs` may set `autodiff`.
        """
        xs = (x, *operands) if mask is None else (x, mask, *operands)
        if self.sharding is None:
            return pool(op, *xs, **kwargs)
        settings = self.geometry, pool, op, mask is not None
        return on_shards(pool_with_halo, self.sharding, *xs, settings=settings, **kwargs)

    def pooled_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The output shape of the pool for an input of `shape`, which is a shard's shape inside a `shard_map`."""
        is_manual = self.sharding is not None and self.sharding.is_manual
        return (self.geometry.extended_window if is_manual else self.window).pooled_shape(shape)

    def check_reflection(self, arg_name: str = "x") -> None:
        """Raise unless each shard with its halo contains all rows that reflection padding reads at the array's ends."""
        for halo in self.geometry.halos:
            if any(max(ends) >= halo.num_rows - sum(ends) for ends in halo.pad_rows if any(ends)):
                axis, size = halo.dim.axis, halo.dim.size
                rule = f"of more rows in each of its {halo.num_shards} shards along axis {axis}, "
                rule += "where it is reflected"
                hint = "Use fewer devices there."
                raise ArgumentError(arg_name, rule, size, hint, attribute=f"shape[{axis}]")


def shard_pool(sharding: ArraySharding, shape: Sequence[Any], window_fn: WindowFn) -> ShardedPool:
    """The `ShardedPool` for a global array of `shape`. Raises `ArgumentError` if shards would differ in size."""
    window, halos = window_fn(shape), []
    for dim_index, dim in enumerate(window.dims):
        num_shards = sharding.num_shards(dim.axis)
        if num_shards == 1:
            continue
        if dim.size % num_shards or dim.out % num_shards:
            raise _uneven_shards_error(shape, dim_index, dim, num_shards, window_fn)
        halos.append(Halo(dim, sharding.mesh_axes[dim.axis], num_shards))
    return ShardedPool(ShardGeometry(window, tuple(halos)), sharding)


def shard_pool_by_type(x: Array, window_fn: WindowFn) -> ShardedPool:
    """The `ShardedPool` for x, with the sharding that `sharding_from_type` finds."""
    sharding = sharding_from_type(x)
    if sharding is None:
        return ShardedPool(ShardGeometry(window_fn(x.shape), ()), None)
    return shard_pool(sharding, sharding.global_shape(x.shape), window_fn)


def shard_pool_by_window(x: Array, window: Window) -> ShardedPool:
    """The `ShardedPool` for x and `window`. Raises inside a `shard_map` if `jaxpool.sharded` set `context_axes`."""
    if context_axes.value is not None:
        hint = "Pass a function of jaxpool itself."
        raise ArgumentError(
            "x",
            "whole: inside a shard_map its window is not known",
            x.shape,
            hint,
            attribute="shape",
        )

    def window_fn(shape: Sequence[Any]) -> Window:
        if [shape[axis] for axis in window.axes] == list(window.input_shape):
            return window
        return make_window(
            shape,
            window.window_shape,
            [dim.stride for dim in window.dims],
            [(dim.low, dim.high) for dim in window.dims],
            window_dilation=[dim.dilation for dim in window.dims],
            axes=window.axes,
        )

    return shard_pool_by_type(x, window_fn)


def check_unsharded(x: Array, *axes: int, checks_types: bool = True, arg_name: str = "x") -> None:
    """Raise if one of `axes` is sharded; without `checks_types`, only in a `shard_map`, which adds no collectives."""
    sharding = sharding_from_type(x)
    if sharding is None or not (sharding.is_manual or checks_types):
        return
    for axis in axes:
        if sharding.num_shards(axis) > 1:
            rule = f"whole along axis {axis}, not in {sharding.num_shards(axis)} shards"
            hint = (
                f"Give a spec that has None for axis {axis}, to jax.reshard or to jaxpool.sharded."
            )
            if sharding.is_manual:
                names = sharding.mesh_axes[axis]
                hint = f"Call jax.lax.all_gather(x, {names}, axis={axis}, tiled=True) before it."
            raise ArgumentError(
                arg_name, rule, sharding.spec, hint, shown_value=f"a spec of {sharding.spec}"
            )


def check_divisible(
    sharding: ArraySharding,
    axis: int,
    size: Any,
    arg_name: str,
    value: Any,
    suffix: str = "",
    attr: str = "",
) -> None:
    """Raise an error about `arg_name` unless the shards along `axis` divide `size` evenly."""
    count = sharding.num_shards(axis)
    if count > 1 and size % count != 0:
        rule = f"of a size along axis {axis} that its {count} shards divide{suffix}"
        hint = join_or(multiples_near(size, count, 1)) if is_int(size) else f"a multiple of {count}"
        raise ArgumentError(arg_name, rule, value, f"Use {hint} there.", attribute=attr)


def multiples_near(size: int, divisor: int, num_steps: int) -> list[int]:
    """Positive multiples of `divisor` around `size`, nearest first, at most `num_steps` on either side."""
    low = size // divisor * divisor
    sizes = {low - step * divisor for step in range(num_steps)}
    sizes |= {low + (step + 1) * divisor for step in range(num_steps)} | {size}
    return sorted((n for n in sizes if n > 0 and n % divisor == 0), key=lambda n: abs(n - size))


def join_or(sizes: Sequence[int]) -> str:
    """The sizes in ascending order, joined by "or", as text for an error message."""
    return " or ".join(map(str, sorted(sizes)))


def _uneven_shards_error(
    shape: Sequence[int], dim_index: int, dim: Axis, num_shards: int, window_fn: WindowFn
) -> ArgumentError:
    """The error for an axis whose shards would differ in size; the message suggests the nearest valid sizes."""
    valid_sizes: list[int] = []
    for size in multiples_near(dim.size, num_shards, 4 * dim.stride):
        new_shape = [*shape[: dim.axis], size, *shape[dim.axis + 1 :]]
        try:
            out = window_fn(new_shape).dims[dim_index].out
        except ArgumentError:
            continue
        same_side = [n for n in valid_sizes if (n < dim.size) == (size < dim.size)]
        if out % num_shards == 0 and not same_side:
            valid_sizes.append(size)
    rule = (
        f"of a size along axis {dim.axis} that its {num_shards} shards divide, "
        f"as they must the {dim.out} of the output"
    )
    hint = 'With this window, stride and padding no size near it works: pad by "SAME", '
    hint += f"and use one that {num_shards * dim.stride} divides."
    if valid_sizes:
        hint = f"Use {join_or(valid_sizes)} there."
    return ArgumentError("x", rule, dim.size, hint, attribute=f"shape[{dim.axis}]")
