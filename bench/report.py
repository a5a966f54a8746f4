"""Markdown report of a run: medians, geometric means against each peer, costs, and errors."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.conditions import MEMORY
from bench.results import ACCELERATE, ADD_ONE, COPY, LAX, OURS, STRONGEST, CaseResult, Row, Run

_XLA = (OURS, LAX, ACCELERATE)
BEST_OF = "best of torch and tensorflow"
SLOWER = 0.95

_LEGEND = """\
Times are medians in milliseconds. `copy` moves as many bytes as the case cannot avoid (half read, half written)
between arrays that exist already; `x+1` is one pass of XLA over the first input. An exclamation mark says that the
result is further from the float64 oracle than rounding explains. TensorFlow's averages with SAME padding are its own,
which do not count the padding. `accelerate` is lax's train step under `jaxpool.accelerate`."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Time of a peer divided by the time of this library, over the cases that both ran."""

    cases: int
    mean: float
    worst: float
    worst_case: str
    slower: tuple[str, ...]


def compare(results: Iterable[CaseResult], peer: str) -> Comparison | None:
    ratios = {}
    for result in results:
        ours, theirs = result.median(OURS), _median(result, peer)
        if ours and theirs:
            ratios[result.name] = theirs / ours
    if not ratios:
        return None
    worst_case = min(ratios, key=ratios.__getitem__)
    slower = tuple(name for name, ratio in ratios.items() if ratio < SLOWER)
    mean = statistics.geometric_mean(ratios.values())
    return Comparison(len(ratios), mean, ratios[worst_case], worst_case, slower)


def groups(run: Run) -> dict[str, list[CaseResult]]:
    """The groups of cases that the geometric means are over. No group has train steps."""
    pools = [r for r in run.rows if not r.is_train_step]
    return {"max pools": [r for r in pools if r.name.startswith("max_pool(")], "all cases": pools}


def markdown(run: Run) -> str:
    """The tables of one run."""
    heads = [f"## {heading(run)}", _conditions(run), _LEGEND]
    tables = [_speedups(run), _times(run.rows), _costs(run.rows), _remarks(run.rows)]
    return "\n\n".join(part for part in heads + tables if part) + "\n"


def heading(run: Run) -> str:
    mode = "forward" if run.mode == "forward" else "forward and backward"
    memory = MEMORY[run.conditions["memory"]]
    return f"{mode}, {run.conditions['device'].upper()}, {memory}"


def line(result: CaseResult) -> str:
    """One case on one line, for the terminal."""
    cells = [f"{peer} {_time(result, peer)}" for peer in result.peers if result.median(peer)]
    return f"{result.name}: {', '.join(cells) or 'nothing ran'}"


