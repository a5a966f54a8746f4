"""What is chosen for all but windowed extremes and sums: a grid, a fold, a scan, what is put in order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from jaxpool._geometry.adaptive import RaggedAxis
from jaxpool._geometry.window import Axis, Window
from jaxpool._plan.layout import Layout, grouped, in_one_region
from jaxpool._plan.max_pool import plan_ties
from jaxpool._plan.problem import Barrier, Platform, Problem, Shape, barrier_on, elements, row
from jaxpool._plan.tuning import LIMITS, NEVER, TUNING


def needs_no_grid(window: Window) -> bool:
    """Whether the windows are those of an ordinary pool, and short enough to take tap by tap."""
    ragged = any(isinstance(dim, RaggedAxis) for dim in window.dims)
    return not ragged and max(window.window_shape) <= LIMITS.adaptive_window


def one_by_one(places: int) -> bool:
    """Whether the places at which an element lies on the grid are read one by one, or summed as a block."""
    return places <= LIMITS.adaptive_places


def constant_table(length: float) -> bool:
    """Whether a table of `length` positions is stored in the program. A longer one it computes when it runs."""
    return length <= LIMITS.constant_table


def compares_positions(platform: Platform, count: int) -> bool:
    """Whether a cotangent finds its element by comparing the `count` chosen positions; else a scatter writes it."""
    return count <= TUNING[platform].compared_positions


def sorts_for_top_k(platform: Platform, partitioned: bool) -> bool:
    """Whether the largest elements are the first of a sort: XLA gathers a batch for `lax.top_k` on CPU."""
    return partitioned and TUNING[platform].gathers_for_top_k


def counts_ties_if_any(platform: Platform, shape: Shape) -> bool:
    """Whether ties of segments are counted only where there is one: a branch, which not every platform takes lightly.

    That is told by a sum of bits in 32 bits.
    """
    return TUNING[platform].ties_tested and elements(shape) < 2**32


def turns(count: int, *, weighted: bool) -> tuple[int, int, int]:
    """How many turns a loop over `count` taps has, how many taps per turn, and how many are left after it.

    `weighted`: a weight is read with each tap.

    A loop on every platform: written out, the program and the time to compile it would grow with the taps.
    """
    at_once = LIMITS.weighted_taps_at_once if weighted else LIMITS.taps_at_once
    whole, rest = divmod(count, at_once)
    return whole, at_once, rest


def in_one_go(taps: int, stride: int) -> bool:
    """Whether `taps` elements along an axis are joined one by one: few, or not more than the windows are apart."""
    return taps <= max(LIMITS.fold_taps, stride)


def joins_taps_in_a_loop(count: int) -> bool:
    """Whether the sums of grey morphology are made by a loop over taps of the kernel, or all in one expression.

    On every platform alike: a term per tap is a program and a time to compile that grow with the kernel.
    """
    return count > LIMITS.morphology_taps


def keeps_reflected(platform: Platform) -> bool:
    """Whether the cotangent of x and its mirrored border is stored before the border is folded back: faster on CPU."""
    return TUNING[platform].reflected_apart


def adds_in_order(platform: Platform) -> bool:
    """Whether sums of segments are scattered, or sorted and added in pairs: the same bits on every run either way."""
    return TUNING[platform].ordered_scatters


def stores_shares(platform: Platform) -> bool:
    """Whether the shares of segments are stored before rows gather them, with a row of zeros for rows in none.

    XLA for CPU does not vectorise a gather over short rows that divides, or selects what to fill with, on its way.
    """
    return TUNING[platform].stored_shares


def amends_in_place(platform: Platform) -> bool:
    """Whether the rare windows out of range are amended by a loop that runs once or not at all, or in a branch.

    By the loop on every platform, as XLA changes its state where it is and copies what a branch is given. Of a loop
    jax has no transpose, so the portable form, which it differentiates, takes the branch.
    """
    return TUNING[platform].amended_in_place


def loses_nan(platform: Platform) -> bool:
    """Whether a maximum over whole axes may lose a NaN, so that one is looked for."""
    return TUNING[platform].loses_nan


def reduces_as_floats(platform: Platform, shape: Shape, axes: Sequence[int]) -> bool:
    """Whether sums, counts and ranks over `axes` of a small array are taken in float32, which holds all its numbers."""
    tuning = TUNING[platform]
    if None in shape or elements(shape) >= tuning.folded_elements:
        return False
    return elements(tuple(shape[axis] for axis in axes)) >= tuning.reduced_as_floats


def casts_to_compare(platform: Platform) -> bool:
    """Whether a bfloat16 that is compared with what is gathered is cast: one operation where its bits take three."""
    return TUNING[platform].cast_to_compare


@dataclasses.dataclass(frozen=True)
class Fold:
    """How many stretches of an axis are joined, element by element, before an array is reduced."""

    axis: int
    ways: int
    barrier: Barrier = "barrier"
    then: Fold | None = None  # of what is left

    def later(self) -> Iterator[Fold]:
        """The folds of what is left, one after another."""
        if self.then is not None:
            yield self.then
            yield from self.then.later()


def plan_fold(
    shape: Shape, axes: Sequence[int], bits: int, platform: Platform, sharded: bool, ties: bool
) -> Fold | None:
    """The fold of a reduction of floats over `axes`, of their `ties` or of the values; None: reduced as it is.

    Of the axes that are long enough the first: there the rows that are joined are longest. A shorter axis
    is joined whole. What is left is folded again.
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
    """The axes of a blur in the order of its passes, those of one pass together.

    Binomial weights are a product of one factor per axis. The axes whose strides leave the least to
    the later passes come first. No size has a say, so that shards are added up as the whole is.
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
    """How the pass of a group reads; `transposed`, from the output to the input.

    A loop that tests the bounds of many taps is slow: then what lies around the cotangents is padded once.
    """
    one = plan_ties(problem)
    if not transposed:
        return in_one_region(one.step.phases)
    if max(problem.window.window_shape) > problem.tuning.tested_taps:
        return in_one_region(one.step.transposed)
    return one.layout


@dataclasses.dataclass(frozen=True)
class ScanPlan:
    """After pass k each element holds the extreme of the last `ways`^k: a pass joins `ways` of those before."""

    ways: int
    barrier: Barrier
    keys: bool = False  # floats are compared as integers of the same order
    blocks: float = NEVER  # elements: once passes reach so far, the axis is cut into blocks, and their ends are joined

    def passes(self, size: int) -> list[range]:
        """How far from an element those stand that each pass joins to it, over an axis or a block of `size`."""
        reach = 1
        found: list[range] = []
        while reach < size:
            found.append(range(reach, min(self.ways * reach, size), reach))
            reach *= self.ways
        return found

    def block(self, size: int) -> int | None:
        """The length of the blocks that an axis of `size` is cut into, a divisor if there is one; None: it is not.

        As far as passes reach once they reach `blocks` elements. They spare a pass at least, and take one more.
        """
        reach = self.ways
        while reach < self.blocks and reach < size:
            reach *= self.ways
        if reach * self.ways >= size:
            return None
        divisors = [length for length in range(reach // 2 + 1, reach + 1) if size % length == 0]
        return max(divisors, default=reach)


def plan_scan(platform: Platform, shape: Shape = (), sharded: bool = True) -> ScanPlan:
    """The plan of a running extreme; of an array that is sharded as its type says no axis is cut into blocks."""
    tuning = TUNING[platform]
    known = not sharded and None not in shape and elements(shape) > 0
    blocks = tuning.scan_block if known else NEVER
    return ScanPlan(tuning.scan_ways, barrier_on(platform), tuning.subnormals_are_zero, blocks)


def puts_in_order(platform: Platform, shape: Shape, sharded: bool) -> bool:
    """Whether elements are put into an array of `shape` by one scatter that writes them in order, places in 32 bits.

    What is sharded as its type says cannot be made flat.
    """
    flat = not sharded and None not in shape and elements(shape) < 2**31
    return flat and TUNING[platform].ordered_scatters


def sends_to_chosen_rows(platform: Platform, shape: Shape, segments: int, sharded: bool) -> bool:
    """Whether a scatter in order sends cotangents of segments to their chosen rows, of an array of `shape`.

    Else each row looks up whether it was chosen.
    """
    if not puts_in_order(platform, shape, sharded):
        return False
    return segments * TUNING[platform].scattered_rows <= int(shape[0] or 0)


def turns_of_batch(shape: Shape, platform: Platform) -> int:
    """In how many parts of the first axis, one after another, rolled loops over taps take an array."""
    most = TUNING[platform].looped_elements
    if None in shape or elements(shape) <= most:
        return 1
    batch, example = int(shape[0] or 0), elements(shape[1:])
    largest = min(batch - 1, int(most // max(example, 1)))
    return batch // next((part for part in range(largest, 0, -1) if batch % part == 0), 1)
