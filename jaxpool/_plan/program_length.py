"""Choices that bound the length of a program: what is unrolled, and what is a loop or is computed by the program."""

from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Window
from jaxpool._plan.tuning import LIMITS


def is_ordinary_pool(window: Window) -> bool:
    """Whether an adaptive pool is an ordinary pool with windows short enough to unroll."""
    is_ragged = any(isinstance(dim, RaggedAxis) for dim in window.dims)
    return not is_ragged and max(window.window_shape) <= LIMITS.max_adaptive_taps


def gathers_windows(num_windows: int) -> bool:
    """Whether the `num_windows` windows of an element are read one by one, rather than summed as a block."""
    return num_windows <= LIMITS.max_gathered_windows


def is_constant_table(length: float) -> bool:
    """Whether a table of `length` positions is a constant of the program. The program computes longer tables."""
    return length <= LIMITS.max_constant_entries


def split_tap_loop(num_taps: int, *, has_weights: bool) -> tuple[int, int, int]:
    """Number of iterations of a loop over `num_taps` taps, taps per iteration, and taps left after the loop.

    `has_weights`: a weight is read with each tap. Unrolled, the program and its compile time would grow with the taps.
    """
    taps_per_step = LIMITS.weighted_taps_per_loop_step if has_weights else LIMITS.taps_per_loop_step
    whole, rest = divmod(num_taps, taps_per_step)
    return whole, taps_per_step, rest


def folds_sequentially(num_taps: int, stride: int) -> bool:
    """Whether `num_taps` elements along an axis are joined one by one: few taps, or at most `stride` taps."""
    return num_taps <= max(LIMITS.max_sequential_fold_taps, stride)


def uses_morphology_loop(num_taps: int) -> bool:
    """Whether grey morphology loops over the taps of its kernel; otherwise one expression has a term per tap.

    The size and the compile time of such an expression grow with the kernel.
    """
    return num_taps > LIMITS.max_unrolled_kernel_taps
