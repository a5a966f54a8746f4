"""Segment reductions: special values, temperatures, masks, programs and long segments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._kernels.segments import Segments
from jaxpool._ops.segments import segment_totals
from jaxpool._plan.scatter import plan_partial_sums
from jaxpool.testing import oracle, pools
from tests.support.compilation import FAST_COMPILE
from tests.support.later import every_nth, later

pytestmark = pytest.mark.usefixtures("strict")

inf, nan = np.inf, np.nan


def test_backward_is_a_gather_and_gpu_scatters_no_floats():
    ids, x = jnp.array([0, 1, 1, 4]), jnp.ones((4, 2))
    for name in ("segment_max", "segment_mean", "segment_sum"):
        back = jax.vjp(lambda x, name=name: getattr(jaxpool, name)(x, ids, 3), x)[1]
        text = jax.jit(lambda dy, back=back: back(dy)).lower(jnp.ones((3, 2))).as_text()
        assert "scatter" not in text
    traced = jax.jit(lambda x: jaxpool.segment_mean(x, ids, 3)).trace(x)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    scatters = text.split('"stablehlo.scatter"')[1:]
    assert len(scatters) == 2  # the number of rows of each segment, and its last row
    assert all("tensor<3xi32>" in each.split("-> ")[1] for each in scatters)


@pytest.mark.parametrize("name", [name for name in pools() if name.startswith("segment_")])
def test_largest_number_of_segments_is_lowered(name):
    """Of 2**31 - 1 segments, int32 cannot address a row after the last; nothing of 8 GiB is run."""
    ids, ties = np.array([0, 1, 1, 2**31 - 2]), pools()[name].ties or (None,)
    for settings in [{} if each is None else {"ties": each} for each in ties]:

        def total(x, settings=settings):
            y = getattr(jaxpool, name)(x, ids, 2**31 - 1, **settings)
            return (y[0] if isinstance(y, tuple) else y)[:3].sum()

        for function in (total, jax.grad(total), jax.jacfwd(total)):
            traced = jax.jit(function).trace(jax.ShapeDtypeStruct((4, 3), np.float32))
            traced.lower(lowering_platforms=("cpu", "cuda", "tpu"))


def test_number_of_segments_comes_from_concrete_ids():
    ids = jnp.array([0, 3])
    assert jax.jit(lambda x: jaxpool.segment_max(x, ids))(jnp.ones(2)).shape == (4,)
    # The dtype of ids need not hold the number of segments.
    assert jaxpool.segment_max(jnp.ones(3), np.array([1, 1, -1], np.int8), 300)[1] == 1


def test_no_rows():
    x, ids = np.zeros((0, 2), np.float32), np.zeros(0, np.int32)
    for name, identity in (("max", -inf), ("min", inf), ("mean", 0), ("logsumexp", -inf)):
        f = getattr(jaxpool, f"segment_{name}")
        np.testing.assert_array_equal(f(x, ids, 2), np.full((2, 2), identity))
        assert f(x, ids).shape == (0, 2)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="what XLA for CPU fuses")
def test_tie_comparison_is_computed_once():
    """Memory for a tie bit per element and counts. A comparison fused into each consumer needs 4 bytes per element."""

    def both(x, ids, dy):
        y, back = jax.vjp(lambda x: jaxpool.segment_max(x, ids, 16), x)
        return y, back(dy)

    x, ids, dy = jnp.ones((4096, 64)), jnp.zeros(4096, np.int32), jnp.ones((16, 64))
    program = jax.jit(both).lower(x, ids, dy).compile()
    assert program.memory_analysis().temp_size_in_bytes < x.nbytes / 5


@pytest.mark.parametrize("name", ["segment_max", "segment_min", "segment_logsumexp"])
def test_vmap_over_examples_of_different_branches(name):
    """Gradients of examples with and without ties, with a tied identity or NaN, and in and out of range."""
    rows = [[1, 2, 3, 4, 5], [2, 2, 3, 3, 3], [-inf, -inf, 3, -inf, 0], [nan, nan, 3, nan, 0]]
    rows = jnp.array([*rows, [3e38, 1, 2, -3e38, 3]])
    f = functools.partial(getattr(jaxpool, name), segment_ids=np.array([1, 1, 0, 3, 0]))
    gradient = jax.grad(lambda x: (f(x) * jnp.arange(1.0, 5)).sum())
    want = np.stack([gradient(x) for x in rows])
    np.testing.assert_allclose(jax.vmap(gradient)(rows), want, rtol=1e-6)


# Softmax and its logarithm

SCORES = np.array([-inf, -inf, inf, 1, inf, nan, 3, nan, 2, -2], np.float32)
SCORE_IDS = np.array([0, 0, 1, 1, 1, 2, 3, -1, 9, 3], np.int32)  # segment 4 is empty


def test_softmax_of_infinities_nan_and_dropped_rows():
    """Tied infinities share; NaN stays in its segment; rows without a segment get 0."""
    low, high = (np.float32(1 / (1 + np.exp(sign * 5))) for sign in (1, -1))
    shares = jaxpool.segment_softmax(SCORES, SCORE_IDS, 5)
    want = [0.5, 0.5, 0.5, 0, 0.5, nan, high, 0, 0, low]
    np.testing.assert_allclose(shares, want, rtol=1e-6)
    sums, back = jax.vjp(lambda x: jaxpool.segment_logsumexp(x, SCORE_IDS, 5), jnp.asarray(SCORES))
    np.testing.assert_allclose(sums, [-inf, inf, nan, 3 - np.log(high), -inf], rtol=1e-6)
    np.testing.assert_allclose(back(jnp.ones(5))[0], want, rtol=1e-6)


@pytest.mark.parametrize("shift", [0, 30, 45, 100, -45, -100, -1000, 1e5])
def test_logsumexp_in_and_out_of_range(shift):
    """An empty segment, a segment shifted out of the range, and dropped rows that overflow."""
    ids = jnp.array([0, 0, 2, 2, 2, -1, 5])
    steps = jnp.array([0.5, 1, 2, -1, 0.25, 1e4, nan], jnp.float32)
    x = steps.at[:2].add(shift)
    dy = jnp.array([2.0, 3, -1])

    def pool(x):
        return jaxpool.segment_logsumexp(x, ids, 3)

    y, back = jax.vjp(pool, x)
    answer = oracle.segment_logsumexp(x, ids, 3)
    np.testing.assert_allclose(y, answer.y, rtol=3e-7, atol=2e-7)
    np.testing.assert_allclose(back(dy)[0], answer.cotangent(dy), rtol=1e-5)
    dot = jnp.cos(jnp.arange(7.0))
    tangent = jax.jvp(pool, (x,), (dot,))[1]
    np.testing.assert_allclose(tangent, answer.tangent(dot), rtol=1e-5)
    second = jax.grad(lambda x: jax.vjp(pool, x)[1](dy)[0] @ dot)(x)
    shares = np.exp(steps[2:5] - y[2])
    slopes = -shares * (dot[2:5] - (shares * dot[2:5]).sum())
    np.testing.assert_allclose(second[2:5], slopes, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(second[5:], 0)


def test_softmax_does_not_overflow_or_lose_precision():
    x = jnp.array([3e38, -3e38, 1e6, 1e6 + 1, 1e-3, 0], jnp.float32)
    ids = jnp.array([0, 0, 1, 1, 2, 2])
    shares = jaxpool.segment_softmax(x, ids, 3, temperature=1e-4)
    np.testing.assert_allclose(shares, [1, 0, 0, 1, 1 / (1 + np.exp(-10)), np.exp(-10)], rtol=1e-4)
    near = jax.grad(lambda x: jaxpool.segment_logsumexp(x, ids, 3)[1])(x)
    np.testing.assert_allclose(near[2:4], [1 / (1 + np.e), np.e / (1 + np.e)], rtol=1e-6)


def test_zero_shares_with_nan_cotangent_get_zero_gradient():
    x, mask = jnp.array([1.0, 2.0, 3.0]), jnp.array([True, True, False])

    def entropy(x):
        shares = jaxpool.segment_softmax(x, jnp.zeros(3, int), 1, where=mask)
        return (shares * jnp.log(shares)).sum(where=mask)

    dx = jax.grad(entropy)(x)
    assert np.isfinite(dx).all()
    assert dx[2] == 0
    _, back = jax.vjp(lambda x: jaxpool.segment_softmax(x, jnp.zeros(3, int), 1, where=mask), x)
    np.testing.assert_allclose(back(jnp.array([1.0, 0, nan]))[0].sum(), 0, atol=1e-7)


@pytest.mark.parametrize("name", ["segment_logsumexp", "segment_softmax"])
def test_masked_elements_change_no_bits(name):
    mask = np.array([True, True, False, True, False])  # segment 2 is fully masked
    f = functools.partial(getattr(jaxpool, name), segment_ids=np.array([0, 1, 0, 0, 2]), where=mask)
    want, back = jax.vjp(f, jnp.arange(5.0))
    for value in (nan, inf, -inf):
        y, pullback = jax.vjp(f, jnp.where(mask, jnp.arange(5.0), value))
        np.testing.assert_array_equal(y, want)
        dy = jnp.cos(jnp.arange(y.size, dtype=y.dtype))
        np.testing.assert_array_equal(pullback(dy)[0], back(dy)[0])


@pytest.mark.parametrize("temperature", every_nth([1e-35, 1e-30, 8e37, 1e30]))
def test_temperatures_near_the_float32_limits(temperature):
    """The inverse temperature is a normal number. A difference of rows may overflow, its softmax does not."""
    ids, steps = jnp.array([0, 0, 1, 1]), np.array([1, 2, -2, 2.5])
    x = jnp.asarray(steps * temperature, jnp.float32)
    near = 1 / (1 + np.exp([1, -1, 4.5, -4.5]))

    def both(x):
        shares = jaxpool.segment_softmax(x, ids, 2, temperature=temperature)
        return shares, jaxpool.segment_logsumexp(x, ids, 2, temperature=temperature)

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def run(x):
        y, back = jax.vjp(both, x)
        dy = jnp.array([16.0, 0, 0, 0])
        return y, back((dy, jnp.zeros(2)))[0], back((0 * dy, jnp.ones(2)))[0]

    (shares, sums), dx, of_sums = run(x)
    np.testing.assert_allclose(shares, near, rtol=1e-5)
    want = temperature * np.log(np.exp(steps).reshape(2, 2).sum(1))
    np.testing.assert_allclose(sums, want, rtol=1e-5)
    slope = near[0] * near[1]
    np.testing.assert_allclose(dx[:2] * temperature, [16 * slope, -16 * slope], rtol=1e-5)
    np.testing.assert_allclose(of_sums, near, rtol=1e-5)


def test_no_residuals_behind_stop_gradient():
    ids = np.zeros(6, np.int32)

    def loss(x):
        marks = jaxpool.local_maxima(x, (3,), axes=(0,))
        most = jaxpool.segment_max(jax.lax.stop_gradient(x), ids, 3, ties="first")
        return jaxpool.segment_logsumexp(jnp.where(marks, x, 0), ids, 3).sum() + most[0].sum()

    for program, shape in ((loss, (6, 2)), (jax.grad(loss), (6, 2)), (jax.vmap(loss), (5, 6, 2))):
        x = jax.ShapeDtypeStruct(shape, np.float32)
        marks, most, *rest = jaxpool.plan_of(program)(x)
        assert marks.kept == most.kept == ()
        assert all(row.kept for row in rest)


# Long segments


def long_segment_ids(layout, num_rows, num_segments):
    """Ids of `num_rows` rows. Except for layout "even", one segment has four in five rows."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, num_segments, num_rows)
    if layout != "even":
        ids = np.where(rng.random(num_rows) < 0.8, num_segments // 2, ids)
    if layout == "periodic":
        ids = np.where(np.arange(num_rows) % 64 == 5, 0, ids)
    if layout == "sorted":
        ids.sort()
    ids[:: num_rows // 9] = [-1] * 5 + [num_segments] * 5  # ids out of range
    return np.sort(ids) if layout == "sorted" else ids


LONG = [("sorted", 1), later("sorted", 5000), later("even", 90), ("hub", 300)]


@pytest.mark.parametrize(("layout", "count"), [*LONG, later("periodic", 20000)])
def test_rounding_error_does_not_grow_with_segment_length(layout, count):
    """Adding 0.1 a hundred thousand times in sequence has a relative error above 1e-3."""
    rows, tenth = 1 << 17, np.float64(np.float32(0.1))
    ids = long_segment_ids(layout, rows, count)
    known = (ids >= 0) & (ids < count)
    sizes = np.bincount(ids[known], minlength=count)
    settings = {"num_segments": count, "indices_are_sorted": layout == "sorted"}
    x = jnp.full(rows, 0.1)
    scores = x.at[3::128].set(2.5)

    @jax.jit
    def run(x, scores, ids):
        shares, back = jax.vjp(lambda x: jaxpool.segment_softmax(x, ids, **settings), scores)
        logs, tangent = jax.jvp(lambda x: jaxpool.segment_logsumexp(x, ids, **settings), (x,), (x,))
        sums, mean = (f(x, ids, **settings) for f in (jaxpool.segment_sum, jaxpool.segment_mean))
        return sums, mean, logs, tangent, shares, back(x)[0]

    sums, mean, logs, tangent, shares, dx = run(x, scores, ids)
    # Sorted or even ids are added in blocks of 128 rows; otherwise thousands of rows are added in sequence.
    tolerance = 5e-6 if layout in ("sorted", "even") else 2e-4
    assert_near = functools.partial(np.testing.assert_allclose, rtol=tolerance)
    assert_near(sums, tenth * sizes)
    some = sizes > 0
    assert_near(mean[some], tenth)
    assert_near(tangent[some], tenth)
    assert_near(logs[some], np.log(sizes[some]) + tenth)
    powers = np.exp(np.asarray(scores, np.float64)[known])
    want = powers / np.bincount(ids[known], powers, count)[ids[known]]
    assert_near(shares[known], want)
    # The cotangent is constant, so the gradient is 0.
    np.testing.assert_allclose(dx[known] / want, 0, atol=tolerance * tenth)
    assert not np.asarray(shares)[~known].any()


@pytest.mark.parametrize("platform", ["cpu", "gpu", "portable"])
@pytest.mark.parametrize("layout", ["sorted", "even", "hub", "periodic"])
@pytest.mark.parametrize(("rows", "count"), [(40, 6), (65613, 40), (65613, 3000)])
def test_sums_are_exact_for_integers(rows, count, layout, platform):
    """Sums of small integers are exact in any order. NaN in rows without a segment reaches no sum."""
    ids = long_segment_ids(layout, rows, count)
    x = np.random.default_rng(1).integers(-9, 10, (rows, 2)).astype(np.float32)
    known = (ids >= 0) & (ids < count)
    want = np.zeros((count, 2))
    np.add.at(want, ids[known], x[known])
    x[~known] = np.nan

    @jax.jit
    def sums(x, ids):
        return segment_totals(platform, x, ids, Segments(count, layout == "sorted"))

    np.testing.assert_array_equal(sums(x, ids), want)
    mapped = jax.vmap(sums)(np.stack([x, -x]), np.stack([ids, ids]))
    np.testing.assert_array_equal(mapped, [want, -want])


def test_partial_sums_memory():
    """At most 1/16 of the rows for few segments, and 1/100 for many segments."""
    for rows, count, is_sorted in (
        (1 << 20, 7, False),
        (1 << 20, 1 << 18, False),
        (1 << 20, 1 << 18, True),
        (4096, 7, False),
    ):
        number = sum(level.num_sums for level in plan_partial_sums(rows, count, is_sorted))
        assert 0 < number <= rows / (16 if count == 7 else 100)
    assert plan_partial_sums(768, 50, False) == ()
    assert plan_partial_sums(8192, 999, False) == ()
