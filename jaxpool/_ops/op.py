"""What an op is: what it computes, what it keeps, the linear map from tangents and its transpose, on each platform.

It knows of no rule of AD and of no primitive: `linear_map.py` defines these for any op, `apply.py` binds them.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import Array

from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels.slices import is_sharded
from jaxpool._plan.problem import Platform, Problem
from jaxpool._plan.stages import OpPlan

# Whether XLA divides the program among devices; true while a kernel is traced for such a program.
# A user context of jax, made with the module: jax asks that contexts are not made while other threads use it.
partitioned = jax.make_user_context(False)


def problem_of(window: Window, x: Array, platform: Platform, shape: Any = None) -> Problem:
    """The problem of a pool over `window` of x, or of an array of `shape` with the dtype of x."""
    sizes = tuple(int(n) if is_int(n) else None for n in (x.shape if shape is None else shape))
    return Problem(window, sizes, x.dtype.name, platform, is_sharded(x), partitioned.value)


class Op:
    """An operation and its derivative, on a platform. Subclasses are frozen dataclasses: hashable, static under jit."""

    inputs = 1
    # Whether what is given beside the inputs has a derivative: jax's, of the portable form.
    differentiable_given = False
    linear_in_x = False  # whether it is its own linear map: then nothing is kept but what is given
    # Whether the residual is the inputs, and `keeps_output` the output too, differentiable as they are.
    keeps_inputs = False
    keeps_output = True
    # Whether the residual is the output, differentiable as it is, and behind it the first `given_kept` of what is
    # given. For derivatives of the derivative it needs `differentiable_given`.
    keeps_value = False
    given_kept = 0
    # Whether one pass of `primal` compares an input with the result of another pass over it, and whether `linear` and
    # `transpose` compare inputs that are part of the residual. Such arrays are computed once and stored
    # (see `_kernels/materialise.py`).
    stores_inputs = False
    stores_residual = False
    is_pool = True  # or moves elements about for one, which no plan of a program names

    def plan(self, platform: Platform, *types: Any) -> OpPlan:
        """The passes that the kernels carry out, of arrays of `types`, read off what the kernels read.

        Where it names none, the kernel is one expression, and XLA alone decides.
        """
        return OpPlan()

    def value(self, platform: Platform, *xs: Array) -> Array:
        """What is computed, when nobody differentiates."""
        return self.primal(platform, *xs)[0]

    def value_beside(self, platform: Platform, *xs: Array) -> Array:
        """What is computed of inputs that are kept: as the derivative wants it, which finds it again."""
        return self.value(platform, *xs)

    def primal(self, platform: Platform, *xs: Array) -> tuple[Array, Any]:
        """What is computed, and the residual: all that the derivative needs of the inputs."""
        raise TypeError(f"{type(self).__name__} describes no primal")

    def linear(self, platform: Platform, residual: Any, *tangents: Array | None) -> Any:
        """The tangent of the output; linear in `tangents`. Of several those that are zero may be None."""
        raise TypeError(f"{type(self).__name__} describes no linear map")

    def transpose(self, platform: Platform, residual: Any, *dys: Array) -> tuple[Array, ...]:
        """The cotangents of the inputs; linear in the cotangents of the outputs."""
        raise TypeError(f"{type(self).__name__} describes no transpose")
