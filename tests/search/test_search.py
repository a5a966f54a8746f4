"""The search: its reference says what the loops of `jaxpool.testing` say, faults are found, what it found is tried."""

import dataclasses
import pathlib

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpool.testing import draw_values, pools
from tests.api.test_fractional import starts
from tests.search import beyond, boxes, chance, run, specs

KEPT = pathlib.Path(__file__).with_name("kept.txt").read_text().splitlines()


def loops(spec, xs):
    """What the loops make of a spec, whose chance is drawn again."""
    pool, given = pools()[spec.function], spec.kwargs
    seed = given.pop("draw", None)
    if pool.takes("boxes"):
        given["boxes"], images = boxes.drawn(spec)
        given |= {"batch_indices": images} if xs[0].ndim == 4 else {}
    elif pool.takes("segment_ids"):
        given["segment_ids"] = beyond.segments(spec)
    elif pool.takes("indices"):
        given["indices"] = beyond.indices(spec)
    elif pool.takes("key"):
        given["key"] = None if seed is None else jax.random.key(seed, impl=chance.CHEAP)
    arrays = {"xs": xs} if pool.operands == ("xs",) else dict(zip(pool.operands, xs, strict=True))
    return pool.run(arrays | given, pool.meaning)


@settings(max_examples=60)
@given(specs.specs(), st.sampled_from(["ties", "special"]), st.integers(0, 99))
def test_the_reference_says_what_the_loops_say(spec, values, seed):
    """Value, cotangents and tangent."""
    spec = dataclasses.replace(spec, dtype="float32")
    at = run.table(spec)
    if at.members.size > 500:
        return
    if values not in pools()[spec.function].covers:
        values = "normal"
    rng = np.random.default_rng(seed)
    xs = [draw_values(rng, shape, np.float32, values) for shape in spec.shapes]
    if spec.function in beyond.MORPHOLOGY:
        xs[1] = draw_values(rng, xs[1].shape, np.float32, "ties")
    dots = [draw_values(rng, shape, np.float32, "normal") for shape in spec.shapes]
    if pools()[spec.function].takes("eps"):
        xs = [np.abs(x) + np.float32(0.25) for x in xs]
    answer = loops(spec, xs)
    flat = np.concatenate([x.ravel() for x in xs])[None].astype(np.float64)
    want = run.wanted(spec, at, flat)
    dy = draw_values(rng, answer.y.shape, np.float32, "normal")
    sent = want.cotangents(dy.reshape(1, -1), sum(x.size for x in xs))[0]
    moved = want.tangent(np.concatenate([dot.ravel() for dot in dots])[None])[0]
    np.testing.assert_allclose(want.y[0], answer.y.ravel(), 1e-6, 1e-6)
    exact = np.concatenate([dx.ravel() for dx in answer.exact_cotangents(dy)])
    np.testing.assert_allclose(sent, exact, 1e-6, 1e-6)
    np.testing.assert_allclose(moved, answer.tangent(*dots).ravel(), 1e-6, 1e-6)


@pytest.mark.parametrize("sizes", [(9, 2, 5), (30, 3, 1), (20, 4, 17), (64, 1, 40)])
def test_windows_of_chance_begin_where_loops_say(sizes):
    samples = np.random.default_rng(0).random(50)
    found = chance.starts(*sizes, samples)
    want = [starts(sample, sizes[0], sizes[1], sizes[2]) for sample in samples]
    np.testing.assert_array_equal(found.T, want)


def test_a_draw_of_another_element_is_found(monkeypatch):
    geometry = (("draw", 3), ("window_shape", (3,)))
    spec = specs.Spec(chance.DRAWING[0], ((9, 2),), "float32", geometry)
    assert run.check(spec, 0) == specs.ARRAYS
    share = chance._chance(spec)
    monkeypatch.setattr(chance, "_chance", lambda spec: 1 - share)
    with pytest.raises(AssertionError, match="value of"):
        run.check(spec, 0)


def pool(**changes):
    geometry = (("padding", "SAME"), ("ties", "first"), ("window_shape", (3,)))
    spec = specs.Spec("max_pool", ((9, 2),), "float32", geometry)
    return dataclasses.replace(spec, **changes)


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu", "portable"])
def test_a_pool_that_is_right_passes(platform):
    assert run.check(pool(platform=platform), 0) == specs.ARRAYS


@pytest.mark.parametrize("function", ["cotangents", "tangent"])
def test_a_cotangent_and_a_tangent_at_another_place_are_found(monkeypatch, function):
    right = getattr(run.reference.Shares, function)

    def shifted(self, *args):
        return np.roll(right(self, *args), 1, -1)

    monkeypatch.setattr(run.reference.Shares, function, shifted)
    with pytest.raises(AssertionError, match=function[:7]):
        run.check(pool(), 0)


def test_another_choice_at_ties_is_found(monkeypatch):
    choose = run.reference.choose
    monkeypatch.setattr(
        run.reference, "choose", lambda at, x, kind, ties, nan: choose(at, x, kind, "last", nan)
    )
    with pytest.raises(AssertionError, match="cotangent of"):
        run.check(pool(), 0)


def test_a_spec_is_read_as_it_was_written():
    spec = pool(platform="gpu")
    assert specs.read(spec.text()) == spec


@pytest.mark.parametrize("line", KEPT)
def test_what_the_search_found_stays_mended(line):
    """A line of `kept.txt`: the seed of the numbers, the spec, and what it said."""
    seed, _, text = line.partition("  #")[0].partition(" ")
    run.check(specs.read(text), int(seed))
