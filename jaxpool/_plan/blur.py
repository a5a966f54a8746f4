"""Plans of blurs: groups of axes, and the layout of each pass."""

import math
from collections.abc import Sequence

from jaxpool._geometry.window import Axis, Window
from jaxpool._plan.layout import Layout, grouped, in_one_region
from jaxpool._plan.max_pool import plan_ties
from jaxpool._plan.problem import Platform, Problem
from jaxpool._plan.tuning import TUNING


def blur_groups(window: Window, platform: Platform) -> tuple[Window, ...]:
    """The axes of a blur in the order of its passes, one window per pass.

    Binomial weights are a product of one factor per axis, so axes can be separate passes. Axes whose strides reduce
    the array most come first. The order does not depend on sizes, so that shards have the same sums as the whole.
    """
    used = [dim for dim in window.dims if not dim.idle]
    order = sorted(used, key=lambda dim: (1 - dim.stride) / dim.window)
    tuning = TUNING[platform]

    def together(dims: Sequence[Axis]) -> bool:
        few = tuning.blur_taps_an_element * math.prod(dim.stride for dim in dims)
        return math.prod(dim.window for dim in dims) <= max(few, tuning.blur_taps)

    groups = grouped(order, together)
    return tuple(Window(tuple(dim for dim in used if dim in group)) for group in groups)


def blur_layout(problem: Problem, *, transposed: bool) -> Layout:
    """The layout of one pass of a blur, or of its transpose.

    A loop that tests the bounds of many taps is slow, so the cotangents of long windows are padded once.
    """
    one = plan_ties(problem)
    if not transposed:
        return in_one_region(one.step.phases)
    if max(problem.window.window_shape) > problem.tuning.tested_taps:
        return in_one_region(one.step.transposed)
    return one.layout
