"""Gradients of every kind of op: what they keep from the forward pass, their operations, and sums in float32."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
BFLOAT16 = jnp.bfloat16
STARTS = np.arange(9)[:, None] == 4
MASK = np.ones((2, 20, 20, 1), bool)
# Shape of x, call, and the dtype and size of the residual if there is one. `tests/ops/test_residual.py` has more.
RESIDUALS = [
    ((2, 13, 5), "adaptive_max_pool", {"output_shape": (3,)}, ("uint8", 30)),
    ((2, 256, 5), "adaptive_max_pool", {"output_shape": (3,)}, ("uint8", 30)),
    ((2, 770, 5), "adaptive_max_pool", {"output_shape": (3,)}, ("uint16", 30)),
    ((2, 13, 15, 5), "adaptive_avg_pool", {"output_shape": (6, 7)}, None),
    ((2, 256), "cummax", {}, ("uint8", 512)),
    ((2, 257), "cummax", {}, ("uint16", 514)),
    ((9, 4), "cummax", {"axis": 0, "reset": STARTS}, ("uint8", 36)),
    ((2, 3), "fmax", {"y": np.zeros((2, 1), np.float32)}, ("uint8", 6)),
    ((2, 3), "fmax", {"y": np.zeros((2, 1), np.float32), "ties": "last"}, ("uint8", 6)),
    ((2, 20, 20, 3), "global_max_pool", {}, ("uint16", 6)),
    ((2, 20, 20, 3), "global_max_pool", {"where": MASK}, ("uint16", 6)),
    ((2, 20, 20, 3), "global_avg_pool", {}, None),
    ((2, 20, 20, 3), "global_avg_pool", {"where": MASK}, ("bool", 800)),
    ((1, 4, 4, 3), "blur_pool", {"window_shape": (3, 3)}, None),
]
SMALL = (2, 4, 3, 2)
PROGRAMS = [
    (SMALL, "adaptive_max_pool", {"output_shape": (3, 2)}),
    (SMALL, "adaptive_max_pool", {"output_shape": (3, 2), "ties": "split"}),
    (SMALL, "adaptive_max_pool", {"output_shape": (6, 4)}),
    (SMALL, "adaptive_avg_pool", {"output_shape": (3, 2)}),
    (SMALL, "global_max_pool", {"where": np.ones(SMALL, bool)}),
    (SMALL, "global_avg_pool", {"where": np.ones(SMALL, bool)}),
    (SMALL, "blur_pool", {"window_shape": (3, 3)}),
    ((9,), "cummax", {}),
]


def pools(name, arguments):
    """Return the call as a function of x, in both modes where it has them."""
    function = functools.partial(getattr(jaxpool, name), **arguments)
    if name.startswith(("global", "blur")):
        return [function]
    return [functools.partial(function, autodiff=mode) for mode in MODES]


@pytest.mark.parametrize(("shape", "name", "arguments", "wanted"), RESIDUALS)
def test_residuals(shape, name, arguments, wanted):
    for pool in pools(name, arguments):
        for function in (pool, jax.jit(pool)):
            back = jax.eval_shape(
                lambda x, f=function: jax.vjp(f, x)[1], np.ones(shape, np.float32)
            )
            leaves = [(each.dtype.name, each.size) for each in jax.tree.leaves(back)]
            assert leaves == ([] if wanted is None else [wanted])


@pytest.mark.parametrize("autodiff", MODES)
def test_residual_of_split_ties_is_one_bit_per_tap(autodiff):
    x = np.zeros((2, 13, 15, 5), np.float32)
    pool = functools.partial(
        jaxpool.adaptive_max_pool, output_shape=(6, 7), ties="split", autodiff=autodiff
    )
    (kept,) = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(pool, x)[1], x))
    taps = 2 * (6 * 3) * (7 * 3) * 5
    assert kept.dtype == np.uint8
    assert taps / 8 <= kept.size < taps / 6


@pytest.mark.parametrize(("shape", "name", "arguments"), PROGRAMS)
def test_no_scatter_or_loop(shape, name, arguments):
    """A lowering for three platforms, and a vmapped gradient for one platform."""
    for pool in pools(name, arguments):
        gradient = jax.grad(lambda x, pool=pool: (pool(x) ** 2).sum())
        names = set()
        for f, each, platforms in [
            (gradient, shape, ["cpu", "cuda", "tpu"]),
            (jax.vmap(gradient), (5, *shape), ["tpu"]),
        ]:
            x = jax.ShapeDtypeStruct(each, np.float32)
            program = jax.export.export(jax.jit(f), platforms=platforms)(x).mlir_module()
            names |= set(re.findall(r"\b(?:stablehlo|chlo|mhlo)\.(\w+)", program))
        assert "multiply" in names
        words = ("scatter", "gather", "sort") if name == "cummax" else ("scatter", "while")
        assert not [each for each in names if any(word in each for word in words)]


# x, a pool, and the greatest cotangent of x for ones: sums in 16 bits would stop at 256, and in 8 bits at 16.
SUMS = {
    "running maximum": (np.zeros(512, BFLOAT16), jaxpool.cummax, 512),
    "running maximum, jvp": (
        np.zeros(512, BFLOAT16),
        functools.partial(jaxpool.cummax, autodiff="jvp"),
        512,
    ),
    "broadcast operand": (
        jnp.zeros((1,), BFLOAT16),
        functools.partial(jaxpool.fmax, jnp.full(512, np.nan, BFLOAT16)),
        512,
    ),
    "adaptive maximum": (
        np.array([1, 2], BFLOAT16),
        functools.partial(jaxpool.adaptive_max_pool, output_shape=601, axes=(0,)),
        float(BFLOAT16(301)),
    ),
    "adaptive average": (
        np.array([1, 2], BFLOAT16),
        functools.partial(jaxpool.adaptive_avg_pool, output_shape=601, axes=(0,)),
        float(BFLOAT16(300.5)),
    ),
    "fractional maximum": (
        jnp.zeros((40, 1), jnp.float8_e4m3fn).at[20].set(1),
        lambda x: jaxpool.fractional_max_pool(jax.random.key(0), x, (21,), (20,)),
        20,
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_cotangents_accumulate_in_float32(name):
    x, pool, greatest = SUMS[name]
    y, back = jax.vjp(pool, x)
    dx = back(jnp.ones_like(y))[0]
    assert (dx.dtype, float(dx.max())) == (x.dtype, greatest)


def test_averages_accumulate_in_float32():
    x = np.ones((1, 513, 1), BFLOAT16)
    assert (jaxpool.adaptive_avg_pool(x, (2,)) == 1).all()
    assert (jaxpool.global_avg_pool(x) == 1).all()
    assert (jaxpool.global_avg_pool(x, where=np.arange(513)[:, None] < 511) == 1).all()
