"""Medians, ranks, morphology, blur, the k largest: drawn cases against loops in NumPy."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxpool
from jaxpool._api.random import fractional_op
from jaxpool.testing import (
    PoolCase,
    assert_close,
    assert_pool_matches,
    draw_values,
    geometries,
    oracle,
    pool_cases,
)
from jaxpool.testing import oracle as loops
from tests.support.drawn import examples, refilled

pytestmark = pytest.mark.usefixtures("strict")

FLOATS = (np.float32, jnp.bfloat16, np.float16, jnp.float8_e4m3fn, jnp.float8_e5m2)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.bool_)
MODES = st.sampled_from(["vjp", "jvp"])
SMALL = geometries(max_size=6)
VALUES = ("ties", "normal", "special", "lowest")


@functools.cache
def pool(kind, autodiff):
    """One function for each pair, so that programs are compiled once."""
    return functools.partial(getattr(jaxpool, f"{kind}_pool"), autodiff=autodiff)


def check(case, autodiff="vjp", values=VALUES):
    for each in refilled(case, values, rounds=1):
        assert_pool_matches(pool(case.kind, autodiff), each)


@pytest.mark.parametrize("ties", ["first", "last", "split"])
@examples(2)
@given(data=st.data(), autodiff=MODES, kind=st.sampled_from(["median", "rank"]))
def test_ranks(ties, kind, autodiff, data):
    """NaN, infinities, ties, padding, dilation, ceil mode, every layout."""
    check(data.draw(pool_cases(kinds=(kind,), ties=(ties,))), autodiff)


@examples(3)
@given(case=pool_cases(kinds=("median", "rank"), dtypes=FLOATS[1:] + INTEGERS, geometry=SMALL))
def test_ranks_of_other_types(case):
    check(case)


def run(function, case, *xs, **options):
    """Value and cotangents, in one program."""

    def program(dy, *xs):
        y, back = jax.vjp(lambda *xs: function(*xs, **options), *xs)
        return y, back(dy)

    if case.dy is None:
        return jax.jit(lambda *xs: function(*xs, **options))(*xs), None
    return jax.jit(program)(case.dy, *xs)


def same(found, answer, dy, rtol=1e-5, largest=0.0):
    """Value and cotangents as the oracle says; sums within their rounding, by the `largest` of what is added."""
    bound = 1e-6 * np.maximum(np.abs(answer.y.astype(float)), largest)
    assert_close(found[0], answer.y, bound, "value")
    if dy is None:
        return
    spread = answer.exact_cotangents(dy, absolute=True)
    for dx, want, size in zip(found[1], answer.cotangents(dy), spread, strict=True):
        eps = float(jnp.finfo(want.dtype).eps)
        assert_close(
            dx, want, rtol * size + 2 * eps * np.abs(want.astype(float)) + 1e-30, "cotangent"
        )


@st.composite
def morphology(draw, dtypes=(np.float32,)):
    """A case of a maximum, a kernel of its window, with or without channels, and which of the two functions."""
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
        found = run(getattr(jaxpool, name), each, each.x, kernel, autodiff=autodiff, **options)
        with np.errstate(all="ignore"):
            same(found, getattr(oracle, name)(each.x, kernel, **options), each.dy, 1e-6)


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
    """An array, an axis of it and how many elements to take along it."""
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
    assert memory.temp_size_in_bytes < 8 * 4 * x.size  # 2.1 GB as comparisons


BLURS = geometries(ceil_mode=False, dilation=False, ranks=(1, 2), max_size=6)


def check_blur(case):
    found = run(jaxpool.blur_pool, case, case.x, **case.kwargs())
    finite = np.nan_to_num(case.x.astype(float), nan=0, posinf=0, neginf=0)
    eps = float(jnp.finfo(case.x.dtype).eps) * 1e6
    answer = oracle.blur_pool(case.x, **case.kwargs())
    same(found, answer, case.dy, largest=max(1, eps) * np.abs(finite).max())


@examples(4)
@given(case=pool_cases(kinds=("sum",), geometry=BLURS, dtypes=(np.float32, jnp.bfloat16)))
def test_blur(case):
    for each in refilled(case, ("normal",), rounds=1):
        check_blur(each)


def test_blur_after_a_maximum():
    x = np.random.default_rng(0).normal(size=(2, 7, 6, 3)).astype(np.float32)
    blur = jaxpool.blur_pool(jaxpool.max_pool(x, (2, 3), padding="SAME"), (3, 2), (2, 1))
    np.testing.assert_array_equal(jaxpool.max_blur_pool(x, (2, 3), (3, 2), (2, 1)), blur)


FRACTIONAL = [((2, 9, 3), (2,), (5,), (1,)), ((2, 7, 9, 2), (3, 2), (5, 4), (2, 1))]


def starts(sample, size, width, out):
    alpha = np.float32(size - width) / np.float32(max(1, out - 1))
    firsts = [int((np.float32(i) + sample) * alpha) - int(sample * alpha) for i in range(out - 1)]
    return [*firsts, size - width]


def fractional_matrix(key, shape, window, output, axes):
    """The average as a matrix, by loops over the windows that the key places."""
    op = fractional_op(shape, window, output, axes)
    lane_sizes = [1 if axis in axes else size for axis, size in enumerate(shape)]
    samples = np.asarray(jax.random.uniform(key, (len(axes), *lane_sizes)))
    out = [dict(zip(axes, output, strict=True)).get(i, n) for i, n in enumerate(shape)]
    matrix = np.zeros((*out, *shape))
    for target in np.ndindex(*out):
        lane = tuple(0 if axis in axes else at for axis, at in enumerate(target))
        firsts = [
            starts(sample[lane], shape[axis], w, n)[target[axis]]
            for sample, axis, w, n in zip(samples, axes, window, op.output_shape, strict=True)
        ]
        for tap in itertools.product(*map(range, window)):
            source = list(target)
            for axis, first, t in zip(axes, firsts, tap, strict=True):
                source[axis] = first + t
            matrix[(*target, *source)] += 1 / np.prod(window)
    return matrix


@pytest.mark.parametrize(("shape", "window", "output", "axes"), FRACTIONAL)
def test_fractional_averages(shape, window, output, axes):
    pullback, x, dy = check_fractional(shape, window, output, axes, seeds=[3])
    text = jax.jit(lambda x, dy: pullback(jax.random.key(3), x, dy)[1]).lower(x, dy).as_text()
    assert "scatter" not in text


def check_fractional(shape, window, output, axes, seeds):
    """Value and cotangent of many keys, by one program."""

    @jax.jit
    def pullback(key, x, dy):
        def pool(x):
            return jaxpool.fractional_avg_pool(key, x, window, output, axes=axes)

        y, back = jax.vjp(pool, x)
        return y, back(dy)[0]

    for seed in seeds:
        key, x = jax.random.key(seed), np.random.default_rng(seed).normal(size=shape)
        matrix = fractional_matrix(key, shape, window, output, axes)
        rows = matrix.shape[: len(shape)]
        dy, x = (np.asarray(a, np.float32) for a in (np.cos(np.arange(np.prod(rows))), x))
        dy = dy.reshape(rows)
        y, dx = pullback(key, x, dy)
        np.testing.assert_allclose(y, np.tensordot(matrix, x, x.ndim), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(dx, np.tensordot(dy, matrix, x.ndim), rtol=1e-5, atol=1e-6)
    return pullback, x, dy


LARGE = {  # taps that no one step of a maximum takes, bits of two words, and more than comparators rank
    "several steps": ((1, 7, 7, 1), (5, 5), (1, 1), "first"),
    "two words": ((1, 8, 7, 1), (6, 7), (2, 1), "split"),
    **{f"walked back, {t}": ((1, 9, 9, 2), (9, 8), (2, 3), t) for t in ("first", "last", "split")},
    **{f"counted, {t}": ((1, 15, 9, 2), (17, 8), (2, 3), t) for t in ("first", "last", "split")},
    "counted, apart": ((1, 26, 24, 2), (13, 12), (13, 12), "first"),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_windows(name):
    """Padded, with NaN, infinities and ties; two windows may choose other elements of what they share."""
    shape, window, strides, ties = LARGE[name]
    for values in ("special", "ties"):
        x = draw_values(np.random.default_rng(0), shape, np.float32, values)
        case = PoolCase("median", x, None, window, strides, "SAME", ties=ties)
        outs = case.window().pooled(x.shape)
        dy = np.arange(1, 1 + np.prod(outs), dtype=np.float32).reshape(outs)
        assert_pool_matches(pool("median", "vjp"), dataclasses.replace(case, dy=dy))


# At length: 300 drawn cases a function.


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["median", "rank"])
@settings(max_examples=300)
@given(data=st.data(), autodiff=MODES)
def test_ranks_at_length(kind, autodiff, data):
    check(data.draw(pool_cases(kinds=(kind,), dtypes=FLOATS + INTEGERS)), autodiff, ("special",))


@pytest.mark.slow
@settings(max_examples=600)  # of both functions
@given(drawn=morphology(dtypes=(np.float32, np.int32)), autodiff=MODES)
def test_morphology_at_length(drawn, autodiff):
    floats = drawn[0].dy is not None
    check_morphology(drawn, autodiff, ("special",) if floats else ("ties",))  # none that wrap


@pytest.mark.slow
@settings(max_examples=300)
@given(drawn=lanes())
def test_the_k_largest_at_length(drawn):
    test_the_k_largest.hypothesis.inner_test(drawn)


@pytest.mark.slow
@settings(max_examples=300)
@given(case=pool_cases(kinds=("sum",), geometry=BLURS, dtypes=(np.float32,)))
def test_blur_at_length(case):
    check_blur(case)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_fractional_averages_at_length(seed):
    """Ten keys each of thirty geometries, of one pooled axis and of two."""
    rng = np.random.default_rng(seed)
    axes = [(1,), (2,), (1, 2), (2, 1)][seed % 4]
    shape = (2, *map(int, rng.integers(1, 12 if len(axes) == 1 else 8, 2)), 2)
    window = tuple(int(rng.integers(1, shape[axis] + 1)) for axis in axes)
    most = [shape[axis] - width + 1 for axis, width in zip(axes, window, strict=True)]
    output = tuple(int(rng.integers(1, n + 1)) for n in most)
    check_fractional(shape, window, output, axes, seeds=range(10 * seed, 10 * seed + 10))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_blur_after_a_maximum_at_length(seed):
    """Ten arrays each of thirty geometries, with ties and without; the loops of both, one after the other."""
    rng = np.random.default_rng(seed)
    shape = (2, *map(int, rng.integers(4, 9, 2)), 2)
    window, blur, strides = (tuple(map(int, rng.integers(1, 4, 2))) for _ in range(3))
    padding = "SAME" if seed % 3 else tuple((int(n), 1) for n in rng.integers(0, 2, 2))
    if any(n == 1 for n in (*window, *blur)):
        padding = "SAME"

    @jax.jit
    def pullback(x, dy):
        pool = functools.partial(jaxpool.max_blur_pool, window_shape=window, blur_shape=blur)
        y, back = jax.vjp(lambda x: pool(x, strides=strides, padding=padding), x)
        return y, back(dy)[0]

    for number in range(10):
        x = draw_values(rng, shape, np.float32, "ties" if number % 2 else "normal")
        largest = loops.max_pool(x, window, None, padding)
        want = oracle.blur_pool(largest.y, blur, strides, padding)
        dy = rng.normal(size=want.y.shape).astype(np.float32)
        y, dx = pullback(x, dy)
        np.testing.assert_allclose(y, want.y, rtol=1e-5, atol=1e-5)
        blurred = want.exact_cotangents(dy)[0].astype(float)
        np.testing.assert_allclose(dx, largest.exact_cotangents(blurred)[0], rtol=1e-4, atol=1e-5)


def test_padding_of_integers_never_wins():
    """Neither if the kernel adds to it, nor takes away: it would wrap around."""
    least, greatest = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    x = jnp.array([[[least + 1], [least + 2]]], jnp.int32)
    y = jaxpool.dilate(x, jnp.array([5, 0, 0]), padding="SAME", axes=(1,))
    np.testing.assert_array_equal(y.ravel(), [least + 2, least + 6])
    x = jnp.array([[[greatest - 1], [greatest - 2]]], jnp.int32)
    y = jaxpool.erode(x, jnp.array([5, 0, 0]), padding="SAME", axes=(1,))
    np.testing.assert_array_equal(y.ravel(), [greatest - 2, greatest - 6])


@pytest.mark.parametrize("ties", ["first", "split"])
def test_a_tangent_of_the_kernel_alone(ties):
    x, kernel = jnp.array([[[1.0], [5.0], [2.0], [0.0]]]), jnp.array([0.0, 1.0])
    dilate = functools.partial(jaxpool.dilate, x, ties=ties, autodiff="jvp")
    y, tangent = jax.jvp(dilate, (kernel,), (jnp.array([10.0, 100.0]),))
    np.testing.assert_array_equal(y.ravel(), [6, 5, 2])
    np.testing.assert_array_equal(tangent.ravel(), [100, 10, 10])
