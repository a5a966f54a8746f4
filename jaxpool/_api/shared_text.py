"""What the docstrings of several functions have in common, filled in where these are defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_WINDOW = "  window_shape: one positive int per pooled axis; an int for all of `axes`."
_SIZES = """  strides: one positive int per pooled axis, or one for all; None is 1.
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
    "fractional": """Args:
  key: a PRNG key, as of `jax.random.key(0)`. The same key places the same windows.
  x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers or
    bool. Each axis that is not pooled has windows of its own.
  window_shape: one positive int per pooled axis, or one int for all of them.
  output_shape: a tuple with the number of windows along each pooled axis: a positive int of at
    most `size - window + 1`.
  axes: the pooled axes; None is the `len(output_shape)` axes before the last one.""",
    "boxes": """Args:
  x: array (B, H, W, C), or (H, W, C) of one image; floats, integers or bools. Channels come last.
    Features (B, C, H, W) are not recognised: C is taken for rows, and each column for a channel.
  boxes: array (B, K, 4), K boxes of each image, or (..., K, 4) of one image or with `batch_indices`,
    in pixels of the image before `spatial_scale`. A box with a NaN gives 0.
  output_shape: cells down and across a box, an int or two.
  batch_indices: integers of the shape (..., K): the image of each box. None is by the first axis of
    boxes, or one image. Where given, it alone counts: boxes (B, K, 4) have indices (B, K). A box
    whose traced index is out of range gives 0.
  spatial_scale: the positive number that boxes are multiplied with. Above 1, features are finer than
    the image that boxes are measured in; parts of a box beyond x are treated as outside the image.""",
    "segments": """Args:
  x: array (N, ...); floats, integers and bool, where max is "or" and min is "and".
  segment_ids: integers (N,). A row whose id is negative, or at least `num_segments`, is dropped.
  num_segments: how many segments there are; None is the largest id plus one, for which the ids must
    not be traced.
  indices_are_sorted: whether ids never fall along N, which saves a sort; where that is untrue the
    result is undefined.""",
    "row_mask": """  where: array of bools that broadcasts to x, the elements that count; None is all. What is left
    out is as a row of no segment.""",
    "row_ties": """  ties: which of equal rows gets the cotangent: "split" among all, the "first" or the "last".""",
    "run": """Args:
  x: array of at least one axis; floats, integers and bool, where max is "or" and min is "and".
  axis: the axis to run along, of known size (below 2**31 where indices are given); negative ones count from the end.
  reverse: whether to run from the end to the start.
  reset: array of bools that broadcasts to x, True at the first element of an episode, in reverse too: each
    episode has a run of its own. None is one episode.
  ties: which of equal elements gets the cotangent (and is named by indices), in the order of the axis, in
    reverse too: the "first" or the "last".
  autodiff: "vjp", or "jvp" for forward mode too.""",
    "not_split": """Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value; `ties="split"` is one.""",
    "wrong": """Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value.""",
}


def filled(function: F) -> F:
    """The function, the names in braces in its docstring replaced by the texts."""
    if function.__doc__:
        function.__doc__ = inspect.cleandoc(function.__doc__).format(**_TEXTS)
    return function
