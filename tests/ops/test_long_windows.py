"""Max and min pools over long windows, which take several steps, and checks that short windows share."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import oracle

LONG = [
    # shape, window, strides, padding, dilation
    ((1, 45, 44, 2), (9, 2), (1, 1), "VALID", 1),
    ((1, 45, 44, 2), (13, 17), (1, 1), "SAME", 1),
    ((1, 45, 44, 2), (17, 3), (2, 2), ((8, 8), (1, 1)), 1),
    ((1, 45, 44, 2), (33, 33), (33, 33), "VALID", 1),
    ((1, 45, 44, 2), (40, 1), (1, 1), ((39, 0), (0, 0)), 1),
    ((1, 45, 44, 2), (3, 20), (1, 1), "SAME_LOWER", (1, 2)),
    # Large strides: earlier steps compute only positions that later steps read.
    ((1, 260, 20, 1), (64, 17), (64, 1), "VALID", 1),
    ((1, 260, 20, 1), (50, 17), (20, 1), "VALID", 1),
    ((1, 260, 20, 1), (40, 17), (48, 1), "VALID", (2, 1)),
    ((1, 260, 20, 1), (70, 17), (7, 1), "VALID", (3, 1)),
]


# Without slow tests, ties alternate between "first" and "last".
CASES = [
    pytest.param(*case, ties, marks=[pytest.mark.slow] * (which != number % 2))
    for number, case in enumerate(LONG)
    for which, ties in enumerate(("first", "last"))
]


@pytest.mark.parametrize(("shape", "window", "strides", "padding", "dilation", "ties"), CASES)
def test_values_cotangents_and_tangents(shape, window, strides, padding, dilation, ties):
    """Many ties, and integers, whose sums are exact in any order."""
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, shape).astype(np.float32)
    x[x == -2] = -np.inf
    more = {"window_dilation": (1, 1) if dilation == 1 else dilation, "ties": ties}
    want = oracle.max_pool(x, window, strides, padding, **more)
    dy = rng.integers(1, 9, want.y.shape).astype(np.float32)
    v = np.arange(x.size, dtype=np.float32).reshape(x.shape)
    want_dx, want_tangent = np.zeros_like(x), np.zeros_like(dy)
    for term in want.terms:
        want_dx[term.position] += term.share * dy[term.output]
        want_tangent[term.output] += term.share * v[term.position]

    @jax.jit
    def run(x, v, dy):
        def pool(x):
            return jaxpool.max_pool(x, window, strides, padding, **more, autodiff="jvp")

        y, tangent = jax.jvp(pool, (x,), (v,))
        return y, tangent, jax.vjp(pool, x)[1](dy)[0]

    for found, wanted in zip(run(x, v, dy), (want.y, want_tangent, want_dx), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
@pytest.mark.parametrize("pool", [jaxpool.max_pool, jaxpool.min_pool])
def test_signed_zeros_tie(pool, dtype):
    x = jnp.array([-0.0, 0.0, -0.0, -0.0], dtype)
    y = pool(x, (2,), axes=(0,))
    assert np.signbit(np.asarray(y, np.float32)).tolist() == [True, False, True]


@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize("pool", [jaxpool.max_pool, jaxpool.min_pool])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_16_bit_selection_equals_float32(dtype, pool, ties):
    """Few distinct numbers, with zeros of both signs, NaN, infinities and the smallest normal numbers."""
    least = jnp.finfo(dtype).tiny
    some = np.asarray([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, least, -least], np.float32)
    x = jnp.asarray(np.random.default_rng(5).choice(some, (60, 8)), dtype)
    dy = jnp.asarray(np.random.default_rng(6).integers(1, 9, (60, 8)), dtype)

    def both(x, dy):
        y, pull = jax.vjp(lambda x: pool(x, (3,), padding=1, axes=(0,), ties=ties), x)
        return np.asarray(y, np.float32), np.asarray(pull(dy)[0], np.float32)

    y, dx = both(x, dy)
    want, want_dx = both(x.astype(jnp.float32), dy.astype(jnp.float32))
    np.testing.assert_array_equal(dx, want_dx)
    np.testing.assert_array_equal(y, want)
    number = ~np.isnan(want)
    assert (np.signbit(y) == np.signbit(want))[number].all()


@pytest.mark.parametrize("pool", [jaxpool.max_pool, jaxpool.avg_pool])
@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
def test_program_size_with_large_strides(pool, autodiff):
    """Phases without taps need no slice each."""
    x = jnp.zeros((1, 256, 256, 1))
    grad = jax.jit(jax.grad(lambda x: pool(x, (2, 2), (64, 64), autodiff=autodiff).sum()))
    for platform in ("cpu", "cuda", "tpu"):
        program = grad.trace(x).lower(lowering_platforms=(platform,)).as_text()
        assert program.count(" = stablehlo.") < 300


def test_value_steps_are_not_recomputed():
    """XLA would fuse the steps and recompute earlier steps for each piece of the last step."""
    x = jnp.zeros((1, 64, 64, 4))
    program = jax.jit(lambda x: jaxpool.max_pool(x, (31, 31)))
    lowered = program.trace(x).lower(lowering_platforms=("cpu",)).as_text()
    assert len(re.findall(r"= call .*inlineable = \"false\"", lowered)) == 3
    for platform, passes in (("cuda", 2), ("tpu", 4)):
        again = jax.jit(lambda x: jax.vjp(lambda x: jaxpool.max_pool(x, (31, 31)), x)[0])
        lowered = again.trace(x).lower(lowering_platforms=(platform,)).as_text()
        assert lowered.count("stablehlo.optimization_barrier") >= passes - 1
        assert "inlineable" not in lowered


@pytest.mark.parametrize("padding", ["VALID", "SAME", ((1, 1), (1, 1)), ((0, 1), (2, 0))])
@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
def test_channels_first_minor_axis_is_joined_last(autodiff, padding):
    """On CPU, a pad, slice or concatenate after them prevents vectorisation and doubles the time."""
    x = jnp.zeros((2, 4, 16, 20))

    def pool(x):
        return jaxpool.max_pool(x, (3, 3), (2, 2), padding, axes=(2, 3), autodiff=autodiff).sum()

    program = jax.jit(jax.grad(pool)).trace(x).lower(lowering_platforms=("cpu",)).as_text()
    main = program.split("func.func private")[0]
    ops = [line for line in main.splitlines() if " = stablehlo." in line]
    joined = [line for line in ops if "concatenate" in line]
    assert joined[-1].endswith("-> tensor<2x4x16x10x2xf32>")
    whole = [line for line in ops if line.endswith("-> tensor<2x4x16x20xf32>")]
    assert len(whole) == 1
    assert "stablehlo.reshape" in whole[0]


@pytest.mark.parametrize("pool", [jaxpool.max_pool, jaxpool.min_pool])
def test_tangent_of_tied_elements_is_their_mean(pool):
    """Windows of 144 taps, whose residuals are x and y."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (1, 14, 13, 2)).astype(np.float32)
    v = rng.integers(-9, 9, x.shape).astype(np.float32)
    split = functools.partial(pool, window_shape=(12, 12), ties="split", autodiff="jvp")
    y, tangent = jax.jit(lambda x, v: jax.jvp(split, (x,), (v,)))(x, v)
    for i, j, c in np.ndindex(3, 2, 2):
        window, tangents = (a[0, i : i + 12, j : j + 12, c] for a in (x, v))
        best = window.max() if pool is jaxpool.max_pool else window.min()
        assert y[0, i, j, c] == best
        np.testing.assert_allclose(tangent[0, i, j, c], tangents[window == best].mean(), rtol=1e-5)
