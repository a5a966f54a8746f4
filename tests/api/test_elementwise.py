"""Elementwise maximum and minimum: types of operands and results, and the number of comparisons."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

MODES = ("vjp", "jvp")
FUNCTIONS = ("maximum", "minimum", "fmax", "fmin")
NUMBERS = (True, 2, 2.5)
STRONG = ["bool", "int8", "int32", "uint8", "float32", "bfloat16"]
ARRAYS = {dtype: jnp.ones(3, dtype) for dtype in STRONG}
for number in (2, 2.5):
    ARRAYS[f"weak {type(number).__name__}"] = jnp.broadcast_to(jnp.asarray(number), 3)

parametrize_arrays = pytest.mark.parametrize("x", ARRAYS.values(), ids=ARRAYS)


def result_type_of(f, *xs):
    """The dtype and weak type of `f(*xs)`, or "refused" if the dtypes do not promote."""
    try:
        y = jax.eval_shape(lambda: f(*xs))  # a closure keeps Python numbers weakly typed
    except ValueError:  # jax.dtypes.TypePromotionError, or our error
        return "refused"
    return y.dtype.name, y.weak_type


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", ["maximum", "fmax"])
def test_numpy_array_and_python_number_operands(name, autodiff):
    function = functools.partial(getattr(jaxpool, name), autodiff=autodiff)
    x = np.array([1, -2, 0], np.float32)
    for other in (0.0, 0, np.float32(0), np.zeros(3, np.float32), jnp.zeros(3), np.zeros(3, int)):
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            y, swapped = function(x, other), function(other, x)
            gradient = jax.grad(lambda x, o=other: function(x, o).sum())
        np.testing.assert_array_equal(swapped, [1, 0, 0])
        np.testing.assert_array_equal(y, [1, 0, 0])
        assert y.dtype == np.float32
        np.testing.assert_array_equal(gradient(x), [1, 0, 0.5])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_two_operands_need_at_most_four_comparisons(name):
    """At most four float comparisons, forward and backward together."""

    def both(x, y, d):
        out, back = jax.vjp(getattr(jaxpool, name), x, y)
        return out, back(d)

    text = jax.jit(both).lower(*[jnp.ones((3, 4))] * 3).as_text()
    assert sum("compare" in line and "FLOAT" in line for line in text.splitlines()) <= 4


# Dtypes and weak types are those of `jnp.maximum`


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("promotion", ["standard", "strict"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("x", [*NUMBERS, *ARRAYS.values()], ids=[*map(str, NUMBERS), *ARRAYS])
def test_array_or_number_with_array_or_number(x, function, promotion):
    with jax.numpy_dtype_promotion(promotion), jax.numpy_rank_promotion("allow"):
        for other in (*NUMBERS, *ARRAYS.values()):
            for pair in [(x, other), (other, x)]:
                got = result_type_of(getattr(jaxpool, function), *pair)
                assert got == result_type_of(jnp.maximum, *pair), other


@pytest.mark.slow
@pytest.mark.ci
@parametrize_arrays
def test_three_operands(x):
    for second, third in itertools.product((*NUMBERS, *ARRAYS.values()), NUMBERS):
        for triple in itertools.permutations((x, second, third)):
            want = result_type_of(lambda *xs: functools.reduce(jnp.maximum, xs), *triple)
            assert result_type_of(jaxpool.maximum, *triple) == want, triple
            assert result_type_of(jaxpool.minimum, *triple) == want, triple


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("second", ["weak float", "float32"])
@parametrize_arrays
def test_derivatives_have_the_dtype_of_their_primal(x, second, autodiff):
    f, y = functools.partial(jaxpool.maximum, autodiff=autodiff), ARRAYS[second]
    want = result_type_of(jnp.maximum, x, y)
    value, pullback = jax.vjp(f, x, y)
    for cotangent, primal in zip(pullback(jnp.ones_like(value)), (x, y), strict=True):
        floating = jnp.issubdtype(primal.dtype, jnp.floating)
        assert cotangent.dtype == (primal.dtype if floating else jax.dtypes.float0)
    if autodiff == "jvp":
        types = jax.eval_shape(lambda: jax.jvp(functools.partial(f, x), (y,), (y,)))
        assert [(each.dtype.name, each.weak_type) for each in types] == [want, want]
