"""Passes that read elements at positions clamped to the array (read mode "clamped", for GPUs).

XLA for GPU compiles a pad inside a fusion to a branch per tap, and a branch prevents vector loads. A gather at clamped
positions compiles to vector loads along the last axis, without branches. A select then replaces the elements that were
read in place of padding. Three details keep the loads in vectors, and all terms in one kernel:

- Gathered axes are merged into one, because LLVM proves the alignment of a load only from short address computations.
- The program computes positions. Loaded positions take more instructions.
- Masks and taps are constants, because XLA would compute them in small kernels of their own.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._geometry.access import Phases, total_positions
from jaxpool._kernels.dtypes import where
from jaxpool._plan.problem import OUTSIDE_TAP, is_constant_table

Ints = Sequence[int]
T = TypeVar("T")  # an array or a tuple of arrays
Y = TypeVar("Y")  # likewise, for results


# What a term gets in place of elements outside the array:
# - "padded": the tap that is outside, and a function that replaces its element by a fill value.
# - "marked": a negative tap. All elements of a vector load share it, so a mark is cheaper than a select per element.
# - "repeated": the element at the clamped position and its tap, if repetitions do not change the result of the terms.
Outside = Literal["padded", "marked", "repeated"]


class AxisRead(NamedTuple):
    """One element per output position along an axis: its position clamped to the axis, its tap, whether it exists."""

    positions: Array
    taps: int | Array | np.ndarray
    is_inside: Array | np.ndarray | None  # None if all elements exist


def _taps_by_offset(phases: Phases, shift: int) -> dict[int, dict[int, int]]:
    """Taps of the phases that read an offset, if output position r belongs to phase (r + shift) % number of phases."""
    taps: dict[int, dict[int, int]] = {}
    for phase, access in enumerate(phases):
        steps, shifted_phase = divmod(phase + shift, len(phases))
        for offset, tap in access.tap_offsets:
            taps.setdefault(offset - steps, {})[shifted_phase] = tap
    return dict(sorted(taps.items()))


def axis_reads(phases: Phases, outside: Outside) -> list[AxisRead]:
    """The elements that output positions along an axis read, in ascending order.

    Phases are shifted such that most of them read at the same offsets. Position r then reads the elements
    `(r + shift) // number of phases * stride + offset`.
    """
    num_phases, num_positions = len(phases), total_positions(phases)
    stride, size = phases[0].stride, phases[0].size
    shift = min(range(num_phases), key=lambda shift: len(_taps_by_offset(phases, shift)))
    xp: ModuleType = np if is_constant_table(num_positions) else jnp
    known = xp.arange(shift, shift + num_positions, dtype=np.int32)
    computed = lax.iota(np.int32, num_positions) + np.int32(shift)
    if num_phases > 1:
        computed = lax.div(computed, np.int32(num_phases))
    reads = []
    for offset, tap_of_phase in _taps_by_offset(phases, shift).items():
        first, last = (
            p // num_phases * stride + offset for p in (shift, shift + num_positions - 1)
        )
        positions = computed * np.int32(stride) + np.int32(offset)
        masks = []
        if first < 0 or last >= size:
            positions = lax.clamp(np.int32(0), positions, np.int32(size - 1))
            elements = known // num_phases * stride + offset
            masks.append((elements >= 0) & (elements < size))
        taps: Any = next(iter(tap_of_phase.values()))
        if num_phases > 1:
            row = np.array([tap_of_phase.get(phase, -1) for phase in range(num_phases)], np.int32)
            taps = xp.asarray(row)[known % num_phases]
            if len(tap_of_phase) < num_phases:
                masks.append(taps >= 0)
        is_inside = functools.reduce(operator.and_, masks) if masks else None
        if masks and outside == "marked":
            taps = xp.where(is_inside, taps, np.int32(OUTSIDE_TAP))
        elif masks and outside == "repeated":
            taps = phases[0].taps_of_clamped_reads(offset)
        reads.append(AxisRead(positions, taps, is_inside))
    return reads


def _merged_positions(shape: Sequence[int], axes: Ints, positions: Sequence[Array]) -> Array:
    """Row-major positions in the axes from the first to the last of `axes`; axes between are read completely."""
    positions_of_axis = dict(zip(axes, positions, strict=True))
    merged = jnp.zeros((), np.int32)
    for axis in range(min(axes), max(axes) + 1):
        size = np.int32(shape[axis])
        vector = positions_of_axis.get(axis, lax.iota(np.int32, shape[axis]))
        # Explicit axes: a user may set `jax_numpy_rank_promotion` to "raise".
        rows = lax.expand_dims(merged * size, [merged.ndim])
        merged = rows + lax.expand_dims(vector, range(merged.ndim))
    return merged


def gather_along_axis(x: Array, axis: int, positions: Array | np.ndarray) -> Array:
    """Gather the elements of x at `positions` along an axis, like `jnp.take`."""
    offset_dims = (*range(axis), *range(axis + positions.ndim, x.ndim - 1 + positions.ndim))
    sizes = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    numbers = lax.GatherDimensionNumbers(offset_dims, (axis,), (axis,))
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    indices = positions.reshape(*positions.shape, 1)
    return lax.gather(x, indices, numbers, sizes, mode=mode)


def run_clamped_pass(
    axes: Ints,
    sources: Sequence[Any],
    term_at_tap: Callable[..., T],
    join_terms: Callable[[Sequence[T]], Y],
    outside: Outside = "padded",
) -> Y:
    """`run_pass` for read mode "clamped". The tap of a term is an int, or an int32 array if it differs by position."""
    terms, first = [], min(axes)
    for source in sources:
        shape = source.arrays[0].shape
        merged_arrays = [lax.collapse(x, first, max(axes) + 1) for x in source.arrays]
        for reads in itertools.product(*[axis_reads(each, outside) for each in source.phases]):
            positions = _merged_positions(shape, axes, [read.positions for read in reads])
            views = [gather_along_axis(x, first, positions) for x in merged_arrays]
            tap, pad_to_region = _tap_and_padding(reads, axes, views[0].shape)
            terms.append(term_at_tap(tap, views, pad_to_region))
    return join_terms(terms)


def _tap_and_padding(
    reads: Sequence[AxisRead], axes: Ints, shape: Sequence[int]
) -> tuple[int | Array, Callable[..., Array]]:
    """The flat tap of the elements read, and a function that replaces elements outside by a fill value."""

    def broadcast(vector: ArrayLike, axis: int) -> Array:
        return lax.broadcast_in_dim(jnp.asarray(vector), shape, (axis,))

    def pad_to_region(x: Array, fill: ArrayLike) -> Array:
        for read, axis in zip(reads, axes, strict=True):
            if read.is_inside is not None:
                x = where(broadcast(read.is_inside, axis), x, fill)
        return x

    pairs = [(read.taps, axis) for read, axis in zip(reads, axes, strict=True)]
    taps = [taps if isinstance(taps, int) else broadcast(taps, axis) for taps, axis in pairs]
    return functools.reduce(operator.add, taps), pad_to_region
