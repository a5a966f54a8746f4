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


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize(
    ("x", "ties", "chosen"),
    [
        ((nan, 5, nan), "first", 0),
        ((nan, 5, nan), "last", 2),
        ((1, nan, 5), "first", 1),
        ((inf, nan, inf), "last", 1),
        ((-inf, -inf, -inf), "first", 0),
        ((-inf, -inf, -inf), "last", 2),
        ((inf, inf, 0), "last", 1),
        ((-0.0, 0.0, -1), "first", 0),
        ((0.0, -0.0, -1), "last", 1),
    ],
)
def test_selected_element(x, ties, chosen, autodiff):
    options = {"ties": ties, "autodiff": autodiff}
    assert gradient(row(*x), (3,), **options) == np.eye(3)[chosen].tolist()
    pool = functools.partial(jaxpool.min_pool, window_shape=(3,), **options)
    of_min = jax.grad(lambda x: pool(x).sum())(-row(*x))
    assert of_min.ravel().tolist() == np.eye(3)[chosen].tolist()


def test_split_ties_of_nan_zeros_and_infinities():
    assert gradient(row(nan, 5, nan), (3,), ties="split") == [0.5, 0, 0.5]
    assert gradient(row(0.0, -0.0, -1), (3,), ties="split") == [0.5, 0.5, 0]
    assert gradient(row(-inf, -inf, -inf, -inf), (4,), ties="split") == [0.25] * 4


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize("padding", [1, ((2, 0),), "SAME"])
def test_padding_gets_no_cotangent(padding, ties, autodiff):
    for value in (-inf, 0.0, nan):
        x = row(*[value] * 3)
        options = {"padding": padding, "ties": ties, "autodiff": autodiff}
        windows = jaxpool.max_pool(x, (3,), **options).size
        assert sum(gradient(x, (3,), **options)) == pytest.approx(windows)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.bool_])
def test_integer_padding_is_never_selected(dtype):
    least = False if dtype == np.bool_ else np.iinfo(dtype).min
    greatest = True if dtype == np.bool_ else np.iinfo(dtype).max
    x = np.full((2, 1), least, dtype)
    assert jaxpool.max_pool(x, (2,), padding=1).tolist() == x[:1].tolist() * 3
    x = np.full((2, 1), greatest, dtype)
    assert jaxpool.min_pool(x, (2,), padding=1).tolist() == x[:1].tolist() * 3


def test_uncovered_elements_get_zero_gradient():
    assert gradient(row(1, 2, 9, 4, 3, 9, 9), (2,), (3,)) == [0, 1, 0, 1, 0, 0, 0]


@pytest.mark.parametrize("ties", ["first", "last", "split"])
def test_shares_sum_to_the_cotangent(ties):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(0, 2, (3, 8, 8, 2)).astype(np.float32))
    dy = rng.integers(1, 9, (3, 4, 4, 2)).astype(np.float32)
    pool = functools.partial(jaxpool.max_pool, window_shape=(2, 2), strides=(2, 2), ties=ties)
    y, pullback = jax.vjp(pool, x)
    dx = np.asarray(pullback(dy)[0]).reshape(3, 4, 2, 4, 2, 2)
    np.testing.assert_allclose(dx.sum((2, 4)), dy, rtol=1e-6)
    assert not dx[np.asarray(x).reshape(dx.shape) < np.asarray(y)[:, :, None, :, None]].any()


def test_min_pool_is_negated_max_pool_of_negated_input():
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.integers(-3, 4, (2, 9, 7, 2)).astype(np.float32))
    options = {"window_shape": (3, 2), "strides": (2, 1), "padding": "SAME", "ties": "last"}
    largest, smallest = (
        functools.partial(f, **options) for f in (jaxpool.max_pool, jaxpool.min_pool)
    )
    np.testing.assert_array_equal(smallest(x), -largest(-x))
    dy = largest(x)
    (dx,) = jax.vjp(smallest, x)[1](dy)
    np.testing.assert_array_equal(dx, jax.vjp(largest, -x)[1](dy)[0])


def test_window_of_one_is_the_identity():
    x = row(3, nan, -inf, 0)
    np.testing.assert_array_equal(jaxpool.max_pool(x, (1,)), x)
    assert gradient(x, (1,), weights=[1, 2, 3, 4]) == [1, 2, 3, 4]
    assert gradient(x, (1,), (2,), weights=[1, 2]) == [1, 0, 2, 0]


def test_numpy_arrays_and_list_arguments_are_accepted():
    x = np.arange(8, dtype=np.float32)[:, None]
    y = jaxpool.max_pool(x, [2], [2])
    assert isinstance(y, jax.Array)
    np.testing.assert_array_equal(y, jaxpool.max_pool(jnp.asarray(x), (2,), (2,)))


def test_equal_calls_are_traced_once():
    traces = []

    @jax.jit
    def f(x):
        traces.append(1)
        return jaxpool.max_pool(x, (2,))

    for _ in range(3):
        f(row(1, 2, 3))
    assert len(traces) == 1


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
@pytest.mark.parametrize("ties", ["first", "last", "split"])
def test_full_window_preserves_explicit_sharding(ties, autodiff):
    mesh = jax.make_mesh((1,), ("b",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        spec = jax.sharding.PartitionSpec("b", None, None, None)
        x = np.random.default_rng(0).integers(0, 9, (2, 6, 6, 4)).astype(np.float32)
        sharded_x = jax.device_put(x, jax.NamedSharding(mesh, spec))
        grad = jax.grad(lambda x: jaxpool.max_pool(x, (6, 6), ties=ties, autodiff=autodiff).sum())(
            sharded_x
        )
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
