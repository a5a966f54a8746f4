"""Pyramids of many levels by loops over all of them, beside an adaptive pool for each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._api import whole
from jaxpool._plan.others import levels_in_a_loop
from jaxpool.testing import draw_values

CASES = {
    "more windows than positions": ((2, 7, 3), (1, 2, 4, 5, 7, 14, 30), None),
    "images": ((2, 13, 9, 3), (1, 2, 3, 3, 5, 9, 20), None),
    "volumes": ((2, 4, 6, 5, 2), (1, 2, 3, 6), None),
    "no batch and no channels": ((6, 5), (2, 3), (0, 1)),
    "channels first": ((2, 3, 8, 7), (1, 3, 4), (2, 3)),
}


def both_ways(pool, x, dy):
    y, pullback = jax.vjp(pool, x)
    (dx,) = pullback(dy)
    return y, dx, jax.jvp(pool, (x,), (dx,))[1], jax.vmap(pool)(jnp.stack([x, dx]))[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("case", CASES)
def test_a_loop_over_levels_gives_what_a_pool_for_each_does(case, kind, monkeypatch):
    shape, levels, axes = CASES[case]
    pool = functools.partial(jaxpool.spatial_pyramid_pool, levels=levels, kind=kind, axes=axes)
    rng = np.random.default_rng(0)
    runs = []
    for loop in (False, True):
        monkeypatch.setattr(whole, "levels_in_a_loop", lambda *sizes, loop=loop: loop)
        x = jnp.zeros(shape)
        dy = jnp.zeros_like(jax.eval_shape(pool, x))
        runs.append(jax.jit(functools.partial(both_ways, pool)).lower(x, dy).compile())
    for pattern in ("normal", "ties", "special")[: 3 if kind == "max" else 1]:
        x = draw_values(rng, shape, np.float32, pattern)
        dy = np.float32(rng.integers(-3, 4, dy.shape))
        want, got = (run(x, dy) for run in runs)
        if kind == "max":
            jax.tree.map(np.testing.assert_array_equal, got, want)
        else:
            jax.tree.map(
                functools.partial(np.testing.assert_allclose, rtol=2e-6, atol=2e-6), got, want
            )


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, jnp.bfloat16])
def test_every_kind_of_element(dtype, monkeypatch):
    monkeypatch.setattr(whole, "levels_in_a_loop", lambda *sizes: True)
    x = draw_values(np.random.default_rng(1), (1, 5, 4, 2), dtype, "ties")
    for kind, name in (("max", "adaptive_max_pool"), ("avg", "adaptive_avg_pool")):
        y = jaxpool.spatial_pyramid_pool(x, (1, 3), kind=kind)
        parts = [getattr(jaxpool, name)(x, (n, n)).reshape(1, -1) for n in (1, 3)]
        want = jnp.concatenate(parts, 1)
        assert y.dtype == want.dtype
        np.testing.assert_allclose(np.float32(y), np.float32(want), rtol=1e-2)


def test_few_levels_are_a_pool_each_and_many_a_loop():
    assert not levels_in_a_loop((1, 2, 4), (224, 224))
    assert levels_in_a_loop(range(1, 64), (224, 224))
    assert not levels_in_a_loop(range(1, 64), (2**26,))
