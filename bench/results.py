"""The results of a run, and their JSON format."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench._case import Case, Mode
from bench.timing import Timing


@dataclasses.dataclass(frozen=True)
class Row:
    """One peer on one case; `why_not` says why there is no timing."""

    timing: Timing | None = None
    compile_s: float | None = None
    difference: float | None = None
    wrong: bool = False
    peak_bytes: int | None = None
    residual_bytes: int | None = None
    why_not: str | None = None


@dataclasses.dataclass(frozen=True)
class CaseResult:
    case: Case
    floor_bytes: int
    rows: Mapping[str, Row]

    def median(self, peer: str) -> float | None:
        row = self.rows.get(peer)
        return row.timing.median if row and row.timing else None


@dataclasses.dataclass(frozen=True)
class Run:
    """All cases of one mode under one set of conditions."""

    mode: Mode
    conditions: Mapping[str, Any]
    results: tuple[CaseResult, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "conditions": dict(self.conditions),
            "results": [
                {
                    "name": result.case.name,
                    "case": result.case.to_json(),
                    "floor_bytes": result.floor_bytes,
                    "rows": {peer: dataclasses.asdict(row) for peer, row in result.rows.items()},
                }
                for result in self.results
            ],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Run:
        results = tuple(
            CaseResult(
                Case.from_json(result["case"]),
                result["floor_bytes"],
                {peer: _row(row) for peer, row in result["rows"].items()},
            )
            for result in fields["results"]
        )
        return cls(fields["mode"], fields["conditions"], results)


def _row(fields: Mapping[str, Any]) -> Row:
    timing = fields["timing"]
    return Row(**{**fields, "timing": Timing(**timing) if timing else None})


def save(runs: list[Run], path: Path) -> None:
    path.write_text(json.dumps([run.to_json() for run in runs], indent=1) + "\n")


def load(path: Path) -> list[Run]:
    return [Run.from_json(fields) for fields in json.loads(path.read_text())]