def _conditions(run: Run) -> str:
    conditions, machine = run.conditions, run.conditions["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in conditions["versions"].items())
    cache = machine["cache_bytes"]
    return (
        f"{conditions['date']}. {machine.get('accelerator', machine['cpu'])}, {machine['cores']} cores, "
        f"{conditions['threads']} threads a framework"
        f"{f', last-level cache {cache / 2**20:.0f} MiB' if cache else ''}, "
        f"transparent huge pages: {machine['transparent_huge_pages']}, "
        f"load before the run {conditions['load']}. {versions}."
    )


def _speedups(run: Run) -> str:
    rows = []
    for group, members in groups(run).items():
        for peer in (*_peers(members, but=(OURS, COPY, ADD_ONE)), BEST_OF):
            if found := compare(members, peer):
                row = {"cases": group, "against": peer, "number": found.cases}
                row |= {"geometric mean": f"{found.mean:.2f}", "least": f"{found.worst:.2f}"}
                rows.append(row | {"at": found.worst_case, f"below {SLOWER}": len(found.slower)})
    return f"How many times as fast as each peer:\n\n{table(rows)}" if rows else ""


def _times(results: Sequence[CaseResult]) -> str:
    peers = _peers(results)
    rows = []
    for result in results:
        row = {"case": result.name} | {peer: _time(result, peer) for peer in peers}
        ours, lax, copy = (result.median(peer) for peer in (OURS, LAX, COPY))
        ratios = {
            "lax / ours": (lax, ours),
            "lax / accelerate": (lax, result.median(ACCELERATE)),
            "best / ours": (_median(result, BEST_OF), ours),
            "ours / copy": (ours, copy),
        }
        rows.append(row | {of: f"{a / b:.2f}" if a and b else "-" for of, (a, b) in ratios.items()})
    return table(rows)


def _spread(row: Row) -> str:
    return f"{_ms(row.timing.least)} to {_ms(row.timing.most)}" if row.timing else "-"


def _seconds(row: Row) -> str:
    return "-" if row.compile_s is None else f"{row.compile_s:.2f}"


def _costs(results: Sequence[CaseResult]) -> str:
    """Spread of the samples, compile time, memory and the difference from the oracle."""
    compared = [peer for peer in _peers(results) if peer in _XLA]
    checked = _peers(results, but=(COPY, ADD_ONE))
    rows = []
    for result in results:
        of = {peer: result.peers.get(peer, Row()) for peer in checked}
        row = {"case": result.name, "MB to move": _megabytes(result.floor_bytes or None)}
        row |= {f"min to max, ms: {peer}": _spread(of[peer]) for peer in compared}
        row |= {f"compile, s: {peer}": _seconds(of[peer]) for peer in compared}
        row |= {f"peak, MB: {peer}": _megabytes(of[peer].peak_bytes) for peer in compared}
        rows.append(row | {f"difference: {peer}": _difference(of[peer]) for peer in checked})
    return table(rows)


def _difference(row: Row) -> str:
    return "-" if row.difference is None else f"{row.difference:.1e}{' !' * row.wrong}"


def _remarks(results: Sequence[CaseResult]) -> str:
    """Wrong results, and the reasons why cases did not run, without duplicates."""
    wrong: list[str] = []
    absent: dict[str, list[str]] = {}
    for result in results:
        for peer, row in result.peers.items():
            if row.wrong:
                wrong.append(f"- {result.name}: {peer} differs by {row.difference:.2e}")
            if row.why_not:
                absent.setdefault(f"- {peer}: {row.why_not}", []).append(result.name)
    reasons = [
        f"{why} ({names[0] if len(names) == 1 else f'{len(names)} cases'})"
        for why, names in absent.items()
    ]
    said = {"Wrong by more than rounding": wrong, "Not run": reasons}
    return "\n\n".join("\n".join([f"{title}:\n", *each]) for title, each in said.items() if each)


def _peers(results: Sequence[CaseResult], but: Sequence[str] = ()) -> list[str]:
    """The peers that ran at least one case, in the order of the run."""
    names = dict.fromkeys(peer for result in results for peer in result.peers)
    ran = [name for name in names if any(result.median(name) for result in results)]
    return [name for name in ran if name not in but]


def _median(result: CaseResult, peer: str) -> float | None:
    if peer != BEST_OF:
        return result.median(peer)
    return min((m for p in STRONGEST if (m := result.median(p)) is not None), default=None)


def _time(result: CaseResult, peer: str) -> str:
    median = result.median(peer)
    return "-" if median is None else f"{_ms(median)}{' !' * result.peers[peer].wrong}"


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:.{0 if ms >= 100 else 1 if ms >= 10 else 2 if ms >= 1 else 3}f}"


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:.3g}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table of rows by column, without columns of only "-". Rows may lack columns."""
    head = list(dict.fromkeys(column for row in rows for column in row))
    shown = [column for column in head if any(row.get(column, "-") != "-" for row in rows)]
    lines = [[str(row.get(column, "-")) for column in shown] for row in rows]
    lines = [shown, ["---", *("---:" for _ in shown[1:])], *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
