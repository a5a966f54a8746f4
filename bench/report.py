"""Markdown report of a run: medians, geometric means against each peer, costs, and errors."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench._case import TRAIN_STEP
from bench.conditions import MEMORY
from bench.results import ACCELERATE, ADD_ONE, COPY, LAX, OURS, STRONGEST, CaseResult, Row, Run

_XLA = (OURS, LAX, ACCELERATE)
BEST_OF = "best of torch and tensorflow"
SLOWER = 0.95

_LEGEND = """\
Times are medians in milliseconds. `copy` moves as many bytes as the case cannot avoid (half read, half written)
between arrays that exist already; `x+1` is one pass of XLA over the first input. An exclamation mark says that the
result is further from the float64 oracle than rounding explains. TensorFlow's averages with SAME padding are its own,
which do not count the padding."""
_STEPS = """### Train steps

`accelerate` is lax's train step under `jaxpool.accelerate`."""


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
            ratios[result.case.name] = theirs / ours
    if not ratios:
        return None
    worst_case = min(ratios, key=ratios.__getitem__)
    slower = tuple(name for name, ratio in ratios.items() if ratio < SLOWER)
    mean = statistics.geometric_mean(ratios.values())
    return Comparison(len(ratios), mean, ratios[worst_case], worst_case, slower)


def groups(run: Run) -> dict[str, list[CaseResult]]:
    """The groups of cases that the geometric means are over. No group has train steps."""
    pools = [r for r in run.results if r.case.op != TRAIN_STEP]
    return {"max pools": [r for r in pools if r.case.op == "max_pool"], "all cases": pools}


def markdown(run: Run) -> str:
    """The tables of one run."""
    pools = groups(run)["all cases"]
    steps = [r for r in run.results if r.case.op == TRAIN_STEP]
    parts = [f"## {heading(run)}", _conditions(run), _LEGEND]
    if pools:
        parts += [_speedups(run), _times(pools), _costs(pools)]
    if steps:
        parts += [_STEPS, _times(steps), _costs(steps)]
    parts += [_remarks(run.results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(run: Run) -> str:
    mode = "forward" if run.mode == "forward" else "forward and backward"
    memory = MEMORY[run.conditions["memory"]]
    return f"{mode}, {run.conditions['device'].upper()}, {memory}"


def line(result: CaseResult) -> str:
    """One case on one line, for the terminal."""
    cells = [f"{peer} {_time(result, peer)}" for peer in result.rows if result.median(peer)]
    return f"{result.case.name}: {', '.join(cells) or 'nothing ran'}"


def _conditions(run: Run) -> str:
    conditions, machine = run.conditions, run.conditions["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in conditions["versions"].items())
    cache = machine["cache_bytes"]
    return (
        f"{conditions['date']}. {machine['cpu']}, {machine['cores']} cores, "
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
                numbers = str(found.cases), f"{found.mean:.2f}", f"{found.worst:.2f}"
                rows.append([group, peer, *numbers, found.worst_case, str(len(found.slower))])
    head = ["cases", "against", "number", "geometric mean", "least", "at", f"below {SLOWER}"]
    return f"How many times as fast as each peer:\n\n{table(head, rows)}" if rows else ""


def _times(results: Sequence[CaseResult]) -> str:
    peers = _peers(results)
    head = ["case", *peers, "lax / ours", "lax / accelerate", "best / ours", "ours / copy"]
    rows = []
    for result in results:
        ours, lax, copy = (result.median(peer) for peer in (OURS, LAX, COPY))
        pairs = (
            *((lax, ours), (lax, result.median(ACCELERATE))),
            *((_median(result, BEST_OF), ours), (ours, copy)),
        )
        ratios = [f"{a / b:.2f}" if a and b else "-" for a, b in pairs]
        rows.append([result.case.name, *(_time(result, peer) for peer in peers), *ratios])
    return table(head, rows)


def _spread(row: Row) -> str:
    return f"{_ms(row.timing.least)} to {_ms(row.timing.most)}" if row.timing else "-"


_COSTS: dict[str, Callable[[Row], str]] = {
    "min to max, ms": _spread,
    "compile, s": lambda row: "-" if row.compile_s is None else f"{row.compile_s:.2f}",
    "peak, MB": lambda row: _megabytes(row.peak_bytes),
    "residual, MB": lambda row: _megabytes(row.residual_bytes),
}


def _costs(results: Sequence[CaseResult]) -> str:
    """Spread of the samples, compile time, memory and the difference from the oracle."""
    compared = [peer for peer in _peers(results) if peer in _XLA]
    checked = _peers(results, but=(COPY, ADD_ONE))
    head = ["case", "MB to move", *(f"{cost}: {peer}" for cost in _COSTS for peer in compared)]
    rows = []
    for result in results:
        cells = [result.case.name, _megabytes(result.floor_bytes or None)]
        for show in _COSTS.values():
            cells += [show(result.rows.get(peer, Row())) for peer in compared]
        rows.append([*cells, *(_difference(result.rows.get(peer, Row())) for peer in checked)])
    return table([*head, *(f"difference: {peer}" for peer in checked)], rows)


def _difference(row: Row) -> str:
    return "-" if row.difference is None else f"{row.difference:.1e}{' !' * row.wrong}"


def _remarks(results: Sequence[CaseResult]) -> str:
    """Wrong results, and the reasons why cases did not run, without duplicates."""
    wrong: list[str] = []
    absent: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for peer, row in result.rows.items():
            if row.wrong:
                wrong.append(f"- {result.case.name}: {peer} differs by {row.difference:.2e}")
            elif row.why_not and _due(result, peer):
                absent.setdefault((peer, row.why_not), []).append(result.case.name)
    reasons = [
        f"- {peer}: {why} ({names[0] if len(names) == 1 else f'{len(names)} cases'})"
        for (peer, why), names in absent.items()
    ]
    said = {"Wrong by more than rounding": wrong, "Not run": reasons}
    return "\n\n".join("\n".join([f"{title}:\n", *each]) for title, each in said.items() if each)


def _due(result: CaseResult, peer: str) -> bool:
    """Whether the peer is expected to run this case."""
    return peer in _XLA if result.case.op == TRAIN_STEP else peer != ACCELERATE


def _peers(results: Sequence[CaseResult], but: Sequence[str] = ()) -> list[str]:
    """The peers that ran at least one case, in the order of the run."""
    names = dict.fromkeys(peer for result in results for peer in result.rows)
    ran = [name for name in names if any(result.median(name) for result in results)]
    return [name for name in ran if name not in but]


def _median(result: CaseResult, peer: str) -> float | None:
    if peer != BEST_OF:
        return result.median(peer)
    return min((m for p in STRONGEST if (m := result.median(p)) is not None), default=None)


def _time(result: CaseResult, peer: str) -> str:
    median = result.median(peer)
    return "-" if median is None else f"{_ms(median)}{' !' * result.rows[peer].wrong}"


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:.{0 if ms >= 100 else 1 if ms >= 10 else 2 if ms >= 1 else 3}f}"


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table without columns of only "-"."""
    shown = [n for n in range(len(head)) if any(row[n] != "-" for row in rows)]
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    lines = [[cells[n] for n in shown] for cells in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table of rows by column. Rows may lack columns."""
    head = list(dict.fromkeys(column for row in rows for column in row))
    return table(head, [[str(row.get(column, "-")) for column in head] for row in rows])
