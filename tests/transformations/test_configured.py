"""The suite's core tests under each strict configuration of jax, in one process per configuration."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
CORE = [
    *(f"api/test_{name}.py" for name in ("worked_examples", "unpool", "adaptive", "elementwise")),
    "api/test_against_oracle.py",
    "transformations/test_modes.py",
]
LOOPS = "api/test_regions.py"  # its kernels would take minutes without jit
STRICT = {"JAX_NUMPY_DTYPE_PROMOTION": "strict", "JAX_NUMPY_RANK_PROMOTION": "raise"}
# These tests create NaN themselves, which jax_debug_nans turns into an error.
NAN = (
    *("nan", "NaN", "chosen_element", "gets_a_share", "window_of_one", "not_finite"),
    *("infinities", "special"),
)
# These count traces, or pass out-of-range indices, which raise if they are concrete.
TRACED = ("traced_once", "out_of_range")
# With float64 enabled, numbers of NumPy and Python are float64.
PYTHON_NUMBERS = ("numpy_arrays_and_python_numbers",)
# With leak checks, jax caches no trace and traces every call again, so that few files are affordable.
FEW = ["api/test_worked_examples.py", "transformations/test_modes.py"]
CONFIGURATIONS = {
    "strict promotion": (STRICT, [*CORE, LOOPS], ()),
    "strict promotion of the table": (STRICT, ["transformations/test_table.py"], ()),
    "debug_nans": ({"JAX_DEBUG_NANS": "1"}, CORE, NAN),
    "check_tracer_leaks": ({"JAX_CHECK_TRACER_LEAKS": "1"}, FEW, ()),
    "x64": ({"JAX_ENABLE_X64": "1"}, CORE, PYTHON_NUMBERS),
    "no x64": ({"JAX_ENABLE_X64": "0"}, CORE, ()),
    "disable_jit": ({"JAX_DISABLE_JIT": "1"}, CORE, TRACED),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_core_tests_pass(name):
    settings, files, without = CONFIGURATIONS[name]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    select = ["-k", " and ".join(f"not {word}" for word in without)] if without else []
    paths = [str(ROOT / "tests" / file) for file in files]
    environment = {**os.environ, **settings, "HYPOTHESIS_PROFILE": "unshrunk"}
    done = subprocess.run(
        [*command, *select, *paths], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
