"""`python -m bench --plain`: every public function against the equivalent jax.numpy or lax code."""

from __future__ import annotations

import dataclasses
import functools
import gc
import itertools
import operator
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from bench import report, results
from bench._case import Mode
from bench._jax_peer import compile_timed, value_and_vjp
from bench.cases import matches
from bench.plain_rows import of_boxes, of_rows
from bench.plain_ways import IMAGES, Setting, of_images
from bench.timing import take_turns, timed_calls
from jaxpool.testing import Pool, pools

SIZES = tuple(IMAGES)
DTYPES = ("float32", "bfloat16")
SLOW = 0.8  # of the speed of the jax.numpy code: slower rows are listed and kept
_TOLERANCE = 2e-4  # of the largest result: float32 sums in another order
_LOW_TOLERANCE = 2e-2  # bfloat16 has 8 bits; the reference is float32


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


def settings() -> Iterator[Setting]:
    """All settings of all functions, at three sizes and in two dtypes.

    A function without code in `plain_ways.py` and `plain_rows.py` is timed against the twin of its record in
    `jaxpool.testing`, which is jax.numpy too.
    """
    for size in SIZES:
        written = [*of_images(size), *of_rows(size), *of_boxes(size)]
        known = {setting.function for setting in written}
        for name, pool in pools().items():
            if name not in known:
                written += beside_twin(pool, size)
        for setting, dtype in itertools.product(written, DTYPES):
            yield dataclasses.replace(setting, dtype=dtype)


def beside_twin(pool: Pool, size: str) -> Iterator[Setting]:
    """The usual call of a record and a call with overlapping windows, against the twin."""
    overlapping = {"window_shape": (3, 3), "strides": (1, 1), "padding": "SAME"}
    for words, given in (("beside its twin", {}), ("3x3 beside its twin", overlapping)):
        ours, twin = pool.of(**given), pool.of(pool.twin, **given)
        yield Setting(pool.name, words, ours, twin, size, (IMAGES[size],))


def chosen(filters: Sequence[str]) -> list[Setting]:
    """The settings whose name and size match every filter, a regular expression or substring."""
    return [
        setting for setting in settings() if matches(f"{setting.name} [{setting.size}]", filters)
    ]


def run(
    filters: Sequence[str],
    modes: Sequence[Mode],
    budget_s: float,
    conditions: Mapping[str, Any],
    file: Path | None = None,
) -> int:
    """Time all settings, print a line for each and the means, and write the file after each function."""
    lines: list[Line] = []
    print("speed beside the plain way; ms, s to compile and MB of temporaries, ours and plain")
    name = operator.attrgetter("function")
    for _, of_function in itertools.groupby(sorted(chosen(filters), key=name), name):
        new = []
        for setting, mode in itertools.product(of_function, modes):
            new.append(measure(setting, mode, budget_s))
            gc.collect()
            print(_text(new[-1]), flush=True)
        lines += new
        if file:
            save(file, conditions, new)
    print(summary(means(lines), remarkable(lines)))
    return 1 if any(line.wrong for line in lines) else 0


def save(file: Path, conditions: Mapping[str, Any], lines: Sequence[Line]) -> None:
    """Replace the means and the remarkable rows of these functions and modes in the file.

    Means and rows of other functions stay, so that several commands can share a long run.
    """
    fields = results.read(file) if file.exists() else {"kind": "plain", "means": [], "rows": []}
    timed = {(line.function, line.mode) for line in lines}
    new = {"means": means(lines), "rows": [dataclasses.asdict(row) for row in remarkable(lines)]}
    for part, rows in new.items():
        others = [row for row in fields[part] if (row["function"], row["mode"]) not in timed]
        fields[part] = sorted([*others, *rows], key=lambda row: (row["function"], row["mode"]))
    results.write(file, fields | {"conditions": conditions})


def remarkable(lines: Iterable[Line]) -> list[Line]:
    """The slow and the wrong rows, which a file keeps and a summary lists."""
    return [line for line in lines if line.wrong or line.speed < SLOW]


def load(fields: Mapping[str, Any]) -> str:
    """The summary of a file that `save` wrote."""
    pairs = ("ms", "compile_s", "temporaries")
    rows = [Line(**row | {name: tuple(row[name]) for name in pairs}) for row in fields["rows"]]
    return summary(fields["means"], rows)


