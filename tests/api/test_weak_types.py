"""Elementwise maximum and minimum have a weak type exactly if `jnp.maximum` has a weak type."""

import functools
import itertools

import jax
import jax.numpy as jnp
import pytest

import jaxpool

FUNCTIONS = ("maximum", "minimum", "fmax", "fmin")
NUMBERS = (True, 2, 2.5)
STRONG = ["bool", "int8", "int32", "uint8", "float32", "bfloat16"]
ARRAYS = {dtype: jnp.ones(3, dtype) for dtype in STRONG}
for number in (2, 2.5):
    weak = jnp.broadcast_to(jnp.asarray(number), 3)
    ARRAYS[f"weak {weak.dtype}"] = weak

parametrize_arrays = pytest.mark.parametrize("x", ARRAYS.values(), ids=ARRAYS)


def result_type_of(f, *xs):
    """The dtype and weak type of `f(*xs)`, or "refused" if the dtypes do not promote."""
    try:
        y = jax.eval_shape(lambda: f(*xs))  # a closure keeps Python numbers weakly typed
    except ValueError:  # jax.dtypes.TypePromotionError, or our error
        return "refused"
    return y.dtype.name, y.weak_type


@pytest.mark.parametrize("promotion", ["standard", "strict"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("x", [*NUMBERS, *ARRAYS.values()], ids=[*map(str, NUMBERS), *ARRAYS])
def test_array_or_number_with_array_or_number(x, function, promotion):
    with jax.numpy_dtype_promotion(promotion), jax.numpy_rank_promotion("allow"):
        for other in (*NUMBERS, *ARRAYS.values()):
            for pair in [(x, other), (other, x)]:
                got = result_type_of(getattr(jaxpool, function), *pair)
                assert got == result_type_of(jnp.maximum, *pair), other


@parametrize_arrays
def test_three_operands(x):
    for second, third in itertools.product((*NUMBERS, *ARRAYS.values()), NUMBERS):
        for triple in itertools.permutations((x, second, third)):
            want = result_type_of(lambda *xs: functools.reduce(jnp.maximum, xs), *triple)
            assert result_type_of(jaxpool.maximum, *triple) == want, triple
            assert result_type_of(jaxpool.minimum, *triple) == want, triple


@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
@parametrize_arrays
def test_derivatives_have_the_dtype_of_their_primal(x, autodiff):
    f = functools.partial(jaxpool.maximum, autodiff=autodiff)
    weak = ARRAYS["weak float32"]
    y, pullback = jax.vjp(f, x, weak)
    for cotangent, primal in zip(pullback(jnp.ones_like(y)), (x, weak), strict=True):
        floating = jnp.issubdtype(primal.dtype, jnp.floating)
        assert cotangent.dtype == (primal.dtype if floating else jax.dtypes.float0)
    if autodiff == "jvp":
        types = jax.eval_shape(lambda: jax.jvp(functools.partial(f, x), (weak,), (weak,)))
        want = result_type_of(jnp.maximum, x, weak)
        assert [(each.dtype.name, each.weak_type) for each in types] == [want, want]
