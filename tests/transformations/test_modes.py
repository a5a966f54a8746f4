"""Forward mode agrees with reverse mode at ties, NaN, infinities and padding, and errors explain how to enable it."""

import functools
import inspect
import re
import traceback

import jax
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import Call, pools
from tests.support.compilation import FAST_COMPILE

pytestmark = pytest.mark.usefixtures("x64")

SHAPE = (1, 4, 3, 2)
SETTINGS = {
    "window_shape": (3, 2),
    "padding": ((1, 1), (0, 1)),
    "output_shape": (3, 2),
    "kernel": np.arange(6.0).reshape(3, 2) / 4,
}
MASK = np.arange(12).reshape(4, 3, 1) % 4 != 1
POOLS = {name: pool for name, pool in pools().items() if pool.modes}
EXTRA_SETTINGS = {  # cover strides, dilation, masks and other axes
    "min_pool": {"strides": (2, 1), "where": MASK},
    **{
        name: {"where": MASK}
        for name, pool in POOLS.items()
        if pool.topic == "rank" and pool.takes("where")
    },
    "max_pool_with_argmax": {"window_dilation": (1, 2), "padding": 1},
    "avg_pool": {"count_include_pad": False, "where": MASK},
    "dilate": {"padding": "VALID"},
    "erode": {"padding": "VALID"},
    "max": {"axis": (1, 2)},
    "min": {"axis": 1, "initial": 0.5, "where": MASK},
    "cummin": {"axis": 2, "reverse": True},
}


def call(name, x, ties=None):
    """Return the call of a pool for an array x."""
    pool = POOLS[name]
    settings = SETTINGS | EXTRA_SETTINGS.get(name, {}) | ({} if ties is None else {"ties": ties})
    return Call(pool, pool.given(x, **settings))


def function(name, ties=None, **mode):
    def f(x):
        y = POOLS[name].run(call(name, x, ties).given | mode)
        return y[0] if isinstance(y, tuple) else y

    return f


def special_arrays():
    """Arrays with ties, with some or only NaN, and with some or only infinities."""
    rng = np.random.default_rng(3)
    choices = [[-1.0, 0.0, -0.0, 1.0], [np.nan, 1.0, 2.0], [-np.inf, 0.0, np.inf]]
    drawn = [rng.choice(values, SHAPE) for values in choices]
    everywhere = [np.full(SHAPE, value) for value in (-np.inf, np.inf, np.nan, 2.0)]
    return np.stack(drawn + everywhere)


@functools.cache
def both_products(name, ties):
    """Return tangents for v and cotangents for w at each array of `special_arrays()`, then v and w."""
    f = function(name, ties, autodiff="jvp")
    rng = np.random.default_rng(4)
    v = rng.standard_normal(SHAPE)
    w = rng.standard_normal(jax.eval_shape(f, v).shape)

    def of(x):
        return jax.jvp(f, (x,), (v,))[1], jax.vjp(f, x)[1](w)[0]

    tangents, cotangents = jax.jit(jax.vmap(of), compiler_options=FAST_COMPILE)(special_arrays())
    return np.asarray(tangents), np.asarray(cotangents), v, w


CASES = [(name, ties) for name, pool in POOLS.items() for ties in pool.ties or (None,)]


@pytest.mark.parametrize(("name", "ties"), CASES)
def test_tangent_that_reverse_mode_implies(name, ties):
    tangents, cotangents, v, w = both_products(name, ties)
    assert np.isfinite(tangents).all()
    assert np.isfinite(cotangents).all()
    for tangent, cotangent in zip(tangents, cotangents, strict=True):
        np.testing.assert_allclose((tangent * w).sum(), (v * cotangent).sum(), rtol=1e-11)


@pytest.mark.parametrize(("name", "ties"), CASES)
def test_tangent_of_element_the_oracle_chooses(name, ties):
    tangents, _, v, _ = both_products(name, ties)
    moved = [np.asarray(part) for part in call(name, v, ties).operands()]
    if POOLS[name].takes("kernel"):
        moved[1] = np.zeros_like(moved[1])
    for x, tangent in zip(special_arrays(), tangents, strict=True):
        answer = call(name, x, ties).answer()
        more = [np.zeros(shape) for shape, _ in answer.inputs[len(moved) :]]  # for `initial`
        np.testing.assert_allclose(tangent, answer.tangent(*moved, *more), rtol=1e-12, atol=1e-14)


# How to enable forward mode

FORWARD = {
    "jvp": lambda f, x: jax.jvp(f, (x,), (x,)),
    "linearize": lambda f, x: jax.linearize(f, x)[1](x),
    "jacfwd": lambda f, x: jax.jacfwd(f)(x),
    "jvp of vmap": lambda f, x: jax.jvp(jax.vmap(f), (x[None],), (x[None],)),
    "jvp of jit": lambda f, x: jax.jvp(jax.jit(f), (x,), (x,)),
    "jvp of checkpoint": lambda f, x: jax.jvp(jax.checkpoint(f), (x,), (x,)),
    "grad of jvp": lambda f, x: jax.grad(lambda x: jax.jvp(f, (x,), (x,))[1].sum())(x),
}
OTHERS = {
    "grad of jit of jvp": lambda f, x: jax.grad(
        lambda x: jax.jit(lambda x: jax.jvp(f, (x,), (x,))[1].sum())(x)
    )(x),
    "linear_transpose": lambda f, x: jax.linear_transpose(f, x)(f(x)),
}


def assert_error_advises_jvp(f, *args):
    """Assert that the error, as Python prints it with notes and source lines, names the argument to pass."""
    with pytest.raises((TypeError, NotImplementedError), match=r"custom_|forward-mode") as caught:
        f(*args)
    printed = "".join(traceback.format_exception(caught.value))
    assert 'pass autodiff="jvp"' in printed.lower()


@pytest.mark.parametrize("name", POOLS)
def test_forward_mode_error_advice_works(name):
    x = np.ones(SHAPE)
    default, advised = function(name), function(name, autodiff="jvp")
    for transform in FORWARD.values():
        assert_error_advises_jvp(jax.jit(functools.partial(transform, default)).lower, x)
        jax.eval_shape(functools.partial(transform, advised), x)


@pytest.mark.parametrize("how", [*FORWARD, *OTHERS])
def test_forward_mode_error_outside_jit(how):
    assert_error_advises_jvp((FORWARD | OTHERS)[how], function("avg_pool"), np.ones(SHAPE))


@pytest.mark.parametrize("name", POOLS)
def test_docstring_explains_autodiff(name):
    text = inspect.getdoc(getattr(jaxpool, name))
    (says,) = re.findall(r"^ *autodiff: (.*(?:\n {4,}.*)*)", text, re.MULTILINE)
    assert '"vjp"' in says
    assert re.search(r'"jvp" for\s+(`jax\.jvp`|forward mode)', says)
