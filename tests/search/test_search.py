"""The search detects wrong results, and the failures that it once found stay fixed."""

import dataclasses
import pathlib

import numpy as np
import pytest

from jaxpool.testing import pools
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle import chance
from tests.search import run, specs
from tests.support.later import first_values

RECORDED_FAILURES = pathlib.Path(__file__).with_name("kept.txt").read_text().splitlines()


def test_wrong_random_draw_is_detected(monkeypatch):
    geometry = (("axes", (0,)), ("draw", 3), ("padding", "VALID"), ("window_shape", (3,)))
    name = next(name for name, pool in pools().items() if pool.takes("key", "padding"))
    spec = specs.Spec(name, ((9, 2),), "float32", geometry, arrays=8)
    assert run.check(spec, 0) == 8
    share = chance._uniform_per_window
    monkeypatch.setattr(chance, "_uniform_per_window", lambda *args: 1 - share(*args))
    with pytest.raises(AssertionError, match="value of"):
        run.check(spec, 0)


def max_pool_spec(**changes):
    geometry = (("padding", "SAME"), ("ties", "first"), ("window_shape", (3,)))
    spec = specs.Spec("max_pool", ((9, 2),), "float32", geometry, arrays=8)
    return dataclasses.replace(spec, **changes)


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu", "portable"])
def test_correct_pool_passes(platform):
    assert run.check(max_pool_spec(platform=platform), 0) == 8


@pytest.mark.parametrize("function", ["cotangents", "tangent"])
def test_shifted_derivatives_are_detected(monkeypatch, function):
    right = getattr(run.Shares, function)

    def shifted(self, *args, **kwargs):
        found = right(self, *args, **kwargs)
        return [np.roll(dx, 1) for dx in found] if isinstance(found, list) else np.roll(found, 1)

    monkeypatch.setattr(run.Shares, function, shifted)
    with pytest.raises(AssertionError, match=function[:7]):
        run.check(max_pool_spec(), 0)


def test_wrong_tie_rule_is_detected(monkeypatch):
    choose = parts.extremum_reducer
    monkeypatch.setattr(parts, "extremum_reducer", lambda best, ties: choose(best, "last"))
    with pytest.raises(AssertionError, match="tangent of"):
        run.check(max_pool_spec(), 0)


def test_shares_match_oracle_answer():
    x = np.array([[1, 7], [7, 0], [7, 2]], np.float32)
    answer = pools()["max_pool"].meaning(x, (2,), (1,), "SAME", ties="split")
    dy, dot = np.arange(6.0).reshape(3, 2), np.arange(6.0, 12).reshape(3, 2)
    shares = run.Shares(answer)
    np.testing.assert_array_equal(shares.cotangents(dy)[0], answer.exact_cotangents(dy)[0])
    np.testing.assert_array_equal(shares.tangent([dot]), answer.tangent(dot.astype(np.float32)))


def test_spec_text_round_trip():
    spec = max_pool_spec(platform="gpu")
    assert specs.read(spec.text()) == spec


@pytest.mark.parametrize("line", first_values(1, RECORDED_FAILURES))
def test_recorded_failure_stays_mended(line):
    """A line of `kept.txt` has the seed of the numbers, the spec, and the error message."""
    seed, _, text = line.partition("  #")[0].partition(" ")
    run.check(specs.read(text), int(seed))
