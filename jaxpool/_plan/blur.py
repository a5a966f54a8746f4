"""Plans of binomial blurs: the axes that each pass over the array blurs, and how the pass reads the array."""

import math
from collections.abc import Sequence

from jaxpool._geometry.window import Axis, Window
from jaxpool._plan.max_pool import plan_one_pass
from jaxpool._plan.problem import (
    Layout,
    Platform,
    Problem,
    group_axes,
    multi_region,
    nbytes,
    single_region,
)
from jaxpool._plan.tuning import TUNING


def pass_windows(window: Window, platform: Platform) -> tuple[Window, ...]:
    """The windows of a binomial blur, one per pass over the array, each over a group of axes.

    Axes whose strides shrink the array most come first. Array sizes do not affect the order, so shards round like the
    whole array.
    """
    dims = [dim for dim in window.dims if not dim.is_identity]
    ordered_dims = sorted(dims, key=lambda dim: (1 - dim.stride) / dim.window)
    tuning = TUNING[platform]

    def fits_group(dims: Sequence[Axis]) -> bool:
        max_strided_taps = tuning.blur_taps_per_element * math.prod(dim.stride for dim in dims)
        return math.prod(dim.window for dim in dims) <= max(max_strided_taps, tuning.max_blur_taps)

    groups = group_axes(ordered_dims, fits_group)
    return tuple(Window(tuple(dim for dim in dims if dim in group)) for group in groups)


def copies_only_ends(problem: Problem) -> bool:
    """Whether a pass copies only the ends of its axes, with their reflected padding, and reads the rest of x in place.

    The program contains all terms of a pass again for each end of an axis, so passes of many terms copy x.
    """
    tuning, window = problem.tuning, problem.window
    is_large = tuning.min_region_bytes <= nbytes(problem.shape, problem.bits) < math.inf
    padding_is_short = all(max(dim.low, dim.used_high) < dim.size for dim in window.dims)
    windows = pass_windows(window, problem.platform)
    has_few_terms = all(window.size <= tuning.bounds_checked_terms for window in windows)
    return is_large and padding_is_short and has_few_terms


def blur_layout(problem: Problem, *, is_transposed: bool) -> Layout:
    """The layout of one pass of a blur or its transpose. Long windows pad cotangents, because bound tests are slow."""
    one_pass = plan_one_pass(problem)
    if not is_transposed:
        return multi_region([one_pass.step.phases], "padded")
    if max(problem.window.window_shape) > problem.tuning.bounds_checked_taps:
        return single_region(one_pass.step.transposed_phases)
    return one_pass.layout
