"""What all windowed pools of shards share: their arguments, checked, and how a window is split into shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.choices import choice
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Axis, make_window
from jaxpool.sharded._halo import Halo, Shards
from jaxpool.sharded._place import Place, find_place


def checked(
    name: str,
    x: Any,
    mesh: Any,
    spec: Any,
    window_shape: Any,
    ties: Any = "first",
    autodiff: Any = "vjp",
    **geometry: Any,
) -> tuple[Array, Place, Shards]:
    """The input of a pool, where it lies, and its window; what is wrong raises in the name of `name`."""
    x = as_array(name, x)
    with calling(name, **{"x.shape": x.shape, "window_shape": window_shape}):
        place = find_place(x, mesh, spec)
        shape = place.whole(x.shape)
        window = make_window(shape, window_shape, **geometry)
        choice("ties", ties, ("first", "last", "split"))
        choice("autodiff", autodiff, ("vjp", "jvp"))
        check_even(place, shape, [axis for axis in range(x.ndim) if axis not in window.axes])
        halos = []
        for which, dim in enumerate(window.dims):
            count = place.count(dim.axis)
            if count == 1:
                continue
            if dim.size % count or dim.out % count:
                raise _uneven(shape, which, dim, count, window_shape, geometry)
            halos.append(Halo(dim, place.names[dim.axis], count))
    return x, place, Shards(window, tuple(halos))


def check_even(place: Place, shape: Sequence[Any], axes: Sequence[int]) -> None:
    """Raises unless each of `axes` splits into shards of one size."""
    for axis in axes:
        count = place.count(axis)
        if count > 1 and is_int(shape[axis]) and shape[axis] % count:
            rule = f"of a size along axis {axis} that its {count} shards divide"
            hint = f"Use {_either(_around(shape[axis], count, 1))} there."
            raise ArgumentError("x", rule, shape[axis], hint, of=f"shape[{axis}]")


def _around(size: int, count: int, steps: int) -> list[int]:
    """Multiples of `count` on both sides of `size`, the nearest first, `steps` at most on either side."""
    low = size // count * count
    found = {low - step * count for step in range(steps)}
    found |= {low + (step + 1) * count for step in range(steps)} | {size}
    return sorted((n for n in found if n > 0 and n % count == 0), key=lambda n: abs(n - size))


def _either(sizes: Sequence[int]) -> str:
    return " or ".join(map(str, sorted(sizes)))


def _uneven(
    shape: Sequence[int], which: int, dim: Axis, count: int, window_shape: Any, geometry: Any
) -> ArgumentError:
    """Why the shards of an axis are not of one size, and which sizes work."""
    works: list[int] = []
    for size in _around(dim.size, count, 4 * dim.stride):
        other = [*shape[: dim.axis], size, *shape[dim.axis + 1 :]]
        try:
            out = make_window(other, window_shape, **geometry).dims[which].out
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
        hint = f"Use {_either(works)} there."
    return ArgumentError("x", rule, dim.size, hint, of=f"shape[{dim.axis}]")
