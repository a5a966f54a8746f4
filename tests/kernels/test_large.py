"""Large arrays and short rows with the platforms' own thresholds: all plans give the same bits. Also empty arrays."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.window import make_window
from jaxpool._kernels.select import pick, route, select
from jaxpool._kernels.sums import Epilogue, window_sum, window_sum_transpose
from jaxpool._plan.max_pool import plan_max
from jaxpool._plan.problem import Problem
from jaxpool._plan.sum_pool import plan_sum
from jaxpool._plan.tuning import PORTABLE
from jaxpool.testing import draw_values
from tests.support import forms
from tests.support.compilation import FAST_COMPILE

LAST = (1, 2)
PROBLEMS = [  # shape, window, strides, padding, axes, dtype
    ((2, 64, 64, 32), 3, 1, "SAME", LAST, "float32"),  # nine regions, or tables
    ((2, 65, 64, 32), 3, 2, "SAME", LAST, "float32"),
    ((2, 64, 64, 32), 3, 2, "VALID", LAST, "bfloat16"),
    ((2, 64, 64, 32), 2, 2, "VALID", LAST, "float16"),
    ((2, 64, 64, 32), 13, 6, "SAME", LAST, "float32"),  # two steps
    ((2, 64, 64, 32), 5, 1, "SAME", LAST, "bfloat16"),  # two loops through tables
    ((2, 64, 64, 16), 12, (1, 2), "SAME", LAST, "float32"),
    ((2, 128, 128, 3), 3, 2, "SAME", LAST, "float32"),  # short rows
    ((2, 128, 128, 3), 3, 1, "SAME", LAST, "float32"),
    ((1, 256, 256, 1), 5, 1, "SAME", LAST, "float16"),
    ((2, 16, 96, 96), 3, 2, 1, (2, 3), "float32"),  # channels first
    ((1, 16, 32, 32, 12), 3, 1, "SAME", (1, 2, 3), "float32"),
    ((1, 16, 32, 32, 8), 3, 2, "SAME", (3, 1, 2), "float32"),
    ((2, 4096, 16), 64, 32, "SAME", (1,), "float32"),  # sums of partial sums
    ((2, 4096, 16), 41, 1, "SAME", (1,), "float32"),  # sums of partial sums and remaining taps
]


def results(problem, x, index, dy):
    """Return the results of all kernels of windowed maxima and sums."""
    plan, end = plan_max(problem), Epilogue(np.dtype(problem.dtype))
    return (
        *select(x, problem.window, "max", "first", plan),
        route(dy, index, plan),
        pick(x, index, plan),
        window_sum(x, plan_sum(problem), end),
        window_sum_transpose(dy, plan_sum(problem, is_transposed=True), end),
    )


GPU_PROBLEMS = [  # sums by one reduction, and one step up to 27 taps
    ((2, 14, 15, 3), 5, 1, "SAME", LAST, "float32"),
    ((2, 14, 15, 3), 5, 2, "SAME", LAST, "bfloat16"),
    ((1, 20, 21, 2), 13, 1, "SAME", LAST, "bfloat16"),
    ((1, 7, 8, 6, 2), 3, 1, "SAME", (1, 2, 3), "float32"),
]


@pytest.mark.parametrize(
    ("platform", "problem"),
    [*[("cpu", each) for each in PROBLEMS], *[("gpu", each) for each in GPU_PROBLEMS]],
)
def test_plan_equals_portable(platform, problem):
    """Both run on CPU."""
    shape, sizes, strides, padding, axes, dtype = problem
    window = make_window(shape, (sizes,) * len(axes), strides, padding, axes=axes)
    ours, dtype = Problem(window, shape, dtype, platform), np.dtype(dtype)
    portable = dataclasses.replace(ours, platform="gpu", thresholds=PORTABLE)

    def run(x, dy):
        _, index = select(x, window, "max", "first", plan_max(portable))
        return [results(each, x, index, dy) for each in (ours, portable)]

    rng, special = np.random.default_rng(0), platform == "cpu"
    x = draw_values(rng, shape, dtype, "ties")
    odd = special & (rng.random(shape) < 0.01)
    x = np.where(odd, rng.choice([np.nan, np.inf, -np.inf], shape), x).astype(dtype)
    dy = forms.draw_integers(rng, window.pooled_shape(shape), dtype, special=special)
    # HASTY for any flags: jaxlib 0.12 took more than an hour to optimise a GPU's program for CPU.
    options = FAST_COMPILE if platform == "gpu" else None
    got, want = jax.device_get(jax.jit(run, compiler_options=options)(x, dy))
    forms.assert_same_bits(got, want, str(problem))


@pytest.mark.parametrize(("shape", "padding"), [((1, 0, 3), 2), ((0, 9, 3), 2), ((2, 9, 0), 0)])
def test_empty_arrays(shape, padding):
    """The padding is on both sides of axis 1."""
    window = make_window(shape, (3,), (2,), ((padding, padding),), axes=(1,), empty_windows="allow")
    every = [forms.MAX[name] for name in ("tpu", "cpu", "cpu, one loop through tables")]
    every += [forms.SUMS[name] for name in ("portable", "cpu, regions")]
    problems = [form.problem(window, shape, "bfloat16") for form in every]
    x, dy = (jnp.ones(each, jnp.bfloat16) for each in (shape, window.pooled_shape(shape)))
    run = jax.jit(lambda *xs: [results(each, *xs) for each in problems])
    for y, index, dx, tangent, sums, spread in run(x, jnp.zeros(dy.shape, np.uint8), dy):
        assert (y.shape, index.shape, tangent.shape, sums.shape) == (dy.shape,) * 4
        assert (dx.shape, spread.shape) == (shape, shape)
        assert (y == -np.inf).all()
        assert not any(each.any() for each in (tangent, sums, dx, spread))


@pytest.mark.parametrize(("name", "long"), [("avg_pool", (40, 1, 1)), ("max_pool", (10, 1, 1))])
def test_regions_preserve_explicit_sharding(name, long):
    """Explicit shardings survive, also with phases without taps."""
    pool = getattr(jaxpool, name)
    mesh = jax.make_mesh((1,), ("b",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 66, 65, 32)), jnp.float32)

    def gradients(x):
        for window, stride, dilation in ((3, 1, 1), (3, 2, 1), (2, 4, 2), long):
            sides = ((window - 1, 1), (0, window - 1))
            options = {"window_dilation": dilation, "axes": (1, 2)}
            of = functools.partial(
                pool, window_shape=window, strides=stride, padding=sides, **options
            )
            yield jax.vjp(of, x)[1](jnp.ones_like(of(x)))[0]

    program = jax.jit(lambda x: list(gradients(x)))
    wanted = program(x)
    with jax.set_mesh(mesh):
        found = program(jax.device_put(x, jax.NamedSharding(mesh, jax.P("b"))))
    for got, want in zip(found, wanted, strict=True):
        assert got.sharding.spec[0] == "b"
        np.testing.assert_allclose(got, want, rtol=1e-5)
