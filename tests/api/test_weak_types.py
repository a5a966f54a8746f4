"""Elementwise maximum and minimum have a weak type exactly if `jnp.maximum` has a weak type."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

FUNCTIONS = ("maximum", "minimum", "fmax", "fmin")
MODES = ("vjp", "jvp")
NUMBERS = (True, 2, 2.5)
STRONG = [np.bool_, np.int8, np.int32, np.uint8, np.float32, jnp.bfloat16]
ARRAYS = {np.dtype(dtype).name: jnp.ones(3, dtype) for dtype in STRONG}
for number in (2, 2.5):
    weak = jnp.broadcast_to(jnp.asarray(number), 3)
    ARRAYS[f"weak {weak.dtype}"] = weak

parametrize_arrays = pytest.mark.parametrize("x", ARRAYS.values(), ids=ARRAYS)
parametrize_functions = pytest.mark.parametrize("function", FUNCTIONS)
parametrize_autodiff = pytest.mark.parametrize("autodiff", MODES)


def dtype_and_weak_type(y):
    return y.dtype.name, y.weak_type


def result_type_of(f, *xs):
    """The dtype and weak type of `f(*xs)`, or "refused" if the dtypes do not promote."""
    try:
        return dtype_and_weak_type(
            jax.eval_shape(lambda: f(*xs))
        )  # a closure keeps Python numbers weakly typed
    except ValueError:  # jax.dtypes.TypePromotionError, or our error
        return "refused"


@pytest.mark.parametrize("promotion", ["standard", "strict"])
@parametrize_functions
@parametrize_arrays
def test_array_with_array_or_number(x, function, promotion):
    with jax.numpy_dtype_promotion(promotion), jax.numpy_rank_promotion("allow"):
        for other in (*NUMBERS, *ARRAYS.values()):
            for pair in [(x, other), (other, x)]:
                got = result_type_of(getattr(jaxpool, function), *pair)
                assert got == result_type_of(jnp.maximum, *pair), other


@pytest.mark.parametrize("x", ARRAYS.values(), ids=ARRAYS)
def test_three_operands(x):
    for second, third in itertools.product((*NUMBERS, *ARRAYS.values()), NUMBERS):
        for triple in itertools.permutations((x, second, third)):
            want = result_type_of(lambda *xs: functools.reduce(jnp.maximum, xs), *triple)
            assert result_type_of(jaxpool.maximum, *triple) == want, triple
            assert result_type_of(jaxpool.minimum, *triple) == want, triple


@parametrize_functions
def test_two_python_numbers(function):
    for pair in itertools.product(NUMBERS, repeat=2):
        assert result_type_of(getattr(jaxpool, function), *pair) == result_type_of(
            jnp.maximum, *pair
        ), pair


@parametrize_autodiff
def test_weak_result_does_not_promote_later_operations(autodiff):
    weights = jnp.array([1, 2, 4], jnp.bfloat16)
    for x, number in [(jnp.arange(3), 0.5), (jnp.arange(3, dtype=jnp.int8), 0.5)]:
        for f in (jaxpool.maximum, jax.jit(jaxpool.maximum, static_argnames="autodiff")):
            y = f(x, number, autodiff=autodiff) * weights
            assert y.dtype == jnp.bfloat16
            np.testing.assert_array_equal(y.astype(np.float32), [0.5, 2, 8])


@parametrize_autodiff
@parametrize_arrays
def test_derivatives_have_the_dtype_of_their_primal(x, autodiff):
    f = functools.partial(jaxpool.maximum, autodiff=autodiff)
    weak = ARRAYS["weak float32"]
    y, pullback = jax.vjp(f, x, weak)
    cotangents = pullback(jnp.ones_like(y))
    for cotangent, primal in zip(cotangents, (x, weak), strict=True):
        floating = jnp.issubdtype(primal.dtype, jnp.floating)
        assert cotangent.dtype == (primal.dtype if floating else jax.dtypes.float0)
    if autodiff == "jvp":
        f = functools.partial(f, x)
        primal, tangent = jax.eval_shape(lambda: jax.jvp(f, (weak,), (weak,)))
        assert (
            dtype_and_weak_type(primal)
            == dtype_and_weak_type(tangent)
            == result_type_of(jnp.maximum, x, weak)
        )
