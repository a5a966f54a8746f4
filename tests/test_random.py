"""Pools with chance: the windows and the draws by loops, their statistics, and their derivatives."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxpool
from jaxpool._kernels_tiles import lay_out
from jaxpool._random import StochasticPool, fractional_op
from jaxpool._rules import apply_given
from jaxpool._window import make_window
from jaxpool.testing import draw_values, oracle

pytestmark = pytest.mark.usefixtures("strict")

INF, NAN = np.inf, np.nan
KEY = jax.random.key(0, impl="rbg")  # compiles fastest
THREEFRY = jax.random.key(0)
FLOATS = [np.float16, jnp.bfloat16, jnp.float8_e3m4, jnp.float8_e4m3, jnp.float8_e4m3b11fnuz]
FLOATS += [jnp.float8_e4m3fn, jnp.float8_e4m3fnuz, jnp.float8_e5m2, jnp.float8_e5m2fnuz]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


def transforms(pool, x, v):
    """What jax makes of a pool in both modes, to second order."""

    def loss(x):
        return (pool(x) ** 2).sum()

    y, tangent = jax.jvp(pool, (x,), (v,))
    cotangent = jax.vjp(pool, x)[1](y)[0]
    gradient = jax.grad(loss)
    return {
        "value": y,
        "adjoint": ((tangent * y).sum(), (v * cotangent).sum()),
        "vjp": gradient(x),
        "hvp": jax.jvp(gradient, (x,), (v,))[1],
        "vjp of vjp": jax.grad(lambda x: (gradient(x) * v).sum())(x),
        "vjp of jvp": jax.grad(lambda x: jax.jvp(loss, (x,), (v,))[1])(x),
        "remat": jax.grad(jax.checkpoint(loss))(x),
        "map": jax.vmap(pool, in_axes=1, out_axes=1)(jnp.stack([x, v], 1)),
    }


def check_transforms(pool, x, v, rtol=1e-4):
    """They agree with one another, in and out of jit."""
    got = jax.jit(functools.partial(transforms, pool))(x, v)
    np.testing.assert_allclose(got["value"], pool(x), rtol=rtol)
    np.testing.assert_allclose(*got["adjoint"], rtol=rtol)
    np.testing.assert_allclose(got["vjp"], got["remat"], rtol=rtol, atol=1e-6)
    for mode in ("vjp of vjp", "vjp of jvp"):
        np.testing.assert_allclose(got["hvp"], got[mode], rtol=rtol, atol=1e-5)
    return got


# Fractional max pooling


def starts(sample, size, width, out):
    """Where the windows begin, as PyTorch writes it."""
    last = size - width
    if out == 1:
        return [last]
    alpha = last / (out - 1)
    return [int((i + sample) * alpha) - int(sample * alpha) for i in range(out - 1)] + [last]


def fractional_oracle(x, samples, window_shape, output_shape, axes):
    """Loops: value and flat position; `samples[d]` holds the draw of each lane for axis `axes[d]`."""
    shape = list(x.shape)
    for axis, out in zip(axes, output_shape, strict=True):
        shape[axis] = out
    sizes = [x.shape[axis] for axis in axes]
    y, position = np.zeros(shape, x.dtype), np.zeros(shape, np.int32)
    for target in np.ndindex(*shape):
        lane = tuple(0 if axis in axes else at for axis, at in enumerate(target))
        begins = [
            starts(float(sample[lane]), size, width, out)[target[axis]]
            for sample, size, width, out, axis in zip(
                samples, sizes, window_shape, output_shape, axes, strict=True
            )
        ]
        best = None
        for tap in itertools.product(*map(range, window_shape)):
            at = [begin + t for begin, t in zip(begins, tap, strict=True)]
            source = list(target)
            for axis, index in zip(axes, at, strict=True):
                source[axis] = index
            value = x[tuple(source)]
            if best is None or value > best or (np.isnan(value) and not np.isnan(best)):
                best, position[target] = value, np.ravel_multi_index(at, sizes)
        y[target] = best
    return y, position


FRACTIONAL = [
    ((2, 9, 3), (2,), (5,), (1,)),
    ((2, 7, 9, 2), (2, 3), (4, 5), (1, 2)),
    ((2, 7, 9, 2), (3, 2), (5, 4), (2, 1)),
    ((5, 2, 2, 6), (2, 2), (4, 1), (3, 0)),
    ((2, 4, 5, 3, 1), (2, 1, 3), (2, 5, 1), (1, 2, 3)),
]


@pytest.mark.parametrize(("shape", "window_shape", "output_shape", "axes"), FRACTIONAL)
def test_fractional_windows_at_given_samples(shape, window_shape, output_shape, axes, x64):
    op = fractional_op(shape, window_shape, output_shape, axes)
    lanes = [1 if axis in axes else size for axis, size in enumerate(shape)]

    @jax.jit
    def both(x, samples, dy):
        y, pullback, position = jax.vjp(lambda x: apply_given(op, x, *samples), x, has_aux=True)
        return y, position, pullback(dy)[0]

    rng = np.random.default_rng(0)
    for kind in ("normal", "ties", "special", "lowest"):
        x = draw_values(rng, shape, np.float64, kind)
        samples = rng.random((len(axes), *lanes))
        want, where = fractional_oracle(x, samples, window_shape, output_shape, axes)
        dy = np.sign(rng.standard_normal(want.shape))
        y, position, dx = both(x, samples, dy)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(position, where)
        sizes = [shape[axis] for axis in axes]
        received = np.zeros(shape)
        for at in np.ndindex(*want.shape):
            target = list(at)
            for axis, index in zip(axes, np.unravel_index(where[at], sizes), strict=True):
                target[axis] = index
            received[tuple(target)] += dy[at]
        np.testing.assert_array_equal(dx, received)


def test_fractional_windows_differ_by_lane_and_spread_evenly():
    """The numbers of `arange` show where each window ends."""
    lanes, size, width, out = 4000, 20, 2, 8
    x = np.broadcast_to(np.arange(size, dtype=np.int32)[:, None], (size, lanes))
    begins = np.asarray(jaxpool.fractional_max_pool(KEY, x, (width,), (out,))) - (width - 1)
    alpha = (size - width) / (out - 1)
    assert (begins[0] == 0).all()
    assert (begins[-1] == size - width).all()
    steps = np.diff(begins, axis=0)
    assert set(np.unique(steps[:-1])) == {int(alpha), int(alpha) + 1}
    assert len(np.unique(begins, axis=1).T) > 5
    np.testing.assert_allclose(begins[:-1].mean(1), alpha * np.arange(out - 1), atol=0.2)


def test_fractional_axes_draw_apart_and_keys_decide():
    x = np.arange(12 * 12, dtype=np.float32).reshape(12, 12)[None, :, :, None].repeat(50, 0)
    pool = jax.jit(lambda key: jaxpool.fractional_max_pool(key, x, 2, (5, 5)))
    y = np.asarray(pool(KEY))[..., 0].astype(int)
    rows, columns = y[:, :, 0] // 12, y[:, 0, :] % 12
    assert (rows != columns).any()
    np.testing.assert_array_equal(pool(KEY), pool(KEY))
    assert (np.asarray(pool(KEY)) != np.asarray(pool(jax.random.key(1)))).any()
    np.testing.assert_array_equal(pool(jax.random.PRNGKey(0)), pool(THREEFRY))


def test_fractional_with_one_window_and_with_all_windows():
    x = column(5, 1, 2, 3)
    np.testing.assert_array_equal(jaxpool.fractional_max_pool(KEY, x, (2,), (1,)), column(3))
    np.testing.assert_array_equal(jaxpool.fractional_max_pool(KEY, x, (4,), (1,)), column(5))
    every = jaxpool.fractional_max_pool(KEY, x, (2,), (3,))
    np.testing.assert_array_equal(every, column(5, 2, 3))


@pytest.mark.slow
def test_transformations_of_a_fractional_pool():
    rng = np.random.default_rng(1)
    x, v = rng.standard_normal((2, 2, 6, 5, 2)).astype(np.float32)
    op = fractional_op(x.shape, 2, (4, 3), None)
    samples = rng.random((2, 2, 1, 1, 2)).astype(np.float32)
    check_transforms(lambda x: apply_given(op, x, *samples)[0], x, v)


@pytest.mark.slow
def test_fractional_windows_map_over_keys():
    x = np.random.default_rng(9).random((8, 8, 5)).astype(np.float32)
    keys = jax.random.split(THREEFRY, 3)
    pool = functools.partial(jaxpool.fractional_max_pool, x=x, window_shape=2, output_shape=(5, 5))
    mapped = np.asarray(jax.jit(jax.vmap(pool))(keys))
    np.testing.assert_array_equal(mapped[2], pool(keys[2]))
    assert (mapped[0] != mapped[1]).any()


def test_fractional_cotangents_add_in_float32():
    """Twenty ones: added in eight bits they stay at 16."""
    x = jnp.zeros((40, 1), jnp.float8_e4m3fn).at[20].set(1)
    pool = functools.partial(
        jaxpool.fractional_max_pool, KEY, window_shape=(21,), output_shape=(20,)
    )
    dx = jax.vjp(pool, x)[1](jnp.ones((20, 1), x.dtype))[0]
    assert (dx.dtype, dx[20, 0]) == (x.dtype, 20)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=lambda dtype: np.dtype(dtype).name)
def test_fractional_pool_of_every_type(dtype):
    """The type changes nothing but itself: the windows are those of float32."""
    x = draw_values(np.random.default_rng(2), (9, 4), dtype, "ties")
    pool = functools.partial(jaxpool.fractional_max_pool, KEY, window_shape=3, output_shape=(5,))
    y = pool(x)
    assert y.dtype == dtype
    np.testing.assert_array_equal(np.float32(y), pool(x.astype(np.float32)))


# Stochastic pooling


def weights_of(x, geometry):
    """For each window of one lane, the flat positions of its elements and their probabilities."""
    window = make_window(x.shape, **geometry)
    for output, elements in oracle._windows(window):
        values = np.array([x[(*element, 0)] for element in elements], np.float64)
        weight = np.maximum(values, 0)
        if weight.sum() == 0:
            weight = np.eye(len(values))[0]
        yield output, elements, weight / weight.sum()


GEOMETRY = {"window_shape": (2, 3), "strides": (1, 2), "padding": ((1, 0), (1, 1))}


def test_draws_are_in_proportion_to_the_value():
    x = np.array([[4, 0, 1, 2], [-3, 1, 0, 0], [2, 2, 5, -1]], np.float32)[..., None]
    lanes = 20_000
    wide = np.broadcast_to(x, (*x.shape[:2], lanes))
    labels = np.arange(x.size).reshape(x.shape)
    op = StochasticPool(make_window(wide.shape, **GEOMETRY))
    drawn = jaxpool.stochastic_pool(KEY, wide, **GEOMETRY)
    # The same noise, and elements that tell where they stand.
    noise_shape = (3 * 2, 2 * 3, lanes)
    noise = jax.random.gumbel(KEY, noise_shape, np.float32)
    y, index = jax.jit(lambda x: apply_given(op, x, noise))(wide)
    np.testing.assert_array_equal(drawn, y)
    where = op.linear(index, jnp.asarray(np.broadcast_to(labels, wide.shape)))
    for output, elements, share in weights_of(x, GEOMETRY):
        flat = np.array([labels[(*element, 0)] for element in elements])
        counts = np.bincount(np.asarray(where)[output], minlength=x.size)
        assert counts.sum() == counts[flat].sum() == lanes
        sigma = np.sqrt(share * (1 - share) / lanes)
        assert (np.abs(counts[flat] / lanes - share) <= 5 * sigma).all()


def test_long_windows_are_laid_out_from_parts():
    """What `lay_out` makes of numbers that name their places, for odd lengths, strides, dilations."""
    x = np.arange(60, dtype=np.int32)[:, None]
    for taps, strides, dilation in [(9, 1, 1), (17, 3, 1), (12, 1, 2), (25, 2, 2)]:
        window = make_window(x.shape, (taps,), (strides,), 2, window_dilation=(dilation,))
        (dim,) = window.dims
        laid_out = jax.jit(lay_out, static_argnums=(1, 2))(x, window, -1)
        got = np.asarray(laid_out).reshape(dim.out, taps)
        want = np.arange(dim.out)[:, None] * strides + np.arange(taps) * dilation - 2
        np.testing.assert_array_equal(got, np.where((want < 0) | (want >= 60), -1, want))


def test_overlapping_windows_draw_apart():
    """Two windows over the same three elements agree as often as chance has it."""
    x = np.broadcast_to(column(0, 1, 1, 1, 0), (5, 20_000))
    labelled = x * np.arange(1, 6, dtype=np.float32)[:, None]  # 2, 3, 4 in proportion
    y = np.asarray(jaxpool.stochastic_pool(KEY, labelled, (4,)))
    share = np.array([2, 3, 4]) / 9
    assert abs((y[0] == y[1]).mean() - (share**2).sum()) < 0.02


def test_a_key_decides_the_draw():
    x = np.random.default_rng(3).random((8, 8, 50)).astype(np.float32)
    pool = functools.partial(jaxpool.stochastic_pool, x=x, window_shape=(2, 2), strides=(2, 2))
    np.testing.assert_array_equal(pool(KEY), pool(KEY))
    assert (np.asarray(pool(KEY)) != np.asarray(pool(jax.random.key(1)))).mean() > 0.5
    np.testing.assert_array_equal(pool(jax.random.PRNGKey(0)), pool(THREEFRY))


EDGES = [
    # values, drawn, its gradient, mean, its gradient
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


@pytest.mark.parametrize(("values", "drawn", "drawn_slope", "mean", "mean_slope"), EDGES)
def test_edges_of_draw_and_mean(values, drawn, drawn_slope, mean, mean_slope):
    """Signs, infinities, NaN, values whose squares are out of range."""
    x = column(*values)
    for key, want, slope in [(KEY, drawn, drawn_slope), (None, mean, mean_slope)]:
        y, dx = edge(key, x)
        np.testing.assert_allclose(y.item(), want, rtol=1e-6)
        if slope is None:  # either, each as often
            assert sorted(np.ravel(dx)) == [0, 1]
        elif not np.isnan(slope).any():
            np.testing.assert_allclose(dx[:, 0], slope, rtol=1e-6)


@jax.jit
def edge(key, x):
    y, pullback = jax.vjp(lambda x: jaxpool.stochastic_pool(key, x, (2,)), x)
    return y, pullback(jnp.ones_like(y))[0]


def test_padding_is_neither_drawn_nor_weighed():
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


def test_the_mean_is_the_expected_draw(x64):
    rng = np.random.default_rng(4)
    for _ in range(5):
        x = rng.integers(-3, 4, (3, 4, 1)).astype(np.float64)
        dy = rng.standard_normal((3, 2, 1))
        y, dx = mean_and_cotangent(x, dy, tuple(GEOMETRY.items()))
        want = np.zeros_like(x)
        for output, elements, share in weights_of(x, GEOMETRY):
            values = np.array([x[(*element, 0)] for element in elements])
            mean = (share * values).sum()
            np.testing.assert_allclose(y[*output, 0], mean, rtol=1e-12)
            total = np.maximum(values, 0).sum()
            slopes = np.where(values > 0, 2 * values - mean, 0) / total if total else share
            for element, slope in zip(elements, slopes, strict=True):
                want[(*element, 0)] += slope * dy[*output, 0]
        np.testing.assert_allclose(dx, want, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_transformations_of_a_stochastic_pool():
    rng = np.random.default_rng(5)
    x, v = rng.standard_normal((2, 2, 5, 6, 2)).astype(np.float32)
    geometry = {"window_shape": 3, "strides": 2, "padding": "SAME", "axes": (1, 2)}
    op = StochasticPool(make_window(x.shape, **geometry))
    noise = jnp.asarray(rng.gumbel(size=(2, 9, 9, 2)).astype(np.float32))

    def pool(x, noise):
        return apply_given(op, x, noise)[0]

    check_transforms(functools.partial(pool, noise=noise), x, v)
    mapped = jax.vmap(functools.partial(pool, x))(jnp.stack([noise, -noise]))
    np.testing.assert_array_equal(mapped[1], pool(x, -noise))
    check_transforms(functools.partial(jaxpool.stochastic_pool, None, **geometry), x, v)


@pytest.mark.slow
def test_finite_differences_of_the_mean(x64):
    x = np.random.default_rng(6).permutation(12).reshape(3, 4, 1) / 4 - 1.1
    pool = jax.jit(lambda x: jaxpool.stochastic_pool(None, x, (2, 2), padding="SAME"))
    check_grads(pool, (x,), order=2, modes=["rev"], eps=1e-4)


def test_a_drawn_cotangent_goes_to_the_element_drawn():
    """Distinct values name the elements; large windows too, that overlap and are dilated by none."""
    x = np.random.default_rng(7).permutation(60).astype(np.float32).reshape(20, 3)
    pool = functools.partial(jaxpool.stochastic_pool, window_shape=(7,), strides=(2,))
    y, pullback = jax.vjp(lambda x: pool(KEY, x), x)
    dx = np.asarray(pullback(jnp.ones_like(y))[0])
    for channel in range(3):
        want = [(np.asarray(y)[:, channel] == value).sum() for value in x[:, channel]]
        np.testing.assert_array_equal(dx[:, channel], want)


def test_drawn_cotangents_add_in_float32():
    x = jnp.zeros((40, 1), jnp.float8_e4m3fn).at[20].set(1)
    for key in (KEY, None):
        pool = functools.partial(jaxpool.stochastic_pool, key, window_shape=(21,))
        dx = jax.vjp(pool, x)[1](jnp.ones((20, 1), x.dtype))[0]
        assert (dx.dtype, dx[20, 0]) == (x.dtype, 20)


def test_the_mean_of_low_precision_is_taken_in_float32():
    x = jnp.ones((1000, 1), jnp.bfloat16)
    assert jaxpool.stochastic_pool(None, x, (1000,)).item() == 1
    halves = jnp.full((1000, 1), 60000, jnp.float16)
    assert jaxpool.stochastic_pool(None, halves, (1000,)).item() == 60000


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=lambda dtype: np.dtype(dtype).name)
def test_stochastic_pool_of_every_type(dtype):
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
def test_batch_and_channels_may_be_empty(shape):
    x = np.zeros(shape, np.float32)
    want = (shape[0], 2, shape[2])
    assert jaxpool.fractional_max_pool(KEY, x, (2,), (2,)).shape == want
    assert jaxpool.stochastic_pool(KEY, x, (2,), (2,)).shape == want
    assert jaxpool.stochastic_pool(None, x, (2,), (2,)).shape == want


def test_residuals_are_indices():
    x = jnp.ones((4, 6, 3))
    pools = [
        (
            functools.partial(jaxpool.stochastic_pool, KEY, window_shape=2, strides=2, axes=(1,)),
            np.uint8,
        ),
        (
            functools.partial(jaxpool.fractional_max_pool, KEY, window_shape=2, output_shape=(3,)),
            np.int32,
        ),
    ]
    for pool, dtype in pools:
        _, pullback = jax.vjp(pool, x)
        kept = [leaf for leaf in jax.tree.leaves(pullback) if leaf.size > 1]
        assert [(leaf.dtype, leaf.shape) for leaf in kept] == [(dtype, (4, 3, 3))]


# Messages

X = np.zeros((2, 4, 4, 3), np.float32)
CALLED = "(x.shape=(2, 4, 4, 3), window_shape=(2, 2))"
fractional, stochastic = jaxpool.fractional_max_pool, jaxpool.stochastic_pool
MESSAGES = [
    (
        lambda: fractional(None, X, (2, 2), (2, 2)),
        TypeError,
        "jaxpool.fractional_max_pool: `key` must be a PRNG key; got key=None. "
        "Pass jax.random.key(0), say.",
    ),
    (
        lambda: fractional(X, KEY, (2, 2), (2, 2)),
        TypeError,
        "jaxpool.fractional_max_pool: `key` must be a PRNG key; got key='float32[2, 4, 4, 3]'. "
        "Pass jax.random.key(0), say.",
    ),
    (
        lambda: fractional(jax.random.split(THREEFRY), X, (2, 2), (2, 2)),
        TypeError,
        "jaxpool.fractional_max_pool: `key` must be a PRNG key; got key='key<fry>[2]'. "
        "Pass jax.random.key(0), say.",
    ),
    (
        lambda: fractional(KEY, "x", (2, 2), (2, 2)),
        TypeError,
        "jaxpool.fractional_max_pool: `x` must be an array; got x='x'. Pass jnp.asarray(x).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), 2),
        TypeError,
        "jaxpool.fractional_max_pool: `output_shape` must be a tuple of positive ints, one a "
        f"pooled axis; got output_shape=2 {CALLED}. Pass a tuple such as (4, 4).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), ()),
        ValueError,
        "jaxpool.fractional_max_pool: `output_shape` must be a tuple of positive ints, one a "
        f"pooled axis; got output_shape=() {CALLED}. Pass a tuple such as (4, 4).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), (2, 0)),
        ValueError,
        "jaxpool.fractional_max_pool: `output_shape` must be an int or 2 ints of at least 1, one "
        f"a pooled axis; got output_shape=(2, 0) {CALLED}. Pass a tuple such as (2, 2).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), (4, 3)),
        ValueError,
        "jaxpool.fractional_max_pool: `output_shape` must be at most size - window + 1, 3 along "
        f"axis 1; got output_shape=(4, 3) {CALLED}. Ask for fewer windows, or smaller ones.",
    ),
    (
        lambda: fractional(KEY, X, (2, 5), (2, 2)),
        ValueError,
        "jaxpool.fractional_max_pool: `window_shape` must be at most the input, 4 along axis 2; "
        "got window_shape=(2, 5) (x.shape=(2, 4, 4, 3), window_shape=(2, 5)). "
        "Use a smaller window.",
    ),
    (
        lambda: fractional(KEY, X, (2, 2, 2), (2, 2)),
        ValueError,
        "jaxpool.fractional_max_pool: `window_shape` must be an int or 2 ints of at least 1, one "
        "a pooled axis; got window_shape=(2, 2, 2) (x.shape=(2, 4, 4, 3), "
        "window_shape=(2, 2, 2)). Pass a tuple such as (2, 2).",
    ),
    (
        lambda: fractional(KEY, X, (2, 2), (2, 2), axes=(1, 2, 3)),
        ValueError,
        "jaxpool.fractional_max_pool: `axes` must be 2 axes, one for each entry of the shape; got "
        f"axes=(1, 2, 3) {CALLED}. Make the lengths agree.",
    ),
    (
        lambda: stochastic(0, X, (2, 2)),
        TypeError,
        "jaxpool.stochastic_pool: `key` must be a PRNG key or None; got key=0. "
        "Pass jax.random.key(0), say, or None to evaluate.",
    ),
    (
        lambda: stochastic(np.zeros(3, np.uint32), X, (2, 2)),
        TypeError,
        "jaxpool.stochastic_pool: `key` must be a PRNG key or None; got key='uint32[3]'. "
        "Pass jax.random.key(0), say, or None to evaluate.",
    ),
    (
        lambda: stochastic(None, None, (2, 2)),
        TypeError,
        "jaxpool.stochastic_pool: `x` must be an array; got x=None. Pass jnp.asarray(x).",
    ),
    (
        lambda: stochastic(KEY, X, (2, 2), padding="FULL"),
        ValueError,
        "jaxpool.stochastic_pool: `padding` must be 'VALID', 'SAME', 'SAME_LOWER', a non-negative "
        "int, or one int or (low, high) pair a pooled axis; got padding='FULL' "
        f"{CALLED}. Pass 'SAME' or pairs such as ((1, 1), (1, 1)).",
    ),
    (
        lambda: stochastic(KEY, X, (2, 2), padding=2),
        ValueError,
        "jaxpool.stochastic_pool: `padding` must be such that every window holds a real element; "
        "window 0 along axis 1 holds none; got padding=((2, 2), (2, 2)) "
        f"{CALLED}. Use less padding or a larger window.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), MESSAGES)
def test_messages(call, kind, message):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message
