"""The protocol of a peer: a framework that prepares a case and returns calls to time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np

from bench._case import Case, Mode
from bench.oracle import Reference
from bench.timing import TimedCalls

Device = Literal["cpu", "gpu", "tpu"]


class Unsupported(Exception):
    """The peer lacks the op, dtype, layout or derivative, or is not installed."""


class Work:
    """One case in one mode, with its arrays and the expected results."""

    def __init__(self, case: Case, mode: Mode) -> None:
        self.case = case
        self.mode = mode
        self.xs = case.inputs()
        self.dy: np.ndarray | None = case.cotangent() if mode == "forward_and_vjp" else None
        self.reference = Reference(case, self.xs, self.dy)
        self._shared: dict[str, Any] = {}

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        """Return an object that several peers use. The first caller creates it."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def forget(self, key: str) -> None:
        """Drop a shared object, so that the next peer creates its own."""
        self._shared.pop(key, None)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A case prepared by a peer. Values that a peer cannot measure are None."""

    calls: TimedCalls
    compile_s: float | None = None
    difference: float | None = None
    peak_bytes: int | None = None
    residual_bytes: int | None = None


class Peer(Protocol):
    name: str

    def prepare(self, work: Work) -> Prepared:
        """Prepare a case. Raises `Unsupported`, or an exception of the framework."""
