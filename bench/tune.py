"""`python -m bench --tune FIELD`: check a threshold of the library on this machine.

The threshold is moved down and up until the plan of a case changes. For each such case, calls of the two forms
alternate: the form of the current threshold, and the form of the moved threshold.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax

from bench._case import Case
from bench._jax_peer import burst, compile_timed, peak_bytes
from bench.cases import adaptive, pool
from bench.forms import Form, Thresholds, arrays, forms
from bench.timing import TimedCalls, Timing, take_turns, timed_calls
from jaxpool._plan import tuning
from jaxpool._plan.problem import PLATFORMS, Platform

NOISE = 0.05  # of the time: forms that differ by less count as equally fast
FACTORS = (1.25, 1.5, 2, 4, 8, 16, 64)  # a threshold is moved by these until a form changes
LARGEST = 1 << 26  # bytes: smaller arrays are preferred
CASES_A_SIDE = 2
NEEDED = ("loses_nan", "subnormals_are_zero")  # needed for correctness

# Cases on both sides of thresholds that no case of the table is near.
_FLAT, _SQUARE = (64, 4096, 32), (8, 64, 64, 64)
EDGES: tuple[Case, ...] = (
    *(pool("max_pool", (4, 44, 44, 64), n, 1, "SAME") for n in (11, 12)),  # taps of bit masks
    *(pool("max_pool", (256, n, n, 256), n) for n in (4, 5)),  # whole axes
    *(adaptive("adaptive_max_pool", (64, 32 * n, 32), 32) for n in (64, 65)),
    *(pool("max_pool", (4, 60, 60, 64), w, w) for w in ((4, 4), (3, 6))),  # in one pass
    *(pool("max_pool", _SQUARE, w, 1, "SAME") for w in ((3, 3), (2, 5))),
    *(pool("max_pool", _SQUARE, w, 2, "SAME") for w in ((3, 4), (4, 4), (4, 5))),
    *(pool(op, _FLAT, n, 16) for op in ("max_pool", "avg_pool") for n in (32, 33)),
    *(pool("avg_pool", _FLAT, n, 1, "SAME") for n in (9, 10, 32, 33)),  # bounds tests, partial sums
    *(pool("avg_pool", (8, 56, 56, 64), w, w) for w in ((7, 7), (7, 8))),
    *(pool("avg_pool", _SQUARE, w, 1, "SAME") for w in ((2, 5), (3, 4), (4, 4), (5, 5))),
    *(pool("avg_pool", _SQUARE, w, (2, 1), "SAME") for w in ((5, 5), (4, 7))),
    *(pool("avg_pool", _SQUARE, w, 2, "SAME") for w in ((4, 4), (4, 5))),
    *(pool("avg_pool", _SQUARE, n, 2, "SAME", dtype="bfloat16") for n in (3, 4)),
    *(pool("max_pool", (1, n, n, 32), 3, 1, "SAME") for n in (44, 48)),  # 248 and 295 kB
    *(pool("avg_pool", (1, n, n, 8), 3, 1, "SAME") for n in (7, 9)),  # 1.6 and 2.6 kB
    *(pool(op, (8, 64, 64, n), 3, 1, "SAME") for op in ("max_pool", "avg_pool") for n in (11, 12)),
    *(pool("max_pool", (8, 64, 64, n), 3, 1, "SAME") for n in (15, 16)),
    *(pool("max_pool", (8, 64, 64, n), 3, 2, "SAME") for n in (11, 12)),
    *(pool("max_pool", (8, 64, 64, n), 3, 2, "SAME", dtype="bfloat16") for n in (7, 8)),
    *(pool("max_pool", (16, n, 32), 3, 2, "SAME") for n in (16384, 20480)),  # long axes
    *(pool("avg_pool", _FLAT, 2 * n, n) for n in (8, 9)),  # phases
)


@dataclasses.dataclass(frozen=True)
class Field:
    """Name and comment of a threshold in `tuning.py`. Switches have no unit."""

    name: str
    unit: str
    reason: str
    heading: str


@dataclasses.dataclass(frozen=True)
class Trial:
    """A direction of a case whose form changes if the threshold is moved to `value`."""

    case: Case
    way: str
    value: Any
    chosen: Form
    other: Form


@dataclasses.dataclass(frozen=True)
class Measured:
    """Measurements of a form."""

    timing: Timing
    compile_s: float
    peak_bytes: int | None


def fields() -> dict[str, Field]:
    """Parse the thresholds: `name: type = value  # unit: reason`, below `# NOTES: heading`."""
    source = inspect.getsource(tuning)
    lines, found = source.splitlines(), {}
    for kind in (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)):
        for node in (node for node in kind.body if isinstance(node, ast.AnnAssign)):
            name, switch = ast.unparse(node.target), ast.unparse(node.annotation) == "bool"
            text = lines[node.lineno - 1].partition("# ")[2]
            unit, _, reason = ("", "", text) if switch else text.partition(": ")
            heading = re.findall(r"# NOTES: (.*)", "\n".join(lines[: node.lineno]))[-1]
            found[name] = Field(name, unit[:1].lower() + unit[1:], reason, heading)
    return found


def listed() -> str:
    """All thresholds, one per line, with their values on each platform."""
    rows = []
    for field in fields().values():
        values = dict.fromkeys(
            shown(Thresholds.of(platform).get(field.name)) for platform in PLATFORMS
        )
        rows.append(f"{field.name} = {' | '.join(values)}, {field.unit or 'on or off'}")
    return "\n".join(["field = value on cpu | on gpu and tpu where that differs, unit", *rows])


def shown(value: Any) -> str:
    return "never" if value == math.inf else str(value)


def trials(field: str, platform: Platform, cases: Sequence[Case]) -> list[Trial]:
    """The cases closest to the threshold, on both sides."""
    now = Thresholds.of(platform)
    chosen = {case: forms(case, now) for case in dict.fromkeys(cases)}
    result: list[Trial] = []
    for side in _sides(field, now):
        for value in side:
            moved = now.moved(field, value)
            changed = [
                Trial(case, way, value, ways[way], other)
                for case, ways in chosen.items()
                for way, other in forms(case, moved).items()
                if way in ways and other.plan != ways[way].plan
            ]
            if changed:
                result += _some(changed)
                break
    return result


def _sides(field: str, now: Thresholds) -> list[list[Any]]:
    """Values below and above a threshold, nearest first, including the values of other platforms."""
    value = now.get(field)
    if isinstance(value, bool):
        return [[not value]]
    values = {Thresholds.of(platform).get(field) for platform in PLATFORMS}
    if math.isfinite(value):
        near = {value - 1, value + 1, *(int(value * f) for f in FACTORS)}
        values |= {n for n in near | {int(value / f) for f in FACTORS} if n > 1}
    below = sorted((n for n in values if n < value), reverse=True)
    return [below, sorted(n for n in values if n > value)]


def _some(changed: Sequence[Trial]) -> list[Trial]:
    """A few trials with large arrays and different ops or directions. Tangents only if nothing else changes."""
    others = [trial for trial in changed if trial.way != "tangent"] or changed
    by_size = sorted(others, key=lambda t: (t.case.input_bytes > LARGEST, -t.case.input_bytes))
    different: dict[tuple[str, str], Trial] = {}
    for trial in by_size:
        kind = trial.case.op.replace("min", "max").replace("sum", "avg")
        different.setdefault((kind, trial.way), trial)
    return list(different.values())[:CASES_A_SIDE]


def measured(trial: Trial, platform: Platform, budget_s: float) -> tuple[Measured, Measured]:
    """Measure the chosen form and the other form alternately."""
    device = jax.devices(platform)[0]
    with jax.enable_x64(trial.case.dtype == "float64"), jax.default_device(device):
        xs = arrays(trial.case, trial.chosen.reads)
        programs = {
            name: compile_timed(form.run, *xs)
            for name, form in (("chosen", trial.chosen), ("other", trial.other))
        }

        def calls(program: Any) -> TimedCalls:
            return timed_calls(lambda: program(*xs), jax.block_until_ready, burst(platform))

        turns = {name: calls(program) for name, (program, _) in programs.items()}
        timings = take_turns(turns, budget_s)
    chosen, other = (
        Measured(timings[name], seconds, peak_bytes(program))
        for name, (program, seconds) in programs.items()
    )
    return chosen, other


def tune(
    field: Field,
    platform: Platform,
    cases: Sequence[Case],
    budget_s: float,
    write: Callable[[str], None] = print,
) -> None:
    """Measure both forms of the cases at a threshold, and write whether it chooses the faster form."""
    value = shown(Thresholds.of(platform).get(field.name))
    write(f"{field.name} = {value} on {platform}" + f", in {field.unit}" * bool(field.unit))
    write(f'  {field.reason} (bench/NOTES.md, "{field.heading}")')
    tried = trials(field.name, platform, cases)
    right = sum(_holds(trial, platform, budget_s, write) for trial in tried)
    if field.name in NEEDED:
        write("  Needed for right numbers: this is what it costs.\n")
    elif not tried:
        write("  No case changes with it whose plan can be handed in.\n")
    else:
        holds = "It holds here" if right == len(tried) else "It does not hold here"
        write(f"  {holds}: the form chosen is as fast or faster in {right} of {len(tried)}.\n")


def _holds(trial: Trial, platform: Platform, budget_s: float, write: Callable[[str], None]) -> bool:
    """Return whether the chosen form is as fast as the other form, and write three lines."""
    chosen, other = measured(trial, platform, budget_s)
    times = other.timing.median / chosen.timing.median
    moved = f"if {shown(trial.value)}:"
    write(f"  {trial.case.name}: {trial.way}; the other form takes {times:.2f} times as long")
    write(f"    {_row(chosen)}  {'chosen:':<{len(moved)}} {trial.chosen.words}")
    write(f"    {_row(other)}  {moved:<7} {trial.other.words}")
    return times >= 1 - NOISE


def _row(form: Measured) -> str:
    milliseconds, megabytes = form.timing.median * 1e3, (form.peak_bytes or 0) / 1e6
    return f"{milliseconds:8.2f} ms, compiled in {form.compile_s:5.2f} s, {megabytes:6.1f} MB"
