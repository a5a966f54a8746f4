"""Markdown report of a run: medians, geometric means against each peer, costs, and errors."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.results import ACCELERATE, ADD_ONE, COPY, LAX, OURS, STRONGEST, CaseResult, Run

BEST_OF = "best of torch and tensorflow"
SLOWER = 0.95
MIN_RELIABLE_S = 1e-4  # on an accelerator: `x+1` on one array takes 35 to 83 us in different rows

_LEGEND = """\
Times are medians in milliseconds. `copy` moves as many bytes as the case cannot avoid between arrays that exist
already; `x+1` is one pass of XLA over the first input. An exclamation mark says that the result is further from the
float64 oracle than rounding explains. TensorFlow's averages with SAME padding do not count the padding. `accelerate`
is lax's train step under `jaxpool.accelerate`."""


def speedups(results: Iterable[CaseResult], peer: str, ours: str = OURS) -> dict[str, float]:
    """The time of a peer divided by our time, by case, for the cases that both ran."""
    medians = {each.name: (each.median(ours), _median(each, peer)) for each in results}
    return {name: b / a for name, (a, b) in medians.items() if a and b}


def mean(ratios: Mapping[str, float]) -> float:
    return statistics.geometric_mean(ratios.values())


def slower(ratios: Mapping[str, float]) -> dict[str, float]:
    return {name: ratio for name, ratio in ratios.items() if ratio < SLOWER}


def summary(results: Iterable[CaseResult], peer: str, ours: str = OURS) -> str:
    """The geometric mean of the speedups over a peer, and the slower cases."""
    ratios = speedups(results, peer, ours)
    if not ratios:
        return "nothing to compare"
    head = f"{mean(ratios):.2f} times as fast as {peer} in the geometric mean; below {SLOWER}:"
    lines = [f"  {ratio:.2f} {name}" for name, ratio in slower(ratios).items()]
    return "\n".join([head, *(lines or ["  none"])])


def groups(run: Run) -> dict[str, list[CaseResult]]:
    """The groups of cases that the geometric means are over. No group has train steps."""
    pools = [r for r in run.rows if not r.is_train_step]
    return {"max pools": [r for r in pools if r.name.startswith("max_pool(")], "all cases": pools}


def markdown(run: Run) -> str:
    """The tables of one run."""
    heads = [f"## {run.mode}, {run.conditions['device']}", _conditions(run), _LEGEND]
    is_accelerator = run.conditions["device"] != "cpu"
    if is_accelerator:
        heads.append(
            "A question mark says that a time below 0.1 ms is unreliable: launches decide."
        )
    tables = [
        _speedups(run),
        _times(run.rows, MIN_RELIABLE_S if is_accelerator else 0),
        _details(run.rows),
        _wrong(run.rows),
    ]
    return "\n\n".join(part for part in heads + tables if part) + "\n"


def line(result: CaseResult) -> str:
    """One case on one line, for the terminal: milliseconds, seconds to compile, and MB of results and temporaries."""
    cells = []
    for peer, row in result.peers.items():
        if row.timing:
            costs = [f"{row.compile_s:.2f} s"] if row.compile_s else []
            costs += [f"{_megabytes(row.peak_bytes)} MB"] if row.peak_bytes else []
            cells.append(" ".join([peer, _time(result, peer), *costs]))
    return f"{result.name}: {', '.join(cells) or 'nothing ran'}"


def _conditions(run: Run) -> str:
    flat = dict(run.conditions)
    flat |= flat.pop("machine") | flat.pop("versions")
    return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in flat.items())


def _speedups(run: Run) -> str:
    rows = []
    for group, members in groups(run).items():
        for peer in (*_peers(members, but=(OURS, COPY, ADD_ONE)), BEST_OF):
            if ratios := speedups(members, peer):
                worst = min(ratios, key=ratios.__getitem__)
                row = {"cases": group, "against": peer, "number": len(ratios)}
                row |= {"geometric mean": f"{mean(ratios):.2f}", "least": f"{ratios[worst]:.2f}"}
                rows.append(row | {"at": worst, f"below {SLOWER}": len(slower(ratios))})
    return f"How many times as fast as each peer:\n\n{table(rows)}" if rows else ""


def _times(results: Sequence[CaseResult], min_reliable_s: float) -> str:
    peers = _peers(results)
    rows = []
    for result in results:
        row = {"case": result.name}
        row |= {peer: _time(result, peer, min_reliable_s) for peer in peers}
        ours, lax, copy = (result.median(peer) for peer in (OURS, LAX, COPY))
        ratios = {
            "lax / ours": (lax, ours),
            "lax / accelerate": (lax, result.median(ACCELERATE)),
            "best / ours": (_median(result, BEST_OF), ours),
            "ours / copy": (ours, copy),
        }
        rows.append(row | {of: f"{a / b:.2f}" if a and b else "-" for of, (a, b) in ratios.items()})
    return table(rows)


def _details(results: Sequence[CaseResult]) -> str:
    """Spread of the samples, compile time, memory and the difference from the oracle, or why a peer did not run."""
    rows = []
    for result in results:
        for peer, row in result.peers.items():
            cells = {"case": result.name, "by": peer, "not run": row.why_not or "-"}
            if timing := row.timing:
                cells |= {"least, ms": _ms(timing.least), "most, ms": _ms(timing.most)}
                cells["device, ms"] = _ms(row.device_s)
                cells["compile, s"] = f"{row.compile_s:.2f}" if row.compile_s else "-"
                cells["peak, MB"] = _megabytes(row.peak_bytes)
                cells["difference"] = "-" if row.difference is None else f"{row.difference:.1e}"
            rows.append(cells)
    return table(rows)


def _wrong(results: Sequence[CaseResult]) -> str:
    names = [f"- {r.name}: {peer}" for r in results for peer, row in r.peers.items() if row.wrong]
    return "\n".join(["Wrong by more than rounding:\n", *names]) if names else ""


def _peers(results: Sequence[CaseResult], but: Sequence[str] = ()) -> list[str]:
    """The peers that ran at least one case, in the order of the run."""
    names = dict.fromkeys(peer for result in results for peer in result.peers)
    ran = [name for name in names if any(result.median(name) for result in results)]
    return [name for name in ran if name not in but]


def _median(result: CaseResult, peer: str) -> float | None:
    if peer != BEST_OF:
        return result.median(peer)
    return min((m for p in STRONGEST if (m := result.median(p)) is not None), default=None)


def _time(result: CaseResult, peer: str, min_reliable_s: float = 0) -> str:
    row, median = result.peers.get(peer), result.median(peer)
    is_unreliable = median is not None and median < min_reliable_s
    return f"{_ms(median)}{' ?' * is_unreliable}{' !' if row and row.wrong else ''}"


def _ms(seconds: float | None) -> str:
    """Milliseconds with three digits. Published runs lack the minimum and maximum of some peers."""
    if seconds is None:
        return "-"
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
