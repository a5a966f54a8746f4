"""Plans of maxima over whole axes, and over windows that tile an array.

A fold takes the maximum of chunks of an axis before the axis is reduced.
"""

import dataclasses
import math
from collections.abc import Sequence

from jaxpool._geometry.window import Window
from jaxpool._plan.problem import (
    ArrayProblem,
    BarrierKind,
    Platform,
    Problem,
    Shape,
    barrier_of,
    new_axes,
    num_elements,
    row_size,
    split_shape,
)
from jaxpool._plan.tuning import TUNING


def reduces_as_floats(platform: Platform, shape: Shape, axes: Sequence[int]) -> bool:
    """Whether sums, counts and ranks over `axes` of a small array use float32, which holds its counts exactly."""
    tuning = TUNING[platform]
    if None in shape or num_elements(shape) >= tuning.min_folded_elements:
        return False
    return num_elements(tuple(shape[axis] for axis in axes)) >= tuning.min_float_reduction_size


@dataclasses.dataclass(frozen=True)
class Fold:
    """A pass that combines chunks of an axis, element by element, before it is reduced. The last two may overlap."""

    axis: int
    chunk_length: int
    barrier: BarrierKind = "barrier"


@dataclasses.dataclass(frozen=True)
class ReductionPlan:
    """Plan of a maximum or minimum over whole axes, or of the number of its ties or the flat index of one of them."""

    folds: tuple[Fold, ...] = ()
    # Sums, counts and flat indices are computed in float32.
    use_float32: bool = False
    # A sum shows whether there is a NaN, which the platform's maximum may lose. Folds compare integer keys instead.
    finds_nan_by_sum: bool = False


def plan_reduction(problem: ArrayProblem, axes: Sequence[int], *, of_ties: bool) -> ReductionPlan:
    """The plan of a reduction over `axes`. `of_ties` is True if the reduction counts ties or finds their indices."""
    use_float32 = reduces_as_floats(problem.platform, problem.shape, axes)
    folds = plan_folds(problem, axes, of_ties=of_ties)
    return ReductionPlan(folds, use_float32, problem.tuning.loses_nan)


def plan_folds(problem: ArrayProblem, axes: Sequence[int], *, of_ties: bool) -> tuple[Fold, ...]:
    """The folds that precede a reduction over `axes`, in order. `of_ties` is True if the reduction counts ties.

    The first axis that is long enough is folded, because its contiguous rows are longest, and a short axis completely.
    """
    tuning, bits = problem.tuning, problem.bits
    sizes = [size for size in problem.shape if size is not None]
    if problem.is_sharded or None in problem.shape or not problem.is_float or bits < 16:
        return ()
    max_chunks, max_size = tuning.chunks_per_fold, tuning.max_fully_folded_size
    min_bits = tuning.min_folded_row_bits * (2 if of_ties else 1)

    def choose_fold() -> tuple[int, int] | None:
        """The axis and the length of the chunks of the next fold."""
        for num_chunks in (max_chunks, max_chunks // 2, max_chunks // 4):
            for axis in sorted(axes):
                row = row_size(tuple(sizes), (axis,))
                if sizes[axis] >= num_chunks and sizes[axis] // num_chunks * row * bits >= min_bits:
                    length = -(-sizes[axis] // num_chunks)
                    rounded = -(-length // 8) * 8  # other lengths of a last axis vectorise badly
                    return axis, rounded if row == 1 and rounded < sizes[axis] else length
            short_axes = [axis for axis in sorted(axes) if 1 < sizes[axis] <= max_size]
            if short_axes and not of_ties:
                return short_axes[0], 1
        return None

    folds: list[Fold] = []
    while math.prod(sizes) >= tuning.min_folded_elements and (choice := choose_fold()) is not None:
        axis, length = choice
        folds.append(Fold(axis, length, barrier_of(problem.platform)))
        sizes[axis] = length
    return tuple(folds)


@dataclasses.dataclass(frozen=True)
class TilePlan:
    """Reductions over the windows that tile an array, for the maximum of each window and for its index."""

    window: Window
    value: ReductionPlan
    index: ReductionPlan


def plan_tiles(problem: Problem) -> TilePlan | None:
    """The reductions over the windows of `problem`, if windows tile the array and reductions are faster than passes."""
    tuning, window, shape = problem.tuning, problem.window, problem.shape
    has_short_rows = problem.bits < 32 and row_size(shape, window.axes) < tuning.min_16_bit_tile_row
    is_tiled = problem.is_on_one_device and all(dim.is_tiled for dim in window.dims)
    if has_short_rows or not is_tiled:
        return None
    sizes = [(dim.out, dim.window) for dim in window.dims]
    tiles = split_shape(shape, window.axes, sizes)
    array = ArrayProblem(tiles, problem.dtype, problem.platform)
    taps = new_axes(window.axes)
    value, index = (plan_reduction(array, taps, of_ties=of_ties) for of_ties in (False, True))
    return TilePlan(window, value, index) if value.folds and index.folds else None
