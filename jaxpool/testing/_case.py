"""Test cases: `Call` for any public function, `PoolCase` for windowed pools with one field per argument.

Hypothesis strategies draw test cases, and `assert_pool_matches` compares a function with the oracle on a test case.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from jaxpool.testing._answer import Answer
from jaxpool.testing._record import TUPLE_PARAMETERS, Pool, pools
from jaxpool.testing._windows import WINDOW_ARGUMENTS, Windows, sliding_windows
from jaxpool.testing.oracle._parts import Ties

PoolKind = Literal["max", "min", "avg", "sum", "median", "rank"]


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """One call of a public function: its arguments by name, and a cotangent `dy` of its (first) result.

    `dy` is None for integers and bool, which have no gradient.
    """

    pool: Pool
    given: Mapping[str, Any]
    dy: np.ndarray | None = None

    def answer(self) -> Answer:
        """The oracle's result for the call."""
        return self.pool.run(self.given, self.pool.meaning)

    def operands(self) -> list[np.ndarray]:
        """The arrays that the call is differentiated with respect to, in order."""
        arrays: list[np.ndarray] = []
        for name in self.pool.operands:
            value = self.given[name]
            arrays += value if name in TUPLE_PARAMETERS else [value]
        return arrays

    def of(self, operands: Any) -> dict[str, Any]:
        """The arguments of the call, with its operands replaced by `operands`."""
        remaining_arrays, arguments = list(operands), dict(self.given)
        for name in self.pool.operands:
            count = len(arguments[name]) if name in TUPLE_PARAMETERS else 1
            arrays, remaining_arrays = remaining_arrays[:count], remaining_arrays[count:]
            arguments[name] = tuple(arrays) if name in TUPLE_PARAMETERS else arrays[0]
        return arguments


@dataclasses.dataclass(frozen=True, eq=False)
class PoolCase:
    """One call of a windowed pool: its kind, the input `x`, its arguments, and a cotangent `dy` of the output.

    `dy` is None for integers and bool, which have no gradient.
    """

    kind: PoolKind
    x: np.ndarray
    dy: np.ndarray | None
    window_shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str | tuple[tuple[int, int], ...]
    window_dilation: tuple[int, ...] | None = None
    ceil_mode: bool = False
    axes: tuple[int, ...] | None = None
    ties: Ties = "first"
    count_include_pad: bool = True
    divisor: float | None = None
    rank: int | None = None

    def geometry(self) -> dict[str, Any]:
        """The arguments that define the windows, without optional arguments at their default."""
        names = ("axes", *WINDOW_ARGUMENTS)
        return {name: value for name, value in self.kwargs().items() if name in names}

    def kwargs(self) -> dict[str, Any]:
        """All arguments except `x`, without optional arguments at their default."""
        arguments = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in ("kind", "x", "dy") and value != field.default:
                arguments[field.name] = value
        return arguments

    def window(self) -> Windows:
        """The windows of the case, with the positions of the elements of each window."""
        return sliding_windows(self.x.shape, **self.geometry())

    def answer(self) -> Answer:
        """The oracle's result for the case."""
        return self.call().answer()

    def call(self) -> Call:
        """The case as a `Call` of the public function."""
        pool = pools()[f"{self.kind}_pool"]
        return Call(pool, {"x": self.x, **self.kwargs()}, self.dy)


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Shape, layout and window of a case, before dtype and values are drawn."""

    shape: tuple[int, ...]
    window_shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str | tuple[tuple[int, int], ...] = "VALID"
    window_dilation: tuple[int, ...] | None = None
    ceil_mode: bool = False
    axes: tuple[int, ...] | None = None
