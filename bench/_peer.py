"""What a peer is: a framework that prepares a case and then lets its calls be timed."""

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
    """The peer has no such op, type, layout or derivative, or is not installed."""


class Work:
    """One case in one mode, with its arrays and the right answer; lives while the case is run."""

    def __init__(self, case: Case, mode: Mode) -> None:
        self.case = case
        self.mode = mode
        self.xs = case.inputs()
        self.dy: np.ndarray | None = case.cotangent() if mode == "forward_and_vjp" else None
        self.reference = Reference(case, self.xs, self.dy)
        self._shared: dict[str, Any] = {}

    def shared(self, key: str, make: Callable[[], Any]) -> Any:
        """What several peers can use, made by the first that asks."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def forget(self, key: str) -> None:
        """What a peer made that another of the same kind must make for itself."""
        self._shared.pop(key, None)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A case made ready by a peer. What a peer cannot tell is None."""

    calls: TimedCalls
    compile_s: float | None = None
    difference: float | None = None
    peak_bytes: int | None = None
    residual_bytes: int | None = None


class Peer(Protocol):
    name: str

    def version(self) -> str | None:
        """The framework's version, None when it is not installed."""

    def prepare(self, work: Work) -> Prepared:
        """Raises Unsupported, or whatever the framework raises."""

    def close(self) -> None:
        """Gives back processes and threads."""
