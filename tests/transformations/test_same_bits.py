"""Value and gradient of every op have the same bits in every way of computing them.

The ways are: repeated runs, one thread or several, with or without jit, a permuted batch, and four devices.
"""

import json
import os
import subprocess
import sys

import pytest

from jaxpool.testing import pools

POOLS = pools()


def pool_names(found):
    """Return the names of the functions whose record satisfies `found`."""
    return [name for name, pool in POOLS.items() if found(pool)]


DRAWN = pool_names(lambda pool: None in pool.choices.get("key", ()))
POWERS = pool_names(lambda pool: "p" in pool.coefficients)  # roots of means of powers
COEFFICIENT_VARIANTS = [
    f"{name}, {c} of an array" for name in POOLS for c in POOLS[name].coefficients
]
MEANS_OF_DRAWS = [f"{name}, without a key" for name in DRAWN]
KERNEL_VARIANTS = ("dilate, large", "erode, large, split", "erode, split")
GATHERED = pool_names(lambda pool: pool.takes("boxes") or pool.takes("segment_ids"))
# Programs whose bits may differ, and why.
THREADS = dict.fromkeys(
    (
        "adaptive_avg_pool, large",
        "adaptive_avg_pool, large, bfloat16",
        "global_avg_pool, large",
        *COEFFICIENT_VARIANTS,
        "dilate, to the kernel",
    ),
    "XLA's YNNPACK adds up a whole reduction in an order that depends on the number of threads",
)
BATCH = dict.fromkeys(KERNEL_VARIANTS, "their kernel is a mean over the batch, taken in its order")
MEANS = [f"{name}, overlapping" for name in POWERS]
FEWER = "compiled for a part of the batch, XLA joins other products and sums into one rounding"
IN_THE_TYPE = "the mapped axis of vmap has no mesh, or jax asks for the sharding of a scatter"
TABLES = "not through tables: overlapping cotangents add up in another order"
DIFFERENT = {
    "eager": {
        **dict.fromkeys(
            POWERS, "a mean of powers and its root: one loop under jit, several without"
        ),
        **dict.fromkeys(COEFFICIENT_VARIANTS, "one loop under jit, several without"),
        "accelerate": "the division of its average is the caller's: jit makes it a product",
        "roi_align, max": "under jit XLA joins other products and sums into one rounding",
    },
    "batch order": {
        **dict.fromkeys(DRAWN, "an element is drawn for a place in the batch"),
        "dilate, to the kernel": "a sum over the batch is taken in its order",
        **BATCH,
    },
    "one thread of XLA": THREADS,
    "one core": THREADS,
    "four threads": THREADS,
    "sharded batch": THREADS | BATCH | dict.fromkeys(["roi_align", *MEANS_OF_DRAWS, *MEANS], FEWER),
    "sharded batch in the type": THREADS
    | BATCH
    | dict.fromkeys(
        [f"{name}, large" for name in pool_names(lambda pool: pool.topic == "rank")], TABLES
    )
    | dict.fromkeys([*MEANS_OF_DRAWS, *POWERS, *MEANS], FEWER)
    | dict.fromkeys([*GATHERED, "roi_align, max", "roi_max_pool, split"], IN_THE_TYPE)
    | dict.fromkeys([f"{name}, split" for name in GATHERED], IN_THE_TYPE),
}
FOUR_DEVICES = "--xla_force_host_platform_device_count=4"


def digests(*ways, prefix=(), **environment):
    """Return the output of `tests.transformations.digests`, by default with XLA's default flags."""
    command = [*prefix, sys.executable, "-m", "tests.transformations.digests", *ways]
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def one_core():
    return ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


@pytest.mark.slow
def test_same_bits():
    found = digests("jit", "eager", "batch order")
    want = found.pop("jit")
    assert len(want) > 70
    assert digests("jit", PYTHONHASHSEED="1")["jit"] == want
    one_thread = "--xla_cpu_multi_thread_eigen=false"
    found["one thread of XLA"] = digests("jit", XLA_FLAGS=one_thread)["jit"]
    found["one core"] = digests("jit", prefix=one_core())["jit"]
    ways = "jit", "sharded batch", "sharded batch in the type"
    found |= digests(*ways, XLA_FLAGS=FOUR_DEVICES)
    found["four threads"] = found.pop("jit")
    for way, results in found.items():
        differ = {name for name in want if results[name] != want[name]}
        assert differ <= set(DIFFERENT[way]), way
