"""Slices, padding and shapes of arrays along pooled axes, and arrays that XLA stores.

`materialise` makes XLA compute an array once. XLA fuses a cheap producer into each of its consumers. A chain of selects
is then 10 to 40 times slower, and comparisons fail if two computations of one array are rounded differently. An
optimization barrier prevents the fusion, but XLA for CPU drops barriers before it fuses. On CPU, the producer is
therefore put into a call that XLA does not inline.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import PartitionSpec, reshard
from jax.typing import ArrayLike

from jaxpool._arguments.arrays import varying_mesh_axes
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.clamped import T
from jaxpool._kernels.dtypes import cast, full_like, scalar_like, widen_to_8_bits
from jaxpool._plan.problem import BarrierKind

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


def strided_slice(x: Array, axes: Ints, starts: Ints, num_outputs: Ints, strides: Ints) -> Array:
    """Slice x along `axes`: `num_outputs` positions per axis, from `starts` on, at distances of `strides`."""
    begin, end, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for axis, start, out, stride in zip(axes, starts, num_outputs, strides, strict=True):
        begin[axis], end[axis] = start, start + (out - 1) * stride + 1
        # XLA partitions a strided slice of one position along a sharded axis wrongly.
        step[axis] = stride if out > 1 else 1
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


def where_or_zero(where: Array, x: Array) -> Array:
    """Elements of x where `where` is True, zeros elsewhere."""
    return lax.select(where, x, full_like(x, 0))


def is_tap_chosen(tap: ArrayLike, chosen_tap: Array) -> Array:
    """Mask of the elements of `chosen_tap` that equal the scalar `tap`, which may be traced."""
    return lax.eq(chosen_tap, jnp.asarray(tap, chosen_tap.dtype))


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
    return reshard_like(jnp.broadcast_to(jnp.asarray(value), like.shape), like)


# An eager call reads the devices of the mesh from the argument `like`, which jit would otherwise drop.
@functools.partial(jax.jit, static_argnums=2, keep_unused=True)
def reshard_on_mesh_of(like: Array, y: Array, spec: PartitionSpec) -> Array:
    """Reshard y by `spec` over the mesh of `like`."""
    return reshard(y, jax.typeof(like).sharding.update(spec=spec))


def reshard_like(y: Array, like: Array) -> Array:
    """Reshard y, which broadcasts against `like` or has more leading axes, like `like`."""
    sharding, like_sharding = jax.typeof(y).sharding, jax.typeof(like).sharding
    if not any(sharding.spec) and not any(like_sharding.spec):
        return y
    num_extra = y.ndim - like.ndim
    pairs = zip(y.shape[num_extra:], like.shape, like_sharding.spec, strict=True)
    entries = [entry if size == like_size else None for size, like_size, entry in pairs]
    spec = PartitionSpec(*[None] * num_extra, *entries)
    if spec == sharding.spec:
        return y
    return reshard_on_mesh_of(like if any(like_sharding.spec) else y, y, spec)


def is_empty(x: Array) -> bool:
    """True if an axis of x has size 0.

    Callers skip scaled (log-domain) evaluation of empty x, because jax's transpose would drop varying mesh axes of x.
    """
    return any(is_int(n) and n == 0 for n in x.shape)


def is_sharded(x: Array) -> bool:
    """True if the type of x has a sharded axis. Shardings over automatic mesh axes are not part of the type."""
    return any(part for part in jax.typeof(x).sharding.spec)


def add_terms(terms: Sequence[Array]) -> Array:
    """Add terms one after another."""
    return functools.reduce(lax.add, terms)


# True if jax inlines every call of the program that is being lowered, as jax does for programs exported for several
# platforms or with symbolic sizes. jax's jit cache has a separate entry for each value of a user context.
inlines_calls = jax.make_user_context(False)


def materialise(barrier_kind: BarrierKind, kernel: Callable[..., T], *args: Any) -> T:
    """Evaluate `kernel(*args)` and store each result. With the barrier kind "call", the arguments are also stored.

    Reshard an argument before the call, not in the kernel. If the kernel all-gathers an argument, XLA for CPU
    (jax 0.12) may read the argument in another layout than the caller stored, and results are wrong.
    """
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
        divisor = scalar_like(flat_index, size)
        indices.insert(0, lax.rem(flat_index, divisor))
        flat_index = lax.div(flat_index, divisor)
    return indices
