"""`python -m bench --plain`: every public function against the equivalent jax.numpy or lax code."""

from __future__ import annotations

import dataclasses
import functools
import gc
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from bench import report, results
from bench._case import Mode
from bench._jax_peer import calls_of, compile_timed, peak_bytes, value_and_vjp
from bench.cases import matches
from bench.oracle import largest_difference
from bench.plain_rows import of_boxes, of_rows
from bench.plain_ways import IMAGES, Setting, of_images
from bench.results import OURS, PLAIN, CaseResult, Row
from bench.run import timed_rows
from jaxpool.testing import pools

# Tolerated difference over the largest result by dtype: float32 sums in another order; bfloat16 has 8 bits.
_TOLERANCES = {"float32": 2e-4, "bfloat16": 2e-2}
ABOUT = "How many times as fast as the lines of `jax.numpy` or `lax` in `bench/plain_*.py`: geometric means."


def settings() -> Iterator[Setting]:
    """All settings of all functions, at three sizes and in two dtypes.

    A function without code in `plain_ways.py` and `plain_rows.py` is timed against the twin of its record in
    `jaxpool.testing`, which is jax.numpy too.
    """
    overlapping = {"window_shape": (3, 3), "strides": (1, 1), "padding": "SAME"}
    for size, shape in IMAGES.items():
        written = [*of_images(size), *of_rows(size), *of_boxes(size)]
        known = {setting.function for setting in written}
        for name, pool in pools().items():
            for arguments in ({}, overlapping) if name not in known else ():
                written.append(Setting(name, size, (shape,), arguments, pool.twin))
        for setting, dtype in itertools.product(written, _TOLERANCES):
            yield dataclasses.replace(setting, dtype=dtype)


def chosen(filters: Sequence[str]) -> list[Setting]:
    """The settings whose name and size match every filter, a regular expression or substring."""
    return [setting for setting in settings() if matches(setting.name, filters)]


def run(
    filters: Sequence[str],
    modes: Sequence[Mode],
    budget_s: float,
    conditions: Mapping[str, Any],
    file: Path | None = None,
) -> int:
    """Time all settings, print a line for each and the means, and write the file after each function."""
    results_of_all, rows = [], []
    name = operator.attrgetter("function")
    for function, of_function in itertools.groupby(sorted(chosen(filters), key=name), name):
        groups: dict[str, list[CaseResult]] = {}
        for setting, mode in itertools.product(of_function, modes):
            result = measure(setting, mode, budget_s)
            gc.collect()
            print(report.line(result), flush=True)
            results_of_all.append(result)
            for size in (setting.size, "all"):
                groups.setdefault(f"{mode}, {size}", []).append(result)
        means = {group: report.mean(report.speedups(each, PLAIN)) for group, each in groups.items()}
        rows.append(
            {"function": function} | {of: float(f"{mean:.3g}") for of, mean in means.items()}
        )
        if file:
            save(file, conditions, rows[-1])
    print(f"\n{ABOUT}\n\n{report.table(rows)}\n\n{report.summary(results_of_all, PLAIN)}")
    return int(any(result.peers[OURS].wrong for result in results_of_all))


def save(file: Path, conditions: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Replace the means of one function. Other functions and modes stay, so that several commands can share a run."""
    rows = {each["function"]: each for each in results.read(file)["rows"]} if file.exists() else {}
    rows[row["function"]] = rows.get(row["function"], {}) | row
    by_name = [rows[function] for function in sorted(rows)]
    results.table(file, "equivalent jax.numpy code", ABOUT, by_name, **conditions)


def measure(setting: Setting, mode: Mode, budget_s: float) -> CaseResult:
    """Compile both programs, compare their results, and time them alternately.

    Results on large arrays are not compared: so many float32 numbers cannot be free of ties.
    """
    xs = jax.device_put(setting.arrays())
    y = jax.eval_shape(lambda *xs: jax.tree.leaves(setting.ours(*xs))[0], *xs)
    dy = np.random.default_rng(9).standard_normal(y.shape, np.float32)
    dy = jax.device_put(dy.astype(y.dtype))
    derived: Mode = mode if jnp.issubdtype(y.dtype, jnp.floating) else "forward"
    ways = {OURS: setting.ours, PLAIN: setting.plain}
    compiled = {name: compile_timed(_program(way, derived), dy, *xs) for name, way in ways.items()}
    checked: dict[str, Any] = {}
    if not setting.differs and setting.size != "large":
        ours, plain = (program for program, _ in compiled.values())
        difference = _difference(ours, plain, jax.jit(_program(setting.plain, derived)), dy, xs)
        wrong = not difference <= _TOLERANCES[setting.dtype]
        checked[OURS] = {"difference": difference, "wrong": wrong}
    prepared = {}
    for name, (program, compile_s) in compiled.items():
        row = Row(compile_s=compile_s, peak_bytes=peak_bytes(program), **checked.get(name, {}))
        prepared[name] = calls_of(program, dy, *xs), row
    return CaseResult(f"{setting.name}, {mode}", timed_rows(prepared, budget_s))


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
    ratios = []
    for a, b in zip(found, map(np.asarray, expected), strict=True):
        largest = np.abs(b[np.isfinite(b)]).max(initial=1e-30)
        ratios.append(largest_difference(a, b) / float(largest))
    return float(np.max(ratios))
