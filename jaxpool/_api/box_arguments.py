"""Checks of the arguments of pools over boxes of images."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from jax import Array, lax

from jaxpool._arguments.arrays import (
    ArrayArgument,
    as_array,
    as_integer_array,
    checked_float,
    replicated,
)
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import check_unsharded
from jaxpool._arguments.sizes import check_fits_int32_indices, ints_per_axis, is_int, static_sizes
from jaxpool._kernels.dtypes import full
from jaxpool._kernels.segments import clip_segment_ids


def as_boxes(boxes: ArrayArgument, arg_name: str = "boxes") -> Array:
    """`boxes` as an array without explicit mesh axes: for sharded boxes, XLA gathers many larger arrays instead."""
    return replicated(as_array(boxes, arg_name))


def check_images_and_boxes(
    named_xs: Mapping[str, Array], boxes: Array, batch_indices: ArrayArgument | None
) -> tuple[list[Array], Array, Array]:
    """Return the images as arrays (B, H, W, C), the boxes as an array (n, 4), and the image index of each box.

    The keys of `named_xs` are names for errors, such as "features[0]".
    """
    xs = list(named_xs.values())
    if boxes.ndim < 2 or boxes.shape[-1] != 4:
        rule = "an array (..., K, 4) of (y0, x0, y1, x1)"
        hints = {4: "One box is boxes[None].", 5: "Images go into batch_indices."}
        last_size = boxes.shape[-1] if boxes.ndim else 0
        hint = hints.get(last_size, "The last axis has the four numbers of a box.")
        raise ArgumentError("boxes", rule, boxes.shape, hint, attribute="shape")
    if not all(map(is_int, boxes.shape)):
        hint = "Only channels may be symbolic."
        raise ArgumentError("boxes", "of known sizes", boxes.shape, hint, attribute="shape")
    ndim = 3 if batch_indices is None and xs[0].ndim == 3 else 4
    for arg_name, x in named_xs.items():
        if x.ndim != ndim:
            rule = "(B, H, W, C), or (H, W, C) without batch_indices"
            if xs[0].ndim == ndim:
                rule = f"of {ndim} axes, as {next(iter(named_xs))} is"
            raise ArgumentError(arg_name, rule, x.shape, "One image is x[None].", attribute="shape")
        if not all(map(is_int, x.shape[:-1])):
            rule, hint = "of known sizes but for C", "Channels may be symbolic."
            raise ArgumentError(arg_name, rule, x.shape, hint, attribute="shape")
        static_sizes(x.shape, (ndim - 3, ndim - 2), arg_name=arg_name)
        for size in filter(is_int, x.shape):
            check_fits_int32_indices(arg_name, (size,))
        check_unsharded(x, *range(ndim - 1), checks_types=False, arg_name=arg_name)
    flat_boxes = boxes.reshape(-1, 4)
    if ndim == 3:
        return [x[None] for x in xs], flat_boxes, full(flat_boxes.shape[:1], 0, np.int32)
    num_images = xs[0].shape[0]
    if batch_indices is not None:
        hint = "Pass the image of each box as int32."
        shape = boxes.shape[:-1]
        images = as_integer_array("batch_indices", batch_indices, shape, num_images, hint)
        return xs, flat_boxes, clip_segment_ids(replicated(images).reshape(-1), num_images)
    if boxes.ndim != 3 or boxes.shape[0] != num_images:
        rule = f"({num_images}, K, 4) without batch_indices, K boxes of each image"
        hint = "Pass the image of each box as batch_indices."
        raise ArgumentError("boxes", rule, boxes.shape, hint, attribute="shape")
    return xs, flat_boxes, lax.broadcasted_iota(np.int32, boxes.shape[:-1], 0).reshape(-1)


def check_num_cells(arg_name: str, value: object) -> tuple[int, ...]:
    """The checked number of cells of a box, down and across."""
    cells = ints_per_axis(arg_name, value, 2)
    if math.prod(cells) >= 2**20:
        rule = "fewer than 2**20 cells in all"
        raise ArgumentError(arg_name, rule, cells, "A box has as many as it has outputs.")
    return cells


def check_spatial_scale(spatial_scale: object) -> float:
    """`spatial_scale`, the factor by which box coordinates are multiplied, as a positive float."""
    return check_positive_number("spatial_scale", spatial_scale, "Pass 1 / 16, say.")


def check_positive_number(arg_name: str, value: object, hint: str) -> float:
    rule = "a positive number in the range of float64"
    return checked_float(arg_name, value, rule, hint, lambda x: 0 < x < math.inf)
