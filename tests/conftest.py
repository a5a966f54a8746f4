"""What the tests share: how XLA compiles, hypothesis profiles, float64, strict promotion."""

import gc
import os
import sys
import time

import jax
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.skips import pytest_collectreport, pytest_runtest_logreport  # noqa: F401
from tests.support.compilation import FLAGS

# With XLA_FLAGS set, to nothing for one, the suite compiles as it is told: .ci/run tests every record so as well.
os.environ.setdefault("XLA_FLAGS", FLAGS)
# PyTorch's threads would wait for those of the other workers, in a loop.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Most of an example's time is a compilation, and machines differ: no deadline. Without a database
# and with derandomize every run tries the same examples; HYPOTHESIS_PROFILE=search draws new ones,
# and more of them.
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
settings.register_profile(  # says which example fails, and leaves it as drawn
    "unshrunk", parent=settings.get_profile("quick"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(scope="module")
def strict():
    """No promotion that was not asked for: neither of dtypes nor of ranks."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def x64():
    """Float64 for one test."""
    with jax.enable_x64(True):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Under coverage, notes which tests reach a line and how long each takes, for tests/mutation."""
    measured = "coverage" in sys.modules and sys.modules["coverage"].Coverage.current()
    if not measured:
        return (yield)
    measured.switch_context(item.nodeid)
    began = time.process_time()
    result = yield
    measured.switch_context("")
    with (item.config.rootpath / ".coverage-seconds").open("a") as file:
        file.write(f"{time.process_time() - began:.2f} {item.nodeid}\n")
    return result


def pytest_collection_finish():
    """Spares the garbage collector what is imported, and most of its rounds: a tenth of the suite's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# Sweeps over all functions that README's command has no time for: `.ci/run` runs them with `-m ci`.
SWEEPS = (
    "test_averages_of_integers.py",
    "test_batch.py",
    "test_debugging.py",
    "test_long_axes.py",
    "test_narrow_dtypes.py",
    "test_pickled.py",
    "test_planted_mistakes.py",
    "test_signs_of_zeros.py",
    "test_skips.py",
    "test_windows.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """The longest first, so that no worker is left alone with one at the end; sweeps later."""
    for item in items:
        if item.path.name in SWEEPS and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.ci)
    longest = (
        "test_eight_devices.py",
        "test_two_processes.py",
        "test_batch.py",
        "test_keep_memory.py",
    )
    items.sort(key=lambda item: item.path.name not in longest)
