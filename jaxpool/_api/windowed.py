"""What all windowed pools share: their arguments, checked, on one device and on several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array

from jaxpool._arguments.arrays import as_array
from jaxpool._arguments.choices import choice
from jaxpool._arguments.errors import calling
from jaxpool._geometry.window import Window, make_window
from jaxpool._shards.split import Split, located


def checked(
    name: str,
    x: Any,
    window_shape: Any,
    ties: Any = "first",
    autodiff: Any = "vjp",
    **geometry: Any,
) -> tuple[Array, Window, Split | None]:
    """The input of a pool, the window over all of it, and how it is split, if its type says that it is.

    What is wrong raises in the name of `name`.
    """
    x = as_array(name, x)
    with calling(name, **{"x.shape": x.shape, "window_shape": window_shape}):

        def make(shape: Sequence[Any]) -> Window:
            return make_window(shape, window_shape, **geometry)

        choice("ties", ties, ("first", "last", "split"))
        choice("autodiff", autodiff, ("vjp", "jvp"))
        window, split = located(x, make)
        return x, window, split
