"""Medians, ranks, morphology and the k largest elements: large windows, memory, methods and masks."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._ops.op import is_partitioned
from jaxpool.testing import Call, PoolCase, assert_pool_matches, draw_values, pools

pytestmark = pytest.mark.usefixtures("strict")


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int8, np.uint8, np.bool_])
def test_k_max_pool_sorts_in_partitioned_programs(dtype):
    """XLA for CPU all-gathers the batch of a `top_k`."""
    values = [np.nan, -np.inf, np.inf, -0.0, 0.0, 1e-45, -1.0] if dtype != np.bool_ else [0, 1]
    x = np.random.default_rng(0).choice(values, (3, 40, 2))
    x = jnp.asarray(
        np.nan_to_num(x, posinf=5, neginf=0) if np.dtype(dtype).kind in "iu" else x
    ).astype(dtype)
    pool = functools.partial(jaxpool.k_max_pool, k=20, axis=1)
    want = jax.jit(pool)(x)
    with is_partitioned(True):
        program = jax.jit(pool)
        assert "top_k" not in program.lower(x).as_text()
        np.testing.assert_array_equal(np.float32(program(x)), np.float32(want))


def test_k_max_pool_with_large_k():
    x = np.random.default_rng(0).permutation(2 * 90).reshape(2, 90).astype(np.float32)
    pool, dy = pools()["k_max_pool"], np.arange(160, dtype=np.float32).reshape(2, 80)
    assert_pool_matches(pool.function, Call(pool, {"x": x, "k": 80, "axis": 1}, dy))


def test_k_max_pool_memory_is_linear():
    x = jax.ShapeDtypeStruct((8, 16384), jnp.float32)

    def both(x, dy):
        y, back = jax.vjp(lambda x: jaxpool.k_max_pool(x, 4096, axis=1), x)
        return y, back(dy)

    memory = jax.jit(both).lower(x, x.update(shape=(8, 4096))).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 8 * 4 * x.size  # pairwise comparisons would need 2.1 GB


# windows beyond one step of a maximum, beyond one word of bits, and beyond ranking by comparators
LARGE_WINDOWS = {
    "several steps": ((1, 7, 7, 1), (5, 5), (1, 1), "first"),
    "two words": ((1, 8, 7, 1), (6, 7), (2, 1), "split"),
    **{f"walked back, {t}": ((1, 9, 9, 2), (9, 8), (2, 3), t) for t in ("first", "last", "split")},
    **{f"counted, {t}": ((1, 15, 9, 2), (17, 8), (2, 3), t) for t in ("first", "last", "split")},
    "counted, apart": ((1, 26, 24, 2), (13, 12), (13, 12), "first"),
}


QUICK = ("several steps", "two words", "counted, split")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in LARGE_WINDOWS]
)
def test_large_windows(name):
    """Padded windows with NaN, infinities and ties; two windows may select different elements of their overlap."""
    shape, window, strides, ties = LARGE_WINDOWS[name]
    for values in ("special", "ties"):
        x = draw_values(np.random.default_rng(0), shape, np.float32, values)
        case = PoolCase("median", x, None, window, strides, "SAME", ties=ties)
        outs = case.window().output_shape_of(x.shape)
        dy = np.arange(1, 1 + np.prod(outs), dtype=np.float32).reshape(outs)
        assert_pool_matches(jaxpool.median_pool, dataclasses.replace(case, dy=dy))


@pytest.mark.parametrize("method", ["higher", "lower", "midpoint"])
@pytest.mark.parametrize("taps", [3, 4])
def test_median_methods_match_numpy_quantile(method, taps):
    x = np.random.default_rng(taps).permutation(12).astype(np.float32)
    y = jaxpool.median_pool(x, taps, taps, axes=(0,), method=method)
    np.testing.assert_array_equal(y, np.quantile(x.reshape(-1, taps), 0.5, axis=1, method=method))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_midpoint_of_integers_matches_jnp_median(dtype):
    x = jnp.array([0, 1, 1, 0, 1, 1, 1, 0]).astype(dtype)
    y = jaxpool.median_pool(x, 4, 2, axes=(0,), method="midpoint")
    assert y.dtype == jnp.float32
    np.testing.assert_array_equal(y, [jnp.median(x[at : at + 4]) for at in (0, 2, 4)])
    assert jaxpool.median_pool(x, 4, axes=(0,), method="lower").dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_midpoint_of_large_values_and_nan(dtype):
    """NaN ranks above numbers, so a pair with NaN has the midpoint NaN. Large numbers do not overflow."""
    largest = float(jnp.finfo(dtype).max)
    x = jnp.array([largest, largest, np.nan, 1, -np.inf, np.nan, -2, -2], dtype)
    y = jaxpool.median_pool(x, 2, 2, axes=(0,), method="midpoint")
    np.testing.assert_array_equal(y.astype(np.float32), [largest, np.nan, np.nan, -2])
    y = jaxpool.median_pool(x, 2, 2, axes=(0,), method="lower")
    np.testing.assert_array_equal(y.astype(np.float32), [largest, 1, -np.inf, -2])


@pytest.mark.parametrize("window", [(2, 3), (5, 6)])
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("rank_pool", {"rank": 1}),
        ("rank_pool", {"rank": -2}),
        ("median_pool", {"method": "lower"}),
        ("median_pool", {"method": "midpoint"}),
    ],
)
def test_masked_ranks_match_the_oracle(name, how, window):
    """If a window has too few unmasked elements for the rank, the output is 0 without gradient."""
    rng = np.random.default_rng(2)
    x, mask = rng.integers(-3, 4, (2, 5, 6, 2)).astype(np.float32), rng.random((2, 5, 6, 1)) < 0.4
    x[0, 0] = np.nan
    pool, arguments = pools()[name], {"x": x, "window_shape": window, "where": mask, **how}
    y = Call(pool, arguments).answer().y
    dy = rng.standard_normal(y.shape).astype(np.float32)
    assert_pool_matches(pool.function, Call(pool, arguments, dy))


def test_too_few_unmasked_elements_give_zero():
    x, mask = jnp.array([5.0, 2.0, 7.0, 4.0]), jnp.array([True, True, False, True])
    for rank, want in ((1, [5, 0]), (-2, [2, 0]), (0, [2, 4]), (-1, [5, 4])):
        y = jaxpool.rank_pool(x, rank, 2, 2, axes=(0,), where=mask)
        np.testing.assert_array_equal(y, want)
    dx = jax.grad(lambda x: jaxpool.rank_pool(x, 1, 2, 2, axes=(0,), where=mask).sum())(x)
    np.testing.assert_array_equal(dx, [1, 0, 0, 0])
