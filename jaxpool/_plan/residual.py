"""What a max or min pool keeps for its derivative: it depends on the window and on ties, not on the platform."""

from __future__ import annotations

from typing import Literal

from jaxpool._geometry.window import Window
from jaxpool._plan.tuning import LIMITS

Residual = Literal["rank", "tap", "bits", "arrays"]


def residual(window: Window, *, split: bool) -> Residual:
    """What is kept of a pool over `window`, where ties are `split` or go to one element.

    "rank": of the chosen element, or with split ties a bit an element, of windows as large as their
    axes, which are reduced. "tap": the chosen one, an integer an output. "bits": a bit a tap, set
    where it ties. "arrays": x and y, which are less than many bits.
    """
    if window.size > LIMITS.whole_taps and all(dim.whole for dim in window.dims):
        return "rank"
    if not split:
        return "tap"
    return "bits" if window.size <= LIMITS.masked_taps else "arrays"
