"""Windowed pools with a `where` mask: properties that the tests over all records do not cover."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._ops.soft_pool import LogSumExpPool, SoftmaxPool
from jaxpool.testing import pools

pytestmark = pytest.mark.usefixtures("strict")

INF, NAN = np.inf, np.nan
NAMES = sorted(name for name, pool in pools().items() if pool.takes("where", "window_shape"))
EMPTY_WINDOW_VALUES = {
    "max_pool": -INF,
    "min_pool": INF,
    "logsumexp_pool": -INF,
}  # other pools give 0
COUNT_OPTIONS = {"count_include_pad": False}
SHAPE = (2, 5, 6, 3)
SEQUENCES = np.arange(6)[:, None] < np.array([4, 0])[:, None, None, None]


def random_array(shape=SHAPE):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def pooled(name, x, mask, window=(2, 3), strides=(1, 2), padding="SAME", **options):
    """The value, and the cotangent of x for a cotangent of ones."""
    pool = pools()[name]
    arguments = {"window_shape": window, "strides": strides, "padding": padding, **options}
    arguments |= COUNT_OPTIONS if pool.takes("count_include_pad") and not options else {}

    @jax.jit
    def both(x, mask):
        y, back = jax.vjp(lambda x: pool.of(**arguments, where=mask)(x), x)
        return y, back(jnp.ones_like(y))[0]

    return both(x, mask)


@pytest.mark.parametrize("name", NAMES)
def test_masked_elements_do_not_affect_results(name):
    """Masked elements do not change a bit of value and gradient, and their cotangent is 0."""
    mask = SEQUENCES
    x = random_array()
    run = jax.jit(lambda x: pooled(name, x, mask))
    want = run(np.where(mask, x, 0))
    for value in (NAN, INF, -INF, 1e30):
        got = run(np.where(mask, x, np.float32(value)))
        for each, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(each, other)
    y, dx = want
    np.testing.assert_array_equal(y[1], np.full(y[1].shape, EMPTY_WINDOW_VALUES.get(name, 0)))
    np.testing.assert_array_equal(np.asarray(dx)[~np.broadcast_to(mask, SHAPE)], 0)
    assert np.abs(dx[0]).max() > 0


@pytest.mark.parametrize("name", [name for name, pool in pools().items() if pool.takes("where")])
def test_masked_elements_next_to_nan_have_no_gradient(name):
    """The NaN is not masked. In `segment_softmax`, masked elements are also 0 in the output."""
    pool = pools()[name]
    x = np.float32([[1, np.nan, 2, 3], [4, 5, 6, 7]])[None, ..., None]
    mask = np.bool_([[0, 1, 1, 1], [1, 0, 1, 1]])[None, ..., None]
    given = pool.given(x, where=mask.reshape(-1, 4, 1) if pool.takes("segment_ids") else mask)
    if pool.takes("initial"):
        given["initial"] = np.float32(-9)
    if pool.takes("segment_ids"):
        given["segment_ids"] = np.zeros(2, np.int32)

    def first_result(x):
        return jax.tree.leaves(pool.run(given | {"x": x}))[0]

    y, vjp_fn = jax.vjp(first_result, given["x"])
    is_masked = ~np.broadcast_to(given["where"], given["x"].shape)
    assert (vjp_fn(jnp.ones_like(y))[0][is_masked] == 0).all()
    if name == "segment_softmax":
        assert (y[is_masked] == 0).all()


@pytest.mark.parametrize("op", [LogSumExpPool, SoftmaxPool])
def test_fully_masked_windows_use_direct_evaluation(op, monkeypatch):
    """Padded sequences have fully masked windows, and the scaled evaluation takes ten times as long."""
    name = {LogSumExpPool: "logsumexp_pool", SoftmaxPool: "softmax_pool"}[op]
    scaled_methods = ("scaled_y", "scaled_linear", "scaled_transpose")
    for method in scaled_methods:  # NaN marks results of the scaled evaluation
        original = getattr(op, method)
        monkeypatch.setattr(
            op, method, lambda self, *xs, original=original: _nans_like(original(self, *xs))
        )
    x = random_array((2, 7, 4))  # a shape that no other test has traced
    mask = np.arange(7)[:, None] < np.array([4, 0])[:, None, None]
    pool = functools.partial(getattr(jaxpool, name), window_shape=(2,), where=mask)
    y, back = jax.vjp(pool, x)
    _, tangent = jax.jvp(pool, (x,), (x,))
    for result in (y, back(jnp.ones_like(y))[0], tangent):
        assert not np.isnan(result).any()


def _nans_like(tree):
    return jax.tree.map(lambda each: each * NAN, tree)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logsumexp_pool", "softmax_pool"])
def test_soft_pool_second_derivatives_with_masked_nan(name, x64):
    mask = jnp.array([True, False, True, True, False, False])[:, None]

    def loss(x, temperature):
        x = jnp.where(mask, x, NAN)
        y = getattr(jaxpool, name)(x, (2,), where=mask, temperature=temperature)
        return (jnp.where(jnp.isinf(y), 0, y) ** 2).sum()

    x = jnp.array([0.3, 0, -1.2, 0.7, 0, 0])[:, None]
    for scale in (1.0, 1e3):
        for at in (0, 1):
            args = (scale * x, jnp.array([0.5]))
            hessian = jax.jit(jax.hessian(loss, at))(*args)
            reverse = jax.jit(jax.jacrev(jax.jacrev(loss, at), at))(*args)
            assert np.isfinite(hessian).all()
            np.testing.assert_allclose(hessian, reverse, rtol=1e-6, atol=1e-9)


def test_mask_in_a_dtype_without_infinity():
    x = jnp.array([-384.0, 448.0, 1.0, 2.0]).astype(jnp.float8_e4m3fn)[:, None]
    mask = jnp.array([True, False, False, False])[:, None]
    pool = functools.partial(jaxpool.logsumexp_pool, window_shape=(2,), strides=(2,), where=mask)
    y = pool(x, temperature=100.0)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.astype(np.float32)[:, 0], [-384, -448])


def test_vmap_over_masks():
    x = random_array()
    mask = random_array() < 0
    for name in ("max_pool", "median_pool", "avg_pool"):
        pool = functools.partial(getattr(jaxpool, name), window_shape=(2, 2))
        each = jax.jit(jax.vmap(lambda x, m, pool=pool: pool(x, where=m)))(x, mask)
        np.testing.assert_array_equal(each, jax.jit(pool)(x, where=mask))


@pytest.mark.parametrize("name", NAMES)
def test_sharded_mask_with_unsharded_x(name):
    explicit = jax.sharding.AbstractMesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    spec = jax.sharding.NamedSharding(explicit, jax.sharding.PartitionSpec("a"))
    x = jax.ShapeDtypeStruct(SHAPE, np.float32)
    mask = jax.ShapeDtypeStruct((2, 1, 6, 1), np.bool_, sharding=spec)
    with jax.sharding.use_abstract_mesh(explicit):
        y, dx = jax.eval_shape(functools.partial(pooled, name), x, mask)
    assert (y.shape, dx.shape) == ((2, 5, 3, 3), SHAPE)


def test_residual_of_a_broadcast_mask_has_one_channel():
    """The residual is one index per output and one bool per position."""

    def loss(x, mask):
        return jaxpool.max_pool(x, (2, 2), (2, 2), where=mask)

    x, mask = np.zeros((4, 8, 8, 16), np.float32), np.ones((4, 8, 8, 1), bool)
    residuals = jax.eval_shape(lambda x: jax.vjp(lambda x: loss(x, mask), x)[1], x)
    sizes = sorted(each.size * each.dtype.itemsize for each in jax.tree.leaves(residuals))
    assert sizes == [mask.size, 4 * 4 * 4 * 16]
