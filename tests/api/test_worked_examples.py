"""Max and min pools by example: ties, and shares of NaN, infinities and zeros, computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
nan, inf = np.nan, np.inf
both_modes = pytest.mark.parametrize("autodiff", MODES)


def row(*values):
    """One pooled axis and one channel."""
    return jnp.array(values, jnp.float32)[:, None]


def gradient(pool, x, *args, weights=None, **kwargs):
    """The cotangent of x for the cotangent `weights` of y, by default ones."""
    y, pullback = jax.vjp(lambda x: pool(x, *args, **kwargs), x)
    dy = jnp.ones_like(y) if weights is None else jnp.array(weights, y.dtype).reshape(y.shape)
    return pullback(dy)[0].ravel().tolist()


@both_modes
@pytest.mark.parametrize(
    ("ties", "got"),
    [("first", [1, 10, 0, 100]), ("last", [0, 1, 10, 100]), ("split", [0.5, 5.5, 5, 100])],
)
def test_ties(ties, got, autodiff):
    options = {"weights": [1, 10, 100], "ties": ties, "autodiff": autodiff}
    assert gradient(jaxpool.max_pool, row(3, 3, 3, 7), (2,), **options) == got


@both_modes
@pytest.mark.parametrize(
    ("axes", "ties", "chosen"),
    [
        ((0, 1), "first", [0, 1, 0, 0]),
        ((1, 0), "first", [0, 0, 1, 0]),
        ((0, 1), "last", [0, 0, 1, 0]),
        ((1, 0), "last", [0, 1, 0, 0]),
    ],
)
def test_ties_are_row_major_in_axes_order(axes, ties, chosen, autodiff):
    """The first of two tied corners depends on the order of the axes."""
    options = {"axes": axes, "ties": ties, "autodiff": autodiff}
    corners = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    assert gradient(jaxpool.max_pool, corners, (2, 2), **options) == chosen


@both_modes
@pytest.mark.parametrize(
    ("x", "ties", "shares"),
    [
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
    ],
)
def test_shares_of_nan_infinities_and_zeros(x, ties, shares, autodiff):
    window, options = (len(x),), {"ties": ties, "autodiff": autodiff}
    assert gradient(jaxpool.max_pool, row(*x), window, **options) == shares
    assert gradient(jaxpool.min_pool, -row(*x), window, **options) == shares


# Shardings


def test_gradient_in_partially_manual_shard_map():
    kinds = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh((1, 1), ("b", "c"), kinds, devices=jax.devices()[:1])
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 8, 8, 3)), jnp.float32)

    def gradient(x):
        return jax.grad(lambda x: (jaxpool.max_pool(x, (3, 3), (1, 1), "SAME") ** 2).sum())(x)

    spec = jax.sharding.PartitionSpec("b")
    mapped = jax.shard_map(gradient, mesh=mesh, in_specs=spec, out_specs=spec, axis_names={"b"})
    np.testing.assert_array_equal(jax.jit(mapped)(x), gradient(x))
