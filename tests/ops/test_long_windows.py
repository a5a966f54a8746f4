"""Max and min pools over long windows, which take several steps, and checks that short windows share."""

import re

import jax
import jax.numpy as jnp
import pytest

import jaxpool


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


def operations_of_gradient(x, window, padding, autodiff):
    """Operations of a channels-first max pool's gradient on CPU, outside of stored parts."""

    def pool(x):
        strides, axes = (2, 2), (2, 3)
        return jaxpool.max_pool(x, window, strides, padding, axes=axes, autodiff=autodiff).sum()

    program = jax.jit(jax.grad(pool)).trace(x).lower(lowering_platforms=("cpu",)).as_text()
    main = program.split("func.func private")[0]
    return [line for line in main.splitlines() if " = stablehlo." in line]


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
def test_channels_first_minor_axis_is_joined_last(autodiff, padding):
    """On CPU, a pad, slice or concatenate after them prevents vectorisation and doubles the time."""
    ops = operations_of_gradient(jnp.zeros((2, 4, 16, 40)), (2, 2), padding, autodiff)
    joined = [line for line in ops if "concatenate" in line]
    assert joined[-1].endswith("-> tensor<2x4x16x20x2xf32>")
    whole = [line for line in ops if line.endswith("-> tensor<2x4x16x40xf32>")]
    assert len(whole) == 1
    assert "stablehlo.reshape" in whole[0]
