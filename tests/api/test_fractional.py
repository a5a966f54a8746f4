"""Fractional pooling: random windows against loops, averages, and derivatives."""

import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._api.random import make_fractional_op
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool.testing import draw_values, oracle
from tests.support.chance import FLOATS, INTEGERS, KEY, THREEFRY, column

pytestmark = pytest.mark.usefixtures("strict")


def window_starts(sample, size, width, out):
    """Start index of each window along an axis, by PyTorch's formula."""
    last = size - width
    if out == 1:
        return [last]
    alpha = last / (out - 1)
    return [int((i + sample) * alpha) - int(sample * alpha) for i in range(out - 1)] + [last]


def fractional_oracle(x, samples, window_shape, output_shape, axes):
    """Loops: values and flat indices. `samples[d]` has one random number per lane for `axes[d]`."""
    shape = list(x.shape)
    for axis, out in zip(axes, output_shape, strict=True):
        shape[axis] = out
    sizes = [x.shape[axis] for axis in axes]
    y, position = np.zeros(shape, x.dtype), np.zeros(shape, np.int32)
    for target in np.ndindex(*shape):
        lane = tuple(0 if axis in axes else at for axis, at in enumerate(target))
        begins = [
            window_starts(float(sample[lane]), size, width, out)[target[axis]]
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


MAX_CASES = [
    ((2, 9, 3), (2,), (5,), (1,)),
    ((2, 7, 9, 2), (2, 3), (4, 5), (1, 2)),
    ((2, 7, 9, 2), (3, 2), (5, 4), (2, 1)),
    ((5, 2, 2, 6), (2, 2), (4, 1), (3, 0)),
    ((2, 4, 5, 3, 1), (2, 1, 3), (2, 5, 1), (1, 2, 3)),
]


@pytest.mark.parametrize(("shape", "window_shape", "output_shape", "axes"), MAX_CASES)
def test_fractional_windows_match_the_oracle(shape, window_shape, output_shape, axes, x64):
    op = make_fractional_op(shape, window_shape, output_shape, axes)
    lanes = [1 if axis in axes else size for axis, size in enumerate(shape)]

    @jax.jit
    def run(x, samples, dy):
        y, pullback, residual = jax.vjp(
            lambda x: apply_with_extra_args(op, x, *samples), x, has_aux=True
        )
        return y, op.position(residual), pullback(dy)[0]

    rng = np.random.default_rng(0)
    for kind in ("normal", "ties", "special", "lowest"):
        x = draw_values(rng, shape, np.float64, kind)
        samples = rng.random((len(axes), *lanes))
        want, want_position = fractional_oracle(x, samples, window_shape, output_shape, axes)
        dy = np.sign(rng.standard_normal(want.shape))
        y, position, dx = run(x, samples, dy)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(position, want_position)
        sizes = [shape[axis] for axis in axes]
        want_dx = np.zeros(shape)
        for at in np.ndindex(*want.shape):
            target = list(at)
            for axis, index in zip(axes, np.unravel_index(want_position[at], sizes), strict=True):
                target[axis] = index
            want_dx[tuple(target)] += dy[at]
        np.testing.assert_array_equal(dx, want_dx)


def test_fractional_windows_vary_by_lane_and_are_uniform():
    """With `arange` as input, the maximum is the last index of its window."""
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


def test_fractional_draws_differ_by_axis_and_key():
    x = np.arange(12 * 12, dtype=np.float32).reshape(12, 12)[None, :, :, None].repeat(50, 0)
    pool = jax.jit(lambda key: jaxpool.fractional_max_pool(key, x, 2, (5, 5)))
    y = np.asarray(pool(KEY))[..., 0].astype(int)
    rows, columns = y[:, :, 0] // 12, y[:, 0, :] % 12
    assert (rows != columns).any()
    np.testing.assert_array_equal(pool(KEY), pool(KEY))
    assert (np.asarray(pool(KEY)) != np.asarray(pool(jax.random.key(1)))).any()
    np.testing.assert_array_equal(pool(jax.random.PRNGKey(0)), pool(THREEFRY))


def test_fractional_with_one_and_with_all_windows():
    x = column(5, 1, 2, 3)
    np.testing.assert_array_equal(jaxpool.fractional_max_pool(KEY, x, (2,), (1,)), column(3))
    np.testing.assert_array_equal(jaxpool.fractional_max_pool(KEY, x, (4,), (1,)), column(5))
    every = jaxpool.fractional_max_pool(KEY, x, (2,), (3,))
    np.testing.assert_array_equal(every, column(5, 2, 3))


@pytest.mark.slow
def test_fractional_vmap_over_keys():
    x = np.random.default_rng(9).random((8, 8, 5)).astype(np.float32)
    keys = jax.random.split(THREEFRY, 3)
    pool = functools.partial(jaxpool.fractional_max_pool, x=x, window_shape=2, output_shape=(5, 5))
    mapped = np.asarray(jax.jit(jax.vmap(pool))(keys))
    np.testing.assert_array_equal(mapped[2], pool(keys[2]))
    assert (mapped[0] != mapped[1]).any()


def test_fractional_cotangents_accumulate_in_float32():
    """A sum of twenty ones in 8 bits would stop at 16."""
    x = jnp.zeros((40, 1), jnp.float8_e4m3fn).at[20].set(1)
    pool = functools.partial(
        jaxpool.fractional_max_pool, KEY, window_shape=(21,), output_shape=(20,)
    )
    dx = jax.vjp(pool, x)[1](jnp.ones((20, 1), x.dtype))[0]
    assert (dx.dtype, dx[20, 0]) == (x.dtype, 20)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=lambda dtype: np.dtype(dtype).name)
