"""The demo on several host devices, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

for module in ("flax", "matplotlib", "optax", "PIL", "sklearn", "tqdm"):
    pytest.importorskip(module)

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_devices(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "jaxpool", "demo", "--devices", "2", "--output", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "each of 2 devices holds 512 rows" in done.stdout
    assert (tmp_path / "jaxpool_demo.png").stat().st_size > 10_000
