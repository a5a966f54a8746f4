"""Gradients of a CNN on images whose rows are sharded over the devices of two processes on loopback.

    python -m tests.sharded.test_two_processes PORT RANK FILE

is one of the processes. The first listens on PORT of the loopback interface and writes the gradients to FILE.
"""

import functools
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool.compat import torchvision

pytestmark = [pytest.mark.slow, pytest.mark.ci]
ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 120  # for a process, which needs about 12
HEARTBEAT_TIMEOUT_SECONDS = 10  # without a heartbeat, until a process counts as dead
PROCESSES, DEVICES = 2, 4  # devices per process
ROWS = P(None, "rows")


def images():
    return np.random.default_rng(0).standard_normal((2, 32, 16, 3)).astype(np.float32)


def parameters():
    rng = np.random.default_rng(1)
    shapes = {"first": (3, 3, 3, 8), "second": (3, 3, 8, 8), "last": (8, 4)}
    return {
        name: rng.standard_normal(shape).astype(np.float32) / 4 for name, shape in shapes.items()
    }


def network(platform, weights, x):
    """Convolutions and several kinds of pools. `platform` maps a pool to its version for the sharding of x."""
    dimensions = ("NHWC", "HWIO", "NHWC")

    def convolved(x, kernel):
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=dimensions)

    x = jax.nn.relu(convolved(x, weights["first"]))
    x, indices = platform(jaxpool.max_pool_with_argmax)(x, (2, 2), (2, 2))
    x = jax.nn.relu(convolved(x, weights["second"]))
    x = platform(jaxpool.max_unpool)(x, indices, (32, 16))
    x = platform(jaxpool.max_pool)(x, (3, 3), (2, 2), "SAME")
    x = platform(jaxpool.avg_pool)(x, (3, 3), (1, 1), "SAME")
    return platform(jaxpool.global_max_pool)(x) @ weights["last"]


def gradients(platform, x):
    """Return the gradients of the mean squared error."""

    def loss(weights, x):
        wanted = jnp.arange(8.0).reshape(2, 4)
        return ((network(platform, weights, x) - wanted) ** 2).mean()

    return jax.jit(jax.grad(loss))(parameters(), x)


def check_values_of_other_processes(mesh):
    """Functions that check concrete integers accept arrays whose values this process does not know."""
    place = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P("rows")))
    ids, boxes = place(np.zeros(8, np.int32)), place(np.tile(np.float32([0, 0, 2, 2]), (8, 1)))
    x = jax.device_put(np.ones((1, 4, 4, 2), np.float32), NamedSharding(mesh, P()))
    assert not ids.is_fully_addressable
    assert jaxpool.roi_max_pool(x, boxes, (1, 1), batch_indices=ids).shape == (8, 1, 1, 2)
    table = jnp.concatenate([ids[:, None].astype(jnp.float32), boxes], 1)
    assert torchvision.roi_pool(jnp.moveaxis(x, -1, 1), table, (1, 1)).shape == (8, 2, 1, 1)
    with pytest.raises(ValueError, match="num_segments"):
        jaxpool.segment_max(np.ones((8, 2), np.float32), ids)


def gradients_of_process(port, rank):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.distributed.initialize(
        f"127.0.0.1:{port}",
        PROCESSES,
        rank,
        initialization_timeout=30,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_SECONDS,
        shutdown_timeout_seconds=HEARTBEAT_TIMEOUT_SECONDS,
    )
    mesh = jax.make_mesh((PROCESSES * DEVICES,), ("rows",), (AxisType.Auto,))
    x = jax.make_array_from_callback(
        images().shape, NamedSharding(mesh, ROWS), lambda index: images()[index]
    )
    check_values_of_other_processes(mesh)
    return gradients(functools.partial(jaxpool.sharded, mesh=mesh, spec=ROWS), x)


def test_gradients_equal_one_process(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "gradients.npz"

    def process(rank):
        return subprocess.run(
            [sys.executable, "-m", __name__, str(port), str(rank), str(path)],
            cwd=ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )

    with ThreadPoolExecutor(PROCESSES) as pool:
        for done in pool.map(process, range(PROCESSES)):
            assert done.returncode == 0, done.stdout[-5000:]
    want, got = gradients(lambda pool: pool, images()), np.load(path)
    assert got.keys() == want.keys()
    for name, expected in want.items():
        assert np.abs(expected).max() > 1e-3, name
        np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


if __name__ == "__main__":
    port, rank = map(int, sys.argv[1:3])
    found = gradients_of_process(port, rank)
    if rank == 0:
        np.savez(sys.argv[3], **found)
