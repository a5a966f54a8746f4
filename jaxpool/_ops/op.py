"""How an op gets its derivatives: `jax.custom_vjp` and `jax.custom_jvp` from one description, once, for all ops.

An `Op` says what is computed, what is kept, the linear map from tangents and its transpose. `apply`
attaches the rules:

- "vjp": reverse mode alone, by `jax.custom_vjp`. The forward rule can itself be differentiated
  (that is what `jax.hessian` does), through `attach`.
- "jvp": forward mode, by `jax.custom_jvp`, and by its transpose reverse mode.

Both bind the same primitives (`linear_map`), so their programs are the same.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Literal

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.custom_derivatives import SymbolicZero

from jaxpool._arguments.arrays import vary_together
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.slices import is_sharded
from jaxpool._ops.linear_map import attach, compute, linear_map
from jaxpool._plan.problem import Platform, Problem

Autodiff = Literal["vjp", "jvp"]


def problem_of(window: Window, x: Array, on: Platform, shape: Any = None) -> Problem:
    """The problem of a pool over `window` of x, or of an array of `shape` with the dtype of x."""
    sizes = tuple(int(n) if is_int(n) else None for n in (x.shape if shape is None else shape))
    return Problem(window, sizes, x.dtype.name, on, is_sharded(x))


class Op:
    """An operation and its derivative, on a platform. Subclasses are frozen dataclasses: hashable, static under jit."""

    inputs = 1
    # Whether what is given beside the inputs has a derivative: jax's, of the portable form.
    differentiable_given = False
    linear_in_x = False  # whether it is its own linear map: then nothing is kept but what is given

    def value(self, on: Platform, *xs: Array) -> Array:
        """What is computed, when nobody differentiates."""
        return self.primal(on, *xs)[0]

    def primal(self, on: Platform, *xs: Array) -> tuple[Array, Any]:
        """What is computed, and the residual: all that the derivative needs of the inputs."""
        raise TypeError(f"{type(self).__name__} describes no primal")

    def linear(self, on: Platform, residual: Any, *tangents: Array | None) -> Any:
        """The tangent of the output; linear in `tangents`. Of several those that are zero may be None."""
        raise TypeError(f"{type(self).__name__} describes no linear map")

    def transpose(self, on: Platform, residual: Any, *dys: Array) -> tuple[Array, ...]:
        """The cotangents of the inputs; linear in the cotangents of the outputs."""
        raise TypeError(f"{type(self).__name__} describes no transpose")


def _tangent(op: Op, y: Array, residual: Any, tangents: tuple[Any, ...]) -> Array:
    """The tangent of y; tangents known to be zero take no part."""
    known = [t for t in tangents if not isinstance(t, SymbolicZero)]
    if not known:
        return lax.full_like(y, 0)
    given = tuple(not isinstance(t, SymbolicZero) for t in tangents)
    return linear_map(op, residual, vary_together(known, y), given=given)[0]


def _differentiable(op: Op, xs: tuple[Array, ...], *given: Array) -> tuple[Array, Any]:
    """The primal and the residual. AD sees the op's linear map alone and never enters the kernel."""
    if op.linear_in_x:
        return linear_map(op, given, xs, given=(True,) * len(xs))[0], given
    y, residual = compute(op, "primal", *lax.stop_gradient(xs), *given)
    return attach(op, y, residual, xs), residual


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _with_vjp(op: Op, *xs: Array) -> Array:
    return value(op, *xs)


def _with_vjp_fwd(op: Op, *xs: Any) -> tuple[Array, Any]:
    """Beside the residual stands a mark for each input that is differentiated: (), or else None."""
    y, residual = _differentiable(op, tuple(x.value for x in xs))
    return y, (residual, tuple(() if x.perturbed else None for x in xs))


def _with_vjp_bwd(op: Op, kept: Any, dy: Array) -> tuple[Array | None, ...]:
    residual, marks = kept
    return _cotangents(op, residual, dy, tuple(mark is not None for mark in marks))


