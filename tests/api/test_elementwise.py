"""Elementwise maximum and minimum: operand types, promotion and number of comparisons."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", ["maximum", "fmax"])
def test_numpy_array_and_python_number_operands(name, autodiff):
    function = functools.partial(getattr(jaxpool, name), autodiff=autodiff)
    x = np.array([1, -2], np.float32)
    for other in (0.0, 0, np.float32(0), np.zeros(2, np.float32), jnp.zeros(2)):
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            y, swapped = function(x, other), function(other, x)
            gradient = jax.grad(lambda x, o=other: function(x, o).sum())
        np.testing.assert_array_equal(swapped, [1, 0])
        np.testing.assert_array_equal(y, [1, 0])
        assert y.dtype == np.float32
        np.testing.assert_array_equal(gradient(x), [1, 0])


@pytest.mark.parametrize("autodiff", MODES)
def test_cotangents_have_the_shape_and_dtype_of_their_input(autodiff):
    f = functools.partial(jaxpool.maximum, autodiff=autodiff)
    xs = (
        jnp.ones((2, 3), jnp.bfloat16),
        jnp.ones((3,), jnp.float32),
        jnp.zeros((1, 1), jnp.float16),
    )
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        y, pullback = jax.vjp(f, *xs)
        cotangents = pullback(jnp.ones_like(y))
    assert y.dtype == np.float32
    assert [(dx.shape, dx.dtype) for dx in cotangents] == [(x.shape, x.dtype) for x in xs]
    np.testing.assert_array_equal(np.float32(cotangents[0]), np.full((2, 3), 0.5))
    np.testing.assert_array_equal(cotangents[1], [1, 1, 1])


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", ["maximum", "fmax"])
def test_integer_operand_is_compared_but_has_no_gradient(name, autodiff):
    x, n = jnp.array([1.0, 3.0, 2.0]), jnp.array([2, 2, 2])
    with jax.numpy_dtype_promotion("standard"):
        f = functools.partial(getattr(jaxpool, name), autodiff=autodiff)
        np.testing.assert_array_equal(jax.grad(lambda x: f(x, n).sum())(x), [0, 1, 0.5])
        _, pullback = jax.vjp(f, x, n)
        assert pullback(jnp.ones(3))[1].dtype == jax.dtypes.float0


@pytest.mark.parametrize(
    "promoted", [(np.int32, np.int8), (np.int8, np.bool_), (np.uint8, np.int8)]
)
def test_dtype_matches_jnp_result_type(promoted):
    xs = [jnp.ones((2,), dtype) for dtype in promoted]
    with jax.numpy_dtype_promotion("standard"):
        for f in (jaxpool.maximum, jaxpool.fmin):
            assert f(*xs).dtype == jnp.result_type(*xs)


def test_python_numbers_are_weakly_typed():
    assert jax.typeof(jaxpool.fmax(1, 2.5)).weak_type
    for number in (0, 0.0):
        assert jaxpool.fmax(jnp.ones((2,), jnp.bfloat16), number).dtype == jnp.bfloat16
    assert jaxpool.fmax(jnp.ones((2,), np.int8), 3).dtype == np.int8


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_two_operands_need_at_most_four_comparisons(name):
    """At most four float comparisons, forward and backward together."""

    def both(x, y, d):
        out, back = jax.vjp(getattr(jaxpool, name), x, y)
        return out, back(d)

    text = jax.jit(both).lower(*[jnp.ones((3, 4))] * 3).as_text()
    assert sum("compare" in line and "FLOAT" in line for line in text.splitlines()) <= 4
