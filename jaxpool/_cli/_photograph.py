"""The demo's benchmark of pools against `jax.lax.reduce_window`, on real photographs.

This module needs the `demo` extra. `demo.py` checks that the extra is installed before it imports this module.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from sklearn.datasets import load_sample_images

import jaxpool

NUM_REPEATS = 11
MAX_DIFFERENCE = 1e-5
PoolFunction = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class BenchmarkCase:
    """A pool with a square window over the two spatial axes."""

    pool_kind: str
    window_size: int
    stride: int
    padding: str

    def __str__(self) -> str:
        return f"{self.pool_kind} {self.window_size}x{self.window_size} stride {self.stride} {self.padding}"

    def jaxpool_pool(self, x: jax.Array) -> jax.Array:
        """The pool computed by jaxpool."""
        pool = jaxpool.max_pool if self.pool_kind == "max" else jaxpool.avg_pool
        return pool(x, (self.window_size,) * 2, (self.stride,) * 2, self.padding)

    def lax_pool(self, x: jax.Array) -> jax.Array:
        """The pool computed by `lax.reduce_window`, as layer libraries do."""
        window, strides = (
            (1, self.window_size, self.window_size, 1),
            (1, self.stride, self.stride, 1),
        )
        if self.pool_kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, self.padding)
        return (
            lax.reduce_window(x, 0.0, lax.add, window, strides, self.padding) / self.window_size**2
        )


BENCHMARK_CASES = (
    BenchmarkCase("max", 2, 2, "VALID"),
    BenchmarkCase("max", 3, 2, "SAME"),
    BenchmarkCase("max", 3, 1, "SAME"),
    BenchmarkCase("avg", 2, 2, "VALID"),
)


@dataclasses.dataclass(frozen=True)
class BenchmarkResult:
    """Median times in seconds, and the largest differences of the results."""

    case: BenchmarkCase
    jaxpool_seconds: float
    lax_seconds: float
    value_difference: float
    gradient_difference: float

    @property
    def results_agree(self) -> bool:
        """Whether value and gradient are equal up to rounding."""
        differences = self.value_difference, self.gradient_difference
        return all(difference <= MAX_DIFFERENCE for difference in differences)


def load_photographs() -> jax.Array:
    """The sample photographs: float32 `(2, 427, 640, 3)`, from 0 to 1."""
    return jnp.asarray(np.stack(load_sample_images().images), jnp.float32) / 255


def time_and_compare(x: jax.Array, case: BenchmarkCase, num_repeats: int) -> BenchmarkResult:
    """Time value and gradient of both pools alternately, each pool under one jit, and compare the results."""
    dy = jax.random.normal(jax.random.key(0), jax.eval_shape(case.lax_pool, x).shape)
    jaxpool_fn, lax_fn = (
        jax.jit(functools.partial(_value_and_cotangent, pool))
        for pool in (case.jaxpool_pool, case.lax_pool)
    )
    (y, dx), (lax_y, lax_dx) = jax.block_until_ready((jaxpool_fn(x, dy), lax_fn(x, dy)))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(num_repeats):
        for timed_fn, fn_times in zip((jaxpool_fn, lax_fn), times, strict=True):
            start_time = time.perf_counter()
            jax.block_until_ready(timed_fn(x, dy))
            fn_times.append(time.perf_counter() - start_time)
    return BenchmarkResult(
        case,
        statistics.median(times[0]),
        statistics.median(times[1]),
        float(jnp.abs(y - lax_y).max()),
        float(jnp.abs(dx - lax_dx).max()),
    )


def comparison_table(comparisons: list[BenchmarkResult]) -> str:
    """One line per case: both times, the speedup, and whether the results agree."""
    rows = [["", "jaxpool", "lax", "faster", "value", "gradient"]]
    for row in comparisons:
        times = [f"{seconds * 1e3:.2f} ms" for seconds in (row.jaxpool_seconds, row.lax_seconds)]
        verdicts = [
            _difference_text(row.value_difference),
            _difference_text(row.gradient_difference),
        ]
        rows.append(
            [str(row.case), *times, f"{row.lax_seconds / row.jaxpool_seconds:.1f} x", *verdicts]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for cells in rows:
        aligns = ("<", ">", ">", ">", "<", "<")
        fields = zip(cells, aligns, widths, strict=True)
        lines.append("   ".join(f"{cell:{align}{width}}" for cell, align, width in fields).rstrip())
    return "\n".join(lines)


def _value_and_cotangent(
    pool: PoolFunction, x: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    y, vjp_fn = jax.vjp(pool, x)
    return y, vjp_fn(dy)[0]


def _difference_text(difference: float) -> str:
    if difference == 0:
        return "equal"
    return f"{difference:.0e}" if difference <= MAX_DIFFERENCE else f"DIFFERS by {difference:.2g}"
