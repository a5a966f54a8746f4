"""Whether scatters write elements in order."""

from jaxpool._arguments.sizes import fits_int32
from jaxpool._plan.problem import Platform, Shape, num_elements
from jaxpool._plan.tuning import TUNING


def scatters_in_order(platform: Platform, shape: Shape, is_sharded: bool) -> bool:
    """Whether one scatter writes elements in order into an array of `shape`, at flat int32 positions.

    An array with a sharding in its type cannot be flattened.
    """
    fits_flat = not is_sharded and None not in shape and fits_int32(num_elements(shape))
    return fits_flat and TUNING[platform].has_ordered_scatters


def scatters_to_rows(platform: Platform, shape: Shape, num_segments: int, is_sharded: bool) -> bool:
    """Whether a scatter sends the cotangents of segments to their selected rows in an array of `shape`.

    Otherwise each row gathers the selected row of its segment and compares.
    """
    if not scatters_in_order(platform, shape, is_sharded):
        return False
    return num_segments * TUNING[platform].min_scattered_rows <= int(shape[0] or 0)
