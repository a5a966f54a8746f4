"""Strided pieces of an array taken phase by phase, and the transpose: terms put together phase by phase.

Position `stride * block + phase` of an axis is read as element `block` of its phase, so that nothing
is spread with zeros between and nothing strided is read in a loop over the outputs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import dense as kernels
from jaxpool._plan.steps import Step

Term = Callable[..., Array]
Phases = tuple[int, ...]

# Strided terms that have to keep within bounds along several axes: up to so many vectorise.
FEW_TERMS = 9


def polyphase_pieces(x: Array, axes: Sequence[int], step: Step) -> list[Array]:
    """All pieces of a step, padding being 0, for linear maps: jax transposes them to what `assemble` does.

    The transpose of a strided slice spreads its operand with zeros between; the transpose of a
    split is a concatenation, which interleaves.
    """
    blocks, order = _layout(step, axes, loop_a_phase=narrow(x, axes))
    parts = _split_phases(x, axes, step, blocks, order)
    first, last = _delays(step)
    around = [
        (-few, most + out - block, 0)
        for few, most, out, block in zip(first, last, step.outs, blocks, strict=True)
    ]
    parts = {phases: kernels.pad(part, axes, around, 0) for phases, part in parts.items()}
    ones = [1] * len(axes)

    def taken(piece: int) -> Array:
        delays, phases = step.placed(piece)
        starts = [delay - few for delay, few in zip(delays, first, strict=True)]
        return kernels.view(parts[phases], axes, starts, step.outs, ones)

    return [taken(piece) for piece in range(len(step.starts))]


def shifted_pieces(x: Array, axes: Sequence[int], step: Step) -> list[Array]:
    """All pieces of a step without strides, each padded by itself.

    Transposed, faster than slices of one padded array where elements are selected from them, slower
    where they are only added (measured: bench/NOTES.md).
    """

    def shifted(q: int) -> Array:
        ends = zip(step.placed(q)[0], axes, step.outs, strict=True)
        return kernels.pad(x, axes, [(-d, d + out - x.shape[axis], 0) for d, axis, out in ends], 0)

    return [shifted(q) for q in range(len(step.starts))]


def add_pieces(
    term: Term, x: Array, others: Sequence[Array], axes: Sequence[int], step: Step
) -> Array:
    """The sum over all pieces of `term(q, piece, *others)`, linear in x: jax transposes it to what `assemble` does.

    Where `assemble` puts strided terms together from other blocks than usual, or from padded
    copies, terms are taken at the phases of x and then put where their outputs are: the transpose
    pads cotangents once, before it takes terms.
    """
    usual, order = _layout(step, axes, loop_a_phase=False)
    blocks, strided = usual, max(step.strides) > 1
    copied = False
    if strided and not narrow(x, axes):
        blocks, copied = _blocks_of_terms(step, axes, usual)
    if not copied and blocks == usual:
        pieces = (polyphase_pieces if strided else shifted_pieces)(x, axes, step)
        return functools.reduce(lax.add, [term(q, p, *others) for q, p in enumerate(pieces)])
    parts = _split_phases(x, axes, step, blocks, order)
    first, last = _delays(step)
    ends = list(zip(last, first, blocks, step.outs, strict=True))
    wide = [_shifted(array, axes, step, blocks, last, first) for array in others]
    ones = [1] * len(axes)

    def placed(piece: int) -> Array:
        delays, phases = step.placed(piece)
        starts = [most - delay for most, delay in zip(last, delays, strict=True)]
        seen = [kernels.view(a, axes, starts, blocks, ones) for a in wide]
        sides = [
            (start, m - f - start, 0) for start, (m, f, _, _) in zip(starts, ends, strict=True)
        ]
        return kernels.pad(term(piece, parts[phases], *seen), axes, sides, 0)

    total = functools.reduce(lax.add, [placed(piece) for piece in range(len(step.starts))])
    return kernels.pad(total, axes, [(-m, out + f - n, 0) for m, f, n, out in ends], 0)


def _split_phases(
    x: Array, axes: Sequence[int], step: Step, blocks: Sequence[int], order: Sequence[int]
) -> dict[Phases, Array]:
    """The phases in use of x, `blocks` along each axis; axes in reverse `order`."""
    sides = [
        (0, block * stride - x.shape[axis], 0)
        for axis, block, stride in zip(axes, blocks, step.strides, strict=True)
    ]
    parts = {(0,) * len(axes): kernels.pad(x, axes, sides, 0)}
    for which in reversed(order):
        axis, stride, used = axes[which], step.strides[which], step.phases[which]
        parts = {
            (*phases[:which], phase, *phases[which + 1 :]): each
            for phases, part in parts.items()
            for phase, each in enumerate(_phases(part, axis, stride, used))
        }
    return parts


def _delays(step: Step) -> tuple[list[int], list[int]]:
    """Along each axis, the first and the last block in which a piece begins."""
    columns = list(zip(*[step.placed(piece)[0] for piece in range(len(step.starts))], strict=True))
    return [min(column) for column in columns], [max(column) for column in columns]


def _phases(x: Array, axis: int, stride: int, used: int) -> list[Array]:
    """Every `stride`-th element along an axis, from each of the first `used` on."""
    if stride == 1:
        return [x]
    blocks = x.shape[axis] // stride
    apart = lax.reshape(x, (*x.shape[:axis], blocks, stride, *x.shape[axis + 1 :]))
    apart = lax.slice_in_dim(apart, 0, used, axis=axis + 1)
    return [lax.squeeze(phase, [axis + 1]) for phase in lax.split(apart, [1] * used, axis + 1)]


def assemble(
    term: Term,
    arrays: Sequence[Array],
    axes: Sequence[int],
    step: Step,
    join: Term,
) -> Array:
    """The transpose of a step: `term(q, *arrays)` is what piece q gets from each output; `join` adds what meets.

    Positions of what the step takes are seen as blocks of `strides`: position `stride * block +
    phase` gets its terms from the pieces of that phase, each from the output as many blocks back as
    its shift says. One dense expression a phase; the phases are interleaved at the end. Padding is
    never interleaved: cut off afterwards along the minor axis, it costs twice the time.
    """
    first, last = _delays(step)
    thin = narrow(arrays[0], axes)
    several = len(arrays) > 1
    blocks, order = _layout(step, axes, loop_a_phase=thin and several)
    copied = thin or not several
    if not copied and max(step.strides) > 1:
        blocks, copied = _blocks_of_terms(step, axes, blocks)
    ones = [1] * len(blocks)

    if copied:
        wide = [_shifted(array, axes, step, blocks, last, first) for array in arrays]

        def placed(piece: int) -> Array:
            delays, _ = step.placed(piece)
            starts = [most - delay for most, delay in zip(last, delays, strict=True)]
            return term(piece, *[kernels.view(a, axes, starts, blocks, ones) for a in wide])
    else:

        def placed(piece: int) -> Array:
            delays, _ = step.placed(piece)
            return _shifted(term(piece, *arrays), axes, step, blocks, delays, delays)

    found: dict[Phases, list[Array]] = {}
    for piece in range(len(step.starts)):
        found.setdefault(step.placed(piece)[1], []).append(placed(piece))
    joined = {phases: functools.reduce(join, terms) for phases, terms in found.items()}
    return _whole(joined, axes, step, order)


def _shifted(
    array: Array,
    axes: Sequence[int],
    step: Step,
    blocks: Sequence[int],
    most: Sequence[int],
    few: Sequence[int],
) -> Array:
    """Outputs, `most` blocks later than they are, and as many as `few` later reach the last of `blocks`."""
    ends = zip(most, few, blocks, step.outs, strict=True)
    return kernels.pad(array, axes, [(m, block - out - f, 0) for m, f, block, out in ends], 0)


def narrow(array: Array, axes: Sequence[int]) -> bool:
    """Whether so few elements lie next to each other at a position that loops over them do not vectorise.

    Terms are then read from padded arrays; else each is padded (measured: bench/NOTES.md).
    """
    return kernels.row(array, axes) < kernels.WIDE


def _layout(step: Step, axes: Sequence[int], *, loop_a_phase: bool) -> tuple[list[int], list[int]]:
    """How many blocks phases are interleaved from along each axis, and in which order of the axes.

    XLA for CPU writes a concatenation by a loop for each operand, but one of which something is cut
    off by a single loop, which is faster where loops vectorise anyway: a block too many. Elsewhere
    loops for each phase vectorise, if the minor axis comes last.
    """
    blocks = list(step.blocks)
    order = sorted(range(len(axes)), key=lambda which: axes[which], reverse=not loop_a_phase)
    strided = [which for which, stride in enumerate(step.strides) if stride > 1]
    if strided and not loop_a_phase:
        blocks[strided[0]] += 1
    return blocks, order


def _blocks_of_terms(step: Step, axes: Sequence[int], blocks: list[int]) -> tuple[list[int], bool]:
    """How many blocks strided terms of several arrays are put together from, and whether from padded copies.

    Terms padded one by one are faster, 2.4 ms for 3.4, where XLA for CPU vectorises them: with
    bounds to test along one axis, or a few terms with one bound each along the minor axis. Elsewhere
    they are 5 to 10 times slower (measured: bench/NOTES.md).
    """
    first, last = _delays(step)
    reached = [max(1, out + most) for out, most in zip(step.outs, last, strict=True)]
    each = zip(reached, step.blocks, step.strides, step.unpadded, strict=True)
    fewest = [few if few * stride <= size else every for few, every, stride, size in each]
    minor = max(range(len(axes)), key=lambda which: axes[which])

    def vectorises(blocks: list[int]) -> bool:
        before = [most > 0 for most in last]
        after = [n > out + few for n, out, few in zip(blocks, step.outs, first, strict=True)]
        if sum(map(max, before, after)) <= 1:
            return True
        one_bound = not (before[minor] and after[minor])
        return len(step.starts) <= FEW_TERMS and max(step.strides) <= 2 and one_bound

    if fewest == list(step.blocks) and vectorises(blocks):
        return blocks, False
    return fewest, not vectorises(fewest)


def reads_in_place(step: Step, axes: Sequence[int]) -> bool:
    """Whether the terms of several arrays are few and taken without copies of them."""
    blocks, _ = _layout(step, axes, loop_a_phase=False)
    return len(step.starts) <= FEW_TERMS and not _blocks_of_terms(step, axes, blocks)[1]


def _whole(
    parts: dict[Phases, Array], axes: Sequence[int], step: Step, order: Sequence[int]
) -> Array:
    """What a step takes, from its phases; zeros in those that have none."""
    nothing = lax.full_like(next(iter(parts.values())), 0)
    every = itertools.product(*map(range, step.phases))
    parts = {phases: parts.get(phases, nothing) for phases in every}
    whole = interleave(parts, axes, step.strides, order)
    sides = [
        (0, size - low - high - whole.shape[axis], 0)
        for axis, size, (low, high) in zip(axes, step.sizes, step.sides, strict=True)
    ]
    return kernels.pad(whole, axes, sides, 0)


def interleave(
    parts: dict[Phases, Array], axes: Sequence[int], strides: Sequence[int], order: Sequence[int]
) -> Array:
    """One array from those of the phases, axes in `order`; zeros where an axis has fewer phases than its stride."""
    for which in order:
        rows: dict[Phases, list[Array]] = {}
        for phases, part in parts.items():
            rows.setdefault((*phases[:which], 0, *phases[which + 1 :]), []).append(part)
        parts = {phases: _in_turn(row, axes[which], strides[which]) for phases, row in rows.items()}
    (whole,) = parts.values()
    return whole


def _in_turn(parts: list[Array], axis: int, stride: int) -> Array:
    """Elements of each part in turn along an axis, and zeros until each turn is `stride` long."""
    if stride == 1:
        return parts[0]
    stacked = kernels.pad(jnp.stack(parts, axis + 1), [axis + 1], [(0, stride - len(parts), 0)], 0)
    shape = list(parts[0].shape)
    shape[axis] *= stride
    return lax.reshape(stacked, shape)
