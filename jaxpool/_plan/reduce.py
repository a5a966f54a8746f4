"""Plans of maxima over whole axes: folds, which take the maximum of chunks of an axis before the axis is reduced."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from jaxpool._plan.problem import BarrierKind, Platform, Shape, barrier_of, num_elements, row_size
from jaxpool._plan.tuning import TUNING


def reduces_as_floats(platform: Platform, shape: Shape, axes: Sequence[int]) -> bool:
    """Whether sums, counts and ranks over `axes` of a small array use float32, which holds its counts exactly."""
    tuning = TUNING[platform]
    if None in shape or num_elements(shape) >= tuning.min_folded_elements:
        return False
    return num_elements(tuple(shape[axis] for axis in axes)) >= tuning.min_float_reduction_size


@dataclasses.dataclass(frozen=True)
class Fold:
    """A pass that combines `num_chunks` chunks of an axis, element by element, before the axis is reduced."""

    axis: int
    num_chunks: int
    barrier: BarrierKind = "barrier"
    next_fold: Fold | None = None  # the fold applied to the result of this fold

    def later_folds(self) -> Iterator[Fold]:
        """The folds that follow this fold, in order."""
        if self.next_fold is not None:
            yield self.next_fold
            yield from self.next_fold.later_folds()


def plan_fold(
    shape: Shape, axes: Sequence[int], bits: int, platform: Platform, sharded: bool, of_ties: bool
) -> Fold | None:
    """The folds that precede a reduction over `axes`; None for no fold. `of_ties` is True if the reduction counts ties.

    The first axis that is long enough is folded, because the contiguous rows behind it are longest. A short axis is
    folded completely. The result of a fold may be folded again.
    """
    tuning = TUNING[platform]
    if sharded or None in shape or bits < 16 or num_elements(shape) < tuning.min_folded_elements:
        return None
    max_chunks = tuning.chunks_per_fold
    min_bits = tuning.min_tie_row_bits if of_ties else tuning.min_folded_row_bits

    def make_fold(axis: int, num_chunks: int) -> Fold:
        folded_shape = tuple(
            -(-(size or 0) // num_chunks) if i == axis else size for i, size in enumerate(shape)
        )
        next_fold = plan_fold(folded_shape, axes, bits, platform, sharded, of_ties)
        return Fold(axis, num_chunks, barrier_of(platform), next_fold)

    max_full_size = tuning.max_fully_folded_size // (2 if bits == 16 else 1)
    for num_chunks in (max_chunks, max_chunks // 2, max_chunks // 4):
        for axis in sorted(axes):
            size = shape[axis] or 0
            if (
                size >= num_chunks
                and size // num_chunks * row_size(shape, (axis,)) * bits >= min_bits
            ):
                return make_fold(axis, num_chunks)
        short_axes = [axis for axis in sorted(axes) if 1 < (shape[axis] or 0) <= max_full_size]
        if short_axes and not of_ties:
            return make_fold(short_axes[0], shape[short_axes[0]] or 0)
    return None
