"""The windows of a pool and the sharding of its array: a `Split`, and checks of sizes.

The windowed pools of `_api` and `compat` get a `Split` from `split_by_type` or `by_window`, and run it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jax import Array

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Axis, Window, make_window
from jaxpool._shards.extended import pool_extended
from jaxpool._shards.halo import Halo, Shards
from jaxpool._shards.place import Place, on_shards, place_by_type, shard_axes

R = TypeVar("R")  # an array or a tuple of arrays
MakeWindow = Callable[[Sequence[Any]], Window]  # from the shape of an array to the window over it


@dataclasses.dataclass(frozen=True)
class Split:
    """A pool: its windows over the shards of an array, and the `place` of the array; None on one device."""

    shards: Shards
    place: Place | None

    @property
    def window(self) -> Window:
        """The window over the global array."""
        return self.shards.window

    def run(self, body: Callable[..., R], x: Array, *settings: Any, **mode: Any) -> R:
        """`body(shards, *settings, x)` of x or of each shard of x; `mode` may set `autodiff`."""
        if self.place is None:
            return body(self.shards, *settings, x, **mode)
        return on_shards(body, self.place, x, settings=(self.shards, *settings), **mode)

    def apply(
        self,
        pool: Callable[..., Array],
        op: Any,
        x: Array,
        *operands: Array,
        mask: Array | None = None,
        **mode: Any,
    ) -> Array:
        """`pool(op, x, *operands)` of x or of each shard of x; a `where` mask of x follows x.

        All arrays broadcast against x. `mode` may set `autodiff`.
        """
        xs = (x, *operands) if mask is None else (x, mask, *operands)
        if self.place is None:
            return pool(op, *xs, **mode)
        settings = self.shards, pool, op, mask is not None
        return on_shards(pool_extended, self.place, *xs, settings=settings, **mode)

    def pooled(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The shape of the pooled array, for an input that has `shape` on this device."""
        manual = self.place is not None and self.place.manual
        return (self.shards.extended if manual else self.window).pooled(shape)

    def check_reflected(self, argument: str = "x") -> None:
        """Raise unless each shard and its halo hold the rows that reflection reads at the ends of the array."""
        for halo in self.shards.halos:
            if any(max(ends) >= halo.length - sum(ends) for ends in halo.beyond if any(ends)):
                axis, size = halo.dim.axis, halo.dim.size
                rule = f"of more rows in each of its {halo.count} shards along axis {axis}, where it is reflected"
                hint = "Use fewer devices there."
                raise ArgumentError(argument, rule, size, hint, attribute=f"shape[{axis}]")


def split_pool(place: Place, shape: Sequence[Any], make: MakeWindow) -> Split:
    """The split of a pool of a global array. Raises `ArgumentError` if shards would differ in size."""
    window, halos = make(shape), []
    for which, dim in enumerate(window.dims):
        count = place.count(dim.axis)
        if count == 1:
            continue
        if dim.size % count or dim.out % count:
            raise _uneven(shape, which, dim, count, make)
        halos.append(Halo(dim, place.names[dim.axis], count))
    return Split(Shards(window, tuple(halos)), place)


def split_by_type(x: Array, make: MakeWindow) -> Split:
    """The split of a pool of x by `place_by_type`."""
    place = place_by_type(x)
    if place is None:
        return Split(Shards(make(x.shape), ()), None)
    return split_pool(place, place.global_shape(x.shape), make)


def by_window(x: Array, window: Window) -> Split:
    """The split of a pool of x over `window`. Raises if `shard_axes` is set."""
    if shard_axes.value is not None:
        hint = "Pass a function of jaxpool itself."
        raise ArgumentError(
            "x",
            "whole: inside a shard_map its window is not known",
            x.shape,
            hint,
            attribute="shape",
        )

    def make(shape: Sequence[Any]) -> Window:
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

    return split_by_type(x, make)


def check_whole(x: Array, *axes: int, by_type: bool = True, argument: str = "x") -> None:
    """Raise if one of `axes` is sharded; without `by_type` only inside a `shard_map`, where XLA adds no collectives."""
    place = place_by_type(x)
    if place is None or not (place.manual or by_type):
        return
    for axis in axes:
        if place.count(axis) > 1:
            rule = f"whole along axis {axis}, not in {place.count(axis)} shards"
            hint = (
                f"Give a spec that has None for axis {axis}, to jax.reshard or to jaxpool.sharded."
            )
            if place.manual:
                names = place.names[axis]
                hint = f"Call jax.lax.all_gather(x, {names}, axis={axis}, tiled=True) before it."
            raise ArgumentError(
                argument, rule, place.spec, hint, shown_value=f"a spec of {place.spec}"
            )


def check_even(
    place: Place, axis: int, size: Any, argument: str, value: Any, more: str = "", of: str = ""
) -> None:
    """Raise an error about `argument` unless `size`, along an axis, splits into shards of equal size."""
    count = place.count(axis)
    if count > 1 and size % count != 0:
        rule = f"of a size along axis {axis} that its {count} shards divide{more}"
        near = either(around(size, count, 1)) if is_int(size) else f"a multiple of {count}"
        raise ArgumentError(argument, rule, value, f"Use {near} there.", attribute=of)


def around(size: int, count: int, steps: int) -> list[int]:
    """Positive multiples of `count` around `size`, nearest first, at most `steps` on either side."""
    low = size // count * count
    sizes = {low - step * count for step in range(steps)}
    sizes |= {low + (step + 1) * count for step in range(steps)} | {size}
    return sorted((n for n in sizes if n > 0 and n % count == 0), key=lambda n: abs(n - size))


def either(sizes: Sequence[int]) -> str:
    """Sizes in ascending order, joined by "or" for a hint."""
    return " or ".join(map(str, sorted(sizes)))


def _uneven(
    shape: Sequence[int], which: int, dim: Axis, count: int, make: MakeWindow
) -> ArgumentError:
    """The error for an axis whose shards would differ in size, with the nearest sizes that work."""
    works: list[int] = []
    for size in around(dim.size, count, 4 * dim.stride):
        other = [*shape[: dim.axis], size, *shape[dim.axis + 1 :]]
        try:
            out = make(other).dims[which].out
        except ArgumentError:
            continue
        side = [n for n in works if (n < dim.size) == (size < dim.size)]
        if out % count == 0 and not side:
            works.append(size)
    rule = (
        f"of a size along axis {dim.axis} that its {count} shards divide, "
        f"as they must the {dim.out} of the output"
    )
    hint = 'With this window, stride and padding no size near it works: pad by "SAME", '
    hint += f"and use one that {count * dim.stride} divides."
    if works:
        hint = f"Use {either(works)} there."
    return ArgumentError("x", rule, dim.size, hint, attribute=f"shape[{dim.axis}]")
