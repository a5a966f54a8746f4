"""What adaptive pools choose: a grid on which windows lie side by side where they are not of one length, or long."""

from __future__ import annotations

from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Window
from jaxpool._plan.tuning import LIMITS


def needs_no_grid(window: Window) -> bool:
    """Whether the windows are those of an ordinary pool, and short enough to take tap by tap."""
    ragged = any(isinstance(dim, RaggedAxis) for dim in window.dims)
    return not ragged and max(window.window_shape) <= LIMITS.adaptive_window


def one_by_one(places: int) -> bool:
    """Whether the places at which an element lies on the grid are read one by one, or summed as a block."""
    return places <= LIMITS.adaptive_places


def why(window: Window) -> tuple[str, ...]:
    """The choice in words."""
    if needs_no_grid(window):
        return ()
    shape = " x ".join(str(dim.out * dim.window) for dim in window.dims)
    return (f"windows laid side by side on a grid of {shape}, and reduced as blocks",)
