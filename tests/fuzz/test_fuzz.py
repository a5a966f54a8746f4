"""The fuzzer without coverage guidance: random calls pass, and wrong results are detected."""

import random
import warnings

import numpy as np
import pytest

from tests.fuzz import calls, run

pytestmark = pytest.mark.slow


def test_random_calls():
    draw = random.Random(0)
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jax warns about dtypes and casts
        for _ in range(500):
            said.append(run.outcome(draw.randbytes(48), lambda: None))
    assert set(said) == {"result", "refused"}
    assert said.count("result") > 100


def test_wrong_shape_is_detected(monkeypatch):
    assert run.outcome(bytes(9), lambda: None) == "result"
    monkeypatch.setattr(run, "expected", lambda *args: [((1, 2), np.float32)])
    with pytest.raises(run.WrongResultError, match=r"gives .* for \[\(\(1, 2\)"):
        run.outcome(bytes(9), lambda: None)


@pytest.mark.parametrize(
    "error",
    [
        *[TypeError("jaxpool.other: `x` is wrong"), ValueError("x"), KeyError("jaxpool")],
        *[RuntimeError("jaxpool.max_pool: x"), OverflowError("x"), ValueError("jaxpool: x")],
    ],
)
def test_wrong_exception_is_detected(monkeypatch, error):
    def fails(x):
        raise error

    monkeypatch.setattr(calls, "FUNCTIONS", [("max_pool", fails)])
    with pytest.raises(type(error)):
        run.outcome(bytes(9), lambda: None)
