"""Choice of the evaluation of soft pools and power pools."""

from jaxpool._geometry.window import window_access
from jaxpool._plan.problem import Problem, num_elements


def always_scales(problem: Problem) -> bool:
    """Whether unrolled sums are always relative to the largest element of their window, without direct sums.

    The unrolled sums read at clamped positions. These need known sizes that fit int32, and a type without sharding.
    """
    window = problem.window
    if window.size > problem.tuning.max_scaled_taps or problem.is_sharded:
        return False
    # A window in the padding reads no element.
    if not all(any(a.tap_offsets for a in window_access(d).transposed()) for d in window.dims):
        return False
    shapes = problem.shape, window.pooled_shape(problem.shape)
    return all(0 < num_elements(shape) < 1 << 31 for shape in shapes)
