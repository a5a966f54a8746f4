"""Choices between scatters and gathers, depending on whether XLA's scatter writes elements in order."""

from jaxpool._arguments.sizes import fits_int32
from jaxpool._plan.problem import Platform, Shape, num_elements
from jaxpool._plan.tuning import TUNING


def scatters_in_order(platform: Platform, shape: Shape, is_sharded: bool) -> bool:
    """Whether one scatter into the flattened array of `shape`, with int32 positions, writes elements in order.

    An array with a sharding in its type cannot be flattened for such a scatter.
    """
    fits_flat = not is_sharded and None not in shape and fits_int32(num_elements(shape))
    return fits_flat and TUNING[platform].has_ordered_scatters


def scatters_to_rows(platform: Platform, shape: Shape, num_segments: int, is_sharded: bool) -> bool:
    """Whether segment cotangents are scattered to the row that each segment selected, in an array of `shape`.

    If not, each row gathers the selected row number of its segment and compares it with its own row number.
    """
    if not scatters_in_order(platform, shape, is_sharded):
        return False
    return num_segments * TUNING[platform].min_scattered_rows <= int(shape[0] or 0)
