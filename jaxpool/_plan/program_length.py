"""Choices that bound the length of a program: what is unrolled, and what is a loop or is computed by the program."""

from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Window
from jaxpool._plan.tuning import LIMITS


def needs_no_grid(window: Window) -> bool:
    """Whether an adaptive pool is an ordinary pool with windows short enough to unroll."""
    ragged = any(isinstance(dim, RaggedAxis) for dim in window.dims)
    return not ragged and max(window.window_shape) <= LIMITS.adaptive_window


def one_by_one(places: int) -> bool:
    """Whether the up to `places` windows of an element are read one by one; otherwise they are summed as a block."""
    return places <= LIMITS.adaptive_places


def constant_table(length: float) -> bool:
    """Whether a table of `length` positions is a constant of the program. The program computes longer tables."""
    return length <= LIMITS.constant_table


def turns(count: int, *, weighted: bool) -> tuple[int, int, int]:
    """Number of iterations of a loop over `count` taps, taps per iteration, and taps left after the loop.

    `weighted`: a weight is read with each tap. Unrolled, the program and its compile time would grow with the taps.
    """
    at_once = LIMITS.weighted_taps_at_once if weighted else LIMITS.taps_at_once
    whole, rest = divmod(count, at_once)
    return whole, at_once, rest


def in_one_go(taps: int, stride: int) -> bool:
    """Whether `taps` elements along an axis are joined one by one: few taps, or at most `stride` taps."""
    return taps <= max(LIMITS.fold_taps, stride)


def joins_taps_in_a_loop(count: int) -> bool:
    """Whether grey morphology loops over the taps of its kernel; otherwise one expression has a term per tap.

    The size and the compile time of such an expression grow with the kernel.
    """
    return count > LIMITS.morphology_taps
