"""`python -m bench --split`: pools of an image sharded over two devices of this host, against one device.

Calls of both alternate in one process: ratios are reliable on a busy machine, absolute times are not. The ratio of
processor times shows the cost of the halo exchange. Wall time also shows how well two devices use the cores.
Call `settle` before jax loads a backend.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

from bench.scaling import Pool

POOLS = (
    Pool("max_pool", 3, 1),
    Pool("max_pool", 3, 2),
    Pool("avg_pool", 3, 1),
    Pool("max_pool", 2, 2),
)
SHAPES = ((8, 128, 128, 64), (1, 1024, 2048, 8), (1, 4096, 4096, 1))
REPEATS = 9


def settle() -> None:
    """Set the environment variables that jax reads at import."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    flags = "--xla_force_host_platform_device_count=2"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"


def ratios(pool: Pool, shape: tuple[int, ...]) -> tuple[float, float]:
    """Ratios of processor and wall time, two devices over one: medians over alternating repeats."""
    import jax
    import numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    import jaxpool

    rows = jax.make_mesh((2,), ("rows",), (AxisType.Explicit,))
    x = np.random.default_rng(0).random(shape, np.float32)
    dy = np.ones((shape[0], *[size // pool.stride for size in shape[1:3]], shape[3]), np.float32)

    @jax.jit
    def both(x: Any, dy: Any) -> Any:
        function = getattr(jaxpool, pool.function)
        window, strides = (pool.window,) * 2, (pool.stride,) * 2
        y, pull = jax.vjp(lambda x: function(x, window, strides, "SAME"), x)
        return y, pull(dy)[0]

    shardings = jax.devices()[0], NamedSharding(rows, PartitionSpec(None, "rows"))
    arguments = [[jax.device_put(each, place) for each in (x, dy)] for place in shardings]
    spent: list[list[tuple[float, float]]] = [[], []]
    for _ in range(REPEATS + 1):
        for arrays, times in zip(arguments, spent, strict=True):
            begin = time.process_time(), time.perf_counter()
            jax.block_until_ready(both(*arrays))
            times.append((time.process_time() - begin[0], time.perf_counter() - begin[1]))
    pairs = list(zip(*spent, strict=True))[1:]  # the first compiles
    processor, wall = (statistics.median(two[k] / one[k] for one, two in pairs) for k in (0, 1))
    return processor, wall


def run() -> int:
    """Print the ratios."""
    settle()
    import jaxpool

    jaxpool.keep_memory()  # page faults would hide the cost of copies
    for shape in SHAPES:
        for pool in POOLS:
            processor, wall = ratios(pool, shape)
            sizes = "x".join(map(str, shape))
            print(
                f"{pool!s:18}  {sizes:14}  processor {processor:.2f}  wall {wall:.2f}", flush=True
            )
    return 0