def measure(setting: Setting, mode: Mode, budget_s: float) -> Line:
    """Compile both programs, compare their results, and time them alternately.

    Results on large arrays are not compared: so many float32 numbers cannot be free of ties.
    """
    xs = jax.device_put(setting.arrays())
    y = jax.eval_shape(lambda *xs: jax.tree.leaves(setting.ours(*xs))[0], *xs)
    dy = np.random.default_rng(9).standard_normal(y.shape, np.float32)
    dy = jax.device_put(dy.astype(y.dtype))
    derived: Mode = mode if jnp.issubdtype(y.dtype, jnp.floating) else "forward"
    ways = {"ours": setting.ours, "plain": setting.plain}
    compiled = {name: compile_timed(_program(way, derived), dy, *xs) for name, way in ways.items()}
    programs = {name: program for name, (program, _) in compiled.items()}
    compares = not setting.differs and setting.size != "large"
    in_float32 = jax.jit(_program(setting.plain, derived))
    difference = _difference(*programs.values(), in_float32, dy, xs) if compares else None
    timings = take_turns(
        {
            name: timed_calls(functools.partial(program, dy, *xs), jax.block_until_ready)
            for name, program in programs.items()
        },
        budget_s,
    )
    tolerance = _TOLERANCE if setting.dtype == "float32" else _LOW_TOLERANCE
    return Line(
        setting.function,
        f"{setting.name} [{setting.size}]",
        mode,
        tuple(timing.median * 1e3 for timing in timings.values()),
        tuple(seconds for _, seconds in compiled.values()),
        tuple(map(_temporaries, programs.values())),
        difference,
        difference is not None and not difference <= tolerance,
    )


def _program(way: Callable[..., Any], mode: Mode) -> Callable[..., Any]:
    return functools.partial(value_and_vjp, way) if mode != "forward" else lambda dy, *xs: way(*xs)


def _difference(
    ours: Any, plain: Any, in_float32: Any, dy: jax.Array, xs: Sequence[jax.Array]
) -> float:
    """The largest difference of the two results, relative to the largest number of each array.

    For 16-bit floats, only the values are compared, with the jax.numpy code in float32. Their elements tie,
    so cotangents may differ.
    """
    found, expected = jax.tree.leaves(ours(dy, *xs)), jax.tree.leaves(plain(dy, *xs))
    if xs[0].dtype != jnp.float32:
        wide = [x.astype(jnp.float32) for x in xs]
        found, expected = found[:1], jax.tree.leaves(in_float32(dy, *wide))[:1]
    pairs = zip(found, expected, strict=True)
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
    wrong = f" WRONG by {line.difference:.1e}" if line.wrong else ""
    return f"{' '.join(cells)}  {line.name}, {line.mode}{wrong}"


def summary(means: Sequence[Mapping[str, Any]], rows: Sequence[Line]) -> str:
    """The means of each function, and the slow or wrong rows."""
    times = [{key: _times(mean) for key, mean in row.items()} for row in means]
    return "\n\n".join(
        [
            "How many times as fast as the lines of `jax.numpy` or `lax` in `bench/plain_*.py`:",
            report.table(times),
            "\n".join([f"below {SLOW}, or wrong: {len(rows)}", *map(_text, rows)]),
        ]
    )


def means(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Geometric means of the speedups of each function and mode, by size and over all sizes."""
    speeds: dict[tuple[str, Mode], dict[str, list[float]]] = {}
    for line in lines:
        by_size = speeds.setdefault((line.function, line.mode), {})
        for size in (line.size, "all"):
            by_size.setdefault(size, []).append(line.speed)
    return [
        {"function": function, "mode": mode}
        | {size: _mean(by_size[size]) for size in (*SIZES, "all") if size in by_size}
        for (function, mode), by_size in sorted(speeds.items())
    ]


def _mean(speeds: Sequence[float]) -> float:
    return float(f"{statistics.geometric_mean(speeds):.4g}")


def _times(mean: float | str) -> str:
    return mean if isinstance(mean, str) else f"{mean:.2f}" if mean < 10 else f"{mean:.0f}"
