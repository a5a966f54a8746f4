"""Sums over windows and their transpose, in as few passes as vectorise, without padded copies.

A pass reads an array where it is. Its result is cut into regions, and only those at the ends of an
axis test which elements exist (`_taps`): XLA for CPU writes one loop a region, and those inside
have nothing to test. Passes are kept apart, so that one array between two of them is alive at a
time (measured: bench/NOTES.md).
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence

import jax
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry import taps as _taps
from jaxpool._geometry.taps import Cut, Phases, Taps
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import dense as kernels
from jaxpool._kernels.dense import End
from jaxpool._kernels.fold import add, window_fold, window_unfold
from jaxpool._kernels.gather import (
    TAPS_OF_MANY_ENDS,
    can_gather,
    kept_sums,
    long_ends,
    worth_gathering,
)
from jaxpool._kernels.phases import interleave, narrow
from jaxpool._kernels.regions import missing, pieces, put_together

# Bytes from which regions are worth their longer program.
WORTH_REGIONS = 1 << 11
# Bytes from which that holds for all regions of more than two axes.
WORTH_MANY_AXES = 1 << 16
# One pass over several axes vectorises up to so many taps, ...
PASS_TAPS = 49
# ... and so many an element of the larger array (gathered, spread), or three an axis, ...
TAPS_AN_ELEMENT = 9
SPREAD_TAPS_AN_ELEMENT = 13
SHORT = 3
# ... or so many along each of two axes where sums are gathered, with channels last.
SHORT_OF_TWO = 6
# Terms of one pass over all of its regions, at most.
TERMS = 1 << 10
# Along one axis, up to so many taps are added in one pass, ...
LONGEST = 32
# ... and up to so many in two, or in the phases of so many strides.
LONGEST_OF_TWO = 256
# Cotangents of more phases are looked up on CPU; those of fewer and of many taps are put together of sums.
FEW_PHASES = 8
# Taps along one axis for which one loop tests bounds and still vectorises.
TESTED_TAPS = 9
# Over rows of fewer neighbours LLVM does not vectorise rounding to float16: what is repeated is rounded before.
ROUNDED_ROW = 64
# Regions at either end of an axis that is passed over alone: XLA writes up to 8 regions as loops of one program.
ENDS = 3

Source = tuple[Array, Sequence[Phases]]  # an array, and along each axis what is added up of it


def _added(
    x: Array, axes: Sequence[int], taps: Sequence[Taps], cuts: Sequence[Cut]
) -> Array | None:
    """The sums at the positions of a region, of all taps in one expression; None where nothing is added up."""
    total = None
    for _, (part,), around in pieces([x], axes, taps, cuts):
        term = kernels.pad(kernels.cast(part, kernels.accumulator(x.dtype)), axes, around, 0)
        total = term if total is None else lax.add(total, term)
    return total


def _nested(
    x: Array, axes: Sequence[int], taps: Sequence[Taps], cuts: Sequence[Cut]
) -> Array | None:
    """`_added` as sums of sums, the minor axis first: fewer terms of one expression."""
    total: Array | None = x
    for which in reversed(range(len(axes))):
        if total is not None:
            total = _added(total, [axes[which]], [taps[which]], [cuts[which]])
    return total


def _region(
    sources: Sequence[Source], axes: Sequence[int], cuts: Sequence[Cut], *, nested: bool
) -> Array:
    """A region of the result: the sums of every phase, in turn."""
    add_up = _nested if nested else _added
    parts = {}
    for phases in itertools.product(*[range(cut.phases) for cut in cuts]):
        sums = [
            add_up(x, axes, [each[phase] for each, phase in zip(taps, phases, strict=True)], cuts)
            for x, taps in sources
        ]
        found = [each for each in sums if each is not None]
        parts[phases] = functools.reduce(lax.add, found) if found else None
    x = sources[0][0]
    filled = {
        phases: missing(x, axes, cuts, 0).astype(kernels.accumulator(x.dtype))
        if part is None
        else part
        for phases, part in parts.items()
    }
    minor_first = [*reversed(range(len(axes)))]
    return interleave(filled, axes, [cut.phases for cut in cuts], minor_first)


def _worth_cutting(sources: Sequence[Source], axes: Sequence[int]) -> bool:
    """Whether loops are faster with regions of their own at the ends of the axes; arrays of unknown size are large.

    Along one axis a loop over few taps tests bounds as fast, unless it is wide and interleaves phases.
    """
    x, (phases, *_) = sources[0]
    if kernels.bytes_of(x) < WORTH_REGIONS:
        return False
    if len(axes) > 1:
        return True
    taps = sum(len(each.offsets) for _, (along,) in sources for each in along)
    return taps > TESTED_TAPS or (len(phases) > 1 and not narrow(x, axes))


def _sums(sources: Sequence[Source], axes: Sequence[int], end: End | None = None) -> Array:
    """In one pass: at each position the sum of what is added up of all sources, along ascending axes."""
    x, taps = sources[0]
    cut = _worth_cutting(sources, axes)

    def in_regions(x: Array, *, cut: bool) -> Array:
        return kernels.finished(_in_regions([(x, taps), *sources[1:]], axes, cut=cut), end)

    if cut and len(sources) == 1 and worth_gathering(x, axes, taps):
        apart = functools.partial(in_regions, cut=True)
        return _looked_up(x, axes, taps, end, apart, functools.partial(in_regions, cut=False))
    return in_regions(x, cut=cut)


def _looked_up(
    x: Array,
    axes: Sequence[int],
    taps: Sequence[Phases],
    end: End | None,
    tangents: Callable[[Array], Array],
    elsewhere: Callable[[Array], Array],
) -> Array:
    """The sums of `kept_sums` on CPU, and what `elsewhere` adds up on other platforms.

    `tangents` adds those up: jax transposes it without scatters, and as often as asked.
    """
    sums = jax.custom_jvp(functools.partial(kept_sums, axes=axes, taps=taps, end=end))
    sums.defjvp(lambda x, dx: (sums(*x), tangents(*dx)))
    return lax.platform_dependent(x, cpu=sums, default=elsewhere)


def _in_regions(sources: Sequence[Source], axes: Sequence[int], *, cut: bool) -> Array:
    """`_sums`, the ends of the axes in regions of their own if `cut`."""
    most = 0 if not cut else ENDS if len(axes) == 1 else 1
    columns = [_taps.cuts([taps[which] for _, taps in sources], most) for which in range(len(axes))]
    each = [phases for _, taps in sources for phases in taps]
    meeting = any(len(taps.offsets) > taps.stride for phases in each for taps in phases)
    nested = cut and len(axes) == 2 and meeting and all(len(phases) == 1 for phases in each)
    return put_together(axes, columns, lambda cuts: _region(sources, axes, cuts, nested=nested))


def _passes(dims: Sequence[Axis], fits: Callable[[Sequence[Axis]], bool]) -> list[tuple[Axis, ...]]:
    """The axes of each pass, the minor ones first."""
    groups: list[tuple[Axis, ...]] = []
    for dim in reversed(dims):
        if groups and fits((dim, *groups[-1])):
            groups[-1] = (dim, *groups[-1])
        else:
            groups.append((dim,))
    return groups


def _flat(dims: Sequence[Axis], x: Array, *, spread: bool = False) -> bool:
    """Whether one pass over all of `dims` is faster than one for each."""
    longest = max(dim.window for dim in dims)
    size = math.prod(dim.window for dim in dims)
    strides = math.prod(dim.stride for dim in dims)
    small = len(dims) > 2 and kernels.bytes_of(x) < WORTH_MANY_AXES
    if small or size * 3 ** len(dims) > TERMS or (spread and strides > PASS_TAPS):
        return False
    axes = [dim.axis for dim in dims]
    taps = [(_taps.of_inputs if spread else _taps.of_outputs)(dim) for dim in dims]
    if len(dims) > 2 and long_ends(taps) and not worth_gathering(x, axes, taps):
        return False
    if spread and strides > 1:
        if kernels.is_narrow_float(x.dtype):
            return longest <= SHORT and (len(dims) <= 2 or worth_gathering(x, axes, taps))
        few = SPREAD_TAPS_AN_ELEMENT
    elif len(dims) == 2 and longest <= SHORT_OF_TWO and dims[-1].axis < x.ndim - 1:
        return True
    else:
        few = TAPS_AN_ELEMENT
    return size <= PASS_TAPS and (size <= few * strides or longest <= SHORT)


def _apart(
    x: Array, groups: Sequence[Sequence[Axis]], kernel: Callable[..., Array], end: End | None
) -> Array:
    for group in groups[:-1]:
        x = kernels.materialise(functools.partial(kernel, dims=group, end=None), x)
    if groups:
        return kernel(x, dims=groups[-1], end=end)
    return kernels.finished(x, end)


def _factors(long: int) -> tuple[int, int]:
    """Two factors of a number, as near each other as there are, or of one a little less."""
    root = math.isqrt(long)
    for factor in range(root, root // 2, -1):
        if long % factor == 0:
            return factor, long // factor
    return root, long // root


def _sum_along(x: Array, dim: Axis, end: End | None, longest: int = LONGEST) -> Array:
    """The sum over windows along one axis, of up to `longest` taps in one pass."""
    if dim.window <= longest:
        return _sums([(x, [_taps.of_outputs(dim)])], [dim.axis], end)
    block = _block(dim)
    if block > 1:
        return _sum_of_blocks(x, dim, block, end)
    if dim.stride > 1 or dim.window > LONGEST_OF_TWO:
        x = kernels.cast(x, kernels.accumulator(x.dtype))
        return kernels.finished(window_fold((x,), (0,), Window((dim,)), add)[0], end)
    length, count = _factors(dim.window)
    reach = length * dim.dilation
    begin = max(-dim.low, dim.dilation - reach)
    stop = min(dim.out - dim.low + (count - 1) * reach, dim.size)
    first = tuple(begin + tap * dim.dilation for tap in range(length))
    part = Taps(first, 1, dim.size, stop - begin)
    sums = kernels.materialise(lambda x: _sums([(x, [(part,)])], [dim.axis]), x)
    starts = tuple(piece * reach - dim.low - begin for piece in range(count))
    rest = tuple(tap * dim.dilation - dim.low for tap in range(length * count, dim.window))
    sources = [(sums, [(Taps(starts, 1, stop - begin, dim.out),)])]
    if rest:
        sources.append((x, [(Taps(rest, 1, dim.size, dim.out),)]))
    return _sums(sources, [dim.axis], end)


def _block(dim: Axis) -> int:
    """How long the blocks are of which a window with strides is best added up; 1 where none is good."""
    if dim.stride > 2 * dim.window:  # most of a block would lie in no window
        return 1
    lengths = [1] + [n for n in range(2, LONGEST + 1) if dim.stride % n == 0 and dim.dilation == 1]
    terms, block = min((dim.window // n + dim.window % n, n) for n in lengths)
    return block if terms <= LONGEST else 1


def _sum_of_blocks(x: Array, dim: Axis, block: int, end: End | None) -> Array:
    """`_sum_along` for long windows with strides: of blocks that do not meet, and then of the blocks of each window."""
    count, apart = dim.window // block, dim.stride // block
    blocks = (dim.out - 1) * apart + count
    part = Taps(tuple(tap - dim.low for tap in range(block)), block, dim.size, blocks)
    sums = kernels.materialise(lambda x: _sums([(x, [(part,)])], [dim.axis]), x)
    sources: list[Source] = [(sums, [(Taps(tuple(range(count)), apart, blocks, dim.out),)])]
    rest = tuple(tap - dim.low for tap in range(block * count, dim.window))
    if rest:
        sources.append((x, [(Taps(rest, dim.stride, dim.size, dim.out),)]))
    return _sums(sources, [dim.axis], end)


def window_sum(x: Array, window: Window, end: End) -> Array:
    """The sum over each window, padding counting as 0, as `end` says."""
    whole = tuple(dim.axis for dim in window.dims if dim.whole)
    if whole:
        x = jnp.sum(x, axis=whole, keepdims=True, dtype=kernels.accumulator(x.dtype))
    rest = [dim for dim in _ascending(window) if not dim.whole and not dim.idle]

    def kernel(x: Array, dims: Sequence[Axis], end: End | None) -> Array:
        if len(dims) == 1:
            return _sum_along(x, dims[0], end)
        sources = [(x, [_taps.of_outputs(dim) for dim in dims])]
        return _sums(sources, [dim.axis for dim in dims], end)

    fits = functools.partial(_flat, x=x)
    return _apart(x, _passes(rest, fits), kernel, end)


def _ascending(window: Window) -> list[Axis]:
    return sorted(window.dims, key=operator.attrgetter("axis"))


def window_spread(dy: Array, window: Window, end: End) -> Array:
    """The transpose of `window_sum`: at each input position the sum of dy over the windows that cover it."""
    if 0 in window.input_shape:
        return lax.full(window.unpooled(dy.shape), 0, end.dtype)
    used = [dim for dim in _ascending(window) if not dim.idle]
    alone = [dim for dim in used if dim.whole or (dim.window <= dim.stride and dim.dilation == 1)]
    rest = [dim for dim in used if dim not in alone]
    last: End | None = end
    if not rest:
        sent = functools.partial(kernels.finished, end=end)
        apart = functools.partial(kernels.materialise, sent)
        if alone and _finished_apart(dy, window, end):
            dy = lax.platform_dependent(dy, cpu=apart, default=sent)
        else:
            dy = sent(dy)
        last = None
    for dim in alone:
        if dim.whole:
            shape = list(dy.shape)
            shape[dim.axis] = dim.size
            dy = lax.broadcast_in_dim(dy, shape, range(dy.ndim))
        else:
            dy = _repeat(dy, dim)

    def kernel(dy: Array, dims: Sequence[Axis], end: End | None) -> Array:
        if len(dims) == 1:
            return _spread_along(dy, dims[0], end)
        sources = [(dy, [_taps.of_inputs(dim) for dim in dims])]
        return _sums(sources, [dim.axis for dim in dims], end)

    fits = functools.partial(_flat, x=dy, spread=True)
    return _apart(dy, _passes(rest, fits), kernel, last)


def _finished_apart(dy: Array, window: Window, end: End) -> bool:
    """Whether cotangents that are repeated and not added up are finished in a loop of their own, on CPU."""
    short = kernels.row(dy, window.axes) < ROUNDED_ROW
    rounded = end.divide is not None or dy.dtype != end.dtype
    return short and rounded and end.dtype == jnp.float16


def _spread_along(dy: Array, dim: Axis, end: End | None) -> Array:
    """The transpose of `_sum_along`."""
    if dim.stride == 1:
        low = dim.span - 1 - dim.low
        mirrored = Axis(dim.axis, dim.out, dim.window, 1, dim.dilation, low, dim.low, dim.size)
        return _sum_along(dy, mirrored, end)
    phases = _taps.of_inputs(dim)
    few = max(len(taps.offsets) for taps in phases) <= TAPS_OF_MANY_ENDS
    if not few and dim.dilation == 1 and dim.stride <= FEW_PHASES and dim.window <= LONGEST_OF_TWO:
        return _spread_of_blocks(dy, dim, end)
    look_up = few and can_gather(dy, [phases])
    short = dim.window * dim.stride <= LONGEST_OF_TWO
    if short and not (look_up and dim.stride > FEW_PHASES):
        return _sums([(dy, [phases])], [dim.axis], end)

    def otherwise(dy: Array) -> Array:
        if short:
            total = _in_regions([(dy, [phases])], [dim.axis], cut=False)
        else:
            dy = kernels.cast(dy, kernels.accumulator(dy.dtype))
            (total,) = window_unfold((dy,), (0,), Window((dim,)), add)
        return kernels.finished(total, end)

    if look_up:
        return _looked_up(dy, [dim.axis], [phases], end, otherwise, otherwise)
    return otherwise(dy)


def _spread_of_blocks(dy: Array, dim: Axis, end: End | None) -> Array:
    """The transpose of `_sum_of_blocks` with blocks as long as a stride, all of which lie in the same windows but one.

    The sums of the windows that cover a whole block are kept; the last window covers a part of it.
    """
    count, rest = divmod(dim.window, dim.stride)
    blocks = Axis(dim.axis, dim.out, count, 1, 1, count - 1, count - 1, dim.out + count - 1)
    sums = kernels.materialise(lambda dy: _sum_along(dy, blocks, None, TESTED_TAPS), dy)
    whole, part = [], []
    for phase in range(min(dim.stride, dim.size)):
        block, place = divmod(phase + dim.low, dim.stride)
        out = len(range(phase, dim.size, dim.stride))
        whole.append(Taps((block,), 1, blocks.out, out))
        part.append(Taps((block - count,) if place < rest else (), 1, dim.out, out))
    sources: list[Source] = [(sums, [tuple(whole)])]
    if rest:
        sources.append((dy, [tuple(part)]))
    return _sums(sources, [dim.axis], end)


def _repeat(dy: Array, dim: Axis) -> Array:
    """Windows that do not meet: each element of dy over its window, zeros in the gaps between windows."""
    shape = [*dy.shape[: dim.axis + 1], dim.window, *dy.shape[dim.axis + 1 :]]
    kept = [axis for axis in range(len(shape)) if axis != dim.axis + 1]
    dx = lax.broadcast_in_dim(dy, shape, kept)
    dx = kernels.pad(dx, [dim.axis + 1], [(0, dim.stride - dim.window, 0)], 0)
    flat = list(dy.shape)
    flat[dim.axis] = dim.out * dim.stride
    dx = lax.reshape(dx, flat)
    return kernels.pad(
        dx, [dim.axis], [(-dim.low, dim.low + dim.size - dim.out * dim.stride, 0)], 0
    )
