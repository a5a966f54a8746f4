"""Forward and backward pass of a pool compile to the same program for every way of calling it.

Operations, bits and memory are equal by default, with `autodiff="jvp"`, for a drop-in, and for lax's pool under
`accelerate`.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.compat import flax, torch
from jaxpool.testing import pools
from tests.support import lax_pools
from tests.support.compilation import DEFAULT_FUSION
from tests.support.programs import value_and_vjp

RECORDS = {name: pool for name, pool in pools().items() if pool.modes}
FIRST = {"axes": (2, 3)}
OUT = (5, 4)


def in_modes(name, **settings):
    return {mode: RECORDS[name].of(autodiff=mode, **settings) for mode in RECORDS[name].modes}


def forms_of(kind, **geometry):
    """Return the ways of calling a pool, by name."""
    forms = in_modes(f"{kind}_pool", **geometry)
    if kind != "avg":
        forms["accelerate"] = jaxpool.accelerate(lambda x: lax_pools.POOLS[kind](x, **geometry))
    if kind != "sum":
        forms["compat.flax"] = lambda x: getattr(flax, f"{kind}_pool")(x, **geometry)
    return forms


def quotient_forms(**geometry):
    """Averages as users write them with lax: `accelerate` replaces the sum, and the division stays in user code."""
    count = np.float32(np.prod(geometry["window_shape"]))
    sums = in_modes("sum_pool", **geometry).items()

    def divided_inside(x):
        return lax_pools.sum_pool(x, **geometry) / np.prod(geometry["window_shape"])

    return {mode: lambda x, f=f: f(x) / count for mode, f in sums} | {
        "accelerate": jaxpool.accelerate(lambda x: lax_pools.sum_pool(x, **geometry) / count),
        "accelerate, divided inside": jaxpool.accelerate(divided_inside),
    }


POOLS = {
    **{kind: functools.partial(forms_of, kind) for kind in ("max", "min", "sum", "avg")},
    "sum over count": quotient_forms,
}
GEOMETRIES = {
    "2x2 stride 2": ((1, 8, 8, 4), (2, 2), (2, 2), "VALID"),
    "3x3": ((1, 8, 8, 4), (3, 3), (1, 1), "SAME"),
    "3x3 stride 2": ((1, 9, 8, 4), (3, 3), (2, 2), "SAME"),
    "31x31 stride 16, large": ((4, 96, 96, 32), (31, 31), (16, 16), "SAME"),
    "3x3, large": ((4, 96, 96, 32), (3, 3), (1, 1), "SAME"),
    "13x13, large": ((2, 40, 40, 32), (13, 13), (1, 1), "SAME"),
}
QUICK = [*[(pool, "3x3") for pool in POOLS if pool != "min"], ("max", "3x3 stride 2")]

UNPOOL_INDICES = np.random.default_rng(2).permutation(144)[:36].reshape(1, 1, 6, 6).astype(np.int32)


def indices(x):
    return jnp.broadcast_to(UNPOOL_INDICES, x.shape)


OTHERS = {
    **{name: in_modes(name) for name in RECORDS},
    "max_pool, split": in_modes("max_pool", strides=(1, 1), ties="split"),
    "adaptive_max_pool, split": in_modes("adaptive_max_pool", output_shape=OUT, ties="split"),
    "adaptive avg": {
        "jaxpool": lambda x: jaxpool.adaptive_avg_pool(x, OUT, **FIRST),
        "compat.torch": lambda x: torch.adaptive_avg_pool2d(x, OUT),
    },
    "avg": {
        "jaxpool": lambda x: jaxpool.avg_pool(x, (3, 3), (2, 2), 1, **FIRST),
        "compat.torch": lambda x: torch.avg_pool2d(x, 3, 2, 1),
    },
    "unpool": {
        "jaxpool": lambda x: jaxpool.max_unpool(x, indices(x), (12, 12), **FIRST),
        "compat.torch": lambda x: torch.max_unpool2d(x, indices(x), 2),
    },
}
QUICK_OTHERS = ("adaptive_max_pool", "adaptive avg", "unpool", "maximum")


def normalized_text(compiled):
    """Return the text of a compiled program without metadata and parameter names, and with numbered operations."""
    body = re.search(r"(?ms)^(%|ENTRY ).*", compiled.as_text())[0]
    body = re.sub(r", metadata=\{[^}]*\}", "", body)
    body = re.sub(r"[\w.-]+: ", "", body)  # names of parameters
    names = {}
    return re.sub(r"%[\w.-]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), body)


def quick(case, those):
    return pytest.param(*case, marks=() if case in those else pytest.mark.slow)


def assert_same_program(forms, x):
    """Compare the compiled forward and backward pass of each form with the first form."""
    like = jax.eval_shape(next(iter(forms.values())), x)
    dy = np.random.default_rng(1).standard_normal(like.shape).astype(like.dtype)
    want = None
    for name, f in forms.items():
        compiled = jax.jit(value_and_vjp(f)).lower(x, dy).compile(DEFAULT_FUSION)
        memory = compiled.memory_analysis()
        results = [np.asarray(leaf).tobytes() for leaf in compiled(x, dy)]
        got = normalized_text(compiled), memory.temp_size_in_bytes, results
        want = want or got
        assert got[0] == want[0], name
        assert got[1] == want[1], name
        assert got[2] == want[2], name


@pytest.mark.parametrize(
    ("pool", "geometry"), [quick((pool, one), QUICK) for pool in POOLS for one in GEOMETRIES]
)
def test_windows(pool, geometry):
    shape, *values = GEOMETRIES[geometry]
    settings = dict(zip(("window_shape", "strides", "padding"), values, strict=True))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    assert_same_program(POOLS[pool](**settings), x)


@pytest.mark.parametrize("name", [quick((name,), [(n,) for n in QUICK_OTHERS]) for name in OTHERS])
def test_other_pools(name):
    x = np.random.default_rng(0).standard_normal((2, 6, 6, 6)).astype(np.float32)
    assert_same_program(OTHERS[name], x)


def test_different_program_is_detected():
    """The comparison fails for lax's own gradient, and for an average of divided elements."""
    x = np.ones((1, 8, 8, 4), np.float32)
    forms = forms_of("max", window_shape=(3, 3), strides=(1, 1), padding="SAME")
    with pytest.raises(AssertionError, match="lax"):
        assert_same_program(
            {"vjp": forms["vjp"], "lax": lambda x: lax_pools.max_pool(x, (3, 3), None, "SAME")}, x
        )
    avg = functools.partial(jaxpool.avg_pool, window_shape=(3, 3))
    with pytest.raises(AssertionError, match="divided first"):
        assert_same_program({"vjp": avg, "divided first": lambda x: avg(x / 2) * 2}, x)