def test_fractional_max_pool_dtypes(dtype):
    """Every dtype has the windows of float32."""
    x = draw_values(np.random.default_rng(2), (9, 4), dtype, "ties")
    pool = functools.partial(jaxpool.fractional_max_pool, KEY, window_shape=3, output_shape=(5,))
    y = pool(x)
    assert y.dtype == dtype
    np.testing.assert_array_equal(np.float32(y), pool(x.astype(np.float32)))


# Averages


AVERAGE_CASES = [((2, 9, 3), (2,), (5,), (1,)), ((2, 7, 9, 2), (3, 2), (5, 4), (2, 1))]


@pytest.mark.parametrize(("shape", "window", "output", "axes"), AVERAGE_CASES)
def test_fractional_avg_pool(shape, window, output, axes):
    pullback, x, dy = check_fractional_avg(shape, window, output, axes, seeds=[3])
    text = jax.jit(lambda x, dy: pullback(jax.random.key(3), x, dy)[1]).lower(x, dy).as_text()
    assert "scatter" not in text


def check_fractional_avg(shape, window, output, axes, seeds):
    @jax.jit
    def pullback(key, x, dy):
        def pool(x):
            return jaxpool.fractional_avg_pool(key, x, window, output, axes=axes)

        y, pullback_fn = jax.vjp(pool, x)
        return y, pullback_fn(dy)[0]

    for seed in seeds:
        key = jax.random.key(seed)
        x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        want = oracle.fractional_avg_pool(key, x, window, output, axes=axes)
        dy = np.cos(np.arange(want.y.size, dtype=np.float32)).reshape(want.y.shape)
        y, dx = pullback(key, x, dy)
        np.testing.assert_allclose(y, want.y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(dx, want.cotangent(dy), rtol=1e-5, atol=1e-6)
    return pullback, x, dy


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_fractional_avg_pool_in_many_cases(seed):
    """Ten keys for each geometry of one or two pooled axes."""
    rng = np.random.default_rng(seed)
    axes = [(1,), (2,), (1, 2), (2, 1)][seed % 4]
    shape = (2, *map(int, rng.integers(1, 12 if len(axes) == 1 else 8, 2)), 2)
    window = tuple(int(rng.integers(1, shape[axis] + 1)) for axis in axes)
    max_outputs = [shape[axis] - width + 1 for axis, width in zip(axes, window, strict=True)]
    output = tuple(int(rng.integers(1, n + 1)) for n in max_outputs)
    check_fractional_avg(shape, window, output, axes, seeds=range(10 * seed, 10 * seed + 10))


def test_fractional_avg_pool_matches_tensorflow():
    """With a ratio of 2 the windows do not depend on the key."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow's imports warn
        tf = pytest.importorskip("tensorflow")
    x = np.random.default_rng(0).normal(size=(2, 8, 6, 3)).astype(np.float32)
    want, rows, columns = tf.nn.fractional_avg_pool(x, [1.0, 2.0, 2.0, 1.0], pseudo_random=True)
    f = functools.partial(jaxpool.fractional_avg_pool, jax.random.key(0))
    y, back = jax.vjp(lambda x: f(x, (2, 2), (4, 3)), jnp.asarray(x))
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    dy = np.random.default_rng(1).normal(size=want.shape).astype(np.float32)
    grad = tf.raw_ops.FractionalAvgPoolGrad(
        orig_input_tensor_shape=x.shape,
        out_backprop=dy,
        row_pooling_sequence=rows,
        col_pooling_sequence=columns,
    )
    np.testing.assert_allclose(back(jnp.asarray(dy))[0], grad, rtol=1e-5, atol=1e-6)
