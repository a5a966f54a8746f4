"""`jaxpool.keep_memory`: memory that a process frees serves its next results."""

import ctypes
import platform
import subprocess
import sys
import types

import pytest

import jaxpool

GLIBC = platform.libc_ver()[0] == "glibc"
RESULTS = """
import resource
import jax, jax.numpy as jnp

add_one = jax.jit(lambda x: x + 1)
x = jnp.ones((1 << 24,), jnp.float32)  # 64 MiB

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    add_one(x).block_until_ready()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
"""


def printed(program, **environment):
    command = [sys.executable, "-c", program]
    variables = {"JAX_PLATFORMS": "cpu", "PATH": "", **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.skipif(not GLIBC, reason="glibc's allocator alone has the setting")
def test_results_cost_hardly_a_page_fault():
    program = f"import jaxpool\nprint(jaxpool.keep_memory())\n{RESULTS}"
    # jax sometimes frees a result only after the next one exists, so memory use grows during the first calls.
    program += "found = [faults() for _ in range(96)]\nprint(sorted(found[48:])[24])"
    enabled, usual = printed(program)
    assert enabled == "True"
    assert int(usual) < 100
    (least,) = printed(RESULTS + "print(min(faults() for _ in range(5)))")
    assert int(least) > 100  # without the setting, every call has page faults


@pytest.mark.skipif(not GLIBC, reason="glibc's allocator alone has the setting")
def test_it_says_when_threads_have_arenas_of_their_own():
    program = f"import jaxpool\n{RESULTS}\nfaults()\nprint(jaxpool.keep_memory())"
    assert printed(program) == ["False"]


def test_it_may_be_called_again():
    program = "import jaxpool\nfirst = jaxpool.keep_memory()\nprint(first is jaxpool.keep_memory())"
    assert printed(program) == ["True"]


def test_another_allocator_is_left_alone(monkeypatch):
    """Nothing is set without glibc, or if another allocator replaces its malloc."""
    usage = types.SimpleNamespace(sizes=[0] * 10)
    other = {"malloc": lambda size: 0, "free": lambda block: None}
    for functions in ({}, other, {**other, "mallinfo2": lambda: usage}):
        # Without mallopt, so that a call of it would raise.
        library = types.SimpleNamespace(**functions)
        monkeypatch.setattr(ctypes, "CDLL", lambda name, library=library: library)
        assert jaxpool.keep_memory.__wrapped__() is False


def test_it_is_for_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert jaxpool.keep_memory.__wrapped__() is False
