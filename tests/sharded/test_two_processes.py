"""Gradients of a CNN across several processes on loopback, and the error of a process whose peer dies.

    python -m tests.sharded.test_two_processes PORT RANK COUNT FOLDER [killed]

is one of the processes. Each trains a small CNN on images whose rows are sharded over the devices of all. The first
process listens on PORT of the loopback interface and writes every gradient of every step to a file in FOLDER. COUNT=1
is the reference: one device and unsharded functions. With `killed`, the last process kills itself after the first step,
as if its host had failed.
"""

import functools
import os
import signal
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
DEVICES = 4  # per process
STEPS = 2
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


def gradients_of_steps(platform, x, end_after=None):
    """Run gradient descent on the mean squared error and return the gradients of every step."""

    def loss(weights, x):
        wanted = jnp.arange(8.0).reshape(2, 4)
        return ((network(platform, weights, x) - wanted) ** 2).mean()

    step = jax.jit(jax.grad(loss))
    weights, found = parameters(), {}
    for count in range(STEPS):
        gradients = {name: np.asarray(value) for name, value in step(weights, x).items()}
        found |= {f"{name} {count}": value for name, value in gradients.items()}
        weights = {name: weights[name] - 0.1 * gradients[name] for name in weights}
        if count == end_after:
            os.kill(os.getpid(), signal.SIGKILL)
    return found


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


def gradients_of_process(port, rank, count, killed):
    if count == 1:
        return gradients_of_steps(lambda pool: pool, jnp.asarray(images()))
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.distributed.initialize(
        f"127.0.0.1:{port}",
        count,
        rank,
        initialization_timeout=30,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_SECONDS,
        shutdown_timeout_seconds=HEARTBEAT_TIMEOUT_SECONDS,
    )
    mesh = jax.make_mesh((count * DEVICES,), ("rows",), (AxisType.Auto,))
    x = jax.make_array_from_callback(
        images().shape, NamedSharding(mesh, ROWS), lambda index: images()[index]
    )
    check_values_of_other_processes(mesh)
    end_after = 0 if killed and rank == count - 1 else None
    sharded = functools.partial(jaxpool.sharded, mesh=mesh, spec=ROWS)
    return gradients_of_steps(sharded, x, end_after)


def run(count, folder, *more):
    """Return exit codes and outputs of `count` processes. All of them have ended on return."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def process(rank):
        return subprocess.run(
            [sys.executable, "-m", __name__, *map(str, (port, rank, count, folder, *more))],
            cwd=ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )

    with ThreadPoolExecutor(count) as pool:
        ended = list(pool.map(process, range(count)))
    return [each.returncode for each in ended], [each.stdout for each in ended]


def test_gradients_equal_one_process(tmp_path):
    for count in (1, 2):
        codes, said = run(count, tmp_path)
        assert codes == [0] * count, "\n".join(said)[-5000:]
    want, got = (dict(np.load(tmp_path / f"gradients{count}.npz")) for count in (1, 2))
    assert got.keys() == want.keys()
    assert len(got) == STEPS * len(parameters())
    for name, expected in want.items():
        assert np.abs(expected).max() > 1e-3, name
        np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_process_exits_with_error_when_peer_dies(tmp_path):
    codes, said = run(2, tmp_path, "killed")
    assert codes[1] == -9
    assert codes[0] not in (0, None)
    assert not (tmp_path / "gradients2.npz").exists()
    assert any(word in said[0] for word in ("onnection", "heartbeat", "unhealthy")), said[0][-3000:]


if __name__ == "__main__":
    port, rank, count = map(int, sys.argv[1:4])
    found = gradients_of_process(port, rank, count, killed=sys.argv[5:] == ["killed"])
    if rank == 0:
        np.savez(Path(sys.argv[4]) / f"gradients{count}.npz", **found)
