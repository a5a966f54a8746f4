"""Run the tests that need several devices on eight CPU devices, which XLA emulates on one host."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.sharded.cases import NUM_DEVICES
from tests.support.later import later

FOLDER = pathlib.Path(__file__).parent
TOPICS = ("windows", "communication", "meshes", "every_function", "array_arguments", "vmap")
FILES = [FOLDER / f"test_{topic}.py" for topic in TOPICS]
TABLE = FOLDER.parent / "transformations" / "test_table.py"
SELECTIONS = [
    later(["-m", "not slow", *FILES]),
    pytest.param(["-m", "slow", *FILES], marks=pytest.mark.slow),
    pytest.param(["-m", "", "-k", "shard_map", TABLE], marks=pytest.mark.slow),
]


@pytest.mark.parametrize("select", SELECTIONS)
def test_on_eight_devices(select):
    devices = f"--xla_force_host_platform_device_count={NUM_DEVICES}"
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {devices}",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *select]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
