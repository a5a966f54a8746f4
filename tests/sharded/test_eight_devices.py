"""Run the tests of this folder that need eight devices, on eight CPU devices that XLA emulates on one host."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.sharded.cases import NUM_DEVICES

FOLDER = pathlib.Path(__file__).parent


def count_passed(select):
    flags = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={NUM_DEVICES}"
    )
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", select]
    files = [
        str(FOLDER / f"test_{name}.py")
        for name in (
            "against_plain",
            "explicit",
            "four_devices",
            "meshes",
            "other_pools",
            "plain_functions",
            "programs",
        )
    ]
    done = subprocess.run([*command, *files], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout
    return int(re.search(r"(\d+) passed", done.stdout)[1])


@pytest.mark.slow
@pytest.mark.ci  # 30 s on two cores
def test_on_eight_devices():
    assert count_passed("not slow") > 0


@pytest.mark.slow
def test_slow_on_eight_devices():
    assert count_passed("slow") > 0
