"""The pools of `torchvision.ops` over boxes, on jax arrays and without PyTorch.

Images are channels first. Boxes (x0, y0, x1, y1) are an array (K, 5) with the image index in the first column, or a
list with one array (L, 4) per image. Differences from torchvision: 16-bit floats are computed in float32 and rounded
once. A NaN is the maximum of its cell. `roi_align` and `ps_roi_align` have gradients for boxes too. A box whose image
index is out of range raises, or gives 0 if the index is traced.

The arguments are those of torchvision: `input`, an array of floats (N, C, H, W); `boxes`; `output_size`, rows and
columns of cells per box, an int or two; `spatial_scale`, a factor for the boxes; `sampling_ratio`, sample points along
each axis of a cell (if not positive, the length of the cell in pixels, rounded up). Results are arrays (K, C,
*output_size) of the dtype of input; `ps_*` divide C by the number of cells. Malformed arguments raise TypeError or
ValueError.
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
