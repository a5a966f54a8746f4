"""`python -m bench --plain`: every public function against the equivalent jax.numpy or lax code."""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from bench import report
from bench._case import MODES, Mode
from bench._jax_peer import compile_timed
from bench.filters import matches
from bench.plain_ways import SIZES, Setting, settings
from bench.timing import take_turns, timed_calls

SLOW = 0.8  # of the speed of the jax.numpy code: slower rows are listed
_TOLERANCE = 2e-4  # of the largest result: float32 sums in another order
_LOW_TOLERANCE = 2e-2  # bfloat16 has 8 bits; the reference is float32
_WITH_FIRST: tuple[Mode, ...] = ("forward_and_vjp", "forward")
BEGIN, END = "<!-- means beside the plain way -->", "<!-- end of these means -->"
PAGE = Path(__file__).parents[1] / "docs" / "speed.md"


@dataclasses.dataclass(frozen=True)
class Line:
    """Measurements of one setting, as pairs of jaxpool and jax.numpy: ms, seconds to compile, MB of temporaries."""

    function: str
    name: str
    mode: Mode
    ms: tuple[float, float]
    compile_s: tuple[float, float]
    temporaries: tuple[float, float]
    difference: float | None  # None if the results are not comparable
    wrong: bool

    @property
    def speed(self) -> float:
        return self.ms[1] / self.ms[0]

    @property
    def size(self) -> str:
        """One of `SIZES`."""
        return self.name.rpartition("[")[2].removesuffix("]")


def chosen(filters: Sequence[str]) -> list[Setting]:
    """The settings whose name and size match every filter, a regular expression or substring."""
    return [
        setting for setting in settings() if matches(f"{setting.name} [{setting.size}]", filters)
    ]


def run(
    filters: Sequence[str],
    modes: Sequence[Mode],
    budget_s: float,
    json_file: Path | None = None,
    markdown_file: Path | None = None,
) -> int:
    """Time all settings, print a line for each and the means, and write the files.

    A row replaces the row of the same name and mode in `json_file`; other rows stay. A long run can thus be split.
    """
    known = load(json_file) if json_file and json_file.exists() else []
    lines = []
    print("speed beside the plain way; ms, s to compile and MB of temporaries, ours and plain")
    for setting in chosen(filters):
        for mode in modes:
            line = measure(setting, mode, budget_s)
            gc.collect()
            lines.append(line)
            print(_text(line), flush=True)
            if json_file:
                save(json_file, [*known, *lines])
    return show(lines, markdown_file)


def show(lines: Sequence[Line], markdown_file: Path | None = None) -> int:
    """Print the means and the slow or wrong rows, and write the section of the results."""
    print(summary(lines))
    if markdown_file:
        report.put_section(markdown_file, "beside the plain way", markdown(lines))
    return 1 if any(line.wrong for line in lines) else 0


def save(file: Path, lines: Iterable[Line]) -> None:
    """Write the last line of each name and mode, in the order of the settings."""
    order = {f"{setting.name} [{setting.size}]": at for at, setting in enumerate(settings())}
    last = {(line.name, line.mode): line for line in lines if line.name in order}
    every = sorted(last.values(), key=lambda line: (order[line.name], MODES.index(line.mode)))
    file.write_text(json.dumps([dataclasses.asdict(line) for line in every], indent=1))


def load(file: Path) -> list[Line]:
    """The lines that `save` wrote."""
    rows = json.loads(file.read_text())
    pairs = ("ms", "compile_s", "temporaries")
    return [Line(**{**row, **{name: tuple(row[name]) for name in pairs}}) for row in rows]


def measure(setting: Setting, mode: Mode, budget_s: float) -> Line:
    """Compile both programs, compare their results, and time them alternately.

    Results on large arrays are not compared: so many float32 numbers cannot be free of ties.
    """
    xs = jax.device_put(setting.arrays())
    y = jax.eval_shape(lambda *xs: _first(setting.ours(*xs))[0], *xs)
    dy = np.random.default_rng(9).standard_normal(y.shape, np.float32)
    dy = jax.device_put(dy.astype(y.dtype))
    derived: Mode = mode if jnp.issubdtype(y.dtype, jnp.floating) else "forward"
    programs = [_program(way, derived) for way in (setting.ours, setting.plain)]
    compiled = [compile_timed(program, dy, *xs) for program in programs]
    compares = not setting.differs and setting.size != "large"
    difference = _difference(compiled, programs[1], dy, xs) if compares else None
    calls = {
        name: timed_calls(functools.partial(compiled_way, dy, *xs), jax.block_until_ready)
        for name, (compiled_way, _) in zip(("ours", "plain"), compiled, strict=True)
    }
    timings = take_turns(calls, budget_s)
    tolerance = _TOLERANCE if setting.dtype == "float32" else _LOW_TOLERANCE
    return Line(
        setting.function,
        f"{setting.name} [{setting.size}]",
        mode,
        (timings["ours"].median * 1e3, timings["plain"].median * 1e3),
        (compiled[0][1], compiled[1][1]),
        (_temporaries(compiled[0][0]), _temporaries(compiled[1][0])),
        difference,
        difference is not None and not difference <= tolerance,
    )


def _first(result: Any) -> tuple[Any, Any]:
    """Split a result into the array that has a gradient and the other arrays."""
    y, *others = jax.tree.leaves(result)
    return y, others


