"""Eager calls of public functions run compiled programs, with the checks and results of other calls."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._arguments.decorator import TRACED_PARAMETERS, public
from jaxpool.testing import pools
from tests.support.junk import SHARED_PARTS

X = jnp.arange(4.0)


@pytest.fixture
def scaled():
    """A public function with a list of the arrays that its Python code got."""
    traced = []

    @public
    def scaled(x, factor=2, *, negative=False, offset=0, initial=0):
        traced.append(x)
        return x * (-factor if negative else factor) + offset + initial

    return scaled, traced


def test_second_eager_call_is_not_traced(scaled):
    function, traced = scaled
    for _ in range(2):
        np.testing.assert_array_equal(function(X, 3), [0, 3, 6, 9])
        np.testing.assert_array_equal(function(X, negative=True), [0, -2, -4, -6])
        np.testing.assert_array_equal(function(negative=True, x=X), [0, -2, -4, -6])
    assert len(traced) == 3


def test_second_eager_gradient_is_not_traced(scaled):
    function, traced = scaled
    for _ in range(2):
        np.testing.assert_array_equal(jax.grad(lambda x: function(x, 3).sum())(X), [3, 3, 3, 3])
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((X, 0.5), {}),
        ((X,), {"offset": X}),
        ((X,), {"initial": 2}),
        ((np.asarray(X),), {}),
        ((), {"x": np.asarray(X)}),
    ],
    ids=["float", "array", "initial", "numpy", "numpy by name"],
)
def test_calls_that_are_not_compiled(scaled, args, kwargs):
    function, traced = scaled
    y = function(*args, **kwargs)
    assert not isinstance(traced[0], jax.core.Tracer)
    np.testing.assert_array_equal(y, jax.jit(lambda: function(*args, **kwargs))())


def self_containing_list():
    values = [1]
    values.append(values)
    return values


ODD_VALUES = {
    "10**5000": 10**5000,
    "pair with 10**5000": (2, 10**5000),
    "pair with -10**5000": (-(10**5000), 1),
    "three ints": (1, 10**5000, 1),  # windows of all axes, as in lax
    "four ints": (1, 1, 10**5000, 1),
    "pairs with 10**5000": ((1, 10**5000), (1, 1)),
    "list that contains itself": self_containing_list(),
    "tuple of lists that contain themselves": (self_containing_list(), self_containing_list()),
    "list that shares its parts": SHARED_PARTS["list"],
    "tuple that shares its parts": SHARED_PARTS["tuple"],
    "deep tuple": functools.reduce(lambda inner, _: (inner,), range(3000), 1),
    "surrogate": "\ud800",
}


@pytest.mark.parametrize("odd", ODD_VALUES)
@pytest.mark.parametrize("name", pools())
def test_values_without_a_cache_key_raise_the_usual_error(name, odd):
    """The key of the cache is the repr of the static arguments, which some values do not have."""
    pool = pools()[name]
    for argument in set(pool.parameters) - {"xs"}:
        given = pool.samples()["small"] | {argument: ODD_VALUES[odd]}
        if argument == "padding":  # of one axis, for which a pair is one of low and high padding
            given |= {"axes": (1,), "window_shape": (2,)}
            given = {key: value for key, value in given.items() if key in pool.parameters}
        arrays = [
            *given.pop("xs", ()),
            *(given.pop(key) for key in TRACED_PARAMETERS if key in given),
        ]
        arrays = [jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in arrays]
        if pool.takes("key"):
            arrays = [given.pop("key"), *arrays]
        with pytest.raises((TypeError, ValueError)) as caught:
            pool.function(*arrays, **given)
        assert str(caught.value).startswith(f"jaxpool.{name}: ")


def test_numbers_among_operands_are_not_compiled_into_programs():
    traced = []

    @public
    def total(*xs):
        traced.append(xs)
        return sum(xs)

    for number in range(3):
        np.testing.assert_array_equal(total(X, X, number), 2 * X + number)
    assert not any(isinstance(xs[0], jax.core.Tracer) for xs in traced)


def test_calls_with_tracers_under_jit_are_not_nested():
    jaxpr = jax.make_jaxpr(lambda x: jaxpool.max(x))(X)
    assert "jit" not in str(jaxpr)


@pytest.mark.parametrize("bad", [{"ceil_mode": 1}, {"strides": (1.0,)}, {"strides": (True,)}])
def test_valid_call_does_not_hide_an_invalid_call(bad):
    good = {"ceil_mode": True, "strides": (1,)}
    jaxpool.max_pool(X, (2,), axes=(0,), **good)
    with pytest.raises(
        TypeError, match=r"jaxpool.max_pool: `(ceil_mode|strides)` must be"
    ) as error:
        jaxpool.max_pool(X, (2,), axes=(0,), **good | bad)
    assert "Tracer" not in str(error.value)


def test_arrays_that_are_read_in_python():
    @public
    def first_ones(x):
        return jnp.ones(int(x[1]))

    assert first_ones(X).shape == (1,)
    assert first_ones(X * 3).shape == (3,)
