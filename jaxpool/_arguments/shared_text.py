"""Texts that several public functions share in their docstrings, and the function that fills them in."""

import re

# Texts by placeholder. A text may contain placeholders.
_TEXT_OF_PLACEHOLDER = {
    "x": """Args:
  x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers""",
    "window": "  window_shape: one positive int per pooled axis, or a single int with `axes`.",
    "axes": "  axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.",
    "strides": """  strides: one positive int per pooled axis, or one int for all axes; None is 1.
  padding: as in `max_pool`.""",
    "dilation": "  window_dilation: distance between neighbouring window elements; None is 1.",
    "sizes": "{window}\n{strides}\n{axes}",
    "geometry": """{window}
{strides}
{dilation}
  ceil_mode: whether to round the output size up.
{axes}""",
    "kernel": """  kernel: array of shape `window_shape`, or `(*window_shape, C)` with an entry for each channel; floats
    if x has floats, integers if x has integers. Without `axes`, a kernel of `x.ndim - 1` axes has an entry for each
    channel, as for x with one batch axis.
{strides}
{axes} The last of the other axes is the channel axis.
{dilation}
{selection}""",
    "selection": """  ties: which of equal elements gets the cotangent: the "first", the "last", or all of them,
    equal parts ("split").
{autodiff}""",
    "autodiff": '  autodiff: "vjp", or "jvp" for forward mode too.',
    "result": """Returns:
  Array of the shape that `max_pool` returns; the dtype of x.

{errors}""",
    "float_result": """Returns:
  Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for integers and bool.

{errors}""",
    "errors": """Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.""",
    "fractional": """Args:
  key: a PRNG key such as `jax.random.key(0)`. The same key gives the same windows.
  x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats, integers or bool. Windows differ between
    the entries of axes that are not pooled.
  window_shape: one positive int per pooled axis, or one int for all of them.
  output_shape: a tuple with the number of windows along each pooled axis, positive ints of at most `size - window + 1`.
  axes: the pooled axes; None is the `len(output_shape)` axes before the last axis.

Returns:
  Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x""",
    "boxes": """Args:
  x: array of shape (B, H, W, C), or (H, W, C) for one image; floats, integers or bool. Channels come last. An array
    (B, C, H, W) is not recognised: its C would be pooled as rows.
  boxes: array of shape (B, K, 4), with K boxes for each image, or (..., K, 4) for one image or with `batch_indices`; in
    pixels of the image before `spatial_scale`. A box with a NaN gives 0.
  output_shape: the number of cells down and across a box, an int or two ints.
  batch_indices: integers of shape (..., K), the image of each box, also for boxes (B, K, 4). None takes the first axis
    of `boxes`, or the only image. A box whose traced index is out of range gives 0.
  spatial_scale: a positive number by which boxes are multiplied. Above 1, features are finer than the image in which
    boxes are measured. Parts of a box beyond x are outside the image.""",
    "operands": """Args:
  *xs: two or more JAX or NumPy arrays, or Python numbers; floats, integers or bool.
  ties: which of equal elements gets the cotangent: all of them ("split"), the "first" or the "last" argument.
{autodiff}

Returns:
  Array of the broadcast shape and of dtype `jnp.result_type(*xs)`, weakly typed if `jnp.maximum` is.

Raises:
  TypeError: fewer than two arrays, or an argument that is no array, such as a list or None.
{broadcast_error}""",
    "two_operands": """Args:
  x: JAX or NumPy array, or Python number; floats, integers or bool.
  y: as x; the shapes must broadcast.
  ties: which of two equal elements gets the cotangent: both, half each ("split"), x ("first") or y ("last").
{autodiff}

Returns:
  Array of the broadcast shape and of dtype `jnp.result_type(x, y)`, weakly typed if `jnp.maximum` is.

Raises:
  TypeError: an argument is of the wrong kind.
{broadcast_error}""",
    "broadcast_error": "  ValueError: the shapes do not broadcast, or `ties` or `autodiff` has a wrong value.",
    "reduced": """Args:
  x: array of any shape; floats, integers or bool (max is "or", min is "and").
  axis: an int, a tuple of distinct ints, or None for all axes; a negative axis counts from the end. Row-major order
    follows the order of `axis`. Reduced axes must have a known size.
  keepdims: whether reduced axes remain, with size 1.
  where: the elements to include, a boolean array that broadcasts to x. Needs `initial`.
  initial: a number or scalar array, cast to the dtype of x: a bound of the result. If `initial` lies beyond every
    element, `initial` gets the cotangent; in a tie the elements get all of the cotangent.
  ties: which of equal elements gets the cotangent: all of them ("split"), the "first" or the "last".
{autodiff}

Returns:
  Array of the shape of x without the reduced axes, or with size 1 for each; the dtype of x.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value, or `initial` is missing with `where` or an empty axis.""",
    "whole": """Args:
  x: array of shape `(B, *spatial, C)`, or of any shape with `axes`; floats, integers or bool. Pooled axes have a known
    size of at least 1.
  axes: the pooled axes; None is all except the first and the last. Row-major order follows `axes`.
  keepdims: whether pooled axes remain, with size 1.""",
    "segments": """Args:
  x: array of shape (N, ...); floats, integers, or bool except in `segment_sum`.
  segment_ids: integers of shape (N,). A row whose id is negative, or at least `num_segments`, is dropped.
  num_segments: the number of segments. None is the largest id plus one, for ids that are not traced and whose values
    this process has.
  indices_are_sorted: True promises that ids never decrease along N, which saves a sort. Otherwise y is undefined.
  where: the elements to include, a boolean array that broadcasts to x; None is all. Others are in no segment.""",
    "row_ties": '  ties: which of equal rows gets the cotangent: all of them ("split"), the "first" or the "last".',
    "row_result": """Returns:
  Array of shape (num_segments, ...); the dtype of x.

{wrong}""",
    "float_row_result": """Returns:
  Array of shape (num_segments, ...); the dtype of x, or of `jnp.mean(x)` for integers and bool.

{wrong}""",
    "run": """Args:
  x: array of at least one axis; floats, integers or bool (max is "or", min is "and").
  axis: the axis to run along, of known size below 2**31; a negative axis counts from the end.
  reverse: whether to run from the end to the start.
  reset: boolean array that broadcasts to x: True at the first element of each episode, also in reverse. The run starts
    anew in each episode. None is a single episode.
  ties: which of equal elements gets the cotangent, and the index if it is returned: the "first" or the "last" in the
    order of the axis, also in reverse.
{autodiff}""",
    "run_result": """{run}

Returns:
  Array of the shape and dtype of x.

{wrong}""",
    "run_with_index": """{run}

Returns:
  y, an array of the shape and dtype of x, and `indices`, an int32 array of the same shape: positions along the axis.

{wrong}""",
    "empty": """Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value, or a pooled axis has no elements.""",
    "wrong": """Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value.""",
}


def fill_shared_texts(docstring: str) -> str:
    """`docstring` with each name in braces that has a shared text replaced by this text."""

    def shared_text(match: re.Match[str]) -> str:
        text = _TEXT_OF_PLACEHOLDER.get(match[1])
        return match[0] if text is None else fill_shared_texts(text)

    return re.sub(r"\{(\w+)\}", shared_text, docstring)
