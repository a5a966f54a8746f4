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
from tqdm import tqdm

import jaxpool

NUM_REPEATS = 11
MAX_DIFFERENCE = 1e-5
TABLE_LEGEND = (
    "value and gradient: the largest difference from jax.lax, of outputs and of cotangents of the input; "
    "equal: there is none.\n"
    "The photographs have 3 channels. The table in README.md is of arrays with 32 to 128 channels, on its own machine: "
    "expect other ratios here."
)
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
        windows = (1, self.window_size, self.window_size, 1), (1, self.stride, self.stride, 1)
        if self.pool_kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, *windows, self.padding)
        return lax.reduce_window(x, 0.0, lax.add, *windows, self.padding) / self.window_size**2


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

    def table_row(self) -> str:
        """The case, both times, the speedup, and whether the results agree."""
        value = _difference_text(self.value_difference)
        return (
            f"{self.case!s:24}{self.jaxpool_seconds * 1e3:10.2f} ms{self.lax_seconds * 1e3:10.2f} ms"
            f"{self.lax_seconds / self.jaxpool_seconds:7.1f} x   {value:8}"
            f"{_difference_text(self.gradient_difference)}"
        )


TABLE_HEADING = f"{'':24}{'jaxpool':>13}{'lax':>13}{'faster':>9}   {'value':8}gradient"


def load_photographs() -> jax.Array:
    """The sample photographs: float32 `(2, 427, 640, 3)`, from 0 to 1."""
    return jnp.asarray(np.stack(load_sample_images().images), jnp.float32) / 255


def compare_with_lax(photographs: jax.Array, num_repeats: int = NUM_REPEATS) -> bool:
    """Print the table of times. Returns whether values and gradients agree."""
    progress = tqdm(BENCHMARK_CASES, desc="timing", unit="pool", leave=False, disable=None)
    results = [_time_and_compare(photographs, case, num_repeats) for case in progress]
    shape = "x".join(str(size) for size in photographs.shape)
    print(
        f"\nForward and backward of a pool over two photographs, {shape} {photographs.dtype}, "
        f"median of {num_repeats} runs in turns:"
    )
    print(TABLE_HEADING, *(result.table_row() for result in results), TABLE_LEGEND, sep="\n")
    return all(result.results_agree for result in results)


def _time_and_compare(x: jax.Array, case: BenchmarkCase, num_repeats: int) -> BenchmarkResult:
    """Time value and gradient of both pools alternately, each pool under one jit, and compare the results."""
    dy = jax.random.normal(jax.random.key(0), jax.eval_shape(case.lax_pool, x).shape)
    functions = [
        jax.jit(functools.partial(_value_and_cotangent, pool))
        for pool in (case.jaxpool_pool, case.lax_pool)
    ]
    (y, dx), (lax_y, lax_dx) = jax.block_until_ready([fn(x, dy) for fn in functions])
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(num_repeats):
        for timed_fn, fn_times in zip(functions, times, strict=True):
            start_time = time.perf_counter()
            jax.block_until_ready(timed_fn(x, dy))
            fn_times.append(time.perf_counter() - start_time)
    differences = float(jnp.abs(y - lax_y).max()), float(jnp.abs(dx - lax_dx).max())
    our_seconds, lax_seconds = map(statistics.median, times)
    return BenchmarkResult(case, our_seconds, lax_seconds, *differences)


def _value_and_cotangent(
    pool: PoolFunction, x: jax.Array, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    y, vjp_fn = jax.vjp(pool, x)
    return y, vjp_fn(dy)[0]


def _difference_text(difference: float) -> str:
    if difference == 0:
        return "equal"
    return f"{difference:.0e}" if difference <= MAX_DIFFERENCE else f"DIFFERS by {difference:.2g}"
