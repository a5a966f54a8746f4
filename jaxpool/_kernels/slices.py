"""Slices and passes over arrays along pooled axes, and arrays that XLA stores: building blocks of the dense kernels.

A pass joins one term per tap (offset in the window) at each output position. All dense windowed kernels are passes with
different terms and joins:

    maximum            (value, tap), joined by the winner           window   reads elements
    its transpose      the cotangent if the tap matches, added      element  reads windows
    sum                the element, added                           window   reads elements
    its transpose      the cotangent, added                         element  reads windows

The plan's `Layout` cuts the result into regions: XLA for CPU vectorises regions without padding, and only the ends of
an axis read padding. The transpose of a pass with stride s has s phases: phase p computes every s-th position from p
on. The results of the phases are interleaved.

`materialise` makes XLA compute an array once. XLA fuses a cheap producer into each of its consumers. A chain of selects
is then 10 to 40 times slower, and comparisons fail if two computations of one array are rounded differently. An
optimization barrier prevents the fusion, but XLA for CPU drops barriers before it fuses. On CPU, the producer is
therefore put into a call that XLA does not inline.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import PartitionSpec, reshard
from jax.typing import ArrayLike

from jaxpool._arguments.arrays import varying_mesh_axes
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.access import Phases, Region, total_positions
from jaxpool._geometry.window import Window
from jaxpool._kernels.clamped import T, Y, run_clamped_pass
from jaxpool._kernels.dtypes import cast, full_like, widen_to_8_bits
from jaxpool._plan.problem import BarrierKind, Layout

# The fill value of a source whose padding mirrors its elements, as in `jnp.pad(mode="reflect")`
REFLECTED = "reflected"
Fill = Any  # a number of any library, or REFLECTED
Ints = Sequence[int]
PaddingConfig = tuple[int, int, int]  # (low, high, interior), as in `lax.pad`


def pad(x: Array, axes: Ints, configs: Sequence[PaddingConfig], fill: ArrayLike) -> Array:
    """Pad `axes` of x by (low, high, interior) as in `lax.pad`; negative low or high padding crops."""
    if not any(any(axis_config) for axis_config in configs):
        return x
    config = [(0, 0, 0)] * x.ndim
    for axis, axis_config in zip(axes, configs, strict=True):
        config[axis] = axis_config
    # XLA for CPU aborts if a pad that is not fused has an operand of 2- or 4-bit integers.
    wide = widen_to_8_bits(x)
    if not isinstance(fill, Array):
        fill = np.asarray(fill, wide.dtype)
    return cast(lax.pad(wide, fill.astype(wide.dtype), config), x.dtype)


def pad_input(x: Array, window: Window, fill: ArrayLike) -> Array:
    """Pad x to the positions that windows cover, and crop elements at the high ends that no window covers."""
    return pad(x, window.axes, [(dim.low, dim.used_high, 0) for dim in window.dims], fill)


class SplitArray(NamedTuple):
    """An array to read with a stride along its last axis: `parts[p]` has the elements p, p + stride, ..."""

    parts: tuple[Array, ...]


def strided_slice(
    x: Array | SplitArray, axes: Ints, starts: Ints, num_outputs: Ints, strides: Ints
) -> Array:
    """Slice x along `axes`: `num_outputs` positions per axis, from `starts` on, at distances of `strides`."""
    if isinstance(x, SplitArray):
        last, starts, strides = axes.index(x.parts[0].ndim - 1), [*starts], [*strides]
        starts[last], part = divmod(starts[last], strides[last])
        strides[last], x = 1, x.parts[part]
    begin, end, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for axis, start, out, stride in zip(axes, starts, num_outputs, strides, strict=True):
        begin[axis], end[axis], step[axis] = start, start + (out - 1) * stride + 1, stride
    return lax.slice(x, begin, end, step)


def elements_at_tap(padded_input: Array, window: Window, flat_tap: int) -> Array:
    """Element of each window at the row-major tap `flat_tap`; `padded_input` comes from `pad_input`."""
    dims, taps = window.dims, window.unravel(flat_tap)
    starts = [tap * dim.dilation for tap, dim in zip(taps, dims, strict=True)]
    strides = [dim.stride for dim in dims]
    return strided_slice(padded_input, window.axes, starts, window.output_shape, strides)


def empty_along_axes(x: Array, axes: Ints) -> Array:
    """Slice x to size 0 along `axes`, which preserves the sharding of x."""
    for axis in axes:
        x = lax.slice_in_dim(x, 0, 0, axis=axis)
    return x


def zeros_like_with_sizes(x: Array, axes: Ints, sizes: Ints) -> Array:
    """Zeros with the dtype and sharding of x, and the shape of x except for `sizes` along `axes`."""
    return pad(empty_along_axes(x, axes), axes, [(0, size, 0) for size in sizes], 0)


def new_axes(axes: Ints) -> tuple[int, ...]:
    """Axes that are new if a second axis is inserted after each of `axes`, in the order of `axes`."""
    return tuple(axis + sorted(axes).index(axis) + 1 for axis in axes)


def split_shape(
    shape: Sequence[int], axes: Ints, sizes: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    """The shape after each of `axes` is split into two axes of `sizes`."""
    pairs = dict(zip(axes, sizes, strict=True))
    return tuple(itertools.chain(*[pairs.get(axis, (n,)) for axis, n in enumerate(shape)]))


def join_parts(
    part_at_index: Mapping[tuple[int, ...], T],
    axis_order: Ints,
    join_along_axis: Callable[[list[T], int], T],
) -> T:
    """Join parts along one axis after another by `join_along_axis(row, axis)`; keys are grid indices of the parts."""
    for axis in axis_order:
        rows: dict[tuple[int, ...], list[T]] = {}
        for index, part in part_at_index.items():
            rows.setdefault((*index[:axis], 0, *index[axis + 1 :]), []).append(part)
        part_at_index = {index: join_along_axis(row, axis) for index, row in rows.items()}
    (whole,) = part_at_index.values()
    return whole


def interleave(
    parts: Sequence[Array], axis: int, period: int, *, are_stored: bool = False
) -> Array:
    """Interleave parts along an axis: part p gets the positions p, p + period, ... Missing parts are zeros.

    Along the last axis, XLA for CPU vectorises a select among parts that are stored, but not a concatenation.
    """
    if period == 1:
        return parts[0]
    if are_stored and axis == parts[0].ndim - 1:
        shape = (*parts[0].shape, period)
        position = lax.broadcasted_iota(np.int32, shape, axis + 1)
        repeated = [lax.broadcast_in_dim(part, shape, range(part.ndim)) for part in parts]
        y = full_like(repeated[0], 0) if len(parts) < period else repeated.pop()
        for which, part in enumerate(repeated):
            y = lax.select(lax.eq(position, full_like(position, which)), part, y)
        return lax.collapse(y, axis, axis + 2)
    padding = (0, period - len(parts), 0)
    return lax.collapse(pad(jnp.stack(parts, axis + 1), [axis + 1], [padding], 0), axis, axis + 2)


def where_or_zero(where: Array, x: Array) -> Array:
    """Elements of x where `where` is True, zeros elsewhere."""
    return lax.select(where, x, full_like(x, 0))


def is_tap_chosen(tap: ArrayLike, chosen_tap: Array) -> Array:
    """Mask of the elements of `chosen_tap` that equal the scalar `tap`, which may be traced."""
    return lax.eq(chosen_tap, lax.broadcast(jnp.asarray(tap, chosen_tap.dtype), chosen_tap.shape))


def concatenate(parts: Sequence[Array], axis: int) -> Array:
    """Concatenate parts along an axis.

    XLA for CPU does not fuse a concatenation along the last axis with its operands (jax 0.12; in jax 0.10 only for
    one-dimensional arrays). A trailing axis of size 1 makes XLA fuse the concatenation.
    """
    if len(parts) == 1:
        return parts[0]
    if axis < parts[0].ndim - 1:
        return lax.concatenate(parts, axis)
    expanded = [lax.expand_dims(part, [part.ndim]) for part in parts]
    return lax.squeeze(lax.concatenate(expanded, axis), [parts[0].ndim])


def reshape_along_axis(vector: Any, axis: int, ndim: int) -> Any:
    """Reshape a vector to rank `ndim`, with size 1 along all axes but `axis`."""
    return vector.reshape([-1 if other == axis else 1 for other in range(ndim)])


def outer_broadcast(
    binary_op: Callable[..., Array], vectors: Sequence[ArrayLike], axes: Ints, ndim: int
) -> Array:
    """Combine `vectors`, one per axis, to an array of rank `ndim` that the program computes: no large constant."""
    other_axes = [[other for other in range(ndim) if other != axis] for axis in axes]
    xs = [lax.expand_dims(jnp.asarray(a), b) for a, b in zip(vectors, other_axes, strict=True)]
    return functools.reduce(binary_op, xs)


def broadcast_like(value: ArrayLike, like: Array) -> Array:
    """Broadcast `value` to the shape and the sharding of `like`."""
    y = jnp.broadcast_to(jnp.asarray(value), like.shape)
    sharding, like_sharding = jax.typeof(y).sharding, jax.typeof(like).sharding
    has_spec = any(sharding.spec) or any(like_sharding.spec)
    return reshard(y, like_sharding) if has_spec and sharding.spec != like_sharding.spec else y


def reshape_like(y: Array, shape: Sequence[int], like: Array) -> Array:
    """Reshape y to `shape`, which broadcasts against `like` or has more leading axes, and reshard y like `like`."""
    like_sharding = jax.typeof(like).sharding
    shardings = [each for each in (like_sharding, jax.typeof(y).sharding) if any(each.spec)]
    if not shardings:
        return lax.reshape(y, shape)
    num_extra = len(shape) - like.ndim
    pairs = zip(shape[num_extra:], like.shape, like_sharding.spec, strict=True)
    entries = [entry if size == like_size else None for size, like_size, entry in pairs]
    spec = PartitionSpec(*[None] * num_extra, *entries)
    sharding = shardings[0].update(spec=spec)
    if not any(jax.typeof(y).sharding.spec):  # JAX cannot transpose a reshape that also shards
        return reshard(lax.reshape(y, shape), sharding)
    return lax.reshape(y, shape, out_sharding=sharding)


def is_empty(x: Array) -> bool:
    """True if an axis of x has size 0.

    Callers skip scaled (log-domain) evaluation of empty x, because jax's transpose would drop varying mesh axes of x.
    """
    return any(is_int(n) and n == 0 for n in x.shape)


def is_sharded(x: Array) -> bool:
    """True if the type of x has a sharded axis. Shardings over automatic mesh axes are not part of the type."""
    return any(part for part in jax.typeof(x).sharding.spec)


PadToRegion = Callable[..., Array]  # (slice, fill=...) -> the slice padded to the region
# (tap, a slice of each array, pad_to_region) -> a term
TermFunction = Callable[[int, Sequence[Array], PadToRegion], T]


def add_terms(terms: Sequence[Array]) -> Array:
    """Add terms one after another."""
    return functools.reduce(lax.add, terms)


class Source(NamedTuple):
    """Arrays that a pass reads at the same positions, their fill values for padding, and the phases along each axis."""

    arrays: Sequence[Array]
    fill_values: Sequence[Fill]
    phases: Sequence[Phases]


def run_pass(
    layout: Layout,
    axes: Ints,
    sources: Sequence[Source],
    term_at_tap: TermFunction[T],
    join_terms: Callable[[Sequence[T]], Y],
) -> Y:
    """Run a pass along `axes`: `join_terms(terms)` at each output position, with the terms in the order of the taps.

    In a region that reads only padding, there is a single term: it has tap 0 and consists of fill values.
    """
    if layout.read_mode == "clamped":
        return run_clamped_pass(axes, sources, term_at_tap, join_terms)
    region_order = sorted(range(len(axes)), key=axes.__getitem__)
    phase_order = region_order if layout.minor_axis_last else region_order[::-1]
    is_split, store = layout.splits_last_axis, operator.call
    if is_split:
        store = functools.partial(materialise, "call")

    def prepare_source(source: Source, regions: Sequence[Region]) -> Source:
        """The source with padded arrays. Arrays are stored, and split if they are strided, if the layout says so."""
        if layout.read_mode == "bounded":
            return source
        ranges = _padded_ranges(source, axes, regions)

        def prepare_arrays(*arrays: Array) -> list[Any]:
            pairs = zip(arrays, source.fill_values, strict=True)
            if not is_split:
                return [_pad_to_ranges(x, axes, ranges, fill) for x, fill in pairs]
            stride = source.phases[axes.index(arrays[0].ndim - 1)][0].stride
            return [_split_last_axis(x, axes, ranges, fill, stride) for x, fill in pairs]

        phases = [
            tuple(access.slice_elements(*ends) for access in accesses)
            for accesses, ends in zip(source.phases, ranges, strict=True)
        ]
        whole = [(0, source.arrays[0].shape[axis]) for axis in axes]
        # A reflection that is not stored in memory would be computed again in each term.
        is_reflected = source.fill_values[0] is REFLECTED and ranges != whole
        store_inputs = functools.partial(materialise, "call") if is_reflected else store
        return Source(store_inputs(prepare_arrays, *source.arrays), source.fill_values, phases)

    def compute_region(regions: Sequence[Region]) -> Y:
        """Results at the output positions of one region, with the phases interleaved."""
        inputs = [prepare_source(source, regions) for source in sources]
        phases_of_axes = zip(*[source.phases for source in sources], strict=True)
        indices = [*itertools.product(*map(_phases_that_read, phases_of_axes, regions))]

        def compute_phases(*arrays_of_sources: Sequence[Array]) -> list[Y]:
            pairs = zip(inputs, arrays_of_sources, strict=True)
            stored = [source._replace(arrays=arrays) for source, arrays in pairs]
            return [compute_phase(stored, phase_per_axis) for phase_per_axis in indices]

        def compute_phase(stored: Sequence[Source], phase_per_axis: tuple[int, ...]) -> Y:
            term_args = [_term_args(source, axes, regions, phase_per_axis) for source in stored]
            terms = [term_at_tap(*args) for args in itertools.chain(*term_args)]
            return join_terms(terms or [fill_value_term()])

        def fill_value_term() -> T:
            empty_parts = [empty_along_axes(x, axes) for x in sources[0].arrays]
            padding = [(0, region.stop - region.start, 0) for region in regions]
            return term_at_tap(0, empty_parts, functools.partial(pad, axes=axes, configs=padding))

        def interleave_along_axis(parts: list[Array], i: int) -> Array:
            return interleave(parts, axes[i], regions[i].num_phases, are_stored=is_split)

        def interleave_phases(*phase_results: Array) -> Array:
            parts = dict(zip(indices, phase_results, strict=True))
            return join_parts(parts, phase_order, interleave_along_axis)

        results = store(compute_phases, *[source.arrays for source in inputs])
        return jax.tree.map(interleave_phases, *results)

    def crop_to_output(x: Array) -> Array:
        sizes = [total_positions(phases) for phases in sources[0].phases]
        padding = [(0, size - x.shape[axis], 0) for axis, size in zip(axes, sizes, strict=True)]
        return pad(x, axes, padding, 0)

    def concatenate_regions(results: list[Y], axis_index: int) -> Y:
        return jax.tree.map(lambda *parts: concatenate(parts, axes[axis_index]), *results)

    # Concatenate regions along the minor axis last for every order of `axes`: XLA vectorises other orders less.
    parts = {
        tuple(index for index, _ in pairs): compute_region([region for _, region in pairs])
        for pairs in itertools.product(*map(enumerate, layout.axis_regions))
    }
    return jax.tree.map(crop_to_output, join_parts(parts, region_order, concatenate_regions))


def _phases_that_read(source_phases: Sequence[Phases], region: Region) -> range:
    """Phases of a region up to the last phase that reads an element; all later phases hold zeros."""
    last = 0
    for phase in range(region.num_phases):
        if any(phases[phase].tap_offsets for phases in source_phases):
            last = phase
    return range(last + 1)


def _term_args(
    source: Source, axes: Ints, regions: Sequence[Region], phase_per_axis: tuple[int, ...]
) -> Iterator[tuple[int, list[Array], PadToRegion]]:
    """Arguments of the term function for each tap of a phase that reads an element, in the order of the taps."""
    accesses = [phases[phase] for phases, phase in zip(source.phases, phase_per_axis, strict=True)]
    strides = [access.stride for access in accesses]
    for pairs in itertools.product(*[access.tap_offsets for access in accesses]):
        starts, outs, padding = [], [], []
        for access, (offset, _), region in zip(accesses, pairs, regions, strict=True):
            first, stop = access.valid_range(offset, region.start, region.stop)
            starts.append(access.stride * first + offset)
            outs.append(stop - first)
            padding.append((first - region.start, region.stop - stop, 0))
        if min(outs) > 0:
            parts = [strided_slice(x, axes, starts, outs, strides) for x in source.arrays]
            pad_to_region = functools.partial(pad, axes=axes, configs=padding)
            yield sum(tap for _, tap in pairs), parts, pad_to_region


Range = tuple[int, int]  # first element along an axis, and end; both may be in the padding


def _padded_ranges(source: Source, axes: Ints, regions: Sequence[Region]) -> list[Range]:
    """The elements that a region reads along each axis, if it reads padding; otherwise all elements."""
    ranges = []  # axes without padding are not cropped: XLA for CPU copies a slice that many terms read
    for axis, accesses, region in zip(axes, source.phases, regions, strict=True):
        reads = [(access.stride, offset) for access in accesses for offset, _ in access.tap_offsets]
        begin = min((stride * region.start + offset for stride, offset in reads), default=0)
        end = max((stride * (region.stop - 1) + offset + 1 for stride, offset in reads), default=0)
        size = source.arrays[0].shape[axis]
        ranges.append((0, size) if begin >= 0 and end <= size else (begin, end))
    return ranges


def _pad_to_ranges(x: Array, axes: Ints, ranges: Sequence[Range], fill: Fill) -> Array:
    """The elements of x in `ranges`, which may include padding. Reflected padding must be shorter than its axis."""
    for axis, (begin, end) in zip(axes, ranges, strict=True):
        size = x.shape[axis]
        if (begin, end) == (0, size):
            continue
        first = min(max(begin, 0), size)
        stop = max(first, min(end, size))
        inside, low, high = lax.slice_in_dim(x, first, stop, axis=axis), first - begin, end - stop
        if fill is REFLECTED:
            before = lax.slice_in_dim(x, 1, 1 + low, axis=axis)
            after = lax.slice_in_dim(x, size - 1 - high, size - 1, axis=axis)
            x = concatenate([lax.rev(before, [axis]), inside, lax.rev(after, [axis])], axis)
        else:
            x = pad(inside, [axis], [(low, high, 0)], fill)
    return x


def _split_last_axis(
    x: Array, axes: Ints, ranges: Sequence[Range], fill: ArrayLike, stride: int
) -> SplitArray:
    """Pad or crop x along `axes` to `ranges` of its elements, and split its last axis into strided slices."""
    last, pairs = axes.index(x.ndim - 1), zip(axes, ranges, strict=True)
    padding = [(-begin, end - x.shape[axis], 0) for axis, (begin, end) in pairs]
    begin, end = ranges[last]
    parts = []
    for start in range(begin, begin + stride):
        first = start if start >= 0 else start % stride
        elements = lax.slice_in_dim(x, min(first, x.shape[-1]), None, stride, axis=x.ndim - 1)
        num_before, num_elements = (first - start) // stride, len(range(start, end, stride))
        padding[last] = (num_before, num_elements - num_before - elements.shape[-1], 0)
        parts.append(pad(elements, axes, padding, fill))
    return SplitArray(tuple(parts))


# True if jax inlines every call of the program that is being lowered, as jax does for programs exported for several
# platforms or with symbolic sizes. jax's jit cache has a separate entry for each value of a user context.
inlines_calls = jax.make_user_context(False)


def materialise(barrier_kind: BarrierKind, kernel: Callable[..., T], *args: Any) -> T:
    """Evaluate `kernel(*args)` and store each result. With the barrier kind "call", the arguments are also stored."""
    if barrier_kind == "barrier":
        return lax.optimization_barrier(kernel(*args))
    if barrier_kind == "row-major barrier":
        return _store_row_major(kernel(*args))
    if inlines_calls.value:
        return _evaluate_in_conditional(kernel, *args)

    def body(*args: Array) -> T:
        with set_xla_metadata(inlineable=None):  # XLA may inline calls inside the kernel
            return kernel(*args)

    with set_xla_metadata(inlineable="false"):
        return jax.jit(body)(*args)


def _store_row_major(arrays: T) -> T:
    """Store arrays in row-major layout. XLA for GPU would store the axis of a gather first, and read it in scalars."""

    def merge_axes(x: Array) -> Array:
        return lax.collapse(x, 0, x.ndim - 1) if x.ndim > 1 else x

    merged = lax.optimization_barrier(jax.tree.map(merge_axes, arrays))
    return jax.tree.map(lambda y, x: lax.reshape(y, x.shape), merged, arrays)


def store_arguments(barrier_kind: BarrierKind, kernel: Callable[..., T]) -> Callable[..., T]:
    """Wrap a kernel so that each argument is computed once and stored, even if the kernel reads the argument twice.

    XLA may recompute an argument for a second read with different rounding: XLA keeps 16-bit intermediates as float32
    and contracts products and sums. The maximum from the first read may then equal no element of the second read.
    """
    if barrier_kind == "barrier":
        return lambda *args: kernel(*lax.optimization_barrier(args))
    return functools.partial(materialise, barrier_kind, kernel)


def _evaluate_in_conditional(kernel: Callable[..., T], *args: Array) -> T:
    """Evaluate `kernel(*args)` in a `lax.cond` whose predicate XLA cannot fold, which is slower than a call."""
    branch = jax.jit(kernel)  # so that `make_jaxpr` and the branch share one trace
    program, shapes = jax.make_jaxpr(branch, return_shape=True)(*args)

    def zeros_of_type(aval: Any) -> Array:
        sharding = aval.sharding if any(aval.sharding.spec) else None
        zeros = lax.full(aval.shape, 0, aval.dtype, sharding=sharding)
        axes = tuple(sorted(varying_mesh_axes(aval), key=str))
        return lax.pcast(zeros, axes, to="varying") if axes else zeros

    def untaken_branch(*args: Array) -> T:
        return jax.tree.unflatten(jax.tree.structure(shapes), map(zeros_of_type, program.out_avals))

    predicate = lax.optimization_barrier(jnp.asarray(True))
    return lax.optimization_barrier(lax.cond(predicate, branch, untaken_branch, *args))


def unravel_index(flat_index: Array, sizes: Ints) -> list[Array]:
    """Index along each axis from a row-major flat index in an array of `sizes`, like `jnp.unravel_index`."""
    indices: list[Array] = []
    for size in reversed(sizes):
        divisor = full_like(flat_index, size)
        indices.insert(0, lax.rem(flat_index, divisor))
        flat_index = lax.div(flat_index, divisor)
    return indices
