"""Markdown report of a run: medians, geometric means against each peer, costs, and errors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bench._case import TRAIN_STEP
from bench.conditions import MEMORY
from bench.results import CaseResult, Run
from bench.twins import twins

OURS = "jaxpool"
LAX = "lax"
ACCELERATE = "accelerate"  # lax's own train step under `jaxpool.accelerate`
COPY = "copy"
ADD_ONE = "x+1"
_XLA = (OURS, LAX, ACCELERATE)
STRONGEST = ("torch", "torch-channels-last", "tensorflow")
BEST_OF = "best of torch and tensorflow"
SLOWER = 0.95

_TITLE = """# Results

Written by `python -m bench --markdown`; a run replaces the section of its own conditions. Times are
medians in milliseconds. `copy` moves as many bytes as the case cannot avoid (half read, half
written) between arrays that exist already; `x+1` is one pass of XLA over the first input. An
exclamation mark says that the result is further from the float64 oracle than rounding explains.
TensorFlow's averages with SAME padding are its own, which do not count the padding.
`accelerate` is lax's train step under `jaxpool.accelerate`.
"""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Time of a peer divided by the time of this library, over the cases that both ran."""

    peer: str
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
    return Comparison(
        peer, len(ratios), _geometric(ratios.values()), ratios[worst_case], worst_case, slower
    )


