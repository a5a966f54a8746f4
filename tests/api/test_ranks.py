"""Medians, ranks, morphology and the k largest elements: random cases against NumPy references."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxpool
from jaxpool._ops.op import partitioned
from jaxpool.testing import (
    PoolCase,
    assert_close,
    assert_pool_matches,
    draw_values,
    geometries,
    oracle,
    pool_cases,
    pools,
)
from tests.support.drawn import examples, refilled, run, same

pytestmark = pytest.mark.usefixtures("strict")

FLOATS = (np.float32, jnp.bfloat16, np.float16, jnp.float8_e4m3fn, jnp.float8_e5m2)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.bool_)
MODES = st.sampled_from(["vjp", "jvp"])
SMALL = geometries(max_size=6)
VALUES = ("ties", "normal", "special", "lowest")


@functools.cache
def pool(kind, autodiff):
    return functools.partial(getattr(jaxpool, f"{kind}_pool"), autodiff=autodiff)


def check(case, autodiff="vjp", values=VALUES):
    for each in refilled(case, values, rounds=1):
        assert_pool_matches(pool(case.kind, autodiff), each)


@pytest.mark.parametrize("ties", ["first", "last", "split"])
@examples(2)
@given(data=st.data(), autodiff=MODES, kind=st.sampled_from(["median", "rank"]))
def test_ranks(ties, kind, autodiff, data):
    """Includes NaN, infinities, ties, padding, dilation, ceil mode and every layout."""
    check(data.draw(pool_cases(kinds=(kind,), ties=(ties,))), autodiff)


@examples(3)
@given(case=pool_cases(kinds=("median", "rank"), dtypes=FLOATS[1:] + INTEGERS, geometry=SMALL))
def test_ranks_of_other_types(case):
    check(case)


@st.composite
def morphology(draw, dtypes=(np.float32,)):
    """A max pool case, a kernel for its window with or without channels, and the name of a function."""
    valid = geometries(ceil_mode=False, layouts=("channels_last", "channels_first"), ranks=(1, 2))
    case = draw(pool_cases(kinds=("max",), geometry=valid, dtypes=dtypes))
    window = case.window()
    free = [axis for axis in range(case.x.ndim) if axis not in window.axes]
    many = (case.x.shape[free[-1]],) if draw(st.booleans()) else ()
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kernel = draw_values(rng, (*case.window_shape, *many), case.x.dtype, "ties")
    return case, kernel, draw(st.sampled_from(["dilate", "erode"]))


def check_morphology(drawn, autodiff, values=VALUES):
    case, kernel, name = drawn
    options = {k: v for k, v in case.kwargs().items() if k != "window_shape"}
    options["axes"] = case.window().axes
    for each in refilled(case, values, rounds=1):
        got = run(getattr(jaxpool, name), each, each.x, kernel, autodiff=autodiff, **options)
        with np.errstate(all="ignore"):
            same(got, getattr(oracle, name)(each.x, kernel, **options), each.dy, 1e-6)


@examples(3)
@given(drawn=morphology(), autodiff=MODES)
def test_morphology(drawn, autodiff):
    check_morphology(drawn, autodiff)


@examples(2)
@given(drawn=morphology(dtypes=(np.int32, np.uint8, jnp.bfloat16)), autodiff=MODES)
def test_morphology_of_other_types(drawn, autodiff):
    check_morphology(drawn, autodiff, values=("ties",))


@st.composite
def lanes(draw, dtypes=FLOATS + INTEGERS):
    """An array, an axis, and the number of elements to select along the axis."""
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = draw_values(rng, shape, draw(st.sampled_from(dtypes)), draw(st.sampled_from(VALUES)))
    return x, axis, draw(st.integers(1, shape[axis]))


@examples(6)
@given(drawn=lanes())
def test_the_k_largest(drawn):
    x, axis, k = drawn
    answer = oracle.k_max_pool(x, k, axis=axis)
    y, back = (
        jax.vjp(lambda x: jaxpool.k_max_pool(x, k, axis=axis), x)
        if x.dtype.kind == "f"
        else (jaxpool.k_max_pool(x, k, axis=axis), None)
    )
    assert_close(y, answer.y, 0.0, "value")
    if back:
        dy = np.arange(1, y.size + 1).reshape(y.shape).astype(y.dtype)
        assert_close(back(jnp.asarray(dy))[0], answer.cotangent(dy), 0.0, "cotangent")


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int8, np.uint8, np.bool_])
def test_programs_of_several_devices_sort(dtype):
    """XLA for CPU all-gathers the batch of a `top_k`."""
    values = [np.nan, -np.inf, np.inf, -0.0, 0.0, 1e-45, -1.0] if dtype != np.bool_ else [0, 1]
    x = np.random.default_rng(0).choice(values, (3, 40, 2))
    x = jnp.asarray(
        np.nan_to_num(x, posinf=5, neginf=0) if np.dtype(dtype).kind in "iu" else x
    ).astype(dtype)
    pool = functools.partial(jaxpool.k_max_pool, k=20, axis=1)
    want = jax.jit(pool)(x)
    with partitioned(True):
        program = jax.jit(pool)
        assert "top_k" not in program.lower(x).as_text()
        np.testing.assert_array_equal(np.float32(program(x)), np.float32(want))


def test_more_than_one_expression_holds():
    x = np.random.default_rng(0).permutation(2 * 90).reshape(2, 90).astype(np.float32)
    _, back = jax.vjp(lambda x: jaxpool.k_max_pool(x, 80, axis=1), x)
    dy = np.arange(160, dtype=np.float32).reshape(2, 80)
    want = oracle.k_max_pool(x, 80, axis=1).cotangent(dy)
    np.testing.assert_array_equal(back(jnp.asarray(dy))[0], want)


def test_many_of_the_largest_take_no_memory_for_each_pair():
    x = jax.ShapeDtypeStruct((8, 16384), jnp.float32)

    def both(x, dy):
        y, back = jax.vjp(lambda x: jaxpool.k_max_pool(x, 4096, axis=1), x)
        return y, back(dy)

    memory = jax.jit(both).lower(x, x.update(shape=(8, 4096))).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 8 * 4 * x.size  # pairwise comparisons would need 2.1 GB


# windows beyond one step of a maximum, beyond one word of bits, and beyond ranking by comparators
LARGE = {
    "several steps": ((1, 7, 7, 1), (5, 5), (1, 1), "first"),
    "two words": ((1, 8, 7, 1), (6, 7), (2, 1), "split"),
    **{f"walked back, {t}": ((1, 9, 9, 2), (9, 8), (2, 3), t) for t in ("first", "last", "split")},
    **{f"counted, {t}": ((1, 15, 9, 2), (17, 8), (2, 3), t) for t in ("first", "last", "split")},
    "counted, apart": ((1, 26, 24, 2), (13, 12), (13, 12), "first"),
}


QUICK = ("several steps", "two words", "counted, split")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LARGE]
)
def test_large_windows(name):
    """Padded windows with NaN, infinities and ties; two windows may select different elements of their overlap."""
    shape, window, strides, ties = LARGE[name]
    for values in ("special", "ties"):
        x = draw_values(np.random.default_rng(0), shape, np.float32, values)
        case = PoolCase("median", x, None, window, strides, "SAME", ties=ties)
        outs = case.window().pooled(x.shape)
        dy = np.arange(1, 1 + np.prod(outs), dtype=np.float32).reshape(outs)
        assert_pool_matches(pool("median", "vjp"), dataclasses.replace(case, dy=dy))


# Long tests: 300 random cases for each function.


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["median", "rank"])
@settings(max_examples=300)
@given(data=st.data(), autodiff=MODES)
def test_ranks_at_length(kind, autodiff, data):
    check(data.draw(pool_cases(kinds=(kind,), dtypes=FLOATS + INTEGERS)), autodiff, ("special",))


@pytest.mark.slow
@settings(max_examples=600)  # over both functions
@given(drawn=morphology(dtypes=(np.float32, np.int32)), autodiff=MODES)
def test_morphology_at_length(drawn, autodiff):
    floats = drawn[0].dy is not None
    # Small integers do not wrap around.
    check_morphology(drawn, autodiff, ("special",) if floats else ("ties",))


@pytest.mark.slow
@settings(max_examples=300)
@given(drawn=lanes())
def test_the_k_largest_at_length(drawn):
    test_the_k_largest.hypothesis.inner_test(drawn)


KEPT = {
    "median_pool": ({"window_shape": (3, 3)}, {"uint8[1,2,2,3]"}),
    "median_pool, split": ({"window_shape": (3, 3), "ties": "split"}, {"uint16[1,2,2,3]"}),
    "dilate": ({}, {"uint8[1,3,3,3]"}),
    "k_max_pool": ({"axis": -2}, {"uint8[1,4,2,3]"}),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_index_an_output_is_kept_and_nothing_is_scattered(name):
    settings, residuals = KEPT[name]
    f, x = pools()[name.partition(",")[0]].of(**settings), jnp.zeros((1, 4, 4, 3))
    leaves = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(f, x)[1], x))
    assert {f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" for leaf in leaves} == residuals
    gradient = jax.jit(jax.grad(lambda x: f(x).sum()))
    assert "scatter" not in gradient.trace(x).lower(lowering_platforms=("cuda",)).as_text()


METHODS = ("higher", "lower", "midpoint")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("taps", [3, 4])
def test_medians_of_even_windows_are_those_of_numpy(method, taps):
    x = np.random.default_rng(taps).permutation(12).astype(np.float32)
    y, back = jax.vjp(lambda x: jaxpool.median_pool(x, taps, taps, axes=(0,), method=method), x)
    windows = x[: 12 // taps * taps].reshape(-1, taps)
    np.testing.assert_array_equal(y, np.quantile(windows, 0.5, axis=1, method=method))
    (dx,) = back(jnp.ones_like(y))
    order = np.argsort(windows, 1)
    low, high = order[:, (taps - 1) // 2], order[:, taps // 2]
    want, rows = np.zeros(windows.shape), np.arange(len(windows))
    want[rows, low] += {"higher": 0, "lower": 1, "midpoint": 0.5}[method]
    want[rows, high] += {"higher": 1, "lower": 0, "midpoint": 0.5}[method]
    np.testing.assert_array_equal(dx, want.ravel())


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_the_midpoint_of_integers_is_that_of_jax(dtype):
    x = jnp.array([0, 1, 1, 0, 1, 1, 1, 0]).astype(dtype)
    y = jaxpool.median_pool(x, 4, 2, axes=(0,), method="midpoint")
    assert y.dtype == jnp.float32
    np.testing.assert_array_equal(y, [jnp.median(x[at : at + 4]) for at in (0, 2, 4)])
    assert jaxpool.median_pool(x, 4, axes=(0,), method="lower").dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_the_midpoint_of_large_numbers_and_of_nan(dtype):
    """NaN ranks above numbers, so a pair with NaN has the midpoint NaN. Large numbers do not overflow."""
    most = float(jnp.finfo(dtype).max)
    x = jnp.array([most, most, np.nan, 1, -np.inf, np.nan, -2, -2], dtype)
    y = jaxpool.median_pool(x, 2, 2, axes=(0,), method="midpoint")
    np.testing.assert_array_equal(y.astype(np.float32), [most, np.nan, np.nan, -2])
    y = jaxpool.median_pool(x, 2, 2, axes=(0,), method="lower")
    np.testing.assert_array_equal(y.astype(np.float32), [most, 1, -np.inf, -2])


@pytest.mark.parametrize("window", [(2, 3), (5, 6)])
@pytest.mark.parametrize(
    "how", [{"rank": 1}, {"rank": -2}, {"method": "lower"}, {"method": "midpoint"}]
)
def test_ranks_of_what_a_mask_counts(how, window):
    """If a window has too few unmasked elements for the rank, the output is 0 without gradient."""
    rng = np.random.default_rng(2)
    x, mask = rng.integers(-3, 4, (2, 5, 6, 2)).astype(np.float32), rng.random((2, 5, 6, 1)) < 0.4
    x[0, 0] = np.nan
    name = "rank_pool" if "rank" in how else "median_pool"

    def pool(x):
        return getattr(jaxpool, name)(x, window_shape=window, where=mask, **how)

    rest = {key: value for key, value in how.items() if key != "rank"}
    rank = [how["rank"]] if "rank" in how else []
    answer = getattr(oracle, name)(x, *rank, window, where=mask, **rest)
    y, back = jax.vjp(jax.jit(pool), x)
    dy = rng.standard_normal(y.shape).astype(np.float32)
    np.testing.assert_array_equal(y, answer.y)
    np.testing.assert_allclose(back(jnp.asarray(dy))[0], answer.cotangent(dy), rtol=1e-6, atol=1e-6)


def test_too_few_elements_for_a_rank():
    x, mask = jnp.array([5.0, 2.0, 7.0, 4.0]), jnp.array([True, True, False, True])
    for rank, want in ((1, [5, 0]), (-2, [2, 0]), (0, [2, 4]), (-1, [5, 4])):
        y = jaxpool.rank_pool(x, rank, 2, 2, axes=(0,), where=mask)
        np.testing.assert_array_equal(y, want)
    dx = jax.grad(lambda x: jaxpool.rank_pool(x, 1, 2, 2, axes=(0,), where=mask).sum())(x)
    np.testing.assert_array_equal(dx, [1, 0, 0, 0])
