"""Max and min pooling by example: one test per argument and per gradient rule."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
nan, inf = np.nan, np.inf


def row(*values):
    """One pooled axis and one channel."""
    return jnp.array(values, jnp.float32)[:, None]


def gradient(x, *args, weights=None, **kwargs):
    """The cotangent of x for the cotangent `weights` of y, by default ones."""
    y, pullback = jax.vjp(lambda x: jaxpool.max_pool(x, *args, **kwargs), x)
    dy = jnp.ones_like(y) if weights is None else jnp.array(weights, y.dtype).reshape(y.shape)
    return pullback(dy)[0].ravel().tolist()


def values(x, *args, **kwargs):
    return jaxpool.max_pool(x, *args, **kwargs).ravel().tolist()


def test_values_by_argument():
    x = row(1, 5, 2, 4, 3, 0)
    assert values(x, (2,)) == [5, 5, 4, 4, 3]
    assert values(x, (2,), (2,)) == [5, 4, 3]
    assert values(x, (3,), (3,)) == [5, 4]
    assert values(x, (2,), padding=((1, 0),)) == [1, 5, 5, 4, 4, 3]
    assert values(x, (3,), (2,), "SAME") == [5, 4, 3]
    assert values(x, (3,), (2,), "SAME_LOWER") == [5, 5, 4]
    assert values(x, (2,), window_dilation=(3,)) == [4, 5, 2]
    assert values(x, (4,), (4,), ceil_mode=True) == [5, 3]
    assert values(x[:, 0], 2, 2, axes=(0,)) == [5, 4, 3]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize(
    ("ties", "got"),
    [
        ("first", [1, 10, 0, 100]),
        ("last", [0, 1, 10, 100]),
        ("split", [0.5, 5.5, 5, 100]),
    ],
)
def test_ties(ties, got, autodiff):
    x = row(3, 3, 3, 7)
    options = {"ties": ties, "autodiff": autodiff}
    assert gradient(x, (2,), weights=[1, 10, 100], **options) == got


@pytest.mark.parametrize("autodiff", MODES)
def test_ties_are_row_major_in_axes_order(autodiff):
    """The first of two tied corners depends on the order of the axes."""
    x = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    by_rows = functools.partial(jaxpool.max_pool, window_shape=(2, 2), autodiff=autodiff)
    for axes, ties, chosen in [
        ((0, 1), "first", [[0, 1], [0, 0]]),
        ((1, 0), "first", [[0, 0], [1, 0]]),
        ((0, 1), "last", [[0, 0], [1, 0]]),
        ((1, 0), "last", [[0, 1], [0, 0]]),
    ]:
        pool = functools.partial(by_rows, axes=axes, ties=ties)
        np.testing.assert_array_equal(jax.grad(lambda x, pool=pool: pool(x).sum())(x), chosen)


def test_window_shape_follows_axes_order():
    x = jnp.arange(12.0).reshape(3, 4)
    assert jaxpool.max_pool(x, (3, 2), axes=(0, 1)).tolist() == [[9, 10, 11]]
    assert jaxpool.max_pool(x, (2, 3), axes=(1, 0)).tolist() == [[9, 10, 11]]
    assert jaxpool.max_pool(x, (2, 3), axes=(-1, -2)).tolist() == [[9, 10, 11]]


SPECIAL_CASES = [
    ((nan, 5, nan), "first", [1, 0, 0]),
    ((nan, 5, nan), "last", [0, 0, 1]),
    ((nan, 5, nan), "split", [0.5, 0, 0.5]),
    ((1, nan, 5), "first", [0, 1, 0]),
    ((inf, nan, inf), "last", [0, 1, 0]),
    ((-inf, -inf, -inf), "first", [1, 0, 0]),
    ((-inf, -inf, -inf), "last", [0, 0, 1]),
    ((-inf, -inf, -inf, -inf), "split", [0.25, 0.25, 0.25, 0.25]),
    ((inf, inf, 0), "last", [0, 1, 0]),
    ((-0.0, 0.0, -1), "first", [1, 0, 0]),
    ((0.0, -0.0, -1), "last", [0, 1, 0]),
    ((0.0, -0.0, -1), "split", [0.5, 0.5, 0]),
]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize(("x", "ties", "shares"), SPECIAL_CASES)
def test_shares_of_nan_infinities_and_zeros(x, ties, shares, autodiff):
    options = {"window_shape": (len(x),), "ties": ties, "autodiff": autodiff}
    assert gradient(row(*x), **options) == shares
    of_min = jax.grad(lambda x: jaxpool.min_pool(x, **options).sum())(-row(*x))
    assert of_min.ravel().tolist() == shares


def test_numpy_arrays_and_list_arguments_are_accepted():
    x = np.arange(8, dtype=np.float32)[:, None]
    y = jaxpool.max_pool(x, [2], [2])
    assert isinstance(y, jax.Array)
    np.testing.assert_array_equal(y, jaxpool.max_pool(jnp.asarray(x), (2,), (2,)))


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("ties", ["first", "last", "split"])
def test_full_window_preserves_explicit_sharding(ties, autodiff):
    mesh = jax.make_mesh((1,), ("b",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        spec = jax.sharding.PartitionSpec("b", None, None, None)
        x = np.random.default_rng(0).integers(0, 9, (2, 6, 6, 4)).astype(np.float32)
        sharded_x = jax.device_put(x, jax.NamedSharding(mesh, spec))
        options = {"ties": ties, "autodiff": autodiff}
        grad = jax.grad(lambda x: jaxpool.max_pool(x, (6, 6), **options).sum())(sharded_x)
        assert jax.typeof(grad).sharding.spec == spec
    assert (np.asarray(grad).sum((1, 2)) == 1).all()
    assert (np.asarray(grad)[x < x.max((1, 2), keepdims=True)] == 0).all()


def test_gradient_in_partially_manual_shard_map():
    kinds = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh((1, 1), ("b", "c"), kinds, devices=jax.devices()[:1])
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 8, 8, 3)), jnp.float32)

    def gradient(x):
        return jax.grad(lambda x: (jaxpool.max_pool(x, (3, 3), (1, 1), "SAME") ** 2).sum())(x)

    spec = jax.sharding.PartitionSpec("b")
    mapped = jax.shard_map(gradient, mesh=mesh, in_specs=spec, out_specs=spec, axis_names={"b"})
    np.testing.assert_array_equal(jax.jit(mapped)(x), gradient(x))
