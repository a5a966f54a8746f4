"""How an op is applied: the two primitives of `linear_map`, bound in one of two modes, once for all ops.

- "jvp": as they are. Forward mode, and by its transpose reverse mode.
- "vjp": inside a `jax.custom_vjp`, for reverse mode alone. Its backward is the transposed linear map. The rules can
  be differentiated again, which is what `jax.hessian` does.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together
from jaxpool._arguments.errors import ArgumentError
from jaxpool._ops.linear_map import linear_map, value, value_and_residual
from jaxpool._ops.op import Op

Autodiff = Literal["vjp", "jvp"]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _reverse(op: Op, what: str, *xs: Array) -> Any:
    """What the primitive gives, in reverse mode alone."""
    return value(op, *xs) if what == "value" else value_and_residual(op, *xs)


def _reverse_fwd(op: Op, what: str, *xs: Any) -> tuple[Any, Any]:
    """Beside the residual stands a mark for each input that is differentiated: (), or else None."""
    y, residual = value_and_residual(op, *[x.value for x in xs])
    marks = tuple(() if x.perturbed else None for x in xs)
    return y if what == "value" else (y, residual), (residual, marks)


def _reverse_bwd(op: Op, what: str, held: Any, cotangents: Any) -> tuple[Array | None, ...]:
    residual, marks = held
    wanted = tuple(mark is not None for mark in marks)
    dy = cotangents if what == "value" else cotangents[0]
    found = iter(linear_map(op, residual, [dy], given=wanted[: op.inputs], transposed=True))
    return tuple(next(found) if one else None for one in wanted)


_reverse.defvjp(_reverse_fwd, _reverse_bwd, symbolic_zeros=True)


@contextlib.contextmanager
def _refusing_forward_mode() -> Iterator[None]:
    """Turns jax's error about forward mode through `jax.custom_vjp` into one about the argument `autodiff`.

    Under `jit`, `checkpoint` and `linearize` jax differentiates after the call has returned. Its error then has as
    its cause the stack of that call, down to the line that bound the primitive. So those lines say it as well.
    """
    try:
        yield
    except (TypeError, NotImplementedError) as error:
        if not any(words in str(error) for words in ("forward-mode", "custom_lin")):
            raise
        rule = "'jvp' for forward-mode derivatives, those of jax.jvp, jax.linearize and jax.jacfwd"
        hint = 'Pass autodiff="jvp".'
        raise ArgumentError("autodiff", rule, "vjp", hint, TypeError) from None


def _differentiates(*xs: Array) -> bool:
    return all(jnp.issubdtype(x.dtype, jnp.floating) for x in xs)


def apply(op: Op, autodiff: Autodiff, *xs: Array) -> Array:
    """What `op` computes of `xs`, with its derivative; integers and bools have none, nor has what is given behind."""
    xs = tuple(vary_together(xs))
    if autodiff == "jvp" or not _differentiates(*xs[: op.inputs]):
        return value(op, *xs)
    with _refusing_forward_mode():
        return _reverse(op, "value", *xs)  # forward mode: pass autodiff="jvp"


def applied(op: Op, *xs: Array) -> Array:
    """`apply` in both modes."""
    return apply(op, "jvp", *xs)


def apply_kept(op: Op, autodiff: Autodiff, *xs: Array) -> tuple[Array, Any]:
    """As `apply`, and the residual too, which has no derivative."""
    if autodiff == "jvp" or not _differentiates(*xs[: op.inputs]):
        return value_and_residual(op, *xs)
    with _refusing_forward_mode():
        found: tuple[Array, Any] = _reverse(op, "primal", *xs)  # forward mode: pass autodiff="jvp"
        return found


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _in_reverse(function: Callable[..., Any], *xs: Array) -> Any:
    return function(*xs)


def _in_reverse_bwd(function: Callable[..., Any], pull: Any, dy: Any) -> tuple[Any, ...]:
    found: tuple[Any, ...] = pull(dy)
    return found


_in_reverse.defvjp(jax.vjp, _in_reverse_bwd)


def in_reverse(function: Callable[..., Any], *xs: Array) -> Any:
    """`function(*xs)`, of which ops are a part, in reverse mode alone: as `apply` with "vjp" is."""
    if not _differentiates(xs[0]):
        return function(*xs)
    with _refusing_forward_mode():
        return _in_reverse(function, *xs)  # forward mode: pass autodiff="jvp"


def apply_given(op: Op, *args: Array) -> tuple[Array, Any]:
    """What `op` computes and its residual, in both modes; what is given beside its inputs has no derivative.

    The primal takes the inputs and what is given, and a linear op keeps what is given.
    """
    return value_and_residual(op, *args)
