"""What unpooling chooses: windows of their own for elements that a pool found, or a scatter."""

from __future__ import annotations

from collections.abc import Sequence

from jaxpool._geometry.window import Axis, Window
from jaxpool._plan.problem import Platform
from jaxpool._plan.tuning import TUNING


def own_windows(
    shape: Sequence[int | None],
    axes: Sequence[int],
    sizes: Sequence[int],
    platform: Platform,
    sharded: bool,
) -> Window | None:
    """Windows that do not meet, one an element of `shape`, as large as `sizes` along `axes` allow; None: scatter.

    What is sharded as its type says cannot be made flat.
    """
    dims = []
    for axis, size in zip(axes, sizes, strict=True):
        out = shape[axis]
        if sharded or None in shape or not out or out > size:
            return None
        dims.append(Axis(axis, size, size // out, size // out, 1, 0, 0, out))
    window = Window(tuple(dims))
    return window if window.size <= TUNING[platform].unpool_taps else None


def why(window: Window | None) -> str:
    """The choice in words."""
    if window is None:
        return "the number of the last element that wants a position is scattered"
    return f"dense if all indices lie in windows of {window.window_shape}, tested where the program runs"
