"""Stochastic and fractional pools: frequencies of draws, keys, special values, rounding and sharding."""

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


@pytest.mark.parametrize("key", [KEY, None], ids=["draw", "mean"])
@pytest.mark.parametrize("geometry", [GEOMETRY, LOOP_GEOMETRY], ids=["one by one", "in a loop"])
@pytest.mark.parametrize("scale", first_values(1, [1, 2.0**126, 1e25, 1e-25]))
def test_calls_match_the_oracle(geometry, scale, key):
    """Some windows have no positive element. Totals and squares are in and out of the range of float32."""
    x = np.random.default_rng(9).integers(-2, 3, (12, 11, 3)) * np.float32(scale)
    x[:4, :4] = -abs(x[:4, :4])
    pool = pools()["stochastic_pool"]
    call = Call(pool, {"key": key, "x": x.astype(np.float32), **geometry})
    dy = np.ones_like(call.answer().y)
    assert_pool_matches(pool.function, Call(pool, call.given, dy))


@pytest.mark.parametrize(
    "pool",
    [
        functools.partial(jaxpool.stochastic_pool, window_shape=(2, 2), strides=(2, 2)),
        functools.partial(jaxpool.fractional_max_pool, window_shape=2, output_shape=(5, 5)),
    ],
)
def test_draws_depend_only_on_the_key(pool):
    pool = functools.partial(pool, x=np.random.default_rng(3).random((8, 8, 50), np.float32))
    np.testing.assert_array_equal(pool(KEY), pool(KEY))
    assert (np.asarray(pool(KEY)) != np.asarray(pool(jax.random.key(1)))).mean() > 0.2
    np.testing.assert_array_equal(pool(jax.random.PRNGKey(0)), pool(THREEFRY))
    keys = jax.random.split(THREEFRY, 3)
    mapped = np.asarray(jax.jit(jax.vmap(pool))(keys))
    np.testing.assert_array_equal(mapped[2], pool(keys[2]))
    assert (mapped[0] != mapped[1]).any()


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


def test_sharded_draws_with_symbolic_batch_size():
    """The random numbers have the sharding of x, which only the type of x states here."""
    x = jax.ShapeDtypeStruct(symbolic_shape("2*b, 4, 2"), np.float32)
    pool = jaxpool.sharded(
        jaxpool.stochastic_pool, mesh=AbstractMesh((2,), ("rows",)), spec=P("rows")
    )

    def total(x):
        return pool(jax.random.key(0), x, window_shape=(2,)).sum()

    assert str(jax.eval_shape(jax.grad(total), x).shape) == "(2*b, 4, 2)"


def test_narrow_floats_are_added_in_float32():
    for value, dtype in ((1, jnp.bfloat16), (60000, np.float16)):
        y = jaxpool.stochastic_pool(None, jnp.full((1000, 1), value, dtype), (1000,))
        assert (y.dtype, y.item()) == (dtype, value)
    x = jnp.zeros((40, 1), jnp.float8_e4m3fn).at[20].set(1)
    for key in (KEY, None):
        y, back = jax.vjp(lambda x, key=key: jaxpool.stochastic_pool(key, x, (21,)), x)
        assert back(jnp.ones_like(y))[0][20] == 20
