"""Junk in place of every argument: a call raises TypeError or ValueError with our prefix, or returns.

Junk replaces at least one argument of a valid call. Calls are traced, never compiled. A hang, a crash, a large
allocation and any other exception fail the test.
"""

import inspect
import re
import signal
import warnings

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxpool
from tests.support.junk import CALLS, JUNK, Traced

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


@st.composite
def calls_with_junk(draw):
    """A call by name, with junk for some arguments."""
    name = draw(st.sampled_from(sorted(CALLS)))
    function, arguments = CALLS[name]
    junk = st.sampled_from(JUNK)
    if isinstance(arguments, tuple):
        chosen = draw(st.sets(st.integers(0, len(arguments) - 1), min_size=1))
        return name, tuple(
            draw(junk) if n in chosen else arguments[n] for n in range(len(arguments))
        )
    parameters = inspect.signature(function).parameters.values()
    keyword_names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    chosen = draw(st.lists(st.sampled_from(keyword_names), min_size=1, max_size=2, unique=True))
    return name, arguments | {argument: draw(junk) for argument in chosen}


def check_call_or_error(name, arguments):
    """Assert that a call succeeds or raises with our prefix."""
    try:
        with warnings.catch_warnings():
            # jax itself warns like this about a number that its dtype cannot hold
            warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning)
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            trace_call(CALLS[name][0], arguments)
    except (TypeError, ValueError) as error:
        message = str(error)
    else:
        return
    assert message.startswith("jaxpool.")
    assert not re.search(r"Tracer\(|Traced<", message)  # the repr of a tracer does not help a user


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
    without_arrays = ("accelerate", "accelerated", "plan_of", "sharded")
    assert jax.tree.leaves(trace_call(*CALLS[name])) or name in without_arrays


@pytest.mark.parametrize("examples", [120, pytest.param(20_000, marks=pytest.mark.slow)])
def test_random_junk_arguments(examples, start_timeout):
    @settings(max_examples=examples)
    @given(calls_with_junk())
    def drawn(name_and_arguments):
        start_timeout()
        check_call_or_error(*name_and_arguments)

    drawn()


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_each_junk_value_in_each_argument(name, start_timeout):
    function, arguments = CALLS[name]
    for junk in JUNK:
        if isinstance(arguments, tuple):
            variants = [(junk, *arguments[1:]), (*arguments[:-1], junk), (junk,) * len(arguments)]
        else:
            variants = [arguments | {key: junk} for key in inspect.signature(function).parameters]
        for junk_arguments in variants:
            start_timeout()
            check_call_or_error(name, junk_arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["max_pool", "avg_pool", "max_pool_with_argmax", "lp_pool"])
def test_longest_accepted_windows_compile_in_time(name, start_timeout):
    function, arguments = CALLS[name]
    changes = {"x": None, "window_shape": (2**20, 2**11), "padding": "SAME"}

    def total(x):
        return jax.tree.leaves(function(**arguments | changes | {"x": x}))[0].sum()

    start_timeout()
    jax.jit(jax.grad(total)).lower(arguments["x"]).compile()
