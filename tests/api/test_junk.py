"""Junk in place of every argument: a call raises TypeError or ValueError with our prefix, or returns.

Junk replaces at least one argument of a valid call. Calls are traced, never compiled. A hang, a crash, a large
allocation and any other exception fail the test.
"""

import inspect
import re
import signal
import warnings

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxpool
from tests.support.junk import CALLS, JUNK, call

SECONDS = 60  # limit for one call, with room for a busy CPU


@st.composite
def broken(draw):
    """A call by name, with junk for some arguments."""
    name = draw(st.sampled_from(sorted(CALLS)))
    function, arguments = CALLS[name]
    junk = st.sampled_from(JUNK)
    if isinstance(arguments, tuple):
        places = draw(st.sets(st.integers(0, len(arguments) - 1), min_size=1))
        every = enumerate(arguments)
        return name, tuple(draw(junk) if place in places else value for place, value in every)
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True))
    return name, arguments | {argument: draw(junk) for argument in chosen}


def check(name, arguments):
    """Assert that a call succeeds or raises with our prefix."""
    try:
        with warnings.catch_warnings():
            # jax itself warns like this about a number that its dtype cannot hold
            warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning)
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            call(CALLS[name][0], arguments)
    except (TypeError, ValueError) as error:
        message = str(error)
    else:
        return
    assert message.startswith("jaxpool.")
    assert not re.search(r"Tracer\(|Traced<", message)  # the repr of a tracer does not help a user


@pytest.fixture
def in_time():
    """Raise if a call hangs."""

    def late(*args):
        raise TimeoutError(f"a call took longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    yield lambda: signal.alarm(SECONDS)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_every_function_gets_junk():
    assert set(jaxpool.__all__) - set(CALLS) == {"keep_memory"}  # it takes no arguments


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_are_right_but_for_the_junk(name):
    assert jax.tree.leaves(call(*CALLS[name])) or name in (
        "accelerate",
        "accelerated",
        "plan_of",
        "sharded",
    )


def test_some_junk(in_time):
    @settings(max_examples=120)
    @given(broken())
    def drawn(one):
        in_time()
        check(*one)

    drawn()


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_every_junk_in_every_argument(name, in_time):
    function, arguments = CALLS[name]
    for junk in JUNK:
        if isinstance(arguments, tuple):
            variants = [(junk, *arguments[1:]), (*arguments[:-1], junk), (junk,) * len(arguments)]
        else:
            variants = [arguments | {key: junk} for key in inspect.signature(function).parameters]
        for one in variants:
            in_time()
            check(name, one)


@pytest.mark.slow
def test_much_junk(in_time):
    @settings(max_examples=20_000)
    @given(broken())
    def drawn(one):
        in_time()
        check(*one)

    drawn()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["max_pool", "avg_pool", "max_pool_with_argmax", "lp_pool"])
def test_the_longest_windows_that_are_taken_compile_in_time(name, in_time):
    function, arguments = CALLS[name]
    more = {"x": None, "window_shape": (2**20, 2**11), "padding": "SAME"}

    def total(x):
        return jax.tree.leaves(function(**arguments | more | {"x": x}))[0].sum()

    in_time()
    jax.jit(jax.grad(total)).lower(arguments["x"]).compile()
