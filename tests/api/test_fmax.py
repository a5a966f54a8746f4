"""`fmax` and `fmin`: NaN handling, ties, broadcasting, weak types, both autodiff modes and dtypes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import assert_close, draw_values, oracle

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
TIES = ("split", "first", "last")
NAMES = ("fmax", "fmin")
nan, inf = np.nan, np.inf


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize(
    ("x", "y", "ties", "value", "shares"),
    [
        (nan, 1, "split", 1, (0, 1)),
        (1, nan, "split", 1, (1, 0)),
        (nan, -inf, "first", -inf, (0, 1)),
        (-inf, nan, "last", -inf, (1, 0)),
        (nan, inf, "first", inf, (0, 1)),
        (nan, nan, "split", nan, (0.5, 0.5)),
        (nan, nan, "first", nan, (1, 0)),
        (nan, nan, "last", nan, (0, 1)),
        (1, 1, "split", 1, (0.5, 0.5)),
        (1, 1, "first", 1, (1, 0)),
        (1, 1, "last", 1, (0, 1)),
        (0.0, -0.0, "split", 0, (0.5, 0.5)),
        (-0.0, 0.0, "first", 0, (1, 0)),
        (-inf, -inf, "last", -inf, (0, 1)),
        (2, 1, "last", 2, (1, 0)),
    ],
)
def test_who_gets_the_cotangent(x, y, ties, value, shares, autodiff):
    for function, sign in [(jaxpool.fmax, 1.0), (jaxpool.fmin, -1.0)]:
        f = functools.partial(function, ties=ties, autodiff=autodiff)
        np.testing.assert_array_equal(f(x * sign, y * sign), np.float32(value * sign))
        assert jax.grad(f, argnums=(0, 1))(x * sign, y * sign) == shares


def test_values_are_those_of_numpy():
    x, y = np.meshgrid(np.array([nan, -inf, -1, 0, 2, inf], np.float32), np.float32([nan, 0, inf]))
    np.testing.assert_array_equal(jaxpool.fmax(x, y), np.fmax(x, y))
    np.testing.assert_array_equal(jaxpool.fmin(x, y), np.fmin(x, y))


# Operands and their types


@pytest.mark.parametrize("name", NAMES)
def test_numpy_arrays_and_python_numbers(name):
    f, x = getattr(jaxpool, name), np.array([1, nan, -2], np.float32)
    want = [1, 0, 0] if name == "fmax" else [0, 0, -2]
    for other in (0.0, 0, np.float32(0), np.zeros(3, np.float32), jnp.zeros(3)):
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            for z in (f(x, other), f(other, x)):
                np.testing.assert_array_equal(z, want)
                assert z.dtype == np.float32
    assert f(1, 2) == (2 if name == "fmax" else 1)
    assert jax.typeof(f(1, 2.5)).weak_type


def test_weak_types_and_result_type():
    x = jnp.ones((2,), jnp.bfloat16)
    for number in (0, 0.0):
        assert jaxpool.fmax(x, number).dtype == jnp.bfloat16
    assert jaxpool.fmax(jnp.ones((2,), np.int8), 3).dtype == np.int8
    for promoted in [(np.int8, np.float32), (np.int32, np.int8), (np.uint8, np.int8)]:
        x, y = (jnp.ones((2,), dtype) for dtype in promoted)
        with jax.numpy_dtype_promotion("standard"):
            assert jaxpool.fmin(x, y).dtype == jnp.result_type(x, y)


@pytest.mark.parametrize("autodiff", MODES)
def test_each_cotangent_has_the_shape_and_dtype_of_its_own_input(autodiff):
    x, y = jnp.ones((2, 3), jnp.bfloat16), jnp.array([[1.0, nan, 0.0]])
    f = functools.partial(jaxpool.fmax, autodiff=autodiff)
    with jax.numpy_dtype_promotion("standard"):
        z, pullback = jax.vjp(f, x, y)
        dx, dy = pullback(jnp.ones_like(z))
    assert (z.dtype, dx.dtype, dy.dtype) == (np.float32, jnp.bfloat16, np.float32)
    np.testing.assert_array_equal(np.float32(dx), [[0.5, 1, 1]] * 2)
    np.testing.assert_array_equal(dy, [[1, 0, 0]])


def test_what_is_repeated_adds_in_float32():
    """A sum of 512 ones in bfloat16 would stop at 256."""
    x, nans = jnp.zeros((), jnp.bfloat16), jnp.full(512, nan, jnp.bfloat16)
    with jax.numpy_rank_promotion("allow"):
        dx, losers = jax.grad(lambda x, y: jaxpool.fmax(x, y).sum(), argnums=(0, 1))(x, nans)
    assert (dx.dtype, dx) == (jnp.bfloat16, 512)
    assert not losers.any()


def test_64_bits(x64):
    rng = np.random.default_rng(3)
    for dtype in (np.int64, np.uint64, np.float64):
        x, y = (draw_values(rng, (9,), dtype, "special") for _ in range(2))
        assert_close(jaxpool.fmax(x, y), oracle.fmax(x, y).y, 0, "value")


@pytest.mark.parametrize("autodiff", MODES)
def test_an_integer_beside_a_float_has_no_gradient_but_takes_part(autodiff):
    x, n = jnp.array([nan, 3.0, 2.0]), jnp.array([2, 2, 2])
    with jax.numpy_dtype_promotion("standard"):
        z, pullback = jax.vjp(functools.partial(jaxpool.fmax, autodiff=autodiff), x, n)
    dx, dn = pullback(jnp.ones(3))
    np.testing.assert_array_equal(z, [2, 3, 2])
    np.testing.assert_array_equal(dx, [0, 1, 0.5])
    assert dn.dtype == jax.dtypes.float0


# Transformations


@pytest.mark.parametrize("autodiff", MODES)
def test_what_is_kept_is_a_byte_an_output(autodiff):
    x, y = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32)
    for ties in TIES:
        f = jax.jit(functools.partial(jaxpool.fmax, ties=ties, autodiff=autodiff))
        leaves = jax.tree.leaves(jax.eval_shape(lambda x, y, f=f: jax.vjp(f, x, y)[1], x, y))
        assert [(leaf.shape, leaf.dtype) for leaf in leaves] == [((2, 3), np.uint8)]
