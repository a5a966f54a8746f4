"""Calls to try: of any public function, and of windowed pools with the arguments spelled out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from jaxpool.testing._answer import Answer
from jaxpool.testing._record import SEVERAL, Pool, pools
from jaxpool.testing._windows import Windows, sliding_windows
from jaxpool.testing.oracle._parts import Ties

Kind = Literal["max", "min", "avg", "sum", "median", "rank"]


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """One call to try: a public function, what to pass by name, and a cotangent for its (first) result.

    `dy` is None where the array has no gradient (integers and bool).
    """

    pool: Pool
    given: Mapping[str, Any]
    dy: np.ndarray | None = None

    def answer(self) -> Answer:
        """What the oracle makes of the call."""
        return self.pool.run(self.given, self.pool.meaning)

    def operands(self) -> list[np.ndarray]:
        """The arrays that it is differentiated by, in their order."""
        found: list[np.ndarray] = []
        for name in self.pool.operands:
            value = self.given[name]
            found += value if name in SEVERAL else [value]
        return found

    def of(self, operands: Any) -> dict[str, Any]:
        """The arguments with these in place of its operands."""
        known, given = list(operands), dict(self.given)
        for name in self.pool.operands:
            count = len(given[name]) if name in SEVERAL else 1
            taken, known = known[:count], known[count:]
            given[name] = tuple(taken) if name in SEVERAL else taken[0]
        return given


@dataclasses.dataclass(frozen=True, eq=False)
class PoolCase:
    """One pool to try: which, on what `x`, with which arguments, and a cotangent for it.

    `dy` is None where `x` has no gradient (integers and bool).
    """

    kind: Kind
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
        """The arguments that place the windows, without those that stand at their default."""
        chosen: dict[str, Any] = {
            "window_shape": self.window_shape,
            "strides": self.strides,
            "padding": self.padding,
        }
        if self.window_dilation is not None:
            chosen["window_dilation"] = self.window_dilation
        if self.ceil_mode:
            chosen["ceil_mode"] = True
        if self.axes is not None:
            chosen["axes"] = self.axes
        return chosen

    def kwargs(self) -> dict[str, Any]:
        """What to pass beside `x`; optional arguments only where they are not at their default."""
        chosen = self.geometry()
        if self.ties != "first":
            chosen["ties"] = self.ties
        if not self.count_include_pad:
            chosen["count_include_pad"] = False
        if self.divisor is not None:
            chosen["divisor"] = self.divisor
        if self.rank is not None:
            chosen["rank"] = self.rank
        return chosen

    def window(self) -> Windows:
        """The windows: shapes, and the position of each tap."""
        return sliding_windows(self.x.shape, **self.geometry())

    def answer(self) -> Answer:
        """What the oracle makes of the case."""
        return self.call().answer()

    def call(self) -> Call:
        """The same as a call of the public function."""
        pool = pools()[f"{self.kind}_pool"]
        return Call(pool, {"x": self.x, **self.kwargs()}, self.dy)


@dataclasses.dataclass(frozen=True)
class Geometry:
    """Shape, layout and window of a case before values are drawn: what a program depends on."""

    shape: tuple[int, ...]
    window_shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str | tuple[tuple[int, int], ...] = "VALID"
    window_dilation: tuple[int, ...] | None = None
    ceil_mode: bool = False
    axes: tuple[int, ...] | None = None
