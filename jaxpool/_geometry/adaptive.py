"""The checked arguments of adaptive pooling: a fixed number of windows of almost equal length along an axis. No JAX."""

import math
import operator
from collections.abc import Sequence
from typing import Any

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import Axes, checked_tuple, is_int, normalise_axes, static_sizes
from jaxpool._geometry.window import (
    MAX_WINDOW_OVERHANG,
    AdaptiveAxis,
    AdaptiveWindow,
    check_int32_positions,
)

OutputSizes = int | Sequence[int | None]


def adaptive_window(
    shape: Sequence[int], output_shape: Any, axes: Axes, *, arg_name: str = "output_shape"
) -> AdaptiveWindow:
    """Check the arguments of an adaptive pool over an array of `shape` and return its windows."""
    rule = "an int, or a tuple with a positive int or None for each pooled axis"
    hint = "Pass a tuple such as (7, 7), or (7, None) to keep the size of the second axis."
    value, is_single_int = output_shape, is_int(output_shape)
    outs = [value] if is_single_int else checked_tuple("output_shape", value, rule, hint)
    if is_single_int and axes is None:
        more = "Pass axes=(1, 2), say."
        raise ArgumentError("axes", "given when `output_shape` is an int", None, more, TypeError)
    pooled_axes = normalise_axes(axes, len(shape), None if is_single_int else len(outs))
    outs = [value] * len(pooled_axes) if is_single_int else outs
    if not all(out is None or is_int(out) for out in outs):
        raise ArgumentError("output_shape", rule, value, hint, TypeError)
    if any(out is not None and operator.index(out) < 1 for out in outs):
        raise ArgumentError("output_shape", rule, value, hint)
    sizes = static_sizes(shape, pooled_axes)
    pairs = zip(sizes, outs, strict=True)
    out_sizes = [size if out is None else operator.index(out) for size, out in pairs]
    if math.prod(out_sizes) > math.prod(sizes) + 16 * MAX_WINDOW_OVERHANG:
        rule = f"at most {16 * MAX_WINDOW_OVERHANG} more windows than the input has positions"
        raise ArgumentError(arg_name, rule, value, "Ask for fewer windows.")
    for axis, size, out in zip(pooled_axes, sizes, out_sizes, strict=True):
        if out > size + MAX_WINDOW_OVERHANG:
            rule = f"at most {MAX_WINDOW_OVERHANG} more than the input, {size} along axis {axis}"
            raise ArgumentError(arg_name, rule, value, "Ask for fewer windows.")
    window = AdaptiveWindow(tuple(map(AdaptiveAxis, pooled_axes, sizes, out_sizes)))
    check_int32_positions(window, only_padded_axes=True)
    if window.size >= 2**32:
        rule = f"such that a window has fewer than 2**32 elements, here {window.size}"
        raise ArgumentError(arg_name, rule, value, "Ask for more windows.")
    return window
