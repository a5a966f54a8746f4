"""The fuzzer without coverage guidance: odd calls pass, and wrong results are detected."""

import warnings

import numpy as np
import pytest
from hypothesis import event, given, settings

import jaxpool
from tests.fuzz import run
from tests.fuzz.calls import OddCall, odd_calls
from tests.support.drawn import SEARCH

pytestmark = pytest.mark.slow
X = np.zeros((4, 2), np.float32)


@settings(max_examples=20_000 if SEARCH else 300)
@given(odd_calls())
def test_odd_calls(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jax warns about dtypes and casts
        event(run.outcome(call))


def cummax_call(function=None):
    return OddCall("cummax", function or jaxpool.cummax, {"x": X}, "value")


def test_wrong_shape_is_detected(monkeypatch):
    assert run.outcome(cummax_call()) == "result"
    monkeypatch.setattr(run, "expected", lambda *args: [((1, 2), np.float32)])
    with pytest.raises(run.WrongResultError, match=r"gives .* for \[\(\(1, 2\)"):
        run.outcome(cummax_call())


@pytest.mark.parametrize(
    "error",
    [
        *[TypeError("jaxpool.other: `x` is wrong"), ValueError("x"), KeyError("jaxpool")],
        *[RuntimeError("jaxpool.cummax: x"), OverflowError("x"), ValueError("jaxpool: x")],
    ],
)
def test_wrong_exception_is_detected(error):
    def fails(x):
        raise error

    with pytest.raises(type(error)):
        run.outcome(cummax_call(fails))
