"""The demo on several host devices, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpool.__main__ import main

for module in ("flax", "matplotlib", "optax", "PIL", "sklearn", "tqdm"):
    pytest.importorskip(module)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("7", "`--devices` must be a divisor of 256; got --devices=7."),
        ("many", "`--devices` must be an integer of 1 or more; got --devices=many."),
    ],
)
def test_invalid_number_of_devices(devices, message, capsys, tmp_path):
    assert main(["demo", "--devices", devices, "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"jaxpool demo: {message}\n"


@pytest.mark.slow
def test_two_devices(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "jaxpool", "demo", "--devices", "2", "--output", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "each of 2 devices holds 512 rows" in done.stdout
    assert (tmp_path / "jaxpool_demo.png").stat().st_size > 10_000
