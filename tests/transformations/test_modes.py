"""Errors of forward mode explain how to enable it. `tests/api/test_calls_against_oracle.py` compares tangents."""

import functools
import traceback

import jax
import numpy as np
import pytest

from jaxpool.testing import pools

pytestmark = pytest.mark.usefixtures("x64")

POOLS = {name: pool for name, pool in pools().items() if pool.modes}
X = np.ones((1, 4, 3, 2))
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
    pool = POOLS[name]
    for transform in FORWARD.values():
        assert_error_advises_jvp(jax.jit(functools.partial(transform, pool.of())).lower, X)
        jax.eval_shape(functools.partial(transform, pool.of(autodiff="jvp")), X)


@pytest.mark.parametrize("how", [*FORWARD, *OTHERS])
def test_forward_mode_error_outside_jit(how):
    assert_error_advises_jvp((FORWARD | OTHERS)[how], POOLS["avg_pool"].of(), X)