def _program(way: Callable[..., Any], mode: Mode) -> Callable[..., Any]:
    def forward(dy: jax.Array, *xs: jax.Array) -> Any:
        return way(*xs)

    def both(dy: jax.Array, *xs: jax.Array) -> Any:
        y, back, others = jax.vjp(lambda *xs: _first(way(*xs)), *xs, has_aux=True)
        return y, others, back(dy.astype(y.dtype))

    return forward if mode == "forward" else both


def _difference(
    compiled: Sequence[Any], plain: Callable[..., Any], dy: jax.Array, xs: Sequence[jax.Array]
) -> float:
    """The largest difference of the two results, relative to the largest number of each array.

    For 16-bit floats, only the values are compared, with the jax.numpy code in float32. Their elements tie,
    so cotangents may differ.
    """
    ours, theirs = compiled[0][0](dy, *xs), compiled[1][0](dy, *xs)
    if xs[0].dtype == jnp.float32:
        pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    else:
        wide = [x.astype(jnp.float32) for x in xs]
        pairs = zip(
            jax.tree.leaves(ours)[:1], jax.tree.leaves(jax.jit(plain)(dy, *wide))[:1], strict=True
        )
    return max(_apart(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs)


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape:
        return float("inf")
    most = np.abs(b[np.isfinite(b)]).max(initial=1e-30)
    with np.errstate(invalid="ignore"):
        return float(np.where(a == b, 0, np.abs(a - b)).max(initial=0) / most)


def _temporaries(compiled: Any) -> float:
    return float(compiled.memory_analysis().temp_size_in_bytes) / 1e6


def _text(line: Line) -> str:
    cells = [
        f"{line.speed:6.2f}",
        *(f"{ms:9.3f}" for ms in line.ms),
        *(f"{seconds:5.2f}" for seconds in line.compile_s),
        *(f"{size:7.1f}" for size in line.temporaries),
    ]
    return f"{' '.join(cells)}  {line.name}, {line.mode}{' WRONG' * line.wrong}"


def summary(lines: Iterable[Line]) -> str:
    """Geometric means per function and mode, and the slow or wrong rows."""
    lines = list(lines)
    means = _means(lines)
    text = ["geometric means: " + ", ".join(MODES)]
    for function, found in means.items():
        text.append(f"  {function}: " + ", ".join(f"{found[m]:.2f}" for m in MODES if m in found))
    slow = [_text(line) for line in lines if line.mode != "forward" and line.speed < SLOW]
    wrong = [f"{line.difference:.1e} {line.name}" for line in lines if line.wrong]
    text += [f"with gradient below {SLOW}: {len(slow)}", *slow]
    text += [f"other results than the plain way: {len(wrong)}", *wrong]
    return "\n".join(text)


def _means(lines: Iterable[Line]) -> dict[str, dict[Mode, float]]:
    speeds: dict[str, dict[Mode, list[float]]] = {}
    for line in lines:
        speeds.setdefault(line.function, {}).setdefault(line.mode, []).append(line.speed)
    return {
        function: {mode: statistics.geometric_mean(each) for mode, each in found.items()}
        for function, found in speeds.items()
    }


def means_table(lines: Iterable[Line]) -> str:
    """A table of the mean speedups of each function, with gradient and forward."""
    means = _means(lines)
    rows = [
        [f"`{name}`", *[_time_of(means, name, mode) for mode in _WITH_FIRST]]
        for name in sorted(means)
    ]
    return report.table(["function", "with gradient", "forward"], rows)


def table_by_size(lines: Iterable[Line]) -> str:
    """A table of the mean speedups of each function, by size and over all sizes."""
    lines = list(lines)
    means = {size: _means(line for line in lines if line.size == size) for size in SIZES}
    means["all"] = _means(lines)
    modes = zip(("with gradient", "forward"), _WITH_FIRST, strict=True)
    columns = [(f"{words}, {size}", size, mode) for words, mode in modes for size in means]
    rows = [
        [f"`{name}`", *[_time_of(means[size], name, mode) for _, size, mode in columns]]
        for name in sorted(means["all"])
    ]
    return report.table(["function", *[title for title, *_ in columns]], rows)


def _time_of(means: dict[str, dict[Mode, float]], name: str, mode: Mode) -> str:
    by_mode = means.get(name, {})
    return _times(by_mode[mode]) if mode in by_mode else "-"


def _times(mean: float) -> str:
    return f"{mean:.2f}" if mean < 10 else f"{mean:.0f}"


def put_means(page: Path, lines: Iterable[Line]) -> None:
    """Write the table of means between the marks of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{means_table(lines)}\n{END}{after}")


def markdown(lines: Iterable[Line]) -> str:
    """The mean speedups of each function, followed by all rows."""
    lines = list(lines)
    titles = ["case", "mode", "plain / ours", "ms: ours", "ms: plain"]
    titles += ["compile, s: ours", "plain", "temporaries, MB: ours", "plain"]
    rows = [
        [line.name, line.mode, f"{line.speed:.2f}{' !' * line.wrong}"]
        + [f"{ms:.3g}" for ms in line.ms]
        + [f"{seconds:.2f}" for seconds in line.compile_s]
        + [f"{size:.3g}" for size in line.temporaries]
        for line in lines
    ]
    return (
        "How many times as fast as the lines of `jax.numpy` or `lax` in `bench/plain_ways.py`: geometric means over\n"
        "the rows below. An exclamation mark says that the results differ.\n\n"
        f"{means_table(lines)}\n\nBy the size of the arrays, some 50 KB, 4 MB and 50 MB:\n\n"
        f"{table_by_size(lines)}\n\n{report.table(titles, rows)}\n"
    )
