"""Choices for everything but windowed maxima and sums: adaptive pools, folds, blurs, scans, scatters and segments."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from jaxpool._arguments.sizes import fits_int32
from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Axis, Window
from jaxpool._plan.layout import Layout, grouped, in_one_region
from jaxpool._plan.max_pool import plan_ties
from jaxpool._plan.problem import Barrier, Platform, Problem, Shape, barrier_on, elements, row
from jaxpool._plan.tuning import LIMITS, NEVER, TUNING


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


def compares_positions(platform: Platform, count: int) -> bool:
    """Whether each element is compared with `count` selected positions; otherwise a scatter writes the cotangents."""
    return count <= TUNING[platform].compared_positions


def sorts_for_top_k(platform: Platform, partitioned: bool) -> bool:
    """Whether a full sort replaces `lax.top_k`, for which XLA for CPU gathers a partitioned batch on every device."""
    return partitioned and TUNING[platform].gathers_for_top_k


def counts_ties_if_any(platform: Platform, shape: Shape) -> bool:
    """Whether ties of segments are counted in a branch that runs only if there is a tie.

    The predicate counts elements in uint32, which bounds the size of the array.
    """
    return TUNING[platform].ties_tested and elements(shape) < 2**32


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


def keeps_reflected(platform: Platform) -> bool:
    """Whether the cotangent of x and its mirrored border is stored before the border is folded back: faster on CPU."""
    return TUNING[platform].reflected_apart


def adds_in_order(platform: Platform) -> bool:
    """Whether segment sums are scattered; otherwise rows are sorted and added in pairs. Both are deterministic."""
    return TUNING[platform].ordered_scatters


def stores_shares(platform: Platform) -> bool:
    """Whether the shares of segments, and a row of zeros for rows in no segment, are stored before rows gather them.

    XLA for CPU does not vectorise a gather of short rows that is fused with a division or a select.
    """
    return TUNING[platform].stored_shares


def amends_in_place(platform: Platform) -> bool:
    """Whether a loop of zero or one iterations amends the rare windows out of range; otherwise a branch does.

    XLA updates the state of a loop in place, but copies the operands of a branch. jax cannot transpose the loop, so
    the portable form, which jax differentiates, takes the branch.
    """
    return TUNING[platform].amended_in_place


def loses_nan(platform: Platform) -> bool:
    """Whether a maximum over whole axes may lose a NaN, so that a separate test for NaN is needed."""
    return TUNING[platform].loses_nan


def reduces_as_floats(platform: Platform, shape: Shape, axes: Sequence[int]) -> bool:
    """Whether sums, counts and ranks over `axes` of a small array are float32, which holds its counts exactly."""
    tuning = TUNING[platform]
    if None in shape or elements(shape) >= tuning.folded_elements:
        return False
    return elements(tuple(shape[axis] for axis in axes)) >= tuning.reduced_as_floats


def casts_to_compare(platform: Platform) -> bool:
    """Whether bfloat16 is cast for comparison with gathered elements: one operation, where its bits take three."""
    return TUNING[platform].cast_to_compare


@dataclasses.dataclass(frozen=True)
class Fold:
    """A pass that joins `ways` stretches of an axis, element by element, before the array is reduced."""

    axis: int
    ways: int
    barrier: Barrier = "barrier"
    then: Fold | None = None  # the fold of the result

    def later(self) -> Iterator[Fold]:
        """The folds after this one, in order."""
        if self.then is not None:
            yield self.then
            yield from self.then.later()


def plan_fold(
    shape: Shape, axes: Sequence[int], bits: int, platform: Platform, sharded: bool, ties: bool
) -> Fold | None:
    """The folds before a reduction of floats, or of their `ties`, over `axes`; None for no fold.

    The first axis that is long enough is folded, because its contiguous rows are longest. A short axis is folded
    completely. The result may be folded again.
    """
    tuning = TUNING[platform]
    if sharded or None in shape or bits < 16 or elements(shape) < tuning.folded_elements:
        return None
    most = tuning.folded_ways
    least = tuning.folded_tied_row if ties else tuning.folded_row

    def fold(axis: int, ways: int) -> Fold:
        left = tuple(
            -(-(size or 0) // ways) if at == axis else size for at, size in enumerate(shape)
        )
        then = plan_fold(left, axes, bits, platform, sharded, ties)
        return Fold(axis, ways, barrier_on(platform), then)

    whole = tuning.folded_whole // (2 if bits == 16 else 1)
    for ways in (most, most // 2, most // 4):
        for axis in sorted(axes):
            size = shape[axis] or 0
            if size >= ways and size // ways * row(shape, (axis,)) * bits >= least:
                return fold(axis, ways)
        short = [axis for axis in sorted(axes) if 1 < (shape[axis] or 0) <= whole]
        if short and not ties:
            return fold(short[0], shape[short[0]] or 0)
    return None


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


@dataclasses.dataclass(frozen=True)
class ScanPlan:
    """Passes of a running maximum. After pass k each element holds the maximum of the last `ways`**k elements."""

    ways: int
    barrier: Barrier
    keys: bool = False  # compare floats as integers in the same order
    # Elements: if passes reach as many, the axis is cut into blocks, whose totals are joined by further passes.
    blocks: float = NEVER

    def passes(self, size: int) -> list[range]:
        """The distances to the elements that each pass joins, for an axis or a block of `size`."""
        reach = 1
        distances: list[range] = []
        while reach < size:
            distances.append(range(reach, min(self.ways * reach, size), reach))
            reach *= self.ways
        return distances

    def block(self, size: int) -> int | None:
        """The length of the blocks of an axis of `size`, a divisor of `size` if possible; None for no blocks.

        The length is the reach of the passes, once it is at least `blocks` elements. An axis that one more pass would
        cover has no blocks.
        """
        reach = self.ways
        while reach < self.blocks and reach < size:
            reach *= self.ways
        if reach * self.ways >= size:
            return None
        divisors = [length for length in range(reach // 2 + 1, reach + 1) if size % length == 0]
        return max(divisors, default=reach)


def plan_scan(platform: Platform, shape: Shape = (), sharded: bool = True) -> ScanPlan:
    """The plan of a running maximum or minimum. An array with a sharding in its type has no blocks."""
    tuning = TUNING[platform]
    known = not sharded and None not in shape and elements(shape) > 0
    blocks = tuning.scan_block if known else NEVER
    return ScanPlan(tuning.scan_ways, barrier_on(platform), tuning.subnormals_are_zero, blocks)


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


def batch_chunks_of(shape: Shape, platform: Platform) -> int:
    """Number of chunks along the first axis that loops over taps process one after another."""
    most = TUNING[platform].looped_elements
    if None in shape or elements(shape) <= most:
        return 1
    batch, example = int(shape[0] or 0), elements(shape[1:])
    largest = min(batch - 1, int(most // max(example, 1)))
    return batch // next((part for part in range(largest, 0, -1) if batch % part == 0), 1)
