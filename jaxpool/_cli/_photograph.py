"""The demo's benchmark of pools against `jax.lax.reduce_window`, on real photographs.

Needs the `demo` extra; `demo.py` checks that before it imports this module.
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

REPEATS = 11
TOLERANCE = 1e-5
Pool = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Case:
    """A square window over the two spatial axes."""

    kind: str
    window: int
    stride: int
    padding: str

    def __str__(self) -> str:
        return f"{self.kind} {self.window}x{self.window} stride {self.stride} {self.padding}"

    def ours(self, x: jax.Array) -> jax.Array:
        """The pool by jaxpool."""
        pool = jaxpool.max_pool if self.kind == "max" else jaxpool.avg_pool
        return pool(x, (self.window,) * 2, (self.stride,) * 2, self.padding)

    def peer(self, x: jax.Array) -> jax.Array:
        """The same pool by `lax.reduce_window`, as layer libraries write it."""
        window, strides = (1, self.window, self.window, 1), (1, self.stride, self.stride, 1)
        if self.kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, self.padding)
        return lax.reduce_window(x, 0.0, lax.add, window, strides, self.padding) / self.window**2


CASES = (
    Case("max", 2, 2, "VALID"),
    Case("max", 3, 2, "SAME"),
    Case("max", 3, 1, "SAME"),
    Case("avg", 2, 2, "VALID"),
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Median times in seconds, and the largest differences of the results."""

    case: Case
    ours: float
    peer: float
    value_difference: float
    gradient_difference: float

    @property
    def agrees(self) -> bool:
        """Whether value and gradient are equal up to rounding."""
        differences = self.value_difference, self.gradient_difference
        return all(difference <= TOLERANCE for difference in differences)


def photographs() -> jax.Array:
    """The sample photographs: float32 `(2, 427, 640, 3)`, from 0 to 1."""
    return jnp.asarray(np.stack(load_sample_images().images), jnp.float32) / 255


def compare(x: jax.Array, case: Case, repeats: int) -> Comparison:
    """Time value and gradient of both pools alternately, each pool under one jit, and compare the results."""
    dy = jax.random.normal(jax.random.key(0), jax.eval_shape(case.peer, x).shape)
    ours, peer = (
        jax.jit(functools.partial(_value_and_cotangent, pool)) for pool in (case.ours, case.peer)
    )
    (y, dx), (peer_y, peer_dx) = jax.block_until_ready((ours(x, dy), peer(x, dy)))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for run, taken in zip((ours, peer), times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(run(x, dy))
            taken.append(time.perf_counter() - start)
    return Comparison(
        case,
        statistics.median(times[0]),
        statistics.median(times[1]),
        float(jnp.abs(y - peer_y).max()),
        float(jnp.abs(dx - peer_dx).max()),
    )


def table(comparisons: list[Comparison]) -> str:
    """One line per case: both times, the speedup, and whether the results agree."""
    rows = [["", "jaxpool", "lax", "faster", "value", "gradient"]]
    for row in comparisons:
        times = [f"{seconds * 1e3:.2f} ms" for seconds in (row.ours, row.peer)]
        verdicts = [_verdict(row.value_difference), _verdict(row.gradient_difference)]
        rows.append([str(row.case), *times, f"{row.peer / row.ours:.1f} x", *verdicts])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for cells in rows:
        sides = ("<", ">", ">", ">", "<", "<")
        padded = zip(cells, sides, widths, strict=True)
        lines.append("   ".join(f"{cell:{side}{width}}" for cell, side, width in padded).rstrip())
    return "\n".join(lines)


def _value_and_cotangent(pool: Pool, x: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    y, pull_back = jax.vjp(pool, x)
    return y, pull_back(dy)[0]


def _verdict(difference: float) -> str:
    if difference == 0:
        return "equal"
    return f"{difference:.0e}" if difference <= TOLERANCE else f"DIFFERS by {difference:.2g}"
