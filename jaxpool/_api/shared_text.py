"""What the docstrings of several windowed pools have in common, filled in where these are defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_WINDOW = "  window_shape: one positive int a pooled axis; an int for all of `axes`."
_SIZES = """  strides: one positive int a pooled axis, or one for all; None is 1.
  padding: as in `max_pool`.
  axes: the pooled axes; None is the `len(window_shape)` axes before the last one."""
_TEXTS = {
    "x": """Args:
  x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or bool.""",
    "window": _WINDOW,
    "strides": _SIZES,
    "sizes": f"{_WINDOW}\n{_SIZES}",
    "kernel": f"""  kernel: array of shape `window_shape`, or `(*window_shape, C)` with one for each channel; floats
    for floats, integers for integers. Without `axes`, x has one batch axis, and a kernel of one axis
    less than x is one for each channel.
{_SIZES} Channels are the last of the others.""",
    "choice": """  window_dilation: distance between neighbouring taps; None is 1.
  ties: which of equal elements gets the cotangent: "first", "last" or "split".
  autodiff: "vjp", or "jvp" for forward mode too.""",
    "result": """Returns:
  Array of the shape that `max_pool` gives; the dtype of x.""",
    "errors": """Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value, an output axis would be empty, or a window would hold
    nothing but padding.""",
}


def filled(function: F) -> F:
    """The function, the names in braces in its docstring replaced by the texts."""
    if function.__doc__:
        function.__doc__ = inspect.cleandoc(function.__doc__).format(**_TEXTS)
    return function
