"""Checks of the arguments of segment reductions, and the rows that the arguments describe."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._arguments.arrays import (
    ArrayArgument,
    MaskArgument,
    as_array,
    as_broadcast_mask,
    as_integer_array,
    checked_float,
    concrete_values,
    is_array,
)
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import Result, call_with_auto_sharding, check_unsharded
from jaxpool._arguments.sizes import check_bool, check_fits_int32_indices, checked_int, static_sizes
from jaxpool._kernels.dtypes import accumulator_dtype, as_float, full
from jaxpool._kernels.segments import Segments, clip_segment_ids


class SegmentRows(NamedTuple):
    """The segments of the rows of an array; `ids_and_mask` has the segment id of each row, and the mask, if any."""

    segments: Segments
    ids_and_mask: tuple[Array, ...]

    def reduce(self, function: Callable[..., Array], x: Array, empty_value: ArrayLike) -> Array:
        """`function(x, *ids_and_mask)`, with a row per segment, or `empty_value` if x has no rows."""
        if 0 in (self.segments.count, x.shape[0]):
            return full((self.segments.count, *x.shape[1:]), empty_value, x.dtype)
        return self.call(function, x)

    def call(self, function: Callable[..., Result], x: Array) -> Result:
        """`function(x, *ids_and_mask)`, whose results have the axes of x, but other numbers of rows."""
        return call_with_auto_sharding(function, (None, *range(1, x.ndim)), x, *self.ids_and_mask)


def checked_rows(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None,
    where: MaskArgument,
    indices_are_sorted: bool,
) -> tuple[Array, SegmentRows]:
    """x as an array, and the segments of its rows."""
    x = as_array(x)
    if x.ndim < 1:
        hint = "Its rows are joined."
        raise ArgumentError("x", "an array (N, ...)", x.ndim, hint, attribute="ndim")
    check_fits_int32_indices("x", static_sizes(x.shape, (0,), min_size=0))
    check_unsharded(x, 0, checks_types=False)
    check_bool("indices_are_sorted", indices_are_sorted)
    hint = "Pass the segment of each row of x as int32."
    ids = as_integer_array("segment_ids", segment_ids, x.shape[:1], None, hint)
    if num_segments is None:
        concrete_ids = concrete_values(segment_ids)
        if concrete_ids is None:
            rule = "given where ids are traced or on several processes"
            hint = "The largest id, which tells the number of segments, is not known here."
            raise ArgumentError("num_segments", rule, None, hint)
        num_segments = max(int(concrete_ids.max()) + 1, 0) if concrete_ids.size else 0
    rule, hint = "None or an int from 0 to 2**31 - 1", "Pass the number of outputs."
    count = checked_int("num_segments", num_segments, rule, hint, range(2**31), "Pass an int.")
    # Kernels drop int32 ids that are out of range, so int32 ids need no clipping, which would read all ids once more.
    int32_ids = ids if ids.dtype == np.int32 else clip_segment_ids(ids, count)
    output_shape = count, *x.shape[1:]
    mask = () if where is None else (as_broadcast_mask(where, x.shape, output_shape=output_shape),)
    return x, SegmentRows(Segments(count, indices_are_sorted), (int32_ids, *mask))


def checked_soft_rows(
    temperature: object, rescaling_hint: str, *arguments: Any
) -> tuple[Array, SegmentRows, tuple[Segments, float]]:
    """x as floats, its rows, and the segments and temperature of an op; `rescaling_hint` is for a temperature array."""
    rule = "a finite number above 0 in the range of float64"
    if is_array(temperature) and not isinstance(temperature, np.generic):
        raise ArgumentError(
            "temperature", rule, temperature, rescaling_hint, TypeError, must_be_static=False
        )
    divisor = checked_float(
        "temperature", temperature, rule, "Leave it out for 1.", lambda t: 0 < t < math.inf
    )
    x, rows = checked_rows(*arguments)
    float_x = as_float(x)
    # XLA turns a division by a constant into a product with its inverse, which must be a normal number too.
    info = jnp.finfo(accumulator_dtype(float_x.dtype))
    divisor = min(max(divisor, float(info.tiny)), float(info.max) / 4)
    return float_x, rows, (rows.segments, divisor)
