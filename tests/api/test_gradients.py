"""Gradients of every kind of op: what they keep from the forward pass, and their operations."""

import functools
import re

import jax
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
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
SPOTS = np.arange(12).reshape(4, 3, 1) % 3 > 0
PROGRAMS = [
    (SMALL, "adaptive_max_pool", {"output_shape": (3, 2)}),
    (SMALL, "adaptive_max_pool", {"output_shape": (3, 2), "ties": "split"}),
    (SMALL, "adaptive_max_pool", {"output_shape": (6, 4)}),
    (SMALL, "adaptive_avg_pool", {"output_shape": (3, 2)}),
    (SMALL, "global_max_pool", {"where": np.ones(SMALL, bool)}),
    (SMALL, "global_avg_pool", {"where": np.ones(SMALL, bool)}),
    (SMALL, "blur_pool", {"window_shape": (3, 3)}),
    ((9,), "cummax", {}),
    *[
        (SMALL, "max", {"axis": axes, "ties": ties} | options)
        for axes, options in [(1, {}), ((1, 2), {"where": SPOTS, "initial": 1})]
        for ties in ("first", "last", "split")
    ],
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
        forbidden = ["scatter", "while"] if name != "cummax" else ["scatter", "gather", "sort"]
        if name == "max":
            # With ties="first" or "last", a value is gathered at its index.
            forbidden += ["sort", "gather"] if arguments["ties"] == "split" else ["sort"]
        assert not [each for each in names if any(word in each for word in forbidden)]
