"""Stochastic pooling: statistics of many draws, draws and means at special values, residuals and sharding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import symbolic_shape
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool.testing import Call, assert_pool_matches, pools
from jaxpool.testing._windows import sliding_windows
from tests.support.chance import KEY, THREEFRY, column
from tests.support.later import first_values

pytestmark = pytest.mark.usefixtures("strict")

INF, NAN = np.inf, np.nan


GEOMETRY = {"window_shape": (2, 3), "strides": (1, 2), "padding": ((1, 0), (1, 1))}


def test_draw_frequencies_are_proportional_to_values():
    """Distinct values identify the elements that are drawn in 20,000 channels."""
    x = np.array([[4, 0, 1, 2], [-3, 1.5, -1, 0.5], [2.5, 3, 5, -4]], np.float32)
    lanes = 20_000
    wide = np.broadcast_to(x[..., None], (*x.shape, lanes))
    drawn = np.asarray(jaxpool.stochastic_pool(KEY, wide, **GEOMETRY))
    windows = sliding_windows((*x.shape, 1), **GEOMETRY)
    for output in np.ndindex(*windows.output_shape):
        along = [
            elements[at] for elements, at in zip(windows.element_positions, output, strict=True)
        ]
        values = x[np.ix_(*along)].ravel()
        counts = (drawn[output] == values[:, None]).sum(1)
        share = np.maximum(values, 0) / np.maximum(values, 0).sum()
        assert counts.sum() == lanes
        sigma = np.sqrt(share * (1 - share) / lanes)
        assert (np.abs(counts / lanes - share) <= 5 * sigma).all()


LOOP_GEOMETRY = {"window_shape": (9, 8), "strides": (2, 1), "padding": "SAME"}  # more than 64 taps
SCALES = first_values(1, [1, 2.0**126])  # with totals beyond the range


@pytest.mark.parametrize("geometry", [GEOMETRY, LOOP_GEOMETRY], ids=["one by one", "in a loop"])
@pytest.mark.parametrize("scale", SCALES)
def test_draws_match_the_oracle(geometry, scale):
    x = np.random.default_rng(9).integers(-2, 3, (12, 11, 3)) * np.float32(scale)
    pool = pools()["stochastic_pool"]
    call = Call(pool, {"key": KEY, "x": x.astype(np.float32), **geometry})
    assert_pool_matches(pool.function, call)


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
    x, dy = column(1, 2, 3, 0, -1, -2, 0, 4, 5) * np.float32(scale), np.ones((4, 1), np.float32)
    pool = pools()["stochastic_pool"]
    arguments = {"key": None, "x": x, "window_shape": (3,), "strides": (2,)}
    assert_pool_matches(pool.function, Call(pool, arguments, dy))


def test_padding_is_not_drawn_and_has_no_weight():
    infinities = column(-INF, -INF, -INF)
    negative = column(-3, -1, -2)
    for key in (KEY, None):
        pool = functools.partial(jaxpool.stochastic_pool, key, window_shape=(3,), padding=1)
        np.testing.assert_array_equal(pool(infinities), infinities)
        np.testing.assert_array_equal(pool(negative), column(-3, -3, -1))
        dx = jax.grad(lambda x, pool=pool: pool(x).sum())(negative)
        np.testing.assert_array_equal(dx, column(2, 1, 0))


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


def test_mean_of_empty_array():
    assert jaxpool.stochastic_pool(None, np.zeros((0, 4, 2)), (2,), (2,)).shape == (0, 2, 2)


def test_sharded_draws_with_symbolic_batch_size():
    """The random numbers have the sharding of x, which only the type of x states here."""
    x = jax.ShapeDtypeStruct(symbolic_shape("2*b, 4, 2"), np.float32)
    pool = jaxpool.sharded(
        jaxpool.stochastic_pool, mesh=AbstractMesh((2,), ("rows",)), spec=P("rows")
    )

    def total(x):
        return pool(jax.random.key(0), x, window_shape=(2,)).sum()

    assert str(jax.eval_shape(jax.grad(total), x).shape) == "(2*b, 4, 2)"
