"""Run cases: every peer prepares the case, then timed calls alternate between peers."""

from __future__ import annotations

import dataclasses
import functools
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import jax
import numpy as np

from bench._case import Case, Mode, Unsupported
from bench.device_time import device_seconds
from bench.oracle import Reference
from bench.report import line
from bench.results import CaseResult, Row
from bench.timing import TimedCalls, burst, take_turns

Device = Literal["cpu", "gpu", "tpu"]


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


# How to time a case that a peer prepared, and a row without its timing. Values that a peer cannot measure are None.
Prepared = tuple[TimedCalls, Row]


class Peer(Protocol):
    name: str

    def prepare(self, work: Work) -> Prepared:
        """Prepare a case. Raises `Unsupported`, or an exception of the framework."""


def run_cases(
    cases: Sequence[Case],
    mode: Mode,
    peers: Sequence[Peer],
    budget_s: float,
    device: Device = "cpu",
) -> tuple[CaseResult, ...]:
    """Run and print every case that has the mode, with about `budget_s` seconds of timing per case."""
    results = []
    todo = [case for case in cases if mode in case.modes]
    for number, case in enumerate(todo, start=1):
        print(f"[{number}/{len(todo)}] {case.name}", file=sys.stderr)
        results.append(run_case(case, mode, peers, budget_s, device))
        gc.collect()  # arrays of the case
        print(line(results[-1]), flush=True)
    return tuple(results)


def run_case(
    case: Case, mode: Mode, peers: Sequence[Peer], budget_s: float, device: Device = "cpu"
) -> CaseResult:
    with jax.enable_x64(case.dtype == "float64"):
        work = Work(case, mode)
        prepared: dict[str, Prepared] = {}
        rows: dict[str, Row] = {}
        for peer in peers:
            try:
                prepared[peer.name] = peer.prepare(work)
            except Unsupported as error:
                rows[peer.name] = Row(why_not=str(error))
            except Exception as error:  # an error of a peer must not end the run
                message = str(error).strip().partition("\n")[0][:200]
                rows[peer.name] = Row(why_not=f"{type(error).__name__}: {message}")
        rows |= timed_rows(prepared, budget_s, device)
    ordered = {peer.name: rows[peer.name] for peer in peers}
    return CaseResult(case.name, ordered)


def timed_rows(
    prepared: Mapping[str, Prepared], budget_s: float, device: Device = "cpu"
) -> dict[str, Row]:
    """Time the peers alternately. On an accelerator, then profile each of them for its device time."""
    timings = take_turns({name: calls for name, (calls, _) in prepared.items()}, budget_s)
    rows = {}
    for name, (calls, row) in prepared.items():
        rows[name] = dataclasses.replace(row, timing=timings[name])
        if device != "cpu":
            busy_s = device_seconds(functools.partial(calls, 1), f"/device:{device.upper()}:0")
            # A peer in a process of its own is not in the profile.
            rows[name] = dataclasses.replace(rows[name], device_s=busy_s / burst(device) or None)
    return rows
