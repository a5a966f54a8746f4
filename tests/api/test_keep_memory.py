"""`jaxpool.keep_memory`: memory that a process frees serves its next results."""

import ctypes
import platform
import subprocess
import sys
import types

import pytest

import jaxpool

GLIBC = platform.libc_ver()[0] == "glibc"
FAULTS_PROGRAM = """
import resource
import jax, jax.numpy as jnp

add_one = jax.jit(lambda x: x + 1)
x = jnp.ones((1 << 24,), jnp.float32)  # 64 MiB

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    add_one(x).block_until_ready()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
"""


def run_and_split_output(program, **environment):
    command = [sys.executable, "-c", program]
    variables = {"JAX_PLATFORMS": "cpu", "PATH": "", **environment}
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    return process.stdout.split()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.skipif(not GLIBC, reason="glibc's allocator alone has the setting")
def test_results_cause_few_page_faults():
    program = f"import jaxpool\nprint(jaxpool.keep_memory())\n{FAULTS_PROGRAM}"
    # jax sometimes frees a result only after the next one exists, so memory use grows during the first calls.
    program += "found = [faults() for _ in range(96)]\nprint(sorted(found[48:])[24])"
    enabled, usual = run_and_split_output(program)
    assert enabled == "True"
    assert int(usual) < 100
    (least,) = run_and_split_output(FAULTS_PROGRAM + "print(min(faults() for _ in range(5)))")
    assert int(least) > 100  # without the setting, every call has page faults


@pytest.mark.skipif(not GLIBC, reason="glibc's allocator alone has the setting")
def test_warns_after_threads_have_arenas():
    program = f"import jaxpool, warnings\n{FAULTS_PROGRAM}\nfaults()\n"
    program += "with warnings.catch_warnings(record=True) as caught:\n"
    program += "    print(jaxpool.keep_memory(), jaxpool.keep_memory())\n"
    program += "(warning,) = caught\nprint(warning.filename, warning.message)"
    kept, kept_again, file, *message = run_and_split_output(program)
    assert (kept, kept_again, file) == ("False", "False", "<string>")
    assert " ".join(message).startswith(
        "jaxpool.keep_memory: nothing was changed, because a thread"
    )


def test_repeated_call_returns_the_same_result():
    program = "import jaxpool\nfirst = jaxpool.keep_memory()\nprint(first is jaxpool.keep_memory())"
    assert run_and_split_output(program) == ["True"]


def test_other_allocators_are_not_configured(monkeypatch):
    """Nothing is set outside Linux, without glibc, or if another allocator replaces its malloc."""
    usage = types.SimpleNamespace(sizes=[0] * 10)
    other = {"malloc": lambda size: 0, "free": lambda block: None}
    for functions in ({}, other, {**other, "mallinfo2": lambda: usage}):
        # Without mallopt, so that a call of it would raise.
        library = types.SimpleNamespace(**functions)
        monkeypatch.setattr(ctypes, "CDLL", lambda name, library=library: library)
        assert jaxpool.keep_memory.__wrapped__() is False
    monkeypatch.undo()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert jaxpool.keep_memory.__wrapped__() is False
