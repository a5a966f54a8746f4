"""What the programs are made of, for every platform: no scatter, no gather but in rows of tables
(`tests/kernels/test_gather.py`), no loop, the same bits."""

import functools
import re

import jax
import numpy as np
import pytest

import jaxpool

PLATFORMS = ("cpu", "cuda", "tpu")
SHAPE = (2, 9, 10, 3)
SAME = {"window_shape": (3, 3), "strides": (2, 2), "padding": "SAME"}
POOLS = {
    "max": ("max_pool", SAME),
    "max jvp": ("max_pool", SAME | {"autodiff": "jvp"}),
    "max last": ("max_pool", SAME | {"ties": "last"}),
    "max split": ("max_pool", SAME | {"ties": "split"}),
    "max split jvp": ("max_pool", SAME | {"ties": "split", "autodiff": "jvp"}),
    "max stride 1": ("max_pool", {"window_shape": (3, 3), "padding": "SAME"}),
    "max dilated": ("max_pool", SAME | {"window_dilation": (2, 1)}),
    "max large": ("max_pool", {"window_shape": (7, 9), "padding": "SAME"}),
    "max large split": ("max_pool", {"window_shape": (9, 15), "padding": "SAME", "ties": "split"}),
    "max channels first": ("max_pool", SAME | {"axes": (2, 3)}),
    "min": ("min_pool", SAME),
    "avg": ("avg_pool", SAME),
    "avg real": ("avg_pool", SAME | {"count_include_pad": False}),
    "avg jvp": ("avg_pool", SAME | {"autodiff": "jvp"}),
    "avg large": ("avg_pool", {"window_shape": (7, 9), "padding": "SAME"}),
    "sum": ("sum_pool", SAME),
    "sum ceil": ("sum_pool", {"window_shape": (2, 2), "strides": (2, 2), "ceil_mode": True}),
}


def gradient(name):
    function, kwargs = POOLS[name]
    pool = functools.partial(getattr(jaxpool, function), **kwargs)
    return jax.jit(jax.grad(lambda x: (pool(x) ** 2).sum()))


def lowered(f, platform, shape=SHAPE):
    """The names of the operations in the program of f for a platform."""
    x = jax.ShapeDtypeStruct(shape, np.float32)
    program = jax.export.export(f, platforms=[platform])(x).mlir_module()
    return set(re.findall(r"\b(?:stablehlo|chlo|mhlo)\.(\w+)", program))


def forbidden(operations, words=("scatter",)):
    return [name for name in operations if any(word in name for word in words)]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_search_finds_what_lax_lowers_to(platform):
    """Lest the tests below look for a word that no program holds."""

    def lax_pool(x):
        window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, strides, "SAME").sum()

    operations = lowered(jax.jit(jax.grad(lax_pool)), platform)
    assert forbidden(operations) == ["select_and_scatter"]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", POOLS)
def test_the_gradient_holds_no_scatter(name, platform):
    operations = lowered(gradient(name), platform)
    assert "add" in operations
    assert forbidden(operations) == []


@pytest.mark.parametrize("name", ["max", "max split", "avg"])
def test_nor_does_the_second_derivative(name):
    again = jax.jit(jax.grad(lambda x: (gradient(name)(x) ** 2).sum()))
    for platform in PLATFORMS:
        assert forbidden(lowered(again, platform)) == []


def test_nor_does_what_the_compiler_makes_of_it():
    compiled = gradient("max").lower(np.ones(SHAPE, np.float32)).compile().as_text()
    operations = set(re.findall(r" = \S+ ([\w-]+)\(", compiled))
    assert "fusion" in operations
    assert forbidden(operations, ("scatter", "gather", "while")) == []


@pytest.mark.parametrize("name", ["max", "max split", "min", "avg", "sum"])
def test_vmap_adds_neither_loop_nor_gather(name):
    for platform in PLATFORMS:
        operations = lowered(jax.jit(jax.vmap(gradient(name))), platform, (5, *SHAPE))
        assert forbidden(operations, ("scatter", "gather", "while")) == []


def test_the_same_bits_on_every_run():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 32, 32, 16), np.float32)
    dy = rng.standard_normal((4, 32, 32, 16), np.float32)

    @jax.jit
    def cotangent(x, dy):
        pool = functools.partial(jaxpool.max_pool, window_shape=(5, 5), padding="SAME")
        return jax.vjp(pool, x)[1](dy)[0]

    first = np.asarray(cotangent(x, dy))
    for _ in range(5):
        assert np.asarray(cotangent(x, dy)).tobytes() == first.tobytes()
