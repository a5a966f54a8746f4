"""The base class of all ops, and the inputs of plans that its kernels make from arrays.

`primitives.py` evaluates and differentiates ops.
"""

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.slices import Ints, is_sharded
from jaxpool._plan.problem import ArrayProblem, Platform, Problem

Arrays = Sequence[Array]
Residual = Any  # a pytree of arrays

# True while a kernel is traced for a program that XLA partitions among devices.
# Created at import, because JAX does not support creating user contexts while other threads run.
is_partitioned = jax.make_user_context(False)


def array_problem(x: Array, platform: Platform, shape: Ints | None = None) -> ArrayProblem:
    """The `ArrayProblem` (input of a plan) of x, or of an array of `shape` with the dtype of x."""
    sizes = tuple(int(n) if is_int(n) else None for n in (x.shape if shape is None else shape))
    flags = {"is_sharded": is_sharded(x), "is_partitioned": is_partitioned.value}
    return ArrayProblem(sizes, x.dtype.name, platform, **flags)


def problem_of(window: Window, x: Array, platform: Platform, shape: Ints | None = None) -> Problem:
    """The `Problem` (input of a plan) of a pool over `window` of x, or of an array of `shape` with the dtype of x."""
    return Problem(**vars(array_problem(x, platform, shape)), window=window)


class Op:
    """An operation and its derivative. Subclasses are frozen dataclasses: hashable, and static under `jit`."""

    # Number of inputs of the linear map. Arguments after the inputs are extra arguments, such as a `where` mask.
    num_inputs = 1
    # True if JAX may differentiate `linear` and `transpose` for "portable" with respect to the residual.
    has_differentiable_residual = False
    # True if the op is linear in its inputs: `value` is `linear`, and the residual is the extra arguments.
    linear_in_x = False
    # True if the residual consists of arguments and the output (`saved_residual`); the op then defines no `primal`.
    saves_arguments = False
    # True if `primal` (`materialises_inputs`) or the linear maps (`materialises_residual`) compare arguments with
    # results computed from them earlier. XLA must store such arguments: a recomputation may round differently.
    materialises_inputs = False
    materialises_residual = False
    # False for data movement that is only a step of a pool: `jaxpool.plan_of` omits such ops.
    is_pool = True

    @property
    def saves_x(self) -> bool:
        """True if the residual contains x: each branch of a `lax.switch` would save a copy for the backward pass."""
        return self.materialises_residual

    def value(self, platform: Platform, *xs: Array) -> Array:
        """The output without a derivative."""
        return self.primal(platform, *xs)[0]

    def value_with_residual(self, platform: Platform, *xs: Array) -> Array:
        """The output when a derivative is taken and the residual is `saved_residual`."""
        return self.value(platform, *xs)

    def saved_residual(self, y: Array, *args: Array) -> Residual:
        """The residual if it consists of arguments and the output y (`linear_in_x` or `saves_arguments`).

        Second derivatives need `has_differentiable_residual`, unless the linear map selects elements of x.
        """
        return args[self.num_inputs :]

    def primal(self, platform: Platform, *xs: Array) -> tuple[Array, Residual]:
        """The output and the residual, which is saved for the derivative."""
        raise TypeError(f"{type(self).__name__} describes no primal")

    def linear(self, platform: Platform, residual: Residual, *tangents: Array | None) -> Array:
        """The tangent of the output, linear in `tangents`. With several inputs, None is a zero tangent."""
        raise TypeError(f"{type(self).__name__} describes no linear map")

    def transpose(self, platform: Platform, residual: Residual, *dys: Array) -> tuple[Array, ...]:
        """The cotangents of the inputs, linear in the cotangents `dys` of the outputs."""
        raise TypeError(f"{type(self).__name__} describes no transpose")
