"""Adaptive pools: transformations, programs and residuals."""

import functools
import re

import jax
import numpy as np
import pytest

import jaxpool
from tests.support.adaptive_pools import MODES

pytestmark = pytest.mark.usefixtures("strict")

# Transformations

POOL_CALLS = {
    "max": ("adaptive_max_pool", {"output_shape": (3, 2)}),
    "max split": ("adaptive_max_pool", {"output_shape": (3, 2), "ties": "split"}),
    "max, more than positions": ("adaptive_max_pool", {"output_shape": (6, 4)}),
    "avg": ("adaptive_avg_pool", {"output_shape": (3, 2)}),
}
SHAPE = (2, 4, 3, 2)


def make_pool(name, autodiff):
    function, kwargs = POOL_CALLS[name]
    return functools.partial(getattr(jaxpool, function), **kwargs, autodiff=autodiff)


# Programs and residuals


def make_gradient(name, autodiff):
    return jax.jit(jax.grad(lambda x: (make_pool(name, autodiff)(x) ** 2).sum()))


def lowered_op_names(f, platforms, shape=SHAPE):
    x = jax.ShapeDtypeStruct(shape, np.float32)
    program = jax.export.export(f, platforms=platforms)(x).mlir_module()
    return set(re.findall(r"\b(?:stablehlo|chlo|mhlo)\.(\w+)", program))


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", POOL_CALLS)
def test_gradient_has_no_scatter_or_loop(name, autodiff):
    """A lowering for three platforms, and a vmapped gradient for one platform."""
    names = lowered_op_names(make_gradient(name, autodiff), ["cpu", "cuda", "tpu"])
    assert "multiply" in names
    mapped = jax.jit(jax.vmap(make_gradient(name, autodiff)))
    names |= lowered_op_names(mapped, ["tpu"], (5, *SHAPE))
    assert not [word for word in names if "scatter" in word or word == "while"]


def residual_types(f, x):
    """Shapes and dtypes of the residuals that the VJP of f saves."""
    leaves = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(f, x)[1], x))
    return [(leaf.shape, leaf.dtype.name) for leaf in leaves]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("length", "dtype"), [(13, "uint8"), (256, "uint8"), (770, "uint16")])
def test_residual_is_one_narrow_index_per_output(length, dtype, jit, autodiff):
    x = np.zeros((2, length, 5), np.float32)
    f = functools.partial(jaxpool.adaptive_max_pool, output_shape=(3,), autodiff=autodiff)
    ((shape, kind),) = residual_types(jax.jit(f) if jit else f, x)
    assert (int(np.prod(shape)), kind) == (2 * 3 * 5, dtype)


@pytest.mark.parametrize("autodiff", MODES)
def test_residual_of_split_ties_is_one_bit_per_tap(autodiff):
    x = np.zeros((2, 13, 15, 5), np.float32)
    f = functools.partial(jaxpool.adaptive_max_pool, output_shape=(6, 7), autodiff=autodiff)
    ((shape, kind),) = residual_types(functools.partial(f, ties="split"), x)
    taps = 2 * (6 * 3) * (7 * 3) * 5
    assert kind == "uint8"
    assert taps / 8 <= np.prod(shape) < taps / 6
    average = functools.partial(jaxpool.adaptive_avg_pool, output_shape=(6, 7), autodiff=autodiff)
    assert residual_types(average, x) == []
