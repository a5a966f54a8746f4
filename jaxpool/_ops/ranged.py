"""Pools of powers and exponentials with two evaluations: direct sums, and scaled sums outside the range of the dtype.

The direct evaluation (`plain` and `plain_*` methods) sums powers or exponentials with the passes of a sum pool. If a
total is too large, too small or NaN, the scaled evaluation (`careful` and `careful_*` methods) replaces it. The choice
is made at run time, in the value and again in the derivative. The residual is the inputs and the unrounded output.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.custom_batching import custom_vmap

from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import accumulator
from jaxpool._kernels.predicates import all_of
from jaxpool._kernels.slices import holds_nothing
from jaxpool._ops.apply import applied
from jaxpool._ops.batch_chunks import map_in_chunks
from jaxpool._ops.equations import stages_of
from jaxpool._ops.op import Op
from jaxpool._plan.others import amends_in_place
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, taps


@custom_vmap
def least_of(grades: Array) -> Array:
    """The minimum of range statuses, over all examples of a `vmap` together."""
    return jnp.min(grades, initial=SURE)


@least_of.def_vmap
def _least_of_batch(size: int, mapped: list[bool], grades: Array) -> tuple[Array, bool]:
    return least_of(grades), False


Shares = tuple[Array, ...]

# Range status of a window: in range; only zeros, which norms handle separately; out of range.
SURE, EMPTY, OUT = 2, 1, 0


def graded(sure: Array, empty: Array | None = None) -> Array:
    """The range status of each window."""
    rest = np.int8(OUT) if empty is None else jnp.where(empty, np.int8(EMPTY), np.int8(OUT))
    return jnp.where(sure, np.int8(SURE), rest)


def between(x: Array, bits: float) -> Array:
    """Whether |x| is between `2**-bits` and `2**bits`."""
    magnitudes = lax.abs(lax.stop_gradient(x))
    return jnp.logical_and(magnitudes >= 2.0**-bits, magnitudes <= 2.0**bits)


def moderate(x: Array) -> Array:
    """Whether a tangent is 0 or of moderate size, so that its products neither overflow nor underflow."""
    return jnp.logical_or(between(x, 60), lax.stop_gradient(x) == 0)


BEYOND = "or tap by tap, if a sum leaves the range of its type: tested where the program runs"


class RangedOp(Op):
    """An op with a direct evaluation within a range. Its first input is x; other arguments may be differentiable."""

    window: Window
    differentiable_given = True
    keeps_inputs = True

    def plan(self, platform: Platform, *types: Any) -> OpPlan:
        """The passes of the direct evaluation, or of the scaled evaluation if there is no other."""
        y = jax.eval_shape(self.careful, *types)
        ways: tuple[Any, ...] = self.careful, self.careful_linear, self.careful_transpose
        if self.is_plain(*types[1:]):
            ways = self.plain, self.plain_linear, self._plain_back
        calls = zip(ways, (types, (types, y, types[: self.inputs]), (types, y, y)), strict=True)
        walked = taps(self.window, "walked")
        value, linear, back = (stages_of(platform, way, *args) or walked for way, args in calls)
        why = (BEYOND,) if self.is_plain(*types[1:]) else ()
        return OpPlan(value, linear, back, why=why)

    def _plain_back(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        return self.plain_transpose(xs, y, dy, self.shares(xs, y, dy)[0])

    def plain(self, *xs: Array) -> tuple[Array, Array]:
        """The output by direct sums, and the range status of each window."""
        raise TypeError(f"{type(self).__name__} describes no plain way")

    def careful(self, *xs: Array) -> Array:
        """The output by scaled sums, for any inputs."""
        raise TypeError(f"{type(self).__name__} describes no careful way")

    def is_plain(self, *extra_args: Array) -> bool:
        """Whether the op has a direct evaluation."""
        return True

    def outside(self, platform: Platform, grade: Array, y: Array, *xs: Array) -> Array:
        """The output if `plain` returned y and `grade`, the minimum over all windows, is not SURE."""
        return self.carefully(platform, *xs)

    def carefully(self, platform: Platform, *xs: Array) -> Array:
        """`careful`, evaluated in chunks of the batch."""
        y: Array = map_in_chunks(
            platform, self.window, lambda *xs: (self.careful(*xs),), xs, xs[:1]
        )[0]
        return y

    def right(self, y: Array, *xs: Array) -> Array:
        """Mask of the windows in which `plain_linear` is accurate, derived from the output."""
        raise TypeError(f"{type(self).__name__} has no range")

    def plain_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        """The tangent of y within the range. Zero tangents in `dots` are None."""
        raise TypeError(f"{type(self).__name__} describes no linear map")

    def careful_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        """The tangent of y for any inputs."""
        return _pushed(self.careful, xs, dots)

    def shares(self, xs: Any, y: Array, dy: Array) -> tuple[Shares, Array]:
        """The cotangents that `plain_transpose` spreads over the windows, and the range status of each window."""
        raise TypeError(f"{type(self).__name__} describes no shares")

    def plain_transpose(self, xs: Any, y: Array, dy: Array, shares: Shares) -> tuple[Array, ...]:
        """The cotangents of the inputs, if no window is OUT."""
        raise TypeError(f"{type(self).__name__} describes no transpose")

    def careful_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        """The cotangents of any inputs."""
        return tuple(jax.vjp(self.careful, *xs)[1](dy))

    def value(self, platform: Platform, *xs: Array) -> Array:
        if not self.is_plain(*xs[1:]):
            return self.carefully(platform, *xs)
        y, grades = self.plain(*xs)
        if holds_nothing(y):
            return y
        grade = least_of(grades)
        return amended(platform, grade == SURE, lambda y: self.outside(platform, grade, y, *xs), y)

    def linear(self, platform: Platform, residual: Any, *dots: Array | None) -> Array:
        xs, y = residual
        moved = [dot.astype(y.dtype) for dot in dots if dot is not None]

        def spread(moved: Any) -> list[Any]:
            rest = iter(moved)
            return [None if dot is None else next(rest) for dot in dots]

        def careful(xs: Any, y: Array, *moved: Array) -> Array:
            def part(y: Array, *rest: Array) -> tuple[Array]:
                return (self.careful_linear(rest[: len(xs)], y, spread(rest[len(xs) :])),)

            y_dot: Array = map_in_chunks(platform, self.window, part, (y, *xs, *moved), (y,))[0]
            return y_dot

        if not self.is_plain(*xs[1:]):
            return careful(xs, y, *moved)
        if holds_nothing(y):
            return self.plain_linear(xs, y, spread(moved))

        right = all_of(self.right(y, *xs))
        for dot in moved:
            right = jnp.logical_and(right, all_of(moderate(dot)))
        result: Array = lax.cond(
            right,
            lambda xs, y, *moved: self.plain_linear(xs, y, spread(moved)),
            careful,
            xs,
            y,
            *moved,
        )
        return result

    def transpose(self, platform: Platform, residual: Any, *dys: Array) -> tuple[Array, ...]:
        xs, y = residual
        (dy,) = dys

        def part(y: Array, dy: Array, *xs: Array) -> tuple[Array, ...]:
            return self.careful_transpose(xs, y, dy.astype(y.dtype))

        def careful() -> tuple[Array, ...]:
            return map_in_chunks(platform, self.window, part, (y, dy, *xs), xs[: self.inputs])

        if not self.is_plain(*xs[1:]):
            return careful()
        shares, grades = self.shares(xs, y, dy)
        grade = least_of(grades)
        # This cast is exact: `ranged` rounds y to the dtype of x, so dy had this dtype before it was widened.
        dy = dy.astype(xs[0].dtype)

        def plain() -> tuple[Array, ...]:
            dxs = self.plain_transpose(xs, y, dy.astype(y.dtype), shares)
            return self.completed(platform, grade, dy, shares, dxs)

        if holds_nothing(y):
            return plain()
        result: tuple[Array, ...] = one_of(platform, grade > OUT, plain, careful)
        return result

    def completed(
        self, platform: Platform, grade: Array, dy: Array, shares: Shares, dxs: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        """`dxs` of `plain_transpose`, plus the terms of all-zero windows if `grade` is EMPTY. dy is not widened."""
        return dxs


def amended(platform: Platform, right: Array, amend: Callable[[Any], Any], y: Any) -> Any:
    """y, one or several arrays, if it is `right`; otherwise `amend(y)`.

    A branch copies its operand y. A loop of zero or one iterations updates y in place.
    """
    if not amends_in_place(platform):
        return lax.cond(right, lambda y: y, amend, y)

    def again(state: tuple[Any, Array]) -> tuple[Any, Array]:
        return amend(state[0]), lax.full_like(state[1], True)

    return lax.while_loop(lambda state: jnp.logical_not(state[1]), again, (y, right))[0]


def one_of(
    platform: Platform, right: Array, plain: Callable[[], Any], careful: Callable[[], Any]
) -> Any:
    """`plain()` if it is `right`, else `careful()`.

    A branch keeps its operands in memory until it ends. Therefore `plain` runs outside of a branch, and
    `careful` overwrites its result if that is not right.
    """
    if not amends_in_place(platform):
        return lax.cond(right, plain, careful)
    return amended(platform, right, lambda _: careful(), plain())


def share(dy: Array, slope: Array, sure: Array, empty: Array | None = None) -> tuple[Shares, Array]:
    """`dy * slope` in windows that are `sure`, else 0, and the range status, OUT if the product is out of range."""
    product = jnp.where(sure, dy * slope, 0)
    in_range = jnp.logical_or(between(product, 100), dy == 0)
    return (product,), graded(jnp.logical_and(sure, in_range), empty)


def _pushed(f: Any, xs: Any, dots: Any) -> Array:
    """The tangent of `f(*xs)`. Tangents that are None are zero."""
    moving = [which for which, dot in enumerate(dots) if dot is not None]

    def of(*some: Array) -> Array:
        every = list(xs)
        for which, x in zip(moving, some, strict=True):
            every[which] = x
        result: Array = f(*every)
        return result

    some = [xs[which] for which in moving]
    dot: Array = jax.jvp(of, some, [dots[which].astype(xs[which].dtype) for which in moving])[1]
    return dot


@functools.partial(jax.jit, static_argnums=0)
def ranged(op: RangedOp, x: Array, *extra_args: Array) -> Array:
    """Evaluate `op` in the dtype of sums and round to the dtype of x, with forward- and reverse-mode derivatives."""
    wide = accumulator(x.dtype)
    extra_args = tuple(
        array if array.dtype == np.bool_ else array.astype(wide) for array in extra_args
    )
    return applied(op, x, *extra_args).astype(x.dtype)
