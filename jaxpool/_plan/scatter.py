"""Whether scatters write elements in order."""

from jaxpool._arguments.sizes import fits_int32
from jaxpool._plan.problem import Platform, Shape, elements
from jaxpool._plan.tuning import TUNING


def puts_in_order(platform: Platform, shape: Shape, sharded: bool) -> bool:
    """Whether one scatter writes elements in order into an array of `shape`, at flat int32 positions.

    An array with a sharding in its type cannot be flattened.
    """
    flat = not sharded and None not in shape and fits_int32(elements(shape))
    return flat and TUNING[platform].ordered_scatters


def sends_to_chosen_rows(platform: Platform, shape: Shape, segments: int, sharded: bool) -> bool:
    """Whether a scatter sends the cotangents of segments to their selected rows in an array of `shape`.

    Otherwise each row gathers the selected row of its segment and compares.
    """
    if not puts_in_order(platform, shape, sharded):
        return False
    return segments * TUNING[platform].scattered_rows <= int(shape[0] or 0)