_with_vjp.defvjp(_with_vjp_fwd, _with_vjp_bwd, symbolic_zeros=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _with_jvp(op: Op, *xs: Array) -> Array:
    return value(op, *xs)


@functools.partial(_with_jvp.defjvp, symbolic_zeros=True)
def _with_jvp_rule(
    op: Op, primals: tuple[Array, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    y, residual = _differentiable(op, primals)
    return y, _tangent(op, y, residual, tangents)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _kept_with_vjp(op: Op, *xs: Array) -> tuple[Array, Any]:
    return compute(op, "primal", *xs)


def _kept_with_vjp_fwd(op: Op, *xs: Array) -> tuple[tuple[Array, Any], Any]:
    y, residual = _differentiable(op, xs)
    return (y, residual), residual


def _kept_with_vjp_bwd(op: Op, residual: Any, cotangents: tuple[Array, Any]) -> Any:
    return _cotangents(op, residual, cotangents[0], (True,) * op.inputs)


_kept_with_vjp.defvjp(_kept_with_vjp_fwd, _kept_with_vjp_bwd)


def _cotangents(
    op: Op, residual: Any, dy: Array, wanted: tuple[bool, ...]
) -> tuple[Array | None, ...]:
    found = iter(linear_map(op, residual, [dy], given=wanted, turned=True))
    return tuple(next(found) if one else None for one in wanted)


def value(op: Op, *xs: Array) -> Array:
    """What `op` computes of xs, without a derivative unless the op is linear."""
    if op.linear_in_x:
        return linear_map(op, (), xs, given=(True,) * len(xs))[0]
    y: Array = compute(op, "value", *xs)
    return y


@contextlib.contextmanager
def _naming_the_other_mode() -> Iterator[None]:
    """Adds to what jax says of forward mode through `jax.custom_vjp` which argument allows it.

    Under `jit`, `linearize` and `checkpoint` jax differentiates after the call has returned. Its error then has as its
    cause the stack of that call, down to the line that bound the primitive. So those lines below say it as well.
    """
    try:
        yield
    except (TypeError, NotImplementedError) as error:
        if any(words in str(error) for words in ("forward-mode", "custom_lin")):
            error.add_note(
                'jaxpool: pass autodiff="jvp" for jax.jvp, jax.linearize and jax.jacfwd.'
            )
        raise


def _differentiates(*xs: Array) -> bool:
    return all(jnp.issubdtype(x.dtype, jnp.floating) for x in xs)


def apply(op: Op, autodiff: Autodiff, *xs: Array) -> Array:
    """What `op` computes of `xs`, with its derivative; integers and bools have none."""
    if not _differentiates(*xs) or (autodiff == "jvp" and op.linear_in_x):
        return value(op, *xs)
    if autodiff == "jvp":
        return _with_jvp(op, *vary_together(xs))
    with _naming_the_other_mode():
        return _with_vjp(op, *vary_together(xs))  # forward mode: pass autodiff="jvp"


def applied(op: Op, *xs: Array) -> Array:
    """`apply` in both modes."""
    return apply(op, "jvp", *xs)


def apply_kept(op: Op, autodiff: Autodiff, *xs: Array) -> tuple[Array, Any]:
    """As `apply`, and the residual too, of integers, which have no derivative."""
    if not _differentiates(*xs):
        found: tuple[Array, Any] = compute(op, "primal", *xs)
        return found
    if autodiff == "jvp":
        return _differentiable(op, xs)
    with _naming_the_other_mode():
        return _kept_with_vjp(op, *xs)  # forward mode: pass autodiff="jvp"


def apply_given(op: Op, *args: Array) -> tuple[Array, Any]:
    """What `op` computes and its residual, in both modes; what is given beside its inputs has no derivative.

    The primal takes the inputs and what is given, and a linear op keeps what is given.
    """
    xs, given = args[: op.inputs], args[op.inputs :]
    if op.linear_in_x or _differentiates(*xs):
        return _differentiable(op, xs, *given)
    found: tuple[Array, Any] = compute(op, "primal", *args)
    return found


class Composite:
    """An operation made of pieces that have derivatives. Subclasses are frozen dataclasses."""

    def value(self, *xs: Array) -> Array:
        """What is computed."""
        raise TypeError(f"{type(self).__name__} describes no value")


@functools.partial(jax.checkpoint, prevent_cse=False, static_argnums=0)
@functools.partial(jax.jit, static_argnums=0)
def compose(op: Composite, *xs: Array) -> Array:
    """What `op` computes of `xs`, differentiated by jax itself, in both modes.

    What is kept is `xs`; all else is computed again.
    """
    return op.value(*xs)
