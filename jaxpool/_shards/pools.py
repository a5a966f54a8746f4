"""Max, min, sum, average and Lp pools of a shard and its halo, for `on_shards`.

The functions take the windows of a shard, `Shards`, and the shard, which is the whole array if no pooled axis is
sharded. If no window crosses an end of a shard (`strips` is empty), nothing is fetched.

A halo beyond the ends of the array holds the padding value, which a kernel treats as an element. Maxima and sums do not
depend on that. Three results do: the choice among tied elements, the number of elements that share a cotangent, and
the divisor of an average. So the op takes an extra argument for them, an array that depends on the shard.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis
from jaxpool._kernels import dtypes
from jaxpool._kernels.compare import TieOrder, Ties
from jaxpool._kernels.dtypes import Kind, accumulator_dtype, reduction_identity
from jaxpool._kernels.positions import flat_position_of_tap, input_position_of_tap, window_starts
from jaxpool._kernels.select import first_or_last_tap_inside, ravel_taps
from jaxpool._kernels.slices import outer_broadcast
from jaxpool._kernels.split_ties import BitWords, bits_of_taps_inside, is_tap_inside
from jaxpool._ops.apply import Autodiff, applied, apply, apply_with_extra_args, apply_with_residual
from jaxpool._ops.op import Op
from jaxpool._ops.power_pool import norm
from jaxpool._ops.select_pool import LevelPool, MaskPool, SelectPool, pool_op
from jaxpool._ops.sum_pool import CountedAverage, SumPool, counts_along, same_count
from jaxpool._plan.tuning import LIMITS
from jaxpool._shards.halo import Shards
from jaxpool._shards.split import by_window
from jaxpool._shards.strips import WithStrips, fetched

Divide = Literal["not", "counted", "real"] | float


def select_pool(
    shards: Shards, kind: Kind, ties: Ties | TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> Array:
    """The max or min pool."""
    if shards.strips == ():
        return apply(pool_op(shards.inside, kind, ties), autodiff, x)
    return _selected(shards, kind, ties, x)[0]


def select_with_tap(
    shards: Shards, kind: Kind, ties: TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> tuple[Array, Array]:
    """The max or min pool, and the flat tap of the selected element of each window."""
    if shards.strips == ():
        return apply_with_residual(SelectPool(shards.inside, kind, ties), autodiff, x)
    return _selected(shards, kind, ties, x)


def select_with_position(
    shards: Shards, ties: Ties | TieOrder, x: Array, autodiff: Autodiff = "jvp"
) -> tuple[Array, Array]:
    """The max pool, and the position of each maximum in the global array. "split" ties have the first position."""
    if ties == "split":
        y = select_pool(shards, "max", "split", x, autodiff)
        _, tap = select_with_tap(shards, "max", "first", lax.stop_gradient(x), autodiff)
    else:
        y, tap = select_with_tap(shards, "max", ties, x, autodiff)
    if not shards.halos:
        return y, input_position_of_tap(tap, shards.window)
    starts = []
    for dim in shards.window.dims:
        halo = shards.halo(dim)
        first = halo.window_starts() if halo else window_starts(dim)
        starts.append(outer_broadcast(jnp.add, [first], [dim.axis], x.ndim))
    return y, flat_position_of_tap(tap, shards.window, starts, shards.window.input_shape)


def sum_pool(shards: Shards, divide: Divide, x: Array, autodiff: Autodiff = "jvp") -> Array:
    """The sum over each window, divided as in `SumPool` with counts of the global array."""
    x = x if divide == "not" else dtypes.as_float(x)
    if shards.strips == ():
        return apply(SumPool(shards.inside, divide), autodiff, x)
    if divide in ("counted", "real"):
        same = same_count(shards.window, divide)
        if same is None:
            return _pool(shards, x, 0, CountedAverage(shards.inside), _counts(shards, divide, x))[0]
        divide = float(same)
    return _pool(shards, x, 0, SumPool(shards.inside, divide))[0]


def norm_pool(shards: Shards, p: float, x: Array) -> Array:
    """The Lp pool."""
    return norm(shards.extended, p, dtypes.as_float(shards.extend(x, 0)))


def windowed(op: Op, x: Array) -> Array:
    """`applied(op, x)`, on the shards of x if its type is sharded along pooled axes.

    Raises `ArgumentError` if shards would differ in size.
    """
    if isinstance(op, (SelectPool, SumPool)):
        split = by_window(x, op.window)
        if split.shards.halos and isinstance(op, SumPool):
            return split.run(sum_pool, x, op.divide)
        if split.shards.halos and isinstance(op, SelectPool):
            return split.run(select_pool, x, op.kind, op.ties)
    return applied(op, x)


def _pool(shards: Shards, x: Array, fill: Any, pool: Any, *extra_args: Array) -> tuple[Array, Any]:
    """The result and residual of `pool`, an op over the windows of a shard; `extra_args` are its extra arguments."""
    if shards.strips is None:
        op, xs = dataclasses.replace(pool, window=shards.extended), [shards.extend(x, fill)]
    else:
        op, xs = WithStrips(pool, shards.strips), fetched(shards.strips, x, fill)
    return apply_with_extra_args(op, *xs, *extra_args)


def _selected(shards: Shards, kind: Kind, ties: Ties | TieOrder, x: Array) -> tuple[Array, Any]:
    """The max or min pool of a shard, and its residual."""
    window, fill, padded = shards.inside, reduction_identity(x.dtype, kind), shards.padded
    real: tuple[Array, ...]
    if ties != "split":
        real = (_end_of_padding(shards, x.ndim, last=ties == "last"),) if padded else ()
        return _pool(shards, x, fill, SelectPool(window, kind, ties), *real)
    if window.size <= LIMITS.masked_taps:
        real = _real_taps(shards, x.ndim) if padded else ()
        return _pool(shards, x, fill, MaskPool(window, kind), *real)
    real = (_real_elements(shards, x.ndim),) if padded else ()
    return apply_with_extra_args(LevelPool(shards.extended, kind), shards.extend(x, fill), *real)


def _counts(shards: Shards, divide: Literal["counted", "real"], x: Array) -> Array:
    """The number of elements of each window, broadcastable to the output."""
    lines = []
    for dim in shards.window.dims:
        halo, counts = shards.halo(dim), counts_along(dim, divide)
        if halo and dim.padded:
            count = dim.num_taps_inside if divide == "real" else dim.num_taps_counted
            counts = count(halo.windows()).clip(1)
        lines.append(jnp.asarray(counts, accumulator_dtype(x.dtype)))
    return outer_broadcast(jnp.multiply, lines, shards.window.axes, x.ndim)


def _end_of_padding(shards: Shards, ndim: int, *, last: bool) -> Array:
    """The first, or last, flat tap of each window that is not padding, broadcastable to the output."""
    taps: list[Any] = []
    for dim in shards.window.dims:
        halo, tap = shards.halo(dim), first_or_last_tap_inside(dim, take_last=last)
        if halo:
            real = dim.last_tap_inside if last else dim.first_tap_inside
            tap = real(halo.windows()).clip(0, dim.window - 1)
        taps.append(tap)
    return ravel_taps(taps, shards.window, ndim)


def _real_taps(shards: Shards, ndim: int) -> BitWords:
    """One bit per tap of each window, 0 for a tap in the padding; one word per word of `tie_bits_of_input`."""
    real: list[Any] = []
    for dim in shards.window.dims:
        halo, holds = shards.halo(dim), functools.partial(is_tap_inside, dim)
        real.append(functools.partial(_holds, dim, halo.window_starts()) if halo else holds)
    return bits_of_taps_inside(real, shards.window, ndim)


def _holds(dim: Axis, starts: Array, tap: int) -> Array:
    """Whether `tap` is an element of the array, for each window of an axis that begins at `starts`."""
    at = starts + np.int32(tap * dim.dilation)
    return (at >= 0) & (at < dim.size)


def _real_elements(shards: Shards, ndim: int) -> Array:
    """True for elements of the array in a shard and its halo, broadcastable to both together."""
    axes = [halo.dim.axis for halo in shards.halos]
    return outer_broadcast(
        jnp.logical_and, [halo.rows_exist() for halo in shards.halos], axes, ndim
    )
