"""Stochastic pooling: draws against loops, statistics of many draws, and derivatives."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import symbolic_shape
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from jax.test_util import check_grads

import jaxpool
from jaxpool._geometry.window import make_window
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.random_pool import StochasticPool
from jaxpool.testing import oracle
from jaxpool.testing._windows import sliding_windows
from tests.support.chance import FLOATS, INTEGERS, KEY, THREEFRY, column
from tests.support.later import first_values

pytestmark = pytest.mark.usefixtures("strict")

INF, NAN = np.inf, np.nan


def window_elements(shape, geometry):
    """Yield each output position and those in its window."""
    windows = sliding_windows(shape, **geometry)
    for output in np.ndindex(*windows.output_shape):
        along = (elements[o] for elements, o in zip(windows.element_positions, output, strict=True))
        yield output, [*itertools.product(*along)]


def window_probabilities(x, geometry):
    """Yield each output position of channel 0, the positions in its window, and their probabilities."""
    for output, elements in window_elements(x.shape, geometry):
        values = np.array([x[(*element, 0)] for element in elements], np.float64)
        weight = np.maximum(values, 0)
        if weight.sum() == 0:
            weight = np.eye(len(values))[0]
        yield output, elements, weight / weight.sum()


GEOMETRY = {"window_shape": (2, 3), "strides": (1, 2), "padding": ((1, 0), (1, 1))}


def test_draw_frequencies_are_proportional_to_values():
    x = np.array([[4, 0, 1, 2], [-3, 1, 0, 0], [2, 2, 5, -1]], np.float32)[..., None]
    lanes = 20_000
    wide = np.broadcast_to(x, (*x.shape[:2], lanes))
    labels = np.arange(x.size).reshape(x.shape)
    op = StochasticPool(make_window(wide.shape, **GEOMETRY))
    drawn = jaxpool.stochastic_pool(KEY, wide, **GEOMETRY)
    # With the same random numbers, labels as values give the positions of the selected elements.
    chance = jax.random.uniform(KEY, drawn.shape, np.float32)
    y, index = jax.jit(lambda x: apply_with_extra_args(op, x, chance))(wide)
    np.testing.assert_array_equal(drawn, y)
    drawn_labels = op.linear("cpu", index, jnp.asarray(np.broadcast_to(labels, wide.shape)))
    for output, elements, share in window_probabilities(x, GEOMETRY):
        flat = np.array([labels[(*element, 0)] for element in elements])
        counts = np.bincount(np.asarray(drawn_labels)[output], minlength=x.size)
        assert counts.sum() == counts[flat].sum() == lanes
        sigma = np.sqrt(share * (1 - share) / lanes)
        assert (np.abs(counts[flat] / lanes - share) <= 5 * sigma).all()


LOOP_GEOMETRY = {"window_shape": (9, 8), "strides": (2, 1), "padding": "SAME"}  # more than 64 taps


@pytest.mark.parametrize("geometry", [GEOMETRY, LOOP_GEOMETRY], ids=["one by one", "in a loop"])
@pytest.mark.parametrize(
    "scale", first_values(1, [1, 2.0**126]), ids=["usual", "totals beyond the range"]
)
def test_draw_is_the_inverse_of_the_cumulative_sum(geometry, scale):
    rng = np.random.default_rng(9)
    x = rng.integers(-2, 3, (12, 11, 3))
    op = StochasticPool(make_window(x.shape, **geometry))
    # Multiples of 1/64 have exact products.
    chance = rng.integers(0, 64, op.window.pooled_shape(x.shape)) / np.float32(64)
    y, _ = jax.jit(lambda x: apply_with_extra_args(op, x, chance))(
        np.float32(x) * np.float32(scale)
    )
    want = np.empty(y.shape)
    for channel in range(3):
        for output, elements in window_elements(x.shape, geometry):
            values = [x[(*element, channel)] for element in elements]
            sums = np.cumsum(np.maximum(values, 0))
            selected_tap = np.searchsorted(
                sums, chance[(*output, channel)] * sums[-1], side="right"
            )
            want[(*output, channel)] = values[selected_tap if sums[-1] else 0]
    np.testing.assert_array_equal(np.asarray(y) / np.float32(scale), want)


def test_overlapping_windows_draw_independently():
    """Two windows over the same three nonzero elements agree as often as independent draws."""
    x = np.broadcast_to(column(0, 1, 1, 1, 0), (5, 20_000))
    labelled = x * np.arange(1, 6, dtype=np.float32)[:, None]  # weights 2, 3 and 4
    y = np.asarray(jaxpool.stochastic_pool(KEY, labelled, (4,)))
    share = np.array([2, 3, 4]) / 9
    assert abs((y[0] == y[1]).mean() - (share**2).sum()) < 0.02


def test_draws_depend_only_on_the_key():
    x = np.random.default_rng(3).random((8, 8, 50)).astype(np.float32)
    pool = functools.partial(jaxpool.stochastic_pool, x=x, window_shape=(2, 2), strides=(2, 2))
    np.testing.assert_array_equal(pool(KEY), pool(KEY))
    assert (np.asarray(pool(KEY)) != np.asarray(pool(jax.random.key(1)))).mean() > 0.5
    np.testing.assert_array_equal(pool(jax.random.PRNGKey(0)), pool(THREEFRY))


EDGE_CASES = [
    # values, draw, gradient of the draw, mean, gradient of the mean
    ((0, -1), 0, (1, 0), 0, (1, 0)),
    ((-2, -1), -2, (1, 0), -2, (1, 0)),
    ((-INF, -INF), -INF, (1, 0), -INF, (1, 0)),
    ((-INF, 2), 2, (0, 1), 2, (0, 1)),
    ((1, INF), INF, (0, 1), INF, (0, 1)),
    ((INF, INF), INF, (1, 0), INF, (0.5, 0.5)),
    ((NAN, INF), NAN, (1, 0), NAN, (NAN, NAN)),
    ((1, NAN), NAN, (0, 1), NAN, (NAN, NAN)),
    ((0, 3e38), 3e38, (0, 1), 3e38, (0, 1)),
    ((3e38, 3e38), 3e38, None, 3e38, (0.5, 0.5)),
    ((1e20, 1e20), 1e20, None, 1e20, (0.5, 0.5)),
    ((2e-38, 0), 2e-38, (1, 0), 2e-38, (1, 0)),
]


@pytest.mark.parametrize(("values", "drawn", "drawn_slope", "mean", "mean_slope"), EDGE_CASES)
def test_edge_cases_of_draw_and_mean(values, drawn, drawn_slope, mean, mean_slope):
    """Signs, infinities, NaN, and values whose squares overflow or underflow."""
    x = column(*values)
    for key, want, slope in [(KEY, drawn, drawn_slope), (None, mean, mean_slope)]:
        y, dx = value_and_gradient(key, x)
        np.testing.assert_allclose(y.item(), want, rtol=1e-6)
        if slope is None:  # either element may be drawn
            assert sorted(np.ravel(dx)) == [0, 1]
        elif not np.isnan(slope).any():
            np.testing.assert_allclose(dx[:, 0], slope, rtol=1e-6)


@jax.jit
def value_and_gradient(key, x):
    y, pullback = jax.vjp(lambda x: jaxpool.stochastic_pool(key, x, (2,)), x)
    return y, pullback(jnp.ones_like(y))[0]


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e25])
def test_mean_in_and_out_of_range(scale):
    """One window has no positive element, as after a ReLU."""
    x = column(1, 2, 3, 0, -1, -2, 0, 4, 5) * np.float32(scale)
    geometry = (("window_shape", (3,)), ("strides", (2,)))
    y, dx = mean_and_cotangent(x, np.ones((4, 1), np.float32), geometry)
    np.testing.assert_allclose(y[:, 0] / scale, [14 / 6, 3, -1, 41 / 9], rtol=1e-6)
    mean = 14 / 6
    slopes = [(2 - mean) / 6, (4 - mean) / 6, (6 - mean) / 6 + 1, 0, 1, 0, 0]
    last = [(8 - 41 / 9) / 9, (10 - 41 / 9) / 9]
    np.testing.assert_allclose(dx[:, 0], slopes + last, rtol=1e-5, atol=1e-6)


def test_padding_is_not_drawn_and_has_no_weight():
    infinities = column(-INF, -INF, -INF)
    negative = column(-3, -1, -2)
    for key in (KEY, None):
        pool = functools.partial(jaxpool.stochastic_pool, key, window_shape=(3,), padding=1)
        np.testing.assert_array_equal(pool(infinities), infinities)
        np.testing.assert_array_equal(pool(negative), column(-3, -3, -1))
        dx = jax.grad(lambda x, pool=pool: pool(x).sum())(negative)
        np.testing.assert_array_equal(dx, column(2, 1, 0))


@functools.partial(jax.jit, static_argnames="geometry")
def mean_and_cotangent(x, dy, geometry):
    pool = functools.partial(jaxpool.stochastic_pool, None, **dict(geometry))
    y, pullback = jax.vjp(pool, x)
    return y, pullback(dy)[0]


def test_mean_is_the_expected_draw(x64):
    rng = np.random.default_rng(4)
    for _ in range(5):
        x = rng.integers(-3, 4, (3, 4, 1)).astype(np.float64)
        dy = rng.standard_normal((3, 2, 1))
        y, dx = mean_and_cotangent(x, dy, tuple(GEOMETRY.items()))
        want = np.zeros_like(x)
        for output, elements, share in window_probabilities(x, GEOMETRY):
            values = np.array([x[(*element, 0)] for element in elements])
            mean = (share * values).sum()
            np.testing.assert_allclose(y[*output, 0], mean, rtol=1e-12)
            total = np.maximum(values, 0).sum()
            slopes = np.where(values > 0, 2 * values - mean, 0) / total if total else share
            for element, slope in zip(elements, slopes, strict=True):
                want[(*element, 0)] += slope * dy[*output, 0]
        np.testing.assert_allclose(dx, want, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_mean_gradients_match_finite_differences(x64):
    x = np.random.default_rng(6).permutation(12).reshape(3, 4, 1) / 4 - 1.1
    pool = jax.jit(lambda x: jaxpool.stochastic_pool(None, x, (2, 2), padding="SAME"))
    check_grads(pool, (x,), order=2, modes=["rev"], eps=1e-4)


def test_cotangent_goes_to_the_drawn_element():
    """Distinct values identify the selected elements of large overlapping windows."""
    x = np.random.default_rng(7).permutation(60).astype(np.float32).reshape(20, 3)
    pool = functools.partial(jaxpool.stochastic_pool, window_shape=(7,), strides=(2,))
    y, pullback = jax.vjp(lambda x: pool(KEY, x), x)
    dx = np.asarray(pullback(jnp.ones_like(y))[0])
    for channel in range(3):
        want = [(np.asarray(y)[:, channel] == value).sum() for value in x[:, channel]]
        np.testing.assert_array_equal(dx[:, channel], want)


@pytest.mark.slow
@pytest.mark.ci
def test_cotangents_accumulate_in_float32():
    x = jnp.zeros((40, 1), jnp.float8_e4m3fn).at[20].set(1)
    for key in (KEY, None):
        pool = functools.partial(jaxpool.stochastic_pool, key, window_shape=(21,))
        dx = jax.vjp(pool, x)[1](jnp.ones((20, 1), x.dtype))[0]
        assert (dx.dtype, dx[20, 0]) == (x.dtype, 20)


def test_low_precision_mean_accumulates_in_float32():
    x = jnp.ones((1000, 1), jnp.bfloat16)
    assert jaxpool.stochastic_pool(None, x, (1000,)).item() == 1
    halves = jnp.full((1000, 1), 60000, jnp.float16)
    assert jaxpool.stochastic_pool(None, halves, (1000,)).item() == 60000


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=lambda dtype: np.dtype(dtype).name)
def test_stochastic_pool_dtypes(dtype):
    x = np.random.default_rng(8).integers(0, 4, (9, 4)).astype(dtype)
    wide = x.astype(np.float32)
    for key in (KEY, None):
        pool = functools.partial(jaxpool.stochastic_pool, key, window_shape=(3,))
        y, want = pool(x), pool(wide)
        if key is None and not oracle.is_floating(dtype):
            assert y.dtype == np.float32
        else:
            assert y.dtype == dtype
            want = np.asarray(want).astype(dtype)
        np.testing.assert_array_equal(np.float32(y), np.float32(want))


@pytest.mark.parametrize("shape", [(0, 4, 2), (2, 4, 0)])
def test_empty_batch_and_channels(shape):
    x = np.zeros(shape, np.float32)
    want = (shape[0], 2, shape[2])
    assert jaxpool.fractional_max_pool(KEY, x, (2,), (2,)).shape == want
    assert jaxpool.stochastic_pool(KEY, x, (2,), (2,)).shape == want
    assert jaxpool.stochastic_pool(None, x, (2,), (2,)).shape == want


def test_residuals_are_narrow_indices():
    x = jnp.ones((4, 6, 3))
    drawn = functools.partial(jaxpool.stochastic_pool, KEY, window_shape=2, strides=2, axes=(1,))
    fractional = functools.partial(
        jaxpool.fractional_max_pool, KEY, window_shape=2, output_shape=(3,)
    )
    starts = (np.int32, (4, 3, 3))
    for pool, residuals in [
        (drawn, [(np.uint8, (4, 3, 3))]),
        (fractional, [(np.uint8, (4, 5, 3)), starts]),
    ]:
        _, pullback = jax.vjp(pool, x)
        leaves = [leaf for leaf in jax.tree.leaves(pullback) if leaf.size > 1]
        assert [(leaf.dtype, leaf.shape) for leaf in leaves] == residuals


def test_sharded_draws_with_symbolic_batch_size():
    """The random numbers have the sharding of x, which only the type of x states here."""
    x = jax.ShapeDtypeStruct(symbolic_shape("2*b, 4, 2"), np.float32)
    pool = jaxpool.sharded(
        jaxpool.stochastic_pool, mesh=AbstractMesh((2,), ("rows",)), spec=P("rows")
    )

    def total(x):
        return pool(jax.random.key(0), x, window_shape=(2,)).sum()

    assert str(jax.eval_shape(jax.grad(total), x).shape) == "(2*b, 4, 2)"
