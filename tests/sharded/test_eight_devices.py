"""Run the tests of this folder that need several devices, on eight CPU devices that XLA emulates on one host."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.sharded.cases import NUM_DEVICES
from tests.support.later import later

FOLDER = pathlib.Path(__file__).parent
FILES = [FOLDER / f"test_{n}.py" for n in ("windows", "communication", "meshes", "every_function")]


@pytest.mark.parametrize(
    "select", [later("not slow"), pytest.param("slow", marks=pytest.mark.slow)]
)
def test_on_eight_devices(select):
    devices = f"--xla_force_host_platform_device_count={NUM_DEVICES}"
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {devices}",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", select]
    done = subprocess.run([*command, *FILES], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
