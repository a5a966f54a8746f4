"""Splitting a pool of a sharded array into pools of its shards, and checks of sizes.

The windowed pools of `_api` and `compat` get a `Split` from `located`, `by_type` or `by_window`, and run it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jax import Array

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Axis, Window, make_window
from jaxpool._ops.apply import Autodiff
from jaxpool._shards.ends import Ends
from jaxpool._shards.halo import Halo, Shards
from jaxpool._shards.place import Place, on_shards, place_by_type, shard_axes

MakeWindow = Callable[[Sequence[Any]], Window]  # from the shape of an array to the window over it


@dataclasses.dataclass(frozen=True)
class Split:
    """A pool of a sharded array: the place of the array, and the windows over its shards."""

    place: Place
    shards: Shards

    def run(
        self, body: Callable[..., Any], x: Array, *settings: Any, autodiff: Autodiff = "jvp"
    ) -> Any:
        """Run `body(shards, *settings)` on each shard of x."""
        return on_shards(body(self.shards, *settings), self.place, x, autodiff=autodiff)

    def apply(
        self,
        pool: Callable[..., Any],
        op: Any,
        *xs: Array,
        autodiff: Autodiff = "jvp",
        masked: bool = False,
    ) -> Any:
        """Run `pool(op, *xs)` on each shard; all arrays broadcast against the first.

        If `masked`, the second array is the `where` mask of the first, and is extended by a halo too.
        """
        return on_shards(Ends(self.shards, pool, op, masked), self.place, *xs, autodiff=autodiff)

    def pooled(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The shape of the pooled array, for an input that has `shape` on this device."""
        sizes = {dim.axis: dim.out for dim in self.shards.window.dims}
        counts = [self.place.count(axis) if self.place.manual else 1 for axis in range(len(shape))]
        return tuple(sizes[a] // counts[a] if a in sizes else n for a, n in enumerate(shape))

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
    return Split(place, Shards(window, tuple(halos)))


def by_type(x: Array, make: MakeWindow) -> Split | None:
    """The split of a pool of x, or None if `place_by_type` finds no sharding."""
    return located(x, make)[1]


def located(x: Array, make: MakeWindow) -> tuple[Window, Split | None]:
    """The window over the global array, and the split of `by_type`."""
    place = place_by_type(x)
    shape = x.shape if place is None else place.whole(x.shape)
    window = make(shape)
    return window, None if place is None else split_pool(place, shape, make)


def by_window(x: Array, window: Window) -> Split | None:
    """The split of a pool of x over `window`, or None if its type is not sharded. Raises if `shard_axes` is set."""
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

    return by_type(x, make)


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
    place: Place, shape: Sequence[Any], axes: Sequence[int], argument: str = "x"
) -> None:
    """Raise unless each of `axes` splits into shards of equal size."""
    for axis in axes:
        count = place.count(axis)
        if count > 1 and shape[axis] % count != 0:
            rule = f"of a size along axis {axis} that its {count} shards divide"
            known = is_int(shape[axis])
            near = either(around(shape[axis], count, 1)) if known else f"a multiple of {count}"
            hint = f"Use {near} there."
            raise ArgumentError(argument, rule, shape[axis], hint, attribute=f"shape[{axis}]")


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