def markdown(run: Run) -> str:
    """The section of one run."""
    pools = [r for r in run.results if r.case.op != TRAIN_STEP]
    steps = [r for r in run.results if r.case.op == TRAIN_STEP]
    parts = [f"## {heading(run)}", _conditions(run)]
    if pools:
        parts += [_summary(run, pools), _twins(pools), _times(pools), _costs(pools)]
    if steps:
        parts += ["### Train steps", _times(steps), _costs(steps)]
    parts += [_remarks(run.results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def heading(run: Run) -> str:
    mode = "forward" if run.mode == "forward" else "forward and backward"
    memory = MEMORY[run.conditions["memory"]]
    return f"{mode}, {run.conditions['device'].upper()}, {memory}"


def update_file(path: Path, runs: Iterable[Run]) -> None:
    """Replace the sections of these runs in a Markdown file. Other sections stay."""
    for run in runs:
        put_section(path, heading(run), markdown(run).partition("\n\n")[2])


def put_section(path: Path, name: str, text: str) -> None:
    """Replace or add a section. Sections are sorted by name."""
    sections = {name: f"## {name}\n\n{text.strip()}\n"}
    if path.exists():
        for part in path.read_text().split("\n## ")[1:]:
            sections.setdefault(part.partition("\n")[0], f"## {part.strip()}\n")
    path.write_text("\n".join([_TITLE, *(sections[name] for name in sorted(sections))]))


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


def _summary(run: Run, results: Sequence[CaseResult]) -> str:
    """Geometric means over the groups of the performance goals."""
    groups = {
        "max pools": [r for r in results if r.case.op == "max_pool"],
        "all cases": list(results),
    }
    rows = []
    for group, members in groups.items():
        for peer in (*_rivals(results), BEST_OF):
            comparison = compare(members, peer)
            if comparison:
                rows.append(
                    [
                        group,
                        peer,
                        str(comparison.cases),
                        f"{comparison.mean:.2f}",
                        f"{comparison.worst:.2f}",
                        comparison.worst_case,
                        str(len(comparison.slower)),
                    ]
                )
    parts = [_above_floor(run, results), _memory(results)]
    if rows:
        head = [
            "cases",
            "against",
            "number",
            "geometric mean",
            "least",
            "at",
            f"below {SLOWER}",
        ]
        parts.insert(0, "How many times as fast as each peer:\n\n" + table(head, rows))
    return "\n\n".join(part for part in parts if part)


def _above_floor(run: Run, results: Sequence[CaseResult]) -> str:
    cache = run.conditions["machine"]["cache_bytes"] or 0
    ratios = {}
    for result in results:
        ours, copy = result.median(OURS), result.median(COPY)
        if ours and copy and result.case.input_bytes > cache:
            ratios[result.case.name] = ours / copy
    if not ratios:
        return ""
    beyond = [f"{name} ({ratio:.2f})" for name, ratio in ratios.items() if ratio > 1.5]
    text = (
        f"Arrays larger than the last-level cache, {len(ratios)} cases: "
        f"{_geometric(ratios.values()):.2f} times the copy in the geometric mean."
    )
    return text + (f" Beyond 1.5: {'; '.join(beyond)}." if beyond else " None beyond 1.5.")


def _memory(results: Sequence[CaseResult]) -> str:
    more = []
    for result in results:
        ours, lax = (result.rows.get(peer) for peer in (OURS, LAX))
        if ours and lax and ours.peak_bytes and lax.peak_bytes and ours.peak_bytes > lax.peak_bytes:
            more.append(f"{result.case.name} ({ours.peak_bytes / lax.peak_bytes:.2f})")
    return f"More peak memory than lax: {'; '.join(more)}." if more else ""


def _twins(results: Sequence[CaseResult]) -> str:
    head = ["ours", "against ours", "times as long", "at most"]
    rows = [
        [
            twin.case,
            twin.other,
            f"{twin.ratio:.2f}{' !' if twin.ratio > twin.limit else ''}",
            f"{twin.limit:g}",
        ]
        for twin in twins(results, OURS)
    ]
    return table(head, rows) if rows else ""


def _times(results: Sequence[CaseResult]) -> str:
    peers = _peers(results)
    head = ["case", *peers, "lax / ours", "lax / accelerate", "best / ours", "ours / copy"]
    rows = []
    for result in results:
        ours, lax = result.median(OURS), result.median(LAX)
        best, copy = _median(result, BEST_OF), result.median(COPY)
        pairs = (lax, ours), (lax, result.median(ACCELERATE)), (best, ours), (ours, copy)
        rows.append(
            [
                result.case.name,
                *(_time(result, peer) for peer in peers),
                *(_ratio(a, b) for a, b in pairs),
            ]
        )
    return table(head, rows)


def _costs(results: Sequence[CaseResult]) -> str:
    """Spread of the samples, compile time, memory and the difference from the oracle."""
    compared = [peer for peer in _XLA if any(_has(r, peer) for r in results)]
    checked = [peer for peer in _peers(results) if peer not in (COPY, ADD_ONE)]
    head = ["case", "MB to move"]
    for name in ("min to max, ms", "compile, s", "peak, MB", "residual, MB"):
        head += [f"{name}: {peer}" for peer in compared]
    head += [f"difference: {peer}" for peer in checked]
    rows = []
    for result in results:
        cells = [result.case.name, _megabytes(result.floor_bytes or None)]
        for show in _COSTS:
            cells += [show(result, peer) for peer in compared]
        rows.append([*cells, *(_difference(result, peer) for peer in checked)])
    return table(head, rows)


def _spread(result: CaseResult, peer: str) -> str:
    timing = result.rows[peer].timing if peer in result.rows else None
    return f"{_ms(timing.least)} to {_ms(timing.most)}" if timing else "-"


def _compile(result: CaseResult, peer: str) -> str:
    seconds = result.rows[peer].compile_s if peer in result.rows else None
    return "-" if seconds is None else f"{seconds:.2f}"


def _peak(result: CaseResult, peer: str) -> str:
    return _megabytes(result.rows[peer].peak_bytes) if peer in result.rows else "-"


def _residual(result: CaseResult, peer: str) -> str:
    return _megabytes(result.rows[peer].residual_bytes) if peer in result.rows else "-"


_COSTS: tuple[Callable[[CaseResult, str], str], ...] = (_spread, _compile, _peak, _residual)


def _difference(result: CaseResult, peer: str) -> str:
    row = result.rows.get(peer)
    if row is None or row.difference is None:
        return "-"
    return f"{row.difference:.1e}{' !' if row.wrong else ''}"


def _remarks(results: Sequence[CaseResult]) -> str:
    """Wrong results, and the reasons why cases did not run, without duplicates."""
    wrong = [
        f"- {result.case.name}: {peer} differs by {row.difference:.2e}"
        for result in results
        for peer, row in result.rows.items()
        if row.wrong
    ]
    absent: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for peer, row in result.rows.items():
            if row.why_not and _due(result, peer):
                absent.setdefault((peer, row.why_not), []).append(result.case.name)
    parts = []
    if wrong:
        parts.append("Wrong by more than rounding:\n\n" + "\n".join(wrong))
    if absent:
        reasons = [
            f"- {peer}: {why} ({names[0] if len(names) == 1 else f'{len(names)} cases'})"
            for (peer, why), names in absent.items()
        ]
        parts.append("Not run:\n\n" + "\n".join(reasons))
    return "\n\n".join(parts)


def _due(result: CaseResult, peer: str) -> bool:
    """Whether the peer is expected to run this case."""
    return peer in _XLA if result.case.op == TRAIN_STEP else peer != ACCELERATE


def _peers(results: Sequence[CaseResult]) -> list[str]:
    """The peers that ran at least one case, in the order of the run."""
    names = dict.fromkeys(peer for result in results for peer in result.rows)
    return [name for name in names if any(_has(result, name) for result in results)]


def _rivals(results: Sequence[CaseResult]) -> list[str]:
    return [peer for peer in _peers(results) if peer not in (OURS, COPY, ADD_ONE)]


def _has(result: CaseResult, peer: str) -> bool:
    return result.median(peer) is not None


def _median(result: CaseResult, peer: str) -> float | None:
    if peer != BEST_OF:
        return result.median(peer)
    return min((m for p in STRONGEST if (m := result.median(p)) is not None), default=None)


def _geometric(ratios: Iterable[float]) -> float:
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


def _time(result: CaseResult, peer: str) -> str:
    median = result.median(peer)
    if median is None:
        return "-"
    return f"{_ms(median)}{' !' if result.rows[peer].wrong else ''}"


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:.{0 if ms >= 100 else 1 if ms >= 10 else 2 if ms >= 1 else 3}f}"


def _ratio(numerator: float | None, denominator: float | None) -> str:
    return f"{numerator / denominator:.2f}" if numerator and denominator else "-"


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table without columns of only "-"."""
    shown = [n for n in range(len(head)) if any(row[n] != "-" for row in rows)]
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    lines = [[cells[n] for n in shown] for cells in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
