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

MATRIX = {
    "max": ("adaptive_max_pool", {"output_shape": (3, 2)}),
    "max split": ("adaptive_max_pool", {"output_shape": (3, 2), "ties": "split"}),
    "max, more than positions": ("adaptive_max_pool", {"output_shape": (6, 4)}),
    "avg": ("adaptive_avg_pool", {"output_shape": (3, 2)}),
}
SHAPE = (2, 4, 3, 2)


def pool(name, autodiff):
    function, kwargs = MATRIX[name]
    return functools.partial(getattr(jaxpool, function), **kwargs, autodiff=autodiff)


# Programs and residuals


def gradient(name, autodiff):
    return jax.jit(jax.grad(lambda x: (pool(name, autodiff)(x) ** 2).sum()))


def operations(f, platforms, shape=SHAPE):
    x = jax.ShapeDtypeStruct(shape, np.float32)
    program = jax.export.export(f, platforms=platforms)(x).mlir_module()
    return set(re.findall(r"\b(?:stablehlo|chlo|mhlo)\.(\w+)", program))


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", MATRIX)
def test_the_gradient_holds_neither_scatter_nor_loop(name, autodiff):
    """A lowering for three platforms, and a vmapped gradient for one platform."""
    names = operations(gradient(name, autodiff), ["cpu", "cuda", "tpu"])
    assert "multiply" in names
    mapped = jax.jit(jax.vmap(gradient(name, autodiff)))
    names |= operations(mapped, ["tpu"], (5, *SHAPE))
    assert not [word for word in names if "scatter" in word or word == "while"]


def kept(f, x):
    """Shapes and dtypes of the residuals that the VJP of f saves."""
    leaves = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(f, x)[1], x))
    return [(leaf.shape, leaf.dtype.name) for leaf in leaves]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("length", "dtype"), [(13, "uint8"), (256, "uint8"), (770, "uint16")])
def test_the_residual_is_one_narrow_index_an_output_element(length, dtype, jit, autodiff):
    x = np.zeros((2, length, 5), np.float32)
    f = functools.partial(jaxpool.adaptive_max_pool, output_shape=(3,), autodiff=autodiff)
    ((shape, kind),) = kept(jax.jit(f) if jit else f, x)
    assert (int(np.prod(shape)), kind) == (2 * 3 * 5, dtype)


@pytest.mark.parametrize("autodiff", MODES)
def test_the_residual_of_a_split_is_one_bit_a_tap_and_an_average_keeps_nothing(autodiff):
    x = np.zeros((2, 13, 15, 5), np.float32)
    f = functools.partial(jaxpool.adaptive_max_pool, output_shape=(6, 7), autodiff=autodiff)
    ((shape, kind),) = kept(functools.partial(f, ties="split"), x)
    taps = 2 * (6 * 3) * (7 * 3) * 5
    assert kind == "uint8"
    assert taps / 8 <= np.prod(shape) < taps / 6
    average = functools.partial(jaxpool.adaptive_avg_pool, output_shape=(6, 7), autodiff=autodiff)
    assert kept(average, x) == []
