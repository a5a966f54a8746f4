"""Plans of maxima over whole axes: passes that join stretches of an axis before it is reduced."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from jaxpool._plan.problem import Barrier, Platform, Shape, barrier_on, elements, row
from jaxpool._plan.tuning import TUNING


def reduces_as_floats(platform: Platform, shape: Shape, axes: Sequence[int]) -> bool:
    """Whether sums, counts and ranks over `axes` of a small array are float32, which holds its counts exactly."""
    tuning = TUNING[platform]
    if None in shape or elements(shape) >= tuning.folded_elements:
        return False
    return elements(tuple(shape[axis] for axis in axes)) >= tuning.reduced_as_floats


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
