"""How an op gets its derivatives: `jax.custom_vjp` and `jax.custom_jvp` from one description, once, for all ops.

An `Op` says what is computed, what is kept, the linear map from tangents and its transpose. `apply`
attaches the rules:

- "vjp": reverse mode is the op's own transpose. The forward rule can itself be differentiated
  (that is what `jax.hessian` does), through `_attach`.
- "jvp": forward mode is the op's linear map; jax transposes it for reverse mode.

In both, `jax.checkpoint` around the linear maps keeps the residual to what the op returns: without
it, partial evaluation would save a mask for every tap of the window in place of one index.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.custom_derivatives import SymbolicZero

from jaxpool._arguments.arrays import vary_together
from jaxpool._kernels import dense as kernels

Autodiff = Literal["vjp", "jvp"]


class Op:
    """An operation and its derivative. Subclasses are frozen dataclasses: hashable, static under jit."""

    keeps = True  # whether to guard the primal from being computed again inside the backward: not if it is cheap

    def value(self, *xs: Array) -> Array:
        """What is computed, when nobody differentiates."""
        return self.primal(*xs)[0]

    def primal(self, *xs: Array) -> tuple[Array, Any]:
        """What is computed, and the residual: all that the derivative needs of the inputs."""
        raise TypeError(f"{type(self).__name__} describes no primal")

    def linear(self, residual: Any, *tangents: Array | None) -> Array:
        """The tangent of the output; linear in `tangents`, its transpose accumulating as `transpose` does.

        Of several tangents those that are zero may be None.
        """
        raise TypeError(f"{type(self).__name__} describes no linear map")

    def transpose(self, residual: Any, dy: Array) -> tuple[Array, ...]:
        """The cotangents of the inputs; linear in `dy`."""
        raise TypeError(f"{type(self).__name__} describes no transpose")


@functools.partial(jax.jit, static_argnums=0)
def _value(op: Op, *xs: Array) -> Array:
    return op.value(*xs)


@functools.partial(jax.jit, static_argnums=0)
def _primal(op: Op, *xs: Array) -> tuple[Array, Any]:
    return kernels.materialise(op.primal, *xs) if op.keeps else op.primal(*xs)


@functools.partial(jax.checkpoint, prevent_cse=False, static_argnums=0)
@functools.partial(jax.jit, static_argnums=0)
def _linear(op: Op, residual: Any, *tangents: Array | None) -> Array:
    return op.linear(residual, *tangents)


@functools.partial(jax.checkpoint, prevent_cse=False, static_argnums=0)
@functools.partial(jax.jit, static_argnums=0)
def _transpose(op: Op, residual: Any, dy: Array) -> tuple[Array, ...]:
    return op.transpose(residual, dy)


def _tangent(op: Op, y: Array, residual: Any, tangents: tuple[Any, ...]) -> Array:
    """The tangent of y. Tangents known to be zero are None to the op: as arrays they would be kept."""
    known = [t for t in tangents if not isinstance(t, SymbolicZero)]
    if not known:
        return lax.full_like(y, 0)
    arrays = iter(vary_together(known, y))
    given = [None if isinstance(t, SymbolicZero) else next(arrays) for t in tangents]
    return _linear(op, residual, *given)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _attach(op: Op, y: Array, residual: Any, xs: tuple[Array, ...]) -> Array:
    """y, with the tangent that the op's linear map gives to the tangents of xs."""
    return y


@functools.partial(_attach.defjvp, symbolic_zeros=True)
def _attach_jvp(op: Op, primals: Any, tangents: Any) -> tuple[Array, Array]:
    y, residual, xs = primals
    return _attach(op, y, residual, xs), _tangent(op, y, residual, tangents[2])


def _differentiable(op: Op, xs: tuple[Array, ...], *given: Array) -> tuple[Array, Any]:
    """The primal and the residual. AD sees the op's linear map alone and never enters the kernel."""
    y, residual = _primal(op, *lax.stop_gradient(xs), *given)
    return _attach(op, y, residual, xs), residual


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _with_vjp(op: Op, *xs: Array) -> Array:
    return _value(op, *xs)


def _with_vjp_fwd(op: Op, *xs: Array) -> tuple[Array, Any]:
    return _differentiable(op, xs)


def _with_vjp_bwd(op: Op, residual: Any, dy: Array) -> tuple[Array, ...]:
    return tuple(_transpose(op, residual, dy))


_with_vjp.defvjp(_with_vjp_fwd, _with_vjp_bwd)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _with_jvp(op: Op, *xs: Array) -> Array:
    return _value(op, *xs)


@functools.partial(_with_jvp.defjvp, symbolic_zeros=True)
def _with_jvp_rule(
    op: Op, primals: tuple[Array, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    y, residual = _differentiable(op, primals)
    return y, _tangent(op, y, residual, tangents)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _kept_with_vjp(op: Op, *xs: Array) -> tuple[Array, Any]:
    return _primal(op, *xs)


def _kept_with_vjp_fwd(op: Op, *xs: Array) -> tuple[tuple[Array, Any], Any]:
    y, residual = _differentiable(op, xs)
    return (y, residual), residual


def _kept_with_vjp_bwd(op: Op, residual: Any, cotangents: tuple[Array, Any]) -> tuple[Array, ...]:
    return tuple(_transpose(op, residual, cotangents[0]))


_kept_with_vjp.defvjp(_kept_with_vjp_fwd, _kept_with_vjp_bwd)


def apply(op: Op, autodiff: Autodiff, *xs: Array) -> Array:
    """What `op` computes of `xs`, with its derivative; integers and bools have none."""
    if not all(jnp.issubdtype(x.dtype, jnp.floating) for x in xs):
        return _value(op, *xs)
    return (_with_vjp if autodiff == "vjp" else _with_jvp)(op, *vary_together(xs))


def apply_kept(op: Op, autodiff: Autodiff, *xs: Array) -> tuple[Array, Any]:
    """As `apply`, and the residual too, of integers, which have no derivative."""
    if not all(jnp.issubdtype(x.dtype, jnp.floating) for x in xs):
        return _primal(op, *xs)
    return _kept_with_vjp(op, *xs) if autodiff == "vjp" else _differentiable(op, xs)


def apply_given(op: Op, x: Array, *given: Array) -> tuple[Array, Any]:
    """What `op` computes of x and its residual, in both modes; what is `given` has no derivative.

    The primal takes x and `given`. Of the derivatives the op need describe the linear map alone:
    jax transposes it.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return _primal(op, x, *given)
    return _differentiable(op, (x,), *given)


@functools.partial(jax.checkpoint, prevent_cse=False, static_argnums=0)
@functools.partial(jax.jit, static_argnums=0)
def compose(op: Op, *xs: Array) -> Array:
    """What `op` computes of `xs`, its `value` differentiated by jax itself, in both modes.

    For an op made of pieces that have derivatives. What is kept is `xs`; all else is computed again.
    """
    return op.value(*xs)
