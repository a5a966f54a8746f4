"""The pools of `torchvision.ops` over boxes, on jax arrays and without PyTorch.

Channels first; boxes as (x0, y0, x1, y1), either (K, 5) with the number of the image in front or a
list with one (L, 4) an image. What differs throughout: 16-bit floats are computed in float32 and
rounded once; a NaN in a box is the largest of its cell; gradients go to the boxes of `roi_align`
and `ps_roi_align` too; a box of an image that does not exist raises, or gives 0 where its number is traced.

The arguments are those of torchvision: `input`, an array of floats (N, C, H, W); `boxes`; `output_size`,
cells down and across a box, an int or two; `spatial_scale`, the number that boxes are multiplied with;
`sampling_ratio`, points an axis of a cell, not positive for as many as the cell is pixels long. Results
are arrays (K, C, *output_size) of the dtype of input. Malformed arguments raise TypeError or ValueError.
"""

from jaxpool.compat._torchvision_boxes import ps_roi_align, ps_roi_pool, roi_align, roi_pool
from jaxpool.compat._torchvision_classes import (
    MultiScaleRoIAlign,
    PSRoIAlign,
    PSRoIPool,
    RoIAlign,
    RoIPool,
)

__all__ = [
    "MultiScaleRoIAlign",
    "PSRoIAlign",
    "PSRoIPool",
    "RoIAlign",
    "RoIPool",
    "ps_roi_align",
    "ps_roi_pool",
    "roi_align",
    "roi_pool",
]
