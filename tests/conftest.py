"""Shared pytest setup: XLA flags, hypothesis profiles, fixtures for float64 and strict promotion, order of tests."""

import gc
import os
import signal

import jax
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.skips import pytest_collectreport, pytest_runtest_logreport  # noqa: F401
from tests.support.compilation import FLAGS

# An XLA_FLAGS in the environment, even an empty one, takes precedence: .ci/run also tests every record that way.
os.environ.setdefault("XLA_FLAGS", FLAGS)
# With more threads, PyTorch's busy-wait for the threads of the other pytest workers.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests that need these variables set them.
for variable in ("JAXPOOL_DISABLE", "PYTHONDEVMODE", "PYTHONINSPECT", "PYTHONSAFEPATH"):
    os.environ.pop(variable, None)
# A parent that ignores SIGCHLD passes this on, and children then have no exit status. Windows has no such signal.
if hasattr(signal, "SIGCHLD"):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

# No deadline, because compilation takes most of an example's time. derandomize without a database repeats the same
# examples in every run; HYPOTHESIS_PROFILE=search draws new examples, and more of them.
settings.register_profile(
    "quick",
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", parent=settings.get_profile("quick"), max_examples=500, derandomize=False
)
# Reports a failing example without shrinking it.
settings.register_profile(
    "unshrunk", parent=settings.get_profile("quick"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="module")
def strict():
    """Raise on implicit promotion of dtypes or ranks."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def x64():
    """Enable float64 for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def terminal_width(monkeypatch):
    """Terminal of 80 columns, to which the command line adapts its output, whatever terminal runs the tests."""
    monkeypatch.setenv("COLUMNS", "80")


def pytest_collection_finish():
    """Exempt imported objects from garbage collection and collect less often: saves a tenth of the suite's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# Folders and files that README's test command skips: tests of benchmarks, and slow sweeps over functions or kernels.
# `.ci/run` runs them with `-m ci`.
SWEEPS = (
    "tests/accelerate/test_drawn_programs.py",
    "tests/accelerate/test_libraries.py",
    "tests/api/test_computed_values.py",
    "tests/api/test_large_kernels.py",
    "tests/api/test_long_axes.py",
    "tests/api/test_pickled.py",
    "tests/api/test_regions.py",
    "tests/api/test_signs_of_zeros.py",
    "tests/api/test_soft_extremes.py",
    "tests/bench/",
    "tests/compat/test_scipy.py",
    "tests/compat/test_torchvision.py",
    "tests/docs/test_programs.py",
    "tests/kernels/test_forms.py",
    "tests/ops/test_fractional.py",
    "tests/ops/test_long_windows.py",
    "tests/test_skips.py",
    "tests/transformations/test_debugging.py",
    "tests/transformations/test_lowering.py",
    "tests/transformations/test_memory.py",
    "tests/transformations/test_modes.py",
    "tests/transformations/test_same_program.py",
    "tests/transformations/test_table.py",
    "tests/transformations/test_transfers.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the sweeps, and run the longest files first so that the workers end at about the same time."""
    for item in items:
        if item.nodeid.startswith(SWEEPS) and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.ci)
    longest = (
        "test_eight_devices.py",
        "test_two_processes.py",
        "test_batch.py",
        "test_keep_memory.py",
    )
    items.sort(key=lambda item: item.path.name not in longest)
