"""The results of a run, and their JSON files: `bench/results/` has one per published run.

A file has a `kind` ("cases" or "table"), its conditions, and `rows`.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench._case import TRAIN_STEP_CALL, Mode
from bench.timing import Timing

# The names of the peers in results.
OURS = "jaxpool"
LAX = "lax"
ACCELERATE = "accelerate"  # lax's own train step under `jaxpool.accelerate`
ADD_ONE = "x+1"
COPY = "copy"
PLAIN = "plain"  # the equivalent jax.numpy code of `python -m bench --plain`
TORCH_COMPILE = "torch-compile"  # `torch.compile`, only on GPUs
STRONGEST = ("torch", "torch-channels-last", TORCH_COMPILE, "tensorflow")
RIVALS = (LAX, ACCELERATE, *STRONGEST)


@dataclasses.dataclass(frozen=True)
class Row:
    """One peer on one case; `why_not` says why there is no timing."""

    timing: Timing | None = None
    compile_s: float | None = None
    difference: float | None = None
    wrong: bool = False
    peak_bytes: int | None = None
    device_s: float | None = None  # busy time of the accelerator, per call
    why_not: str | None = None


@dataclasses.dataclass(frozen=True)
class CaseResult:
    name: str  # of the case
    peers: Mapping[str, Row]

    @property
    def is_train_step(self) -> bool:
        return self.name.startswith(TRAIN_STEP_CALL)

    def median(self, peer: str) -> float | None:
        row = self.peers.get(peer)
        return row.timing.median if row and row.timing else None


@dataclasses.dataclass(frozen=True)
class Run:
    """All cases of one mode under one set of conditions."""

    mode: Mode
    conditions: Mapping[str, Any]
    rows: tuple[CaseResult, ...]

    def to_json(self) -> dict[str, Any]:
        return {"kind": "cases"} | dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Run:
        rows = []
        for row in fields["rows"]:
            peers = {name: _row(**given) for name, given in row["peers"].items()}
            rows.append(CaseResult(**row | {"peers": peers}))
        return cls(fields["mode"], fields["conditions"], tuple(rows))


def _row(timing: Mapping[str, Any] | None, **fields: Any) -> Row:
    return Row(Timing(**timing) if timing else None, **fields)


def table(
    path: Path, title: str, about: str, rows: Sequence[Mapping[str, Any]], **conditions: Any
) -> None:
    """Write rows of named cells, with the date and the version of jax."""
    dated = {"date": datetime.date.today().isoformat(), "jax": importlib.metadata.version("jax")}
    fields = {"kind": "table", "title": title, "about": about, "conditions": conditions | dated}
    write(path, fields | {"rows": list(rows)})


def write(path: Path, fields: Mapping[str, Any]) -> None:
    """Write JSON with one line per field and per item of a list, so that a new row is a new line."""
    lines = []
    for name, value in fields.items():
        text = json.dumps(value)
        if isinstance(value, list | tuple):
            text = "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))
