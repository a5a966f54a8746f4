"""Pools of powers and exponentials with two evaluations: direct sums, and scaled sums outside the range of the dtype.

The direct evaluation (`direct` and `direct_*` methods) sums powers or exponentials with the passes of a sum pool. If a
total is too large, too small or NaN, the scaled evaluation replaces it. The choice is made at run time, in the value
and again in the derivative. The residual is the inputs and the unrounded output.

An op describes its scaled evaluation by its value (`scaled`) and by the derivative of an output with respect to one
element (`slope`), relative to the largest element of the window. The loops of `tap_loop.py` do the rest. The direct
slope of most ops is a product of a factor of the element (`weight`) and a factor of the window (`descent`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.custom_batching import custom_vmap

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import (
    DType,
    accumulator_dtype,
    bitcast_half_to_uint16,
    bitcast_uint16_to_half,
)
from jaxpool._kernels.materialise import materialise
from jaxpool._kernels.positions import covered_by_windows_mask
from jaxpool._kernels.predicates import all_true_across_vmap
from jaxpool._kernels.slices import is_empty, is_sharded, reshape_along_axis
from jaxpool._kernels.tap_loop import sum_over_taps, sum_over_taps_transpose
from jaxpool._ops.apply import applied, apply
from jaxpool._ops.linear_map import linear_map
from jaxpool._ops.op import Op, partitioned
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, Shape, barrier_on, elements
from jaxpool._plan.tuning import tuning


@custom_vmap
def least_of(statuses: Array) -> Array:
    """The minimum of range statuses, over all examples of a `vmap` together."""
    return jnp.min(statuses, initial=IN_RANGE)


@least_of.def_vmap
def _least_of_batch(size: int, mapped: list[bool], statuses: Array) -> tuple[Array, bool]:
    return least_of(statuses), False


@jax.custom_jvp
def departure(x: Array) -> Array:
    """`x - stop_gradient(x)`: zeros with derivative 1, also for infinite x."""
    zeros = lax.full_like(x, 0)
    return lax.select(lax.eq(x, x), zeros, zeros)


@departure.defjvp
def _departure_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return departure(*primals), tangents[0]


@jax.custom_jvp
def divided(x: Array, by: Any) -> Array:
    """`x / by`. Its derivative divides twice, because the square of `by`, which jax uses, may overflow or underflow."""
    return x / by


@divided.defjvp
def _divided_jvp(primals: tuple[Array, Any], tangents: tuple[Array, Any]) -> tuple[Array, Array]:
    ratio, by = divided(*primals), primals[1]
    return ratio, divided(tangents[0] - ratio * tangents[1], by)


def ratio(x: Array, high: Array) -> Array:
    """`x / high`; 0 if `high` is 0 or infinite, or x is infinite.

    Some compilers multiply by the inverse of `high`, which is subnormal for the largest numbers; `unit` prevents this.
    """
    usual = jnp.logical_not(jnp.logical_or(high == 0, jnp.isinf(high)))
    unit = jnp.where(high > 2.0**100, 2.0**-4, 1.0).astype(x.dtype)
    return divided(jnp.where(jnp.isinf(x), 0, x) * unit, jnp.where(usual, high * unit, np.inf))


@dataclasses.dataclass(frozen=True)
class _StoredSum(SumPool):
    """A sum pool whose result is stored; otherwise XLA recomputes the sums in every consumer."""

    def linear(self, platform: Platform, residual: tuple[()], x: Array) -> Array:
        y: Array = materialise(
            barrier_on(platform), lambda x: SumPool.linear(self, platform, (), x), x
        )
        return y

    def transpose(self, platform: Platform, residual: tuple[()], dy: Array) -> tuple[Array]:
        dx: tuple[Array] = materialise(
            barrier_on(platform), lambda dy: SumPool.transpose(self, platform, (), dy), dy
        )
        return dx


def spread_of(window: Window, dy: Array, *, stored: bool = False) -> Array:
    """The transposed sum over `window`, with its result stored in memory if `stored`."""
    op = _StoredSum(window) if stored else SumPool(window)
    return linear_map(op, (), [dy], nonzero=(True,), transposed=True)[0]


def sum_of(window: Window, x: Array, *, stored: bool = False) -> Array:
    """The sum over each window, with its result stored in memory if `stored`."""
    return apply(_StoredSum(window) if stored else SumPool(window), "jvp", x)


def summed_as(value: Array, like: Array) -> Array:
    """`value` summed along the axes of size 1 of `like`."""
    axes = tuple(axis for axis, length in enumerate(like.shape) if length == 1)
    return jnp.sum(value, axis=axes, keepdims=True)


def widened(x: Array, window: Window) -> Array:
    """x in the dtype of sums. Elements that are in no window become 0, in case they are NaN."""
    x = x.astype(accumulator_dtype(x.dtype))
    for dim in window.dims:
        real = covered_by_windows_mask(dim)
        if real is not None:
            x = jnp.where(reshape_along_axis(real, dim.axis, x.ndim), x, 0)
    return x


def within(value: Any, dtype: DType, largest: float = 2.0**-32) -> Any:
    """`value` in `dtype`. A Python number is clipped to magnitudes whose inverses are normal.

    The bounds are 2^32 times the smallest normal number, and `largest` times the largest number.
    """
    if isinstance(value, jax.Array):
        return value.astype(dtype)
    info = jnp.finfo(dtype)
    size = min(max(abs(value), float(info.tiny) * 2**32), float(info.max) * largest)
    return math.copysign(size, value)


def varies_along(value: Any, window: Window) -> bool:
    """Whether an array with the rank of the output varies along pooled axes, so that windows share no sums."""
    return math.prod(value.shape[axis] for axis in window.axes) > 1


Shares = tuple[Array, ...]

# Range status of a window: in range; only zeros, which norms handle separately; out of range.
IN_RANGE, ALL_ZERO, OUT_OF_RANGE = 2, 1, 0


def with_status(sure: Array, empty: Array | None = None) -> Array:
    """The range status of each window."""
    rest = (
        np.int8(OUT_OF_RANGE)
        if empty is None
        else jnp.where(empty, np.int8(ALL_ZERO), np.int8(OUT_OF_RANGE))
    )
    return jnp.where(sure, np.int8(IN_RANGE), rest)


def between(x: Array, bits: float) -> Array:
    """Whether |x| is between `2**-bits` and `2**bits`."""
    magnitudes = lax.abs(lax.stop_gradient(x))
    return jnp.logical_and(magnitudes >= 2.0**-bits, magnitudes <= 2.0**bits)


def moderate(x: Array) -> Array:
    """Whether a tangent is 0 or of moderate size, so that its products neither overflow nor underflow."""
    return jnp.logical_or(between(x, 60), lax.stop_gradient(x) == 0)


class RangedOp(Op):
    """An op with a direct evaluation within a range. Its inputs are x and at most one parameter, an array."""

    window: Window
    differentiable_residual = True
    sign = 1  # -1 if the parameter is a power

    def saved(self, y: Any, *args: Any) -> Any:
        return args, y

    def direct(self, *xs: Array) -> tuple[Array, Array]:
        """The output by direct sums, and the range status of each window."""
        raise TypeError(f"{type(self).__name__} has no direct evaluation")

    def scaled(self, *xs: Array) -> Array:
        """The output by scaled sums, for any inputs."""
        raise TypeError(f"{type(self).__name__} has no scaled evaluation")

    def has_direct_evaluation(self, *extra_args: Array) -> bool:
        """Whether windows share sums: the parameter does not vary along pooled axes."""
        return self.inputs == 1 or not varies_along(extra_args[0], self.window)

    def outside(self, platform: Platform, status: Array, y: Array, *xs: Array) -> Array:
        """The output if `direct` returned y and `status`, the minimum over all windows, is not IN_RANGE."""
        return self.scaled_in_chunks(platform, *xs)

    def scaled_in_chunks(self, platform: Platform, *xs: Array) -> Array:
        """`scaled`, evaluated in chunks of the batch."""
        return map_in_chunks(platform, self.window, lambda *xs: (self.scaled(*xs),), xs, xs[:1])[0]

    def right(self, y: Array, *xs: Array) -> Array:
        """Mask of the windows in which `direct_linear` is accurate, derived from the output."""
        raise TypeError(f"{type(self).__name__} has no range")

    # The direct derivative

    def prepared(self, *xs: Array) -> tuple[Array, Any]:
        """x in the dtype of sums, and the parameter."""
        raise TypeError(f"{type(self).__name__} has no direct evaluation")

    def weight(self, x: Array, parameter: Any) -> Array:
        """The factor of the slope that depends on the element."""
        raise TypeError(f"{type(self).__name__} has no direct evaluation")

    def descent(self, y: Array, parameter: Any) -> Array:
        """The factor of the slope that depends on the output."""
        raise TypeError(f"{type(self).__name__} has no direct evaluation")

    def elementwise(self, xs: Any, change: Array) -> Array:
        """A tangent of x after the operations on single elements, or the cotangent before them."""
        return change

    def pushed(self, x: Array, parameter: Any, y: Array, x_dot: Array, *extra_args: Array) -> Array:
        """The tangent of y for a tangent of x, within the range."""
        weighed = self.weight(x, parameter) * x_dot
        return sum_of(self.window, weighed) * self.descent(y, parameter)

    def pulled(self, x: Array, parameter: Any, shares: Shares) -> Array:
        """The cotangent of x from the shares of the windows, within the range."""
        return self.weight(x, parameter) * spread_of(self.window, *shares)

    def euler(self, x: Array) -> Array:
        """A function g such that `g(y) - (the tangent of y for the tangent g(x))` is `T * dy/dT`.

        T is a temperature, or the negative of a power.
        """
        raise TypeError(f"{type(self).__name__} has one input")

    def direct_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        """The tangent of y within the range. Zero tangents in `dots` are None."""
        (x, parameter), extra_args = self.prepared(*xs), xs[1:]
        terms = []
        if dots[0] is not None:
            x_dot = self.elementwise(xs, dots[0])
            terms.append(self.pushed(x, parameter, y, x_dot, *extra_args))
        if dots[1:] and dots[1] is not None:
            moved = self.pushed(x, parameter, y, self.euler(x), *extra_args)
            terms.append((self.euler(y) - moved) * divided(dots[1], self.sign * parameter))
        return sum(terms[1:], terms[0])

    def shares(self, xs: Any, y: Array, dy: Array) -> tuple[Shares, Array]:
        """The cotangents that `direct_transpose` spreads over the windows, and the range status of each window."""
        right = self.right(y, *xs)
        return share(dy, self.descent(jnp.where(right, y, 1), self.prepared(*xs)[1]), right)

    def direct_transpose(self, xs: Any, y: Array, dy: Array, shares: Shares) -> tuple[Array, ...]:
        """The cotangents of the inputs, if no window is OUT_OF_RANGE."""
        x, parameter = self.prepared(*xs)
        dx = self.pulled(x, parameter, shares)
        cotangents = [self.elementwise(xs, dx).astype(xs[0].dtype)]
        if self.inputs == 2:
            own, moved = (
                summed_as(each, xs[1]) for each in (dy * self.euler(y), self.euler(x) * dx)
            )
            cotangents.append(divided(own - moved, self.sign * parameter))
        return tuple(cotangents)

    # The scaled derivative

    def slope(self, *xs: Array) -> tuple[Array, Callable[[Array], Array]]:
        """x in the dtype of sums, and a function from x to the derivative of the output of a window."""
        raise TypeError(f"{type(self).__name__} has no scaled evaluation")

    def parameter_slope(self, *xs: Array) -> Array:
        """The derivative of the output with respect to the parameter."""
        raise TypeError(f"{type(self).__name__} has one input")

    def scaled_linear(self, xs: Any, dots: Any) -> Array:
        """The tangent of y for any inputs."""
        terms: list[Array] = []
        if dots[0] is not None:
            x, slope = self.slope(*xs)
            elements = x, self.elementwise(xs, dots[0])
            terms += sum_over_taps(self.window, lambda x, x_dot: (slope(x) * x_dot,), elements)
        if dots[1:] and dots[1] is not None:
            terms.append(self.parameter_slope(*xs) * dots[1])
        return sum(terms[1:], terms[0])

    def scaled_transpose(self, xs: Any, dy: Array) -> tuple[Array, ...]:
        """The cotangents of any inputs."""
        x, slope = self.slope(*xs)
        dx = self.elementwise(xs, sum_over_taps_transpose(self.window, slope, x, dy))
        cotangents = [dx.astype(xs[0].dtype)]
        if self.inputs == 2:
            cotangents.append(summed_as(dy * self.parameter_slope(*xs), xs[1]))
        return tuple(cotangents)

    # The choice

    def value(self, platform: Platform, *xs: Array) -> Array:
        if not self.has_direct_evaluation(*xs[1:]):
            return self.scaled_in_chunks(platform, *xs)
        y, statuses = self.direct(*xs)
        if is_empty(y):
            return y
        status = least_of(statuses)
        return amended(
            platform, status == IN_RANGE, lambda y: self.outside(platform, status, y, *xs), y
        )

    def linear(self, platform: Platform, residual: Any, *dots: Array | None) -> Array:
        xs, y = residual
        moved = [dot.astype(y.dtype) for dot in dots if dot is not None]

        def every(moved: Any) -> list[Any]:
            rest = iter(moved)
            return [None if dot is None else next(rest) for dot in dots]

        def scaled(xs: Any, y: Array, *moved: Array) -> Array:
            def part(*args: Array) -> tuple[Array]:
                return (self.scaled_linear(args[: len(xs)], every(args[len(xs) :])),)

            return map_in_chunks(platform, self.window, part, (*xs, *moved), xs[:1])[0]

        if not self.has_direct_evaluation(*xs[1:]):
            return scaled(xs, y, *moved)
        if is_empty(y):
            return self.direct_linear(xs, y, every(moved))

        right = all_true_across_vmap(self.right(y, *xs))
        for dot in moved:
            right = jnp.logical_and(right, all_true_across_vmap(moderate(dot)))
        result: Array = lax.cond(
            right,
            lambda xs, y, *moved: self.direct_linear(xs, y, every(moved)),
            scaled,
            xs,
            y,
            *moved,
        )
        return result

    def transpose(self, platform: Platform, residual: Any, *dys: Array) -> tuple[Array, ...]:
        xs, y = residual
        (dy,) = dys

        def part(dy: Array, *xs: Array) -> tuple[Array, ...]:
            return self.scaled_transpose(xs, dy.astype(y.dtype))

        def scaled() -> tuple[Array, ...]:
            return map_in_chunks(platform, self.window, part, (dy, *xs), xs[: self.inputs])

        if not self.has_direct_evaluation(*xs[1:]):
            return scaled()
        shares, statuses = self.shares(xs, y, dy)
        status = least_of(statuses)
        # This cast is exact: `ranged` rounds y to the dtype of x, so dy had this dtype before it was widened.
        dy = dy.astype(xs[0].dtype)

        def direct() -> tuple[Array, ...]:
            dxs = self.direct_transpose(xs, y, dy.astype(y.dtype), shares)
            return self.completed(platform, status, dy, shares, dxs)

        if is_empty(y):
            return direct()
        result: tuple[Array, ...] = one_of(platform, status > OUT_OF_RANGE, direct, scaled)
        return result

    def completed(
        self, platform: Platform, status: Array, dy: Array, shares: Shares, dxs: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        """`dxs` of `direct_transpose`, plus the terms of all-zero windows if `status` is EMPTY. dy is not widened."""
        return dxs


def amended(platform: Platform, right: Array, amend: Callable[[Any], Any], y: Any) -> Any:
    """y, one or several arrays, if it is `right`; otherwise `amend(y)`.

    A branch copies its operand y. A loop of zero or one iterations updates y in place.
    """
    if not tuning(platform).amended_in_place:
        return lax.cond(right, lambda y: y, amend, y)

    def again(state: tuple[Any, Array]) -> tuple[Any, Array]:
        return amend(state[0]), lax.full_like(state[1], True)

    return lax.while_loop(lambda state: jnp.logical_not(state[1]), again, (y, right))[0]


def one_of(
    platform: Platform, right: Array, direct: Callable[[], Any], scaled: Callable[[], Any]
) -> Any:
    """`direct()` if it is `right`, else `scaled()`.

    A branch keeps its operands in memory until it ends. Therefore `direct` runs outside of a branch, and
    `scaled` overwrites its result if that is not right.
    """
    if not tuning(platform).amended_in_place:
        return lax.cond(right, direct, scaled)
    return amended(platform, right, lambda _: scaled(), direct())


def share(dy: Array, slope: Array, sure: Array, empty: Array | None = None) -> tuple[Shares, Array]:
    """`dy * slope` in windows that are `sure`, else 0, and the range status of the product."""
    product = jnp.where(sure, dy * slope, 0)
    in_range = jnp.logical_or(between(product, 100), dy == 0)
    return (product,), with_status(jnp.logical_and(sure, in_range), empty)


def map_in_chunks(
    platform: Platform,
    window: Window,
    f: Callable[..., tuple[Array, ...]],
    arrays: Sequence[Array],
    likes: Sequence[Array],
) -> tuple[Array, ...]:
    """`f(*arrays)`, evaluated in chunks along the first axis if that saves memory.

    Each result has the length of its `likes` entry along the first axis. Length 1 means a sum over the batch.
    """
    first = arrays[0]
    shape = tuple(int(n) if is_int(n) else None for n in first.shape)
    # A loop along a partitioned batch would make XLA gather it on every device.
    whole = 0 in window.axes or is_sharded(first) or partitioned.value
    chunks = 1 if whole else batch_chunks_of(shape, platform)
    if chunks == 1:
        return f(*arrays)
    length = first.shape[0] // chunks

    def part(turn: Array) -> tuple[Array, ...]:
        start = turn * np.int32(length)
        return f(*[_part(x, start, length) if x.shape[0] == first.shape[0] else x for x in arrays])

    results = lax.map(part, jnp.arange(chunks, dtype=np.int32))
    return tuple(
        jnp.sum(y, axis=0) if like.shape[0] == 1 else lax.collapse(y, 0, 2)
        for y, like in zip(results, likes, strict=True)
    )


def _part(x: Array, start: Array, length: int) -> Array:
    """`length` examples of x. 16-bit floats are sliced as integers: XLA for CPU would widen all of x first."""
    return bitcast_uint16_to_half(
        lax.dynamic_slice_in_dim(bitcast_half_to_uint16(x), start, length), x.dtype
    )


def batch_chunks_of(shape: Shape, platform: Platform) -> int:
    """Number of chunks of an array of `shape` along the first axis."""
    most = tuning(platform).looped_elements
    if None in shape or elements(shape) <= most:
        return 1
    batch, example = int(shape[0] or 0), elements(shape[1:])
    largest = min(batch - 1, int(most // max(example, 1)))
    return batch // next((part for part in range(largest, 0, -1) if batch % part == 0), 1)


@functools.partial(jax.jit, static_argnums=0)
def ranged(op: RangedOp, x: Array, *extra_args: Array) -> Array:
    """Evaluate `op` in the dtype of sums and round to the dtype of x, with forward- and reverse-mode derivatives."""
    wide = accumulator_dtype(x.dtype)
    extra_args = tuple(
        array if array.dtype == np.bool_ else array.astype(wide) for array in extra_args
    )
    return applied(op, x, *extra_args).astype(x.dtype)
