"""What all windowed pools of shards share: their arguments, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.choices import choice
from jaxpool._arguments.errors import calling
from jaxpool._geometry.window import Window, make_window
from jaxpool._shards.place import find_place
from jaxpool._shards.split import Split, split_pool


def checked(
    name: str,
    x: Any,
    mesh: Any,
    spec: Any,
    window_shape: Any,
    ties: Any = "first",
    autodiff: Any = "vjp",
    **geometry: Any,
) -> tuple[Array, Split]:
    """The input of a pool and how it is split; what is wrong raises in the name of `name`."""
    x = as_array(name, x)
    with calling(name, **{"x.shape": x.shape, "window_shape": window_shape}):
        place = find_place(x, mesh, spec)

        def make(shape: Sequence[Any]) -> Window:
            return make_window(shape, window_shape, **geometry)

        make(place.whole(x.shape))
        choice("ties", ties, ("first", "last", "split"))
        choice("autodiff", autodiff, ("vjp", "jvp"))
        return x, split_pool(place, place.whole(x.shape), make)
