"""Apply an op to arrays in one of the two modes of the public argument `autodiff`.

- "jvp": bind the primitives of `linear_map` directly. Supports forward mode, and reverse mode by transposition.
- "vjp": wrap the primitives in a `jax.custom_vjp` whose backward pass is the transposed linear map. Supports reverse
  mode only. The forward and backward rules can be differentiated again, as `jax.hessian` does.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import jax
from jax import Array
from jax.custom_derivatives import CustomVJPPrimal

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._arguments.errors import ArgumentError
from jaxpool._kernels.dtypes import is_float
from jaxpool._ops.op import Op, Residual
from jaxpool._ops.primitives import linear_map, value, value_and_residual

T = TypeVar("T")  # an array or a pytree of arrays
Autodiff = Literal["vjp", "jvp"]
Output = Any  # an array, or an array and a residual
Saved = tuple[Residual, tuple[tuple[()] | None, ...]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _op_vjp(op: Op, method: str, *xs: Array) -> Output:
    """The output of `op`, and if `method` is "primal" also the residual, with a reverse-mode derivative only."""
    return value(op, *xs) if method == "value" else value_and_residual(op, *xs)


def _op_vjp_fwd(op: Op, method: str, *xs: CustomVJPPrimal) -> tuple[Output, Saved]:
    """Save the residual and one mark per argument: () for a differentiated argument, else None."""
    y, residual = value_and_residual(op, *[x.value for x in xs])
    perturbed_marks = tuple(() if x.perturbed else None for x in xs)
    return y if method == "value" else (y, residual), (residual, perturbed_marks)


def _op_vjp_bwd(op: Op, method: str, res: Saved, cotangents: Output) -> tuple[Array | None, ...]:
    residual, perturbed_marks = res
    needs_dx = tuple(mark is not None for mark in perturbed_marks)
    dy = cotangents if method == "value" else cotangents[0]
    dxs = iter(linear_map(op, residual, [dy], nonzero=needs_dx[: op.num_inputs], transposed=True))
    return tuple(next(dxs) if is_wanted else None for is_wanted in needs_dx)


_op_vjp.defvjp(_op_vjp_fwd, _op_vjp_bwd, symbolic_zeros=True)


@contextlib.contextmanager
def _replace_forward_mode_error() -> Iterator[None]:
    """Replace JAX's error about forward mode through `jax.custom_vjp` by an error about the argument `autodiff`.

    Under `jit`, `checkpoint` and `linearize`, JAX raises after the call has returned. The traceback then shows the line
    that bound the primitive, and the comment on that line gives the remedy.
    """
    try:
        yield
    except (TypeError, NotImplementedError) as error:
        if not any(words in str(error) for words in ("forward-mode", "custom_lin")):
            raise
        rule = "'jvp' for forward-mode derivatives, those of jax.jvp, jax.linearize and jax.jacfwd"
        hint = 'Pass autodiff="jvp".'
        raise ArgumentError("autodiff", rule, "vjp", hint, TypeError) from None


def _may_have_derivative(xs: Sequence[Array], num_inputs: int = 1) -> bool:
    """True if any of `xs` is traced and the first `num_inputs` of `xs` are floating-point.

    Calls with concrete arrays skip `jax.custom_vjp`, which would add 160 us to the 60 us of the rest of the call.
    """
    is_traced = any(isinstance(x, jax.core.Tracer) for x in xs)
    return is_traced and all(is_float(x.dtype) for x in xs[:num_inputs])


def _apply(op: Op, method: str, autodiff: Autodiff, xs: Sequence[Array]) -> Output:
    xs = match_varying_mesh_axes(xs)
    if autodiff == "jvp" or not _may_have_derivative(xs, op.num_inputs):
        return value(op, *xs) if method == "value" else value_and_residual(op, *xs)
    with _replace_forward_mode_error():
        return _op_vjp(op, method, *xs)  # forward mode: pass autodiff="jvp"


def apply(op: Op, *xs: Array, autodiff: Autodiff = "jvp") -> Array:
    """Apply `op` to `xs`: its inputs, then its other arguments. Only floating-point inputs have a derivative."""
    y: Array = _apply(op, "value", autodiff, xs)
    return y


def apply_with_residual(op: Op, *xs: Array, autodiff: Autodiff = "jvp") -> tuple[Array, Residual]:
    """Apply `op` and return the output and the residual. The residual has no derivative."""
    output: tuple[Array, Residual] = _apply(op, "primal", autodiff, xs)
    return output


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _function_vjp(function: Callable[..., T], *xs: Array) -> T:
    return function(*xs)


def _function_vjp_bwd(
    function: Callable[..., T], vjp_fn: Callable[[T], tuple[Array, ...]], dy: T
) -> tuple[Array, ...]:
    return vjp_fn(dy)


_function_vjp.defvjp(jax.vjp, _function_vjp_bwd)


def call_in_reverse_mode(function: Callable[..., T], *xs: Array) -> T:
    """Call `function(*xs)` with a reverse-mode derivative only, as `apply` does for `autodiff="vjp"`."""
    if not _may_have_derivative(xs):
        return function(*xs)
    with _replace_forward_mode_error():
        return _function_vjp(function, *xs)  # forward mode: pass autodiff="jvp"
