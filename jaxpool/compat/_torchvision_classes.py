"""The layers of `torchvision.ops` over boxes: dataclasses with the arguments of the functions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxpool._api.regions import mean_in_pyramid_level, pyramid_level_of_boxes
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool._ops.box_mean import BoxMean
from jaxpool.compat._torchvision_boxes import (
    BoxesArgument,
    OutputSize,
    convert_arguments,
    mean_per_cell,
    ps_roi_align,
    ps_roi_pool,
    roi_align,
    roi_pool,
    samples_per_cell,
)


@dataclasses.dataclass(frozen=True)
class RoIAlign:
    """`roi_align` with fixed arguments, called with input and boxes, as `torchvision.ops.RoIAlign`."""

    output_size: OutputSize
    spatial_scale: float
    sampling_ratio: int
    aligned: bool = False

    def __call__(self, input: Any, rois: BoxesArgument) -> Array:
        """`roi_align` of input and rois."""
        return roi_align(input, rois, *dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class RoIPool:
    """`roi_pool` with fixed arguments, called with input and boxes, as `torchvision.ops.RoIPool`."""

    output_size: OutputSize
    spatial_scale: float

    def __call__(self, input: Any, rois: BoxesArgument) -> Array:
        """`roi_pool` of input and rois."""
        return roi_pool(input, rois, *dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class PSRoIAlign:
    """`ps_roi_align` with fixed arguments, called with input and boxes, as `torchvision.ops.PSRoIAlign`."""

    output_size: OutputSize
    spatial_scale: float
    sampling_ratio: int

    def __call__(self, input: Any, rois: BoxesArgument) -> Array:
        """`ps_roi_align` of input and rois."""
        return ps_roi_align(input, rois, *dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class PSRoIPool:
    """`ps_roi_pool` with fixed arguments, called with input and boxes, as `torchvision.ops.PSRoIPool`."""

    output_size: OutputSize
    spatial_scale: float

    def __call__(self, input: Any, rois: BoxesArgument) -> Array:
        """`ps_roi_pool` of input and rois."""
        return ps_roi_pool(input, rois, *dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True)
class MultiScaleRoIAlign:
    """`roi_align` of each box in the pyramid level that fits its size, as `torchvision.ops.MultiScaleRoIAlign`.

    Called with a dictionary of features (N, C, H, W), a list with the boxes (L, 4) of each image, and the sizes
    (height, width) of the images. The features in `featmap_names` are the levels, in the order of the dictionary.
    Levels follow each other by a factor of two, and boxes of a missing level give 0, as in torchvision. The scales are
    inferred at each call; torchvision infers them at the first call only.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torchvision as ops
      >>> levels = {"0": jnp.full((1, 1, 64, 64), 2.0), "1": jnp.full((1, 1, 32, 32), 3.0)}
      >>> boxes = jnp.array([[0.0, 0.0, 50.0, 80.0], [0.0, 0.0, 120.0, 110.0]])
      >>> ops.MultiScaleRoIAlign(["0", "1"], 1, 2)(levels, [boxes], [(256, 256)]).ravel()
      Array([2., 3.], dtype=float32)
    """

    featmap_names: Sequence[str]
    output_size: OutputSize
    sampling_ratio: int
    _: dataclasses.KW_ONLY
    canonical_scale: int = 224
    canonical_level: int = 4

    def __call__(
        self, x: Mapping[str, Any], boxes: Sequence[Any], image_shapes: Sequence[tuple[int, int]]
    ) -> Array:
        """The cells of each box, (K, C, *output_size)."""
        name = "MultiScaleRoIAlign"
        features = [level for key, level in x.items() if key in self.featmap_names]
        with name_function_in_errors(f"compat.torchvision.{name}"):
            if not features or not image_shapes:
                rule = "names of features that are given, with the sizes of images"
                raise ArgumentError("featmap_names", rule, self.featmap_names, "Name them.")
        args = [convert_arguments(name, level, boxes, self.output_size, 1.0) for level in features]
        max_height = max(shape[0] for shape in image_shapes)
        # Level n has the scale 2**-n; n is rounded as in torchvision.
        levels = [round(-math.log2(level.shape[-2] / max_height)) for level in features]
        _, corners, image_indices, num_cells, _ = args[0]
        samples, xs = samples_per_cell(name, self.sampling_ratio), [n[0] for n in args]
        op = BoxMean(num_cells, 0.5 ** levels[0], samples, 0.0, 1.0, empty_is_zero=False)
        if len(features) == 1:
            return mean_per_cell(op, *args[0][:3])
        level = pyramid_level_of_boxes(
            corners, (levels[0], levels[-1]), float(self.canonical_scale), self.canonical_level
        )
        y = mean_in_pyramid_level(op, [0.5**n for n in levels], xs, corners, image_indices, level)
        return jnp.moveaxis(y, -1, 1)
