"""Elementwise maximum and minimum: operand types, broadcasting, ties and NaN."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxpool
from jaxpool.testing import assert_close, draw_values, oracle
from tests.support.drawn import examples

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
TIES = ("split", "first", "last")
nan, inf = np.nan, np.inf
# Shapes that broadcast together. A short list lets examples share compiled programs.
SHAPES = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((2, 1, 4), (3, 1)),
    ((), (2, 3)),
    ((2, 3), (1, 3), (2, 1)),
    ((5,), (), (1,), (5,)),
    ((0, 3), (1, 3)),
    ((), ()),
]


@functools.cache
def value_and_cotangents_program(function):
    """Value and cotangents for every `ties` and `autodiff`, compiled as one program."""

    @jax.jit
    def by_ties_and_mode(dy, *xs):
        results = {}
        for ties, autodiff in itertools.product(TIES, MODES):
            f = functools.partial(getattr(jaxpool, function), ties=ties, autodiff=autodiff)
            y, pullback = jax.vjp(f, *xs)
            results[ties, autodiff] = y, pullback(dy)
        return results

    return by_ties_and_mode


@pytest.mark.parametrize("function", ["maximum", "minimum", "fmax", "fmin"])
@examples(12)
@given(data=st.data())
def test_value_and_cotangents(function, data):
    allowed_shapes = [each for each in SHAPES if len(each) == 2 or function.startswith("m")]
    shapes = data.draw(st.sampled_from(allowed_shapes))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    for values in ("ties", "special"):
        xs = [draw_values(rng, shape, np.float32, values) for shape in shapes]
        dy = draw_values(rng, np.broadcast_shapes(*shapes), np.float32, "normal")
        with jax.numpy_rank_promotion("allow"):
            results = value_and_cotangents_program(function)(dy, *xs)
        for (ties, autodiff), (y, cotangents) in results.items():
            want = getattr(oracle, function)(*xs, ties=ties)
            assert_close(y, want.y, 0, f"value with {ties}, {autodiff}")
            for i, (got, expected) in enumerate(zip(cotangents, want.cotangents(dy), strict=True)):
                assert_close(got, expected, 1e-5, f"cotangent {i} with {ties}, {autodiff}")


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize(
    ("x", "y", "ties", "shares"),
    [
        (1, 1, "split", (0.5, 0.5)),
        (1, 1, "first", (1, 0)),
        (1, 1, "last", (0, 1)),
        (0.0, -0.0, "split", (0.5, 0.5)),
        (-0.0, 0.0, "first", (1, 0)),
        (nan, 1, "split", (1, 0)),
        (inf, nan, "first", (0, 1)),
        (nan, nan, "split", (0.5, 0.5)),
        (nan, nan, "last", (0, 1)),
        (-inf, -inf, "split", (0.5, 0.5)),
        (inf, inf, "last", (0, 1)),
    ],
)
def test_shares_of_the_cotangent(x, y, ties, shares, autodiff):
    for function, sign in [(jaxpool.maximum, 1.0), (jaxpool.minimum, -1.0)]:
        f = functools.partial(function, ties=ties, autodiff=autodiff)
        assert jax.grad(f, argnums=(0, 1))(x * sign, y * sign) == shares


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize(
    ("x", "y", "ties", "value", "shares"),
    [
        (nan, 1, "split", 1, (0, 1)),
        (1, nan, "split", 1, (1, 0)),
        (nan, -inf, "first", -inf, (0, 1)),
        (-inf, nan, "last", -inf, (1, 0)),
        (nan, nan, "split", nan, (0.5, 0.5)),
        (nan, nan, "first", nan, (1, 0)),
        (nan, nan, "last", nan, (0, 1)),
        (1, 1, "last", 1, (0, 1)),
        (-0.0, 0.0, "first", 0, (1, 0)),
    ],
)
def test_shares_of_the_cotangent_with_ignored_nan(x, y, ties, value, shares, autodiff):
    for function, sign in [(jaxpool.fmax, 1.0), (jaxpool.fmin, -1.0)]:
        f = functools.partial(function, ties=ties, autodiff=autodiff)
        np.testing.assert_array_equal(f(x * sign, y * sign), np.float32(value * sign))
        assert jax.grad(f, argnums=(0, 1))(x * sign, y * sign) == shares


def test_three_way_tie_splits_in_thirds():
    f = functools.partial(jaxpool.maximum, ties="split")
    cotangents = jax.grad(f, argnums=(0, 1, 2, 3))(2.0, 2.0, 1.0, 2.0)
    np.testing.assert_allclose(cotangents, [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)


@pytest.mark.parametrize("count", [8, 9, 17, 33])
def test_many_operands(count):
    """Counts around 8, 16 and 32 tie bits; the first and the last operand tie."""
    xs = [jnp.float32(i in (0, count - 1)) for i in range(count)]
    for ties, shares in [("split", (0.5, 0.5)), ("first", (1, 0)), ("last", (0, 1))]:
        f = functools.partial(jaxpool.maximum, ties=ties)
        y, cotangents = jax.jit(jax.value_and_grad(f, argnums=tuple(range(count))))(*xs)
        assert y == 1
        assert (cotangents[0], cotangents[-1]) == shares
        assert not any(cotangents[1:-1])


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


def test_integers_and_bools():
    a, b = jnp.array([1, 5], jnp.int8), jnp.array([2, 4], jnp.int8)
    assert jaxpool.maximum(a, b).dtype == np.int8
    np.testing.assert_array_equal(jaxpool.maximum(a, b), [2, 5])
    np.testing.assert_array_equal(jaxpool.minimum(a, b), [1, 4])
    p, q = jnp.array([True, True, False]), jnp.array([True, False, False])
    np.testing.assert_array_equal(jaxpool.maximum(p, q), p | q)
    np.testing.assert_array_equal(jaxpool.minimum(p, q), p & q)
    assert jaxpool.minimum(p, q).dtype == np.bool_


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


def test_broadcast_operand_cotangent_sums_in_float32():
    """A sum of 512 ones in bfloat16 would stop at 256."""
    x, nans = jnp.zeros((), jnp.bfloat16), jnp.full(512, nan, jnp.bfloat16)
    with jax.numpy_rank_promotion("allow"):
        dx, d_nans = jax.grad(lambda x, y: jaxpool.fmax(x, y).sum(), argnums=(0, 1))(x, nans)
    assert (dx.dtype, dx) == (jnp.bfloat16, 512)
    assert not d_nans.any()


def test_64_bit_dtypes(x64):
    rng = np.random.default_rng(3)
    for dtype in (np.int64, np.uint64, np.float64):
        x, y = (draw_values(rng, (9,), dtype, "special") for _ in range(2))
        assert_close(jaxpool.fmax(x, y), oracle.fmax(x, y).y, 0, "value")


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("ties", TIES)
def test_residual_is_one_byte_per_output(ties, autodiff):
    x, y = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.float32)
    f = jax.jit(functools.partial(jaxpool.fmax, ties=ties, autodiff=autodiff))
    leaves = jax.tree.leaves(jax.eval_shape(lambda x, y: jax.vjp(f, x, y)[1], x, y))
    assert [(leaf.shape, leaf.dtype) for leaf in leaves] == [((2, 3), np.uint8)]


def test_unselected_operand_gets_zeros():
    """Operands that never win get zeros, not None."""
    gradients = jax.grad(lambda p: jaxpool.maximum(p["won"], p["lost"]).sum())(
        {"won": jnp.full((2, 2), 3.0), "lost": jnp.full((2, 2), -3.0)}
    )
    np.testing.assert_array_equal(gradients["won"], np.ones((2, 2)))
    np.testing.assert_array_equal(gradients["lost"], np.zeros((2, 2)))


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_two_operands_need_at_most_four_comparisons(name):
    """At most four float comparisons, forward and backward together."""

    def both(x, y, d):
        out, back = jax.vjp(getattr(jaxpool, name), x, y)
        return out, back(d)

    text = jax.jit(both).lower(*[jnp.ones((3, 4))] * 3).as_text()
    assert sum("compare" in line and "FLOAT" in line for line in text.splitlines()) <= 4
