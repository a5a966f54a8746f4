"""Value and gradient of every op have the same bits in every way of computing them.

The ways are: repeated runs, one thread or several, with or without jit, a permuted batch, and four devices.

    python -m tests.transformations.test_same_bits WAY...

prints digests as JSON, by way and by program. The environment decides the numbers of threads and devices.
"""

import functools
import hashlib
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool.testing import pools
from tests.support.programs import value_and_vjp
from tests.support.transform_rows import KERNEL, ROWS, VARIANTS

BATCH, CHANNELS = 512, 32  # for small images: enough for XLA to use several threads
SAME3 = {"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"}
POOLS = pools()
PLAIN = [  # pools without a key, a blur, a rank or coefficients
    name
    for name, pool in POOLS.items()
    if pool.takes("window_shape", "padding")
    and not any(pool.takes(word) for word in ("key", "blur_shape", "rank"))
    and not pool.coefficients
]
LARGE = dict.fromkeys((*PLAIN, "softmax_pool"), SAME3) | {  # larger images select other kernels
    "min_pool": {"window_shape": (13, 13), "padding": "SAME"},
    "max_pool_with_argmax": {"window_shape": (31, 31), "strides": (16, 16), "padding": "SAME"},
    "avg_pool": {"window_shape": (3, 3), "padding": "SAME", "count_include_pad": False},
    "sum_pool": {"window_shape": (13, 13), "padding": "SAME"},
    "adaptive_max_pool": {"output_shape": (7, 5)},
    "adaptive_avg_pool": {"output_shape": (7, 5)},
    "global_avg_pool": {},
    "global_max_pool": {},
    "cummax": {"axis": 1},
    "max": {"axis": (1, 2)},
}
LOW_PRECISION = ("max_pool", "avg_pool", "adaptive_avg_pool", "lp_pool")


def roi_align_max(x):
    """Return the largest sample of each cell of one box per image."""
    boxes = np.tile(np.float32([[0.3, 0.2, 2.9, 3.6]]), (len(x), 1))
    return jaxpool.roi_align(x, boxes, (2, 2), batch_indices=np.arange(len(x)), kind="max")


def kernel_cotangent(kernel, x):
    """Return the kernel's cotangent of a dilation of the whole batch, repeated for each image."""
    sent = jax.grad(lambda kernel: (jaxpool.dilate(x, kernel) ** 2).sum())(kernel)
    return jnp.broadcast_to(sent, (len(x), *kernel.shape))


def programs():
    """Map names to functions of one array with a leading batch axis, and the array."""
    rng = np.random.default_rng(0)
    small = rng.standard_normal((BATCH, 4, 3, CHANNELS)).astype(np.float32)
    large = rng.standard_normal((8, 64, 64, 16)).astype(np.float32)
    large[rng.random(large.shape) < 0.3] = 0  # ties
    found = {name: (row.f, small) for name, row in (ROWS | VARIANTS).items()}
    kernel = KERNEL.astype(np.float32)  # independent of the batch
    found |= {
        "dilate": (functools.partial(jaxpool.dilate, kernel=kernel), small),
        "dilate, split": (functools.partial(jaxpool.dilate, kernel=kernel, ties="split"), small),
        "dilate, to the kernel": (functools.partial(kernel_cotangent, kernel), small),
        "roi_align, max": (roi_align_max, small),
        "erode": (functools.partial(jaxpool.erode, kernel=kernel, ties="last"), small),
    }
    for name, settings in LARGE.items():
        run = POOLS[name].of(**settings)
        found[f"{name}, large"] = (run, large)
        if name in LOW_PRECISION or POOLS[name].topic == "rank":
            found[f"{name}, large, bfloat16"] = (run, large.astype(jnp.bfloat16))
    return found


def both(f, x, dy):
    return value_and_vjp(f)(x, dy)


jitted = jax.jit(both, static_argnums=0)


def digest(results):
    return [hashlib.sha256(np.asarray(each).tobytes()).hexdigest()[:16] for each in results]


def with_permuted_batch(f, x, dy):
    """Evaluate with a permuted batch, and undo the permutation."""
    order = np.random.default_rng(2).permutation(len(x))
    back = np.argsort(order)
    return [np.asarray(each)[back] for each in jitted(f, x[order], dy[order])]


def sharded_batch(kind, f, x, dy):
    """Evaluate with a batch sharded over all devices."""
    mesh = jax.make_mesh((len(jax.devices()),), ("a",), (kind,))
    return jitted(f, *jax.device_put((x, dy), NamedSharding(mesh, P("a"))))


