"""The demo's benchmark of pools against `jax.lax.reduce_window`, on real photographs.

This module needs the `demo` extra. `demo.py` checks that the extra is installed before it imports this module.
"""

import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from sklearn.datasets import load_sample_images

import jaxpool

NUM_REPEATS = 11
MAX_DIFFERENCE = 1e-5
CASES = (  # kind, window size, stride, padding
    ("max", 2, 2, "VALID"),
    ("max", 3, 2, "SAME"),
    ("max", 3, 1, "SAME"),
    ("avg", 2, 2, "VALID"),
)
TABLE_LEGEND = (
    "value and gradient: the largest difference from jax.lax, of outputs and of cotangents of the input.\n"
    "The photographs have 3 channels. The table in README.md is of arrays with 32 to 128 channels, on its own machine: "
    "expect other ratios here."
)


def load_photographs() -> jax.Array:
    """The sample photographs: float32 `(2, 427, 640, 3)`, from 0 to 1."""
    return jnp.asarray(np.stack(load_sample_images().images), jnp.float32) / 255


def lax_pool(
    kind: str,
    x: jax.Array,
    window_shape: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
) -> jax.Array:
    """The pool computed by `lax.reduce_window`, as layer libraries do."""
    sizes = (1, *window_shape, 1), (1, *strides, 1), padding
    if kind == "max":
        return lax.reduce_window(x, -jnp.inf, lax.max, *sizes)
    return lax.reduce_window(x, 0.0, lax.add, *sizes) / math.prod(window_shape)


def compare_with_lax(photographs: jax.Array, num_repeats: int = NUM_REPEATS) -> bool:
    """Print the table of times. Returns whether values and gradients agree."""
    shape = "x".join(str(size) for size in photographs.shape)
    print(
        f"\nForward and backward of a pool over two photographs, {shape} {photographs.dtype}, "
        f"median of {num_repeats} runs in turns:"
    )
    print(f"{'':24}{'jaxpool':>13}{'lax':>13}{'faster':>9}   {'value':8}gradient")
    all_agree = True
    for kind, window, stride, padding in CASES:
        pool = jaxpool.max_pool if kind == "max" else jaxpool.avg_pool
        sizes: dict[str, Any] = {
            "window_shape": (window,) * 2,
            "strides": (stride,) * 2,
            "padding": padding,
        }
        pools = functools.partial(pool, **sizes), functools.partial(lax_pool, kind, **sizes)
        (seconds, lax_seconds), differences = _time_and_compare(photographs, pools, num_repeats)
        name = f"{kind} {window}x{window} stride {stride} {padding}"
        times = (
            f"{seconds * 1e3:10.2f} ms{lax_seconds * 1e3:10.2f} ms{lax_seconds / seconds:7.1f} x"
        )
        print(f"{name:24}{times}   {differences[0]:<8.0e}{differences[1]:.0e}")
        all_agree &= all(difference <= MAX_DIFFERENCE for difference in differences)
    print(TABLE_LEGEND)
    return all_agree


def _time_and_compare(
    x: jax.Array, pools: Sequence[Callable[..., jax.Array]], num_repeats: int
) -> tuple[list[float], list[float]]:
    """The median seconds of value and gradient of each pool, run alternately, and the differences of the results."""
    dy = jax.random.normal(jax.random.key(0), jax.eval_shape(pools[0], x).shape)

    def value_and_cotangent(pool: Any, x: jax.Array, dy: jax.Array) -> tuple[jax.Array, ...]:
        y, vjp_fn = jax.vjp(pool, x)
        return y, *vjp_fn(dy)

    functions = [jax.jit(functools.partial(value_and_cotangent, pool)) for pool in pools]
    ours, lax_results = (jax.block_until_ready(function(x, dy)) for function in functions)
    times: list[list[float]] = [[], []]
    for _ in range(num_repeats):
        for function, function_times in zip(functions, times, strict=True):
            start_time = time.perf_counter()
            jax.block_until_ready(function(x, dy))
            function_times.append(time.perf_counter() - start_time)
    differences = [float(jnp.abs(a - b).max()) for a, b in zip(ours, lax_results, strict=True)]
    return [*map(statistics.median, times)], differences
