"""`Answer`, the result type of the oracle: the value of an op, and its derivative as a list of terms.

Values and cotangents are computed in float64 or Python ints and rounded once at the end.
"""

from __future__ import annotations

import dataclasses
import functools
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
            round_to_dtype(dx, dtype, is_derivative=True)
            for dx, (_, dtype) in zip(exact_dxs, self.inputs, strict=True)
        )

    def cotangent(self, dy: Any) -> np.ndarray:
        """The cotangent of the only operand."""
        (dx,) = self.cotangents(dy)
        return dx

    def exact_cotangents(self, dy: Any, *, absolute: bool = False) -> tuple[np.ndarray, ...]:
        """The cotangents in float64; with `absolute`, sums of the absolute values of the terms."""
        dy, dxs = np.ravel(dy).astype(np.float64), []
        for (shape, _), (outputs, elements, shares) in zip(self.inputs, self._terms, strict=True):
            values = shares * dy[outputs]
            values = np.abs(values) if absolute else values
            dxs.append(np.bincount(elements, values, math.prod(shape)).reshape(shape))
        return tuple(dxs)

    def tangent(self, *dxs: Any) -> np.ndarray:
        """The tangent of `y` for a tangent of each operand, rounded once into the dtype of `y`."""
        return round_to_dtype(self.exact_tangent(*dxs), self.y.dtype, is_derivative=True)

    def exact_tangent(self, *dxs: Any, absolute: bool = False) -> np.ndarray:
        """The tangent in float64; with `absolute`, sums of the absolute values of the terms."""
        y_dot = np.zeros(self.y.size)
        for dx, (outputs, elements, shares) in zip(dxs, self._terms, strict=False):
            values = shares * np.ravel(dx).astype(np.float64)[elements]
            values = np.abs(values) if absolute else values
            y_dot += np.bincount(outputs, values, self.y.size)
        return y_dot.reshape(self.y.shape)

    def max_terms_per_sum(self) -> int:
        """The largest number of terms in the sum of one output, or in the cotangent of one element."""
        sums = [np.concatenate([outputs for outputs, *_ in self._terms])]
        sums += [elements for _, elements, _ in self._terms]
        return max(int(np.bincount(positions).max(initial=1)) for positions in sums)

    @functools.cached_property
    def _terms(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each operand: the flat output and element positions of its terms, and their shares."""
        arrays = []
        for operand, (shape, _) in enumerate(self.inputs):
            terms = [term for term in self.terms if term.operand == operand]
            outputs = _flat_positions([term.output for term in terms], self.y.shape)
            elements = _flat_positions([term.position for term in terms], shape)
            arrays.append((outputs, elements, np.array([term.share for term in terms], float)))
        return arrays


def _flat_positions(positions: Sequence[Position], shape: tuple[int, ...]) -> np.ndarray:
    if not shape or not positions:
        return np.zeros(len(positions), int)
    return np.ravel_multi_index(tuple(np.array(positions, int).T), shape)


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


def round_to_dtype(values: Any, dtype: Any, *, is_derivative: bool = False) -> np.ndarray:
    """`values` rounded once into `dtype`; ints wrap around as in XLA.

    Below its least value, float8_e8m0fnu gets that value, but a derivative becomes NaN.
    """
    if is_floating(dtype):
        floats = np.asarray(values, np.float64)
        if dtype == jnp.float8_e8m0fnu and not is_derivative:
            floats = np.clip(floats, 2.0**-127, 2.0**127)
        with np.errstate(all="ignore"):
            return floats.astype(dtype)
    if dtype == np.bool_:
        return np.asarray(values, np.bool_)
    info = jnp.iinfo(dtype)
    span = int(info.max) - int(info.min) + 1
    int_dtype = np.uint64 if info.min == 0 else np.int64
    ints = [(int(value) - int(info.min)) % span + int(info.min) for value in np.ravel(values)]
    return np.array(ints, int_dtype).reshape(np.shape(values)).astype(dtype)