WAYS = {
    "jit": jitted,
    "eager": both,
    "batch order": with_permuted_batch,
    "sharded batch": functools.partial(sharded_batch, AxisType.Auto),
    "sharded batch in the type": functools.partial(sharded_batch, AxisType.Explicit),
}


def print_digests(ways):
    found = {way: {} for way in ways}
    for name, (f, x) in programs().items():
        like = jax.eval_shape(f, x)
        dy = np.random.default_rng(1).standard_normal(like.shape).astype(like.dtype)
        for way in ways:
            try:
                found[way][name] = digest(WAYS[way](f, x, dy))
            except Exception as refused:  # a message differs from any digest
                found[way][name] = repr(refused)[:200]
    print(json.dumps(found))


# Programs whose bits may differ, and why


def pool_names(found):
    """Return the names of the functions whose record satisfies `found`."""
    return [name for name, pool in POOLS.items() if found(pool)]


DRAWN = pool_names(lambda pool: None in pool.choices.get("key", ()))
POWERS = pool_names(lambda pool: "p" in pool.coefficients)
RANKS = pool_names(lambda pool: pool.topic == "rank")
GATHERED = pool_names(lambda pool: pool.takes("boxes") or pool.takes("segment_ids"))
OF_AN_ARRAY = [f"{name}, {c} of an array" for name in POOLS for c in POOLS[name].coefficients]
WITHOUT_A_KEY = [f"{name}, without a key" for name in DRAWN]
OVERLAPPING = [f"{name}, overlapping" for name in POWERS]
WHOLE = ["adaptive_avg_pool, large", "adaptive_avg_pool, large, bfloat16", "global_avg_pool, large"]
KERNELS = ["dilate, large", "erode, large, split", "erode, split"]
TO_KERNEL = "dilate, to the kernel"

SHARDS = ["sharded batch", "sharded batch in the type"]
THREADS = ["one thread of XLA", "one core", "four threads"]
DIFFERENT = [  # (ways, programs)
    # One loop under jit, several without.
    (["eager"], [*POWERS, *OF_AN_ARRAY]),
    # The division of its average is the caller's: jit makes it a product.
    (["eager"], ["accelerate"]),
    # Under jit, or for a part of the batch, XLA joins other products and sums into one rounding.
    (["eager"], ["roi_align, max"]),
    (SHARDS, [*WITHOUT_A_KEY, *OVERLAPPING]),
    (SHARDS[:1], ["roi_align"]),
    (SHARDS[1:], POWERS),
    # An element is drawn for a place in the batch.
    (["batch order"], DRAWN),
    # A sum, or a kernel that is a mean, over the batch is taken in its order.
    (["batch order"], [*KERNELS, TO_KERNEL]),
    (SHARDS, KERNELS),
    # XLA's YNNPACK adds up a whole reduction in an order that depends on the number of threads.
    (THREADS + SHARDS, [*WHOLE, *OF_AN_ARRAY, TO_KERNEL]),
    # Not through tables: overlapping cotangents add up in another order.
    (SHARDS[1:], [f"{name}, large" for name in RANKS]),
    # The mapped axis of vmap has no mesh, or jax asks for the sharding of a scatter.
    (SHARDS[1:], [*GATHERED, *[f"{name}, split" for name in GATHERED], "roi_align, max"]),
]
FOUR_DEVICES = "--xla_force_host_platform_device_count=4"


def digests(*ways, prefix=(), **environment):
    """Return the output of this module as a program, by default with XLA's default flags."""
    command = [*prefix, sys.executable, "-m", __name__, *ways]
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_same_bits():
    found = digests("jit", "eager", "batch order")
    want = found.pop("jit")
    assert len(want) > 70
    assert digests("jit", PYTHONHASHSEED="1")["jit"] == want
    one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    one_thread = "--xla_cpu_multi_thread_eigen=false"
    found["one thread of XLA"] = digests("jit", XLA_FLAGS=one_thread)["jit"]
    found["one core"] = digests("jit", prefix=one_core)["jit"]
    ways = "jit", "sharded batch", "sharded batch in the type"
    found |= digests(*ways, XLA_FLAGS=FOUR_DEVICES)
    found["four threads"] = found.pop("jit")
    for way, results in found.items():
        differ = {name for name in want if results[name] != want[name]}
        allowed = [set(names) for ways, names in DIFFERENT if way in ways]
        assert differ <= set().union(*allowed), way


if __name__ == "__main__":
    print_digests(sys.argv[1:])
