"""Pools of powers and exponentials with two evaluations: direct sums, and scaled sums outside the range of the dtype.

The direct evaluation sums powers or exponentials as a sum pool does. If any total is too large, too small or NaN, the
scaled evaluation replaces all totals: it works relative to the largest element of each window, with the loops of
`_kernels/sums.py`. The choice is made at run time, for the value and again for the derivative. The residual is the
inputs and the unrounded output.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.access import covered_elements_mask, covers_all_elements
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import sums, unrolled
from jaxpool._kernels.dtypes import (
    accumulator_dtype,
    all_true_across_vmap,
    bitcast_half_to_uint16,
    bitcast_uint16_to_half,
    full_like,
    where,
)
from jaxpool._kernels.positions import IntArray
from jaxpool._kernels.slices import is_empty, reshape_along_axis
from jaxpool._ops.apply import apply
from jaxpool._ops.op import Arrays, Op, Residual, problem_of
from jaxpool._ops.primitives import linear_map
from jaxpool._ops.range_status import (
    IN_RANGE,
    OUT_OF_RANGE,
    Parameter,
    divide,
    is_medium,
    min_status,
    scale_dy,
)
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform, always_scales, is_constant_table, num_batch_chunks
from jaxpool._plan.tuning import tuning_of

T = TypeVar("T")  # an array or a tuple of arrays
Tangents = Sequence[Array | None]  # None is a zero tangent
Pair = tuple[Array, Array]


def _sum_like(value: Array, like: Array) -> Array:
    """Sum `value` along the axes where `like` has size 1. The summed axes are kept."""
    axes = tuple(axis for axis, length in enumerate(like.shape) if length == 1)
    return jnp.sum(value, axis=axes, keepdims=True)


def _spread_over_windows(pool: SumPool, dy: Array) -> Array:
    """The transpose of a sum pool, which adds each entry of dy to the elements of its window."""
    return linear_map(pool, (), [dy], nonzero=(True,), transposed=True)[0]


def _covered_by_windows_mask(dim: Axis) -> IntArray | None:
    """Mask of the elements along an axis that are in at least one window, or None if all elements are."""
    if is_constant_table(dim.size) or covers_all_elements(dim):
        return covered_elements_mask(dim)
    window = Window((dataclasses.replace(dim, axis=0),))
    return _spread_over_windows(SumPool(window), jnp.ones(dim.out, np.int32)) > 0


def widen_elements(x: Array, window: Window) -> Array:
    """Cast x to the accumulator dtype. Elements that are in no window become 0, in case they are NaN."""
    x = x.astype(accumulator_dtype(x.dtype))
    for dim in window.dims:
        is_covered = _covered_by_windows_mask(dim)
        if is_covered is not None:
            x = where(reshape_along_axis(is_covered, dim.axis, x.ndim), x, 0)
    return x


# The derivative of an output with respect to x, one element of its window, as a function of x and of arrays of windows.
Slope = Callable[..., Array]


@dataclasses.dataclass(frozen=True)
class _WindowedOp(Op):
    window: Window
    # True while a kernel is traced that unrolls its loops over taps.
    unrolls_taps: bool = dataclasses.field(default=False, kw_only=True)


class RangeCheckedOp(_WindowedOp):
    """Base class of ops with a direct and a scaled evaluation.

    `xs` are the arguments of the op: x, an array parameter (a temperature or a power) if the op has two inputs, and
    masks. The slope is the derivative of an output with respect to one element of its window.
    """

    has_differentiable_residual = True
    saves_x = True
    sign = 1  # -1 if the parameter is a power
    # False if the scaled evaluation takes too many instructions to be the only one.
    can_unroll = True

    # Methods of subclasses.
    # `direct_y(*xs)`: the output by direct sums, and the range status of each window.
    direct_y: Callable[..., tuple[Array, Array]]
    # `is_accurate(y, *xs)`: mask that is True where the direct derivative is accurate.
    is_accurate: Callable[..., Array]
    # `widen(*xs)`: x in the accumulator dtype, and the parameter.
    widen: Callable[..., tuple[Array, Parameter]]
    # The direct slope is the product of `x_factor(x, parameter)` and `y_factor(y, parameter)`.
    x_factor: Callable[[Array, Parameter], Array]
    y_factor: Callable[[Array, Parameter], Array]
    # A function g for which g(y), minus the tangent of y for the tangent g(x) of x, is `T * dy/dT`.
    # T is the temperature, or 1 / p for a power p.
    euler: Callable[[Array], Array]
    # `scaled_y(*xs)`: the output by scaled sums, for any inputs.
    scaled_y: Callable[..., Array]
    # `x_and_slope(*xs)`: x in the accumulator dtype, the slope, and the arrays of windows that it reads.
    x_and_slope: Callable[..., tuple[Array, Slope, tuple[Array, ...]]]
    # `parameter_slope(*xs)`: the derivative of the output with respect to the parameter.
    parameter_slope: Callable[..., Array]

    saves_arguments = True

    def saved_residual(self, y: Array, *args: Array) -> Residual:
        return args, y

    def sum_over(self, x: Array, *, stores_result: bool = False) -> Array:
        """The sum over each window, with its result stored in memory if `stores_result`."""
        return apply(SumPool(self.window, stores_result=stores_result), x)

    def spread_over(self, dy: Array, *, stores_result: bool = False) -> Array:
        """The transpose of `sum_over`, which adds each entry of dy to the elements of its window."""
        return _spread_over_windows(SumPool(self.window, stores_result=stores_result), dy)

    def fallback_y(self, platform: Platform, status: Array, y: Array, *xs: Array) -> Array:
        """The output if the direct output y is inaccurate. `status`, the minimum range status, is not IN_RANGE."""
        return self.scaled_in_chunks(platform, *xs)

    def scaled_in_chunks(self, platform: Platform, *xs: Array) -> Array:
        """`scaled_y`, evaluated in chunks of the batch to save memory."""
        y: Array = self._map_in_chunks(platform, self.scaled_y, xs, xs)
        return y

    # Derivative of the direct evaluation

    def elementwise_derivative(self, xs: Arrays, tangent: Array) -> Array:
        """Multiply a tangent or cotangent by the derivative of elementwise operations that precede the sums."""
        return tangent

    def x_jvp(self, xs: Arrays, x: Array, parameter: Parameter, y: Array, x_dot: Array) -> Array:
        """The tangent of y for the tangent `x_dot` of x, the result of `widen`, by direct sums."""
        weighted_dot = self.x_factor(x, parameter) * x_dot
        return self.sum_over(weighted_dot) * self.y_factor(y, parameter)

    def x_vjp(self, x: Array, parameter: Parameter, shares: Array) -> Array:
        """The cotangent of x by direct sums of `shares`, the scaled cotangents of the windows."""
        return self.x_factor(x, parameter) * self.spread_over(shares)

    def direct_linear(self, xs: Arrays, y: Array, tangents: Tangents) -> Array:
        """The tangent of y by direct sums. Zero tangents in `tangents` are None.

        The term of the parameter follows from Euler's theorem: y is homogeneous of degree 1 in x and the temperature
        (for powers: log(y) in log(x) and 1 / p). So `T * dy/dT` is `euler(y)` minus the tangent of y for the tangent
        `euler(x)` of x.
        """
        x, parameter = self.widen(*xs)
        x_dot, parameter_dot = (*tangents, None)[:2]
        terms = []
        if x_dot is not None:
            x_dot = self.elementwise_derivative(xs, x_dot)
            terms.append(self.x_jvp(xs, x, parameter, y, x_dot))
        if parameter_dot is not None:
            euler_dot = self.x_jvp(xs, x, parameter, y, self.euler(x))
            terms.append((self.euler(y) - euler_dot) * divide(parameter_dot, self.sign * parameter))
        return functools.reduce(lax.add, terms)

    def dy_shares(self, xs: Arrays, y: Array, dy: Array) -> tuple[Array, Array]:
        """The scaled cotangents that `direct_transpose` adds to the elements, and the range status of each window."""
        in_range = self.is_accurate(y, *xs)
        parameter = self.widen(*xs)[1]
        factor = self.y_factor(where(in_range, y, 1), parameter)
        return scale_dy(dy, factor, in_range)

    def direct_transpose(self, xs: Arrays, y: Array, dy: Array, shares: Array) -> tuple[Array, ...]:
        """The cotangents of the inputs by direct sums, accurate if no window is OUT_OF_RANGE."""
        x, parameter = self.widen(*xs)
        dx = self.x_vjp(x, parameter, shares)
        x_cotangent = self.elementwise_derivative(xs, dx).astype(xs[0].dtype)
        if self.num_inputs == 1:
            return (x_cotangent,)
        y_product, x_product = dy * self.euler(y), self.euler(x) * dx
        total = _sum_like(y_product, xs[1]) - _sum_like(x_product, xs[1])
        return x_cotangent, divide(total, self.sign * parameter)

    def complete_cotangents(
        self, platform: Platform, status: Array, dy: Array, shares: Array, dxs: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        """The cotangents `dxs`, plus terms of all-zero windows if `status` is ALL_ZERO. dy has the dtype of x."""
        return dxs

    # Derivative of the scaled evaluation, accurate for any inputs

    def scaled_linear(self, xs: Arrays, tangents: Tangents) -> Array:
        """The tangent of y by scaled sums."""
        x_dot, parameter_dot = (*tangents, None)[:2]
        terms: list[Array] = []
        if x_dot is not None:
            x, slope, arrays = self.x_and_slope(*xs)
            elements = x, self.elementwise_derivative(xs, x_dot)
            terms += self.loops.sum_over_taps(
                self.window, lambda x, x_dot: (slope(x, *arrays) * x_dot,), elements
            )
        if parameter_dot is not None:
            terms.append(self.parameter_slope(*xs) * parameter_dot)
        return functools.reduce(lax.add, terms)

    def scaled_transpose(self, xs: Arrays, dy: Array) -> tuple[Array, ...]:
        """The cotangents of the inputs by scaled sums."""
        spread = self.loops.sum_over_taps_transpose
        dx = self.elementwise_derivative(xs, spread(self.window, *self.x_and_slope(*xs), dy))
        cotangents = [dx.astype(xs[0].dtype)]
        if self.num_inputs == 2:
            cotangents.append(_sum_like(dy * self.parameter_slope(*xs), xs[1]))
        return tuple(cotangents)

    # Run-time choice between the direct and the scaled evaluation

    def _has_direct_evaluation(self, xs: Arrays) -> bool:
        """True if windows can share sums, because the parameter does not vary along pooled axes."""
        if self.unrolls_taps:  # The scaled evaluation is the only one.
            return False
        if self.num_inputs == 1:
            return True
        return math.prod(xs[1].shape[axis] for axis in self.window.axes) <= 1

    def _unrolled(self, platform: Platform, xs: Arrays) -> Op | None:
        """The op with unrolled loops if the plan replaces both evaluations by unrolled scaled sums, else None."""
        if self.unrolls_taps or not self.can_unroll or not self._has_direct_evaluation(xs):
            return None
        if not always_scales(problem_of(self.window, xs[0], platform)):
            return None
        return dataclasses.replace(self, unrolls_taps=True)

    @property
    def loops(self) -> ModuleType:
        """The module with the loops over taps."""
        return unrolled if self.unrolls_taps else sums

    def value(self, platform: Platform, *xs: Array) -> Array:
        if op := self._unrolled(platform, xs):
            return op.value(platform, *xs)
        if not self._has_direct_evaluation(xs):
            return self.scaled_in_chunks(platform, *xs)
        y, statuses = self.direct_y(*xs)
        if is_empty(y):
            return y
        status = min_status(statuses)
        return amend_unless(
            platform, status == IN_RANGE, lambda y: self.fallback_y(platform, status, y, *xs), y
        )

    def linear(self, platform: Platform, residual: Residual, *tangents: Array | None) -> Array:
        xs, y = residual
        if op := self._unrolled(platform, xs):
            return op.linear(platform, residual, *tangents)
        dots = [None if dot is None else dot.astype(y.dtype) for dot in tangents]

        def direct() -> Array:
            return self.direct_linear(xs, y, dots)

        def scaled() -> Array:
            return self._map_in_chunks(platform, self.scaled_linear, (xs, dots), xs)

        if not self._has_direct_evaluation(xs):
            return scaled()
        if is_empty(y):
            return direct()
        is_accurate = all_true_across_vmap(self.is_accurate(y, *xs))
        for dot in jax.tree.leaves(dots):
            is_accurate &= all_true_across_vmap(is_medium(dot))
        return lax.cond(is_accurate, direct, scaled)

    def transpose(self, platform: Platform, residual: Residual, dy: Array) -> tuple[Array, ...]:
        xs, y = residual
        if op := self._unrolled(platform, xs):
            return op.transpose(platform, residual, dy)

        def scaled() -> tuple[Array, ...]:
            def one_chunk(dy: Array, *xs: Array) -> tuple[Array, ...]:
                return self.scaled_transpose(xs, dy.astype(y.dtype))

            return self._map_in_chunks(platform, one_chunk, (dy, *xs), xs)

        if not self._has_direct_evaluation(xs):
            return scaled()
        shares, statuses = self.dy_shares(xs, y, dy)
        status = min_status(statuses)
        # This cast is exact: `apply_ranged` rounds y to the dtype of x, so dy had this dtype before it was widened.
        dy = dy.astype(xs[0].dtype)

        def direct() -> tuple[Array, ...]:
            dxs = self.direct_transpose(xs, y, dy.astype(y.dtype), shares)
            return self.complete_cotangents(platform, status, dy, shares, dxs)

        if is_empty(y):
            return direct()
        return direct_if(platform, status > OUT_OF_RANGE, direct, scaled)

    def _map_in_chunks(
        self, platform: Platform, f: Callable[..., T], args: Sequence[Any], xs: Arrays
    ) -> T:
        """`f(*args)`, evaluated in chunks along the first axis if the first array of `args` is large.

        A result, or result i, has the length of `xs[i]` along the first axis. A length of 1 means a sum over the batch.
        """
        first = jax.tree.leaves(args)[0]
        num_chunks = num_batch_chunks(problem_of(self.window, first, platform))
        if num_chunks == 1:
            return f(*args)
        length = first.shape[0] // num_chunks

        def call_on_chunk(chunk_index: Array) -> T:
            start = lax.mul(chunk_index, np.int32(length))

            def chunk(x: Array) -> Array:
                if x.shape[0] != first.shape[0]:
                    return x
                # XLA for CPU would widen all of a 16-bit float x before the slice.
                bits = bitcast_half_to_uint16(x)
                bits = lax.dynamic_slice_in_dim(bits, start, length, allow_negative_indices=False)
                return bitcast_uint16_to_half(bits, x.dtype)

            return f(*jax.tree.map(chunk, args))

        results = lax.map(call_on_chunk, lax.iota(np.int32, num_chunks))
        leaves, tree = jax.tree.flatten(results)
        pairs = zip(leaves, xs, strict=False)
        joined = [jnp.sum(y, 0) if x.shape[0] == 1 else lax.collapse(y, 0, 2) for y, x in pairs]
        return jax.tree.unflatten(tree, joined)


def amend_unless(platform: Platform, is_ok: Array, amend: Callable[[T], T], y: T) -> T:
    """Return y, one or several arrays, if `is_ok` is True; otherwise `amend(y)`.

    A branch of `lax.cond` copies its operand y. A loop of zero or one iterations updates y in place.
    """
    if not tuning_of(platform).uses_loop_as_branch:
        return lax.cond(is_ok, lambda y: y, amend, y)

    def loop_body(state: tuple[T, Array]) -> tuple[T, Array]:
        return amend(state[0]), full_like(state[1], True)

    return lax.while_loop(lambda state: lax.bitwise_not(state[1]), loop_body, (y, is_ok))[0]


def direct_if(
    platform: Platform, is_ok: Array, direct: Callable[[], T], scaled: Callable[[], T]
) -> T:
    """Return `direct()` if `is_ok` is True, else `scaled()`.

    A branch keeps its operands in memory until it ends. A loop avoids this: `scaled` overwrites the result of `direct`.
    """
    if not tuning_of(platform).uses_loop_as_branch:
        return lax.cond(is_ok, direct, scaled)
    return amend_unless(platform, is_ok, lambda _: scaled(), direct())


@functools.partial(jax.jit, static_argnums=0)
def apply_ranged(op: RangeCheckedOp, x: Array, *extra_args: Array) -> Array:
    """Evaluate `op` in the accumulator dtype and round to the dtype of x, with forward- and reverse-mode AD."""
    dtype = accumulator_dtype(x.dtype)
    args = [arg if arg.dtype == np.bool_ else arg.astype(dtype) for arg in extra_args]
    return apply(op, x, *args).astype(x.dtype)
