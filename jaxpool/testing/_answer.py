"""`Answer`, the result type of the oracle: the value of an op, and its derivative as a list of terms.

Values and cotangents are computed in float64 or Python ints and rounded once at the end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Position = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Term:
    """Element `position` of operand `operand` gets `share` times the cotangent of `output`."""

    output: Position
    operand: int
    position: Position
    share: float


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """The value `y` of an op and its derivative, a list of terms.

    `inputs` holds the shape and dtype of each operand. `indices` is the selected element of each window, as a flat
    row-major index over the unpadded pooled axes, for ops that select. `size` is the scale of each value's rounding
    error; None is the sum of the absolute values of its terms.
    """

    y: np.ndarray
    inputs: tuple[tuple[tuple[int, ...], np.dtype], ...]
    terms: tuple[Term, ...]
    indices: np.ndarray | None = None
    size: np.ndarray | None = None

    def cotangents(self, dy: Any) -> tuple[np.ndarray, ...]:
        """The cotangent of each operand for `dy`, rounded once into the operand's dtype."""
        exact_dxs = self.exact_cotangents(dy)
        return tuple(
            round_to_dtype(dx, dtype) for dx, (_, dtype) in zip(exact_dxs, self.inputs, strict=True)
        )

    def cotangent(self, dy: Any) -> np.ndarray:
        """The cotangent of the only operand."""
        (dx,) = self.cotangents(dy)
        return dx

    def exact_cotangents(self, dy: Any, *, absolute: bool = False) -> tuple[np.ndarray, ...]:
        """The cotangents in float64; with `absolute`, sums of the absolute values of the terms."""
        exact_dy = as_exact_numbers(dy)
        terms_by_position: list[dict[Position, list[float]]] = [{} for _ in self.inputs]
        for term in self.terms:
            value = term.share * exact_dy[term.output]
            terms_by_position[term.operand].setdefault(term.position, []).append(
                abs(value) if absolute else value
            )
        dxs = []
        for (shape, _), terms_of_operand in zip(self.inputs, terms_by_position, strict=True):
            dx = np.zeros(shape)
            for position, values in terms_of_operand.items():
                dx[position] = exact_sum(values)
            dxs.append(dx)
        return tuple(dxs)

    def tangent(self, *dxs: Any) -> np.ndarray:
        """The tangent of `y` for a tangent of each operand, rounded once into the dtype of `y`."""
        exact_dxs = [as_exact_numbers(dx) for dx in dxs]
        terms_by_output: dict[Position, list[float]] = {}
        for term in self.terms:
            value = term.share * exact_dxs[term.operand][term.position]
            terms_by_output.setdefault(term.output, []).append(value)
        dy = np.zeros(self.y.shape)
        for position, values in terms_by_output.items():
            dy[position] = exact_sum(values)
        return round_to_dtype(dy, self.y.dtype)


# Numbers


def is_floating(dtype: Any) -> bool:
    """Whether `dtype` is a float, including the 8- and 16-bit floats of jax."""
    return bool(jnp.issubdtype(dtype, jnp.floating))


def as_exact_numbers(x: Any) -> np.ndarray:
    """`x` in a type that represents all its values: float64, or Python ints and bools as objects."""
    x = np.asarray(x)
    if is_floating(x.dtype):
        return x.astype(np.float64)
    if x.dtype == np.bool_ or x.dtype.kind in "iu":
        return x.astype(object)
    return x.astype(np.int64).astype(object)


def exact_sum(values: Sequence[Any]) -> Any:
    """The sum without rounding error: exact for ints, rounded once into float64 for floats."""
    if not all(isinstance(value, float) for value in values):
        return sum(values)
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):  # inf - inf, or a sum past the largest float64
        return sum(map(float, values))


def round_to_dtype(values: Any, dtype: Any) -> np.ndarray:
    """`values` rounded once into `dtype`; ints wrap around as in XLA."""
    if is_floating(dtype):
        with np.errstate(all="ignore"):
            return np.asarray(values, np.float64).astype(dtype)
    if dtype == np.bool_:
        return np.asarray(values, np.bool_)
    info = jnp.iinfo(dtype)
    span = int(info.max) - int(info.min) + 1
    int_dtype = np.uint64 if info.min == 0 else np.int64
    ints = [(int(value) - int(info.min)) % span + int(info.min) for value in np.ravel(values)]
    return np.array(ints, int_dtype).reshape(np.shape(values)).astype(dtype)
