"""Choices that bound program length: whether code is unrolled or a loop, and whether tables are constants."""

from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Window
from jaxpool._plan.tuning import LIMITS


def is_ordinary_pool(window: Window) -> bool:
    """Whether an adaptive pool has windows of equal length that are short enough to unroll."""
    is_ragged = any(isinstance(dim, RaggedAxis) for dim in window.dims)
    return not is_ragged and max(window.window_shape) <= LIMITS.max_adaptive_taps


def gathers_windows(num_windows: int) -> bool:
    """Whether the `num_windows` windows that cover an element are gathered one by one, instead of summed as a block."""
    return num_windows <= LIMITS.max_gathered_windows


def is_constant_table(length: float) -> bool:
    """Whether a table of `length` entries is a constant of the program. The program computes longer tables itself."""
    return length <= LIMITS.max_constant_entries


def split_tap_loop(num_taps: int, *, has_weights: bool) -> tuple[int, int, int]:
    """Iterations of a loop over the elements of a window, elements per iteration, and elements left after the loop.

    Set `has_weights` if each window element has a weight. Unrolled code would grow with `num_taps`.
    """
    taps_per_step = LIMITS.weighted_taps_per_loop_step if has_weights else LIMITS.taps_per_loop_step
    whole, rest = divmod(num_taps, taps_per_step)
    return whole, taps_per_step, rest


def folds_sequentially(num_taps: int, stride: int) -> bool:
    """Whether `num_taps` window elements are combined one by one: if there are few, or not more than `stride`."""
    return num_taps <= max(LIMITS.max_sequential_fold_taps, stride)


def uses_morphology_loop(num_taps: int) -> bool:
    """Whether grey morphology loops over kernel elements; otherwise one expression has a term per kernel element.

    The compile time of an expression with one term per kernel element grows with the kernel.
    """
    return num_taps > LIMITS.max_unrolled_kernel_taps
