"""Pools of powers and exponentials in two ways: plain sums, and a careful way for what leaves the range of the type.

The plain way adds up whole powers or exponentials by the passes of a sum pool. Its totals tell
whether it was right: one that is too large, too small or NaN sends the whole array the careful way,
which jax differentiates. A branch decides, in the value and again in the derivative, which is a
linear map of its own: what is kept is the inputs and the output, in the type to compute in.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from jaxpool._arguments.arrays import vary_together
from jaxpool._geometry.window import Window
from jaxpool._kernels.dtypes import accumulator
from jaxpool._ops.linear_map import compute, linear_map
from jaxpool._ops.op import Op
from jaxpool._ops.sum_pool import SumPool
from jaxpool._plan.problem import Platform


@custom_vmap
def _all(holds: Array) -> Array:
    """Whether all hold, of all examples of a `vmap` together: a branch on it stays a branch."""
    return jnp.all(holds)


@_all.def_vmap
def _all_of_batch(size: int, mapped: list[bool], holds: Array) -> tuple[Array, bool]:
    return _all(holds), False


def between(x: Array, bits: float) -> Array:
    """Whether the sizes in x lie within so many powers of 2 around 1."""
    sizes = lax.abs(lax.stop_gradient(x))
    return jnp.logical_and(sizes >= 2.0**-bits, sizes <= 2.0**bits)


def moderate(x: Array) -> Array:
    """Whether what a derivative is multiplied by leaves its digits alone: 0 or of a usual size."""
    return jnp.logical_or(between(x, 60), lax.stop_gradient(x) == 0)


class RangedOp(Op):
    """An op that is plain within a range. The first of its inputs is x, all others may be differentiated too."""

    differentiable_given = True

    def plain(self, *xs: Array) -> tuple[Array, Array]:
        """The output by plain sums, and where that is right."""
        raise TypeError(f"{type(self).__name__} describes no plain way")

    def careful(self, *xs: Array) -> Array:
        """The output whatever the inputs."""
        raise TypeError(f"{type(self).__name__} describes no careful way")

    def is_plain(self, *given: Array) -> bool:
        """Whether there is a plain way at all."""
        return True

    def right(self, y: Array, *xs: Array) -> Array:
        """Where the output of `plain` is right, read off the output."""
        raise TypeError(f"{type(self).__name__} has no range")

    def plain_linear(self, xs: Any, y: Array, dots: Any) -> Array:
        """The tangent of y within the range."""
        return _pushed(lambda *xs: self.plain(*xs)[0], xs, dots)

    def plain_transpose(self, xs: Any, y: Array, dy: Array) -> tuple[Array, ...]:
        """The cotangents of the inputs within the range."""
        found: tuple[Array, ...] = jax.vjp(lambda *xs: self.plain(*xs)[0], *xs)[1](dy)
        return found

    def value(self, on: Platform, *xs: Array) -> Array:
        if not self.is_plain(*xs[1:]):
            return self.careful(*xs)
        y, right = self.plain(*xs)
        found: Array = lax.cond(
            _all(right), lambda y, *_: y, lambda _, *xs: self.careful(*xs), y, *xs
        )
        return found

    def linear(self, on: Platform, residual: Any, *dots: Array | None) -> Array:
        xs, y = residual
        if not self.is_plain(*xs[1:]):
            return _pushed(self.careful, xs, dots)
        moved = [dot for dot in dots if dot is not None]

        def spread(moved: Any) -> list[Any]:
            rest = iter(moved)
            return [None if dot is None else next(rest) for dot in dots]

        right = _all(self.right(y, *xs))
        for dot in moved:
            right = jnp.logical_and(right, _all(moderate(dot)))
        found: Array = lax.cond(
            right,
            lambda xs, y, *moved: self.plain_linear(xs, y, spread(moved)),
            lambda xs, y, *moved: _pushed(self.careful, xs, spread(moved)),
            xs,
            y,
            *moved,
        )
        return found

    def transpose(self, on: Platform, residual: Any, *dys: Array) -> tuple[Array, ...]:
        xs, y = residual
        (dy,) = dys

        def careful(xs: Any, y: Array, dy: Array) -> Any:
            return tuple(jax.vjp(self.careful, *xs)[1](dy))

        if not self.is_plain(*xs[1:]):
            return tuple(careful(xs, y, dy))
        right = jnp.logical_and(_all(self.right(y, *xs)), _all(moderate(dy)))
        found: tuple[Array, ...] = lax.cond(right, self.plain_transpose, careful, xs, y, dy)
        return found


def spread_of(window: Window, dy: Array) -> Array:
    """The transposed sum over `window`."""
    return linear_map(SumPool(window), (), [dy], given=(True,), turned=True)[0]


def _pushed(f: Any, xs: Any, dots: Any) -> Array:
    """The tangent of `f(*xs)`; a tangent that is None is zero."""
    moving = [which for which, dot in enumerate(dots) if dot is not None]

    def of(*some: Array) -> Array:
        every = list(xs)
        for which, x in zip(moving, some, strict=True):
            every[which] = x
        found: Array = f(*every)
        return found

    some = tuple(xs[which] for which in moving)
    dot: Array = jax.jvp(of, some, tuple(dots[which] for which in moving))[1]
    return dot


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _ranged(op: RangedOp, *xs: Array) -> Array:
    y: Array = compute(op, "value", *xs)
    return y


@functools.partial(_ranged.defjvp, symbolic_zeros=True)
def _ranged_jvp(op: RangedOp, xs: Any, dots: Any) -> tuple[Array, Array]:
    y = _ranged(op, *xs)
    known = [dot for dot in dots if not isinstance(dot, SymbolicZero)]
    if not known:
        return y, lax.full_like(y, 0)
    given = tuple(not isinstance(dot, SymbolicZero) for dot in dots)
    return y, linear_map(op, (tuple(xs), y), vary_together(known, y), given=given)[0]


@functools.partial(jax.jit, static_argnums=0)
def ranged(op: RangedOp, x: Array, *given: Array) -> Array:
    """What `op` computes, in both modes. What is kept is the inputs and the output before it is rounded."""
    given = tuple(array.astype(accumulator(x.dtype)) for array in given)
    return _ranged(op, *vary_together([x, *given])).astype(x.dtype)
