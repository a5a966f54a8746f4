"""Gradients of a CNN across several processes on loopback, and the error of a process whose peer dies."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.sharded.train_worker import STEPS, parameters

pytestmark = [pytest.mark.slow, pytest.mark.ci]
ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 120  # seconds for all processes together, which need about 12


def run(count, folder, *more):
    """Return exit codes and logs of `count` processes. All of them have ended on return."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.sharded.train_worker", str(port)]
    logs = [Path(folder) / f"{count} {rank}.log" for rank in range(count)]
    processes = []
    try:
        for rank, log in enumerate(logs):
            arguments = [*command, str(rank), str(count), str(folder), *more]
            with log.open("wb") as said:
                streams = {"stdout": said, "stderr": subprocess.STDOUT}
                processes.append(subprocess.Popen(arguments, cwd=ROOT, env=environment, **streams))
        end = time.monotonic() + TIMEOUT_SECONDS
        codes = [process.wait(max(0.1, end - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return codes, [log.read_text(errors="replace") for log in logs]


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
