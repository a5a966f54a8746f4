"""Junk in place of every argument: a call raises TypeError or ValueError with our prefix, or returns.

Junk replaces an argument of a valid call. Calls are traced, never compiled. A hang, a crash, a large
allocation and any other exception fail the test.
"""

import inspect
import re
import signal

import jax
import numpy as np
import pytest

import jaxpool
from tests.support.junk import CALLS, JUNK, SHARED_PARTS, Traced

TIMEOUT_SECONDS = 60  # limit for one call, with room for a busy CPU


def trace_call(function, given):
    """Trace a call, with tracers for `Traced` arguments, without compiling or running it."""
    args, kwargs = (given, {}) if isinstance(given, tuple) else ((), given)
    every = [*args, *kwargs.values()]
    stand_ins = [value for value in every if isinstance(value, Traced)]

    def run(*traced):
        known = iter(traced)
        filled = [next(known) if isinstance(value, Traced) else value for value in every]
        named = dict(zip(kwargs, filled[len(args) :], strict=True))
        return jax.tree.leaves(function(*filled[: len(args)], **named))

    def arrays(*traced):
        return [leaf for leaf in run(*traced) if isinstance(leaf, (jax.Array, np.ndarray))]

    return jax.eval_shape(arrays, *[value.struct for value in stand_ins])


def check_call_or_error(name, arguments):
    """Assert that a call succeeds or raises with our prefix."""
    try:
        trace_call(CALLS[name][0], arguments)
    except (TypeError, ValueError) as error:
        message = str(error)
    else:
        return
    assert message.startswith("jaxpool.")
    assert not re.search(r"Tracer\(|Traced<", message)  # the repr of a tracer does not help a user


def variants(name, junk, **others):
    """Return the arguments of a valid call with `junk` for one of them, and those of `others` that it takes."""
    function, arguments = CALLS[name]
    if isinstance(arguments, tuple):
        return [(junk, *arguments[1:]), (*arguments[:-1], junk), (junk,) * len(arguments)]
    parameters = inspect.signature(function).parameters
    arguments = arguments | {key: value for key, value in others.items() if key in parameters}
    return [arguments | {key: junk} for key in parameters]


@pytest.fixture
def start_timeout():
    """Raise if a call hangs."""

    def raise_timeout(*args):
        raise TimeoutError(f"a call took longer than {TIMEOUT_SECONDS} s")

    old_handler = signal.signal(signal.SIGALRM, raise_timeout)
    yield lambda: signal.alarm(TIMEOUT_SECONDS)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old_handler)


def test_calls_cover_every_public_function():
    assert set(jaxpool.__all__) - set(CALLS) == {"keep_memory"}  # it takes no arguments


@pytest.mark.parametrize("name", CALLS)
def test_calls_without_junk_succeed(name):
    without_arrays = ("accelerate", "accelerated", "plan_of", "plan_of(max_pool)", "sharded")
    assert jax.tree.leaves(trace_call(*CALLS[name])) or name in without_arrays


@pytest.mark.parametrize("step", [len(JUNK), pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CALLS)
def test_junk_value_in_each_argument(name, step, start_timeout):
    """Each value of `JUNK`, or one of them that differs between functions. `tests/search` changes two in one call."""
    for junk in JUNK[sorted(CALLS).index(name) % step :: step]:
        for junk_arguments in variants(name, junk):
            start_timeout()
            check_call_or_error(name, junk_arguments)


@pytest.mark.parametrize("name", CALLS)
def test_containers_that_contain_themselves_or_share_their_parts(name, start_timeout):
    """Functions of `jax.tree` must not walk them: they never return, or every later call of the process raises."""
    values, named = [1], {}
    values.append(values)
    named["a"] = named
    for junk in (values, (values, values), named, *SHARED_PARTS.values()):
        for arguments in variants(name, junk):
            start_timeout()
            check_call_or_error(name, arguments)


@pytest.mark.parametrize("name", CALLS)
def test_numbers_beyond_float32_do_not_warn(name):
    """Of Python and NumPy, also in arrays: as in a cast by jax, they become 0 or infinite. Warnings are errors here."""
    for number in (1e308, -1e308, 5e-324, np.float64(1e308), np.full((4, 1), 1e308)):
        for arguments in variants(name, number, mode="constant"):
            check_call_or_error(name, arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["max_pool", "avg_pool", "max_pool_with_argmax", "lp_pool"])
def test_longest_accepted_windows_compile_in_time(name, start_timeout):
    function, arguments = CALLS[name]
    changes = {"x": None, "window_shape": (2**20, 2**11), "padding": "SAME"}

    def total(x):
        return jax.tree.leaves(function(**arguments | changes | {"x": x}))[0].sum()

    start_timeout()
    jax.jit(jax.grad(total)).lower(arguments["x"]).compile()
