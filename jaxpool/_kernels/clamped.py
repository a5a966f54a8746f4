"""Passes that read elements at positions clamped to the array (read mode "clamped", for GPUs).

XLA for GPU compiles a pad inside a fusion to a branch per tap, and a branch prevents vector loads. A gather at clamped
positions compiles to vector loads along the last axis, without branches. A select then replaces the elements that were
read in place of padding. Three details keep the loads in vectors, and all terms in one kernel:

- Gathered axes are merged into one, because LLVM proves the alignment of a load only from short address computations.
- The program computes positions. Loaded positions take more instructions.
- Masks and taps are constants, because XLA would compute them in small kernels of their own.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Phases, total_positions
from jaxpool._plan.problem import is_constant_table

Ints = Sequence[int]


class AxisRead(NamedTuple):
    """One element per output position along an axis: its position, its tap and whether it exists."""

    positions: Array  # clamped to the axis
    taps: Any  # an int, or a vector if the phases of the output have different taps
    is_inside: Any  # None if all elements exist


def _taps_by_offset(phases: Phases, shift: int) -> dict[int, dict[int, int]]:
    """Taps of the phases that read an offset, if output position r belongs to phase (r + shift) % number of phases."""
    taps: dict[int, dict[int, int]] = {}
    for phase, access in enumerate(phases):
        steps, shifted_phase = divmod(phase + shift, len(phases))
        for offset, tap in access.tap_offsets:
            taps.setdefault(offset - steps, {})[shifted_phase] = tap
    return dict(sorted(taps.items()))


def axis_reads(phases: Phases) -> list[AxisRead]:
    """The elements that output positions along an axis read, in ascending order.

    Phases are shifted such that most of them read at the same offsets. Position r then reads the elements
    `(r + shift) // number of phases * stride + offset`.
    """
    num_phases, num_positions = len(phases), total_positions(phases)
    stride, size = phases[0].stride, phases[0].size
    shift = min(range(num_phases), key=lambda shift: len(_taps_by_offset(phases, shift)))
    xp: Any = np if is_constant_table(num_positions) else jnp
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
        reads.append(AxisRead(positions, taps, math.prod(masks) if masks else None))
    return reads


def gather_product(x: Array, axes: Ints, positions: Sequence[Array]) -> Array:
    """Gather the elements of x at `positions` along `axes`, as nested `jnp.take` would. Sizes between axes are ints."""
    first, last = min(axes), max(axes)
    positions_of_axis = dict(zip(axes, positions, strict=True))
    index = jnp.zeros((), np.int32)
    for axis in range(first, last + 1):
        size = x.shape[axis]
        vector = positions_of_axis.get(axis, lax.iota(np.int32, size))
        # Explicit axes: a user may set `jax_numpy_rank_promotion` to "raise".
        rows = lax.expand_dims(index * np.int32(size), [index.ndim])
        index = rows + lax.expand_dims(vector, range(index.ndim))
    merged = lax.collapse(x, first, last + 1)
    dimension_numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(first), *range(last + 1, x.ndim)),
        collapsed_slice_dims=(first,),
        start_index_map=(first,),
    )
    sizes = (*merged.shape[:first], 1, *merged.shape[first + 1 :])
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return lax.gather(merged, index[..., None], dimension_numbers, sizes, mode=mode)


def run_clamped_pass(
    axes: Ints,
    sources: Sequence[Any],
    term_at_tap: Callable[..., Any],
    join_terms: Callable[[Sequence[Any]], Any],
) -> Any:
    """`run_pass` for read mode "clamped". The tap of a term is an int, or an int32 array if it differs by phase."""
    terms = []
    for source in sources:
        for reads in itertools.product(*map(axis_reads, source.phases)):
            positions = [read.positions for read in reads]
            views = [gather_product(x, axes, positions) for x in source.arrays]
            terms.append(_term(term_at_tap, axes, reads, views))
    return join_terms(terms)


def _term(
    term_at_tap: Callable[..., Any], axes: Ints, reads: Sequence[AxisRead], views: Sequence[Array]
) -> Any:
    shape = views[0].shape

    def broadcast(vector: Any, axis: int) -> Array:
        return lax.broadcast_in_dim(jnp.asarray(vector), shape, (axis,))

    def pad_to_region(x: Array, fill: Any) -> Array:
        for read, axis in zip(reads, axes, strict=True):
            if read.is_inside is not None:
                x = lax.select(broadcast(read.is_inside, axis), x, lax.full_like(x, fill))
        return x

    pairs = zip(reads, axes, strict=True)
    tap = sum(
        read.taps if isinstance(read.taps, int) else broadcast(read.taps, axis)
        for read, axis in pairs
    )
    return term_at_tap(tap, views, pad_to_region)
