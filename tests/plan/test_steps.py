"""The steps a window is walked in: they cover it, and the program they make stays small."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry.window import make_window
from jaxpool._kernels.route import pick, route
from jaxpool._kernels.select import select
from jaxpool._plan.steps import LONGEST, select_steps
from jaxpool.testing import oracle


def line(size, window, stride=1, padding="VALID", dilation=1):
    """A window along one axis, alone in its program: a second axis of one tap too many for one flat step."""
    return make_window(
        (1, size, 40, 1), (window, 17), (stride, 1), padding, window_dilation=(dilation, 1)
    )


@pytest.mark.parametrize("stride", [1, 2, 3, 50, 200])
def test_steps_cover_every_window(stride):
    """Each piece of a step is a window that the steps before it made; together they reach every tap."""
    for window in range(1, 130):
        steps = [s for s in select_steps(line(600, window, stride)) if s.starts[-1] % 17 == 0]
        length = 1
        for step in (s for s in steps if s.starts[-1] >= 17):
            assert step.reach == 17 * length
            covered = set()
            for start in step.starts:
                covered |= set(range(start // 17, start // 17 + length))
            length = step.count // 17
            assert covered == set(range(length))
            assert len(step.starts) <= LONGEST
        assert length == window


def test_a_long_window_is_a_short_program():
    pieces = [len(step.starts) for step in select_steps(make_window((1, 300, 300, 1), (63, 63)))]
    assert pieces == [8, 8, 8, 8]
    steps = select_steps(make_window((1, 3000, 3000, 1), (1000, 1000), (1000, 1000)))
    assert sum(len(step.starts) for step in steps) <= 64


@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize(
    ("window", "stride", "padding", "dilation"),
    [
        ((9, 2), 1, "VALID", 1),
        ((13, 17), 1, "SAME", 1),
        ((17, 3), 2, ((8, 8), (1, 1)), 1),
        ((33, 33), 33, "VALID", 1),
        ((40, 1), 1, ((39, 0), (0, 0)), 1),
        ((3, 20), 1, "SAME_LOWER", 2),
    ],
)
def test_long_windows(window, stride, padding, dilation, ties):
    """Values, cotangents and tangents, tie-heavy, each axis padded as its turn comes or at once."""
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (1, 45, 44, 2)).astype(np.float32)
    x[x == -2] = -np.inf
    geometry = {
        "window_shape": window,
        "strides": (stride, stride),
        "padding": padding,
        "window_dilation": (1, dilation),
    }
    given = make_window(x.shape, window, (stride, stride), padding, window_dilation=(1, dilation))
    want = oracle.max_pool(x, ties=ties, **geometry)

    @jax.jit
    def run(x, dy):
        y, index = select(x, given, "max", ties)
        return y, route(dy, index, given, ties), pick(dy_like(x), index, given, ties)

    def dy_like(x):
        return jnp.arange(x.size, dtype=x.dtype).reshape(x.shape)

    dy = rng.integers(1, 9, want.y.shape).astype(np.float32)
    y, dx, tangent = run(x, dy)
    np.testing.assert_array_equal(y, want.y)
    v = np.arange(x.size, dtype=np.float32).reshape(x.shape)
    want_dx, want_tangent = np.zeros_like(x), np.zeros_like(dy)
    for term in want.terms:
        want_dx[term.position] += term.share * dy[term.output]
        want_tangent[term.output] += term.share * v[term.position]
    np.testing.assert_array_equal(dx, want_dx)
    np.testing.assert_array_equal(tangent, want_tangent)


def test_the_index_is_narrow_until_it_has_to_be_wide():
    steps = select_steps(make_window((1, 100, 100, 1), (20, 20)))
    assert [step.count for step in steps] == [5, 20, 100, 400]


@pytest.mark.parametrize(
    ("window", "stride", "dilation"), [(64, 64, 1), (50, 20, 1), (40, 48, 2), (70, 7, 3)]
)
def test_long_windows_far_apart(window, stride, dilation):
    """Steps before the last compute only what later ones read."""
    rng = np.random.default_rng(3)
    shape = (1, 260, 20, 1)
    x = rng.integers(-9, 9, shape).astype(np.float32)
    given = make_window(shape, (window, 17), (stride, 1), window_dilation=(dilation, 1))
    want = oracle.max_pool(x, (window, 17), (stride, 1), window_dilation=(dilation, 1))
    dy = rng.integers(1, 9, want.y.shape).astype(np.float32)
    y, index = jax.jit(lambda x: select(x, given, "max", "first"))(x)
    dx = jax.jit(lambda dy: route(dy, index, given, "first"))(dy)
    (tangent,) = jax.linear_transpose(lambda v: pick(v, index, given, "first"), x)(dy)
    want_dx = np.zeros_like(x)
    for term in want.terms:
        want_dx[term.position] += term.share * dy[term.output]
    np.testing.assert_array_equal(y, want.y)
    np.testing.assert_array_equal(dx, want_dx)
    np.testing.assert_array_equal(tangent, want_dx)


def test_each_step_of_the_value_alone_is_computed_once():
    """XLA would fuse the steps, and compute the earlier ones again for each piece of the last."""
    x = jnp.zeros((1, 64, 64, 4))
    steps = select_steps(make_window(x.shape, (31, 31)))
    program = jax.jit(lambda x: jaxpool.max_pool(x, (31, 31))).lower(x).compile()
    assert program.as_text().count(" conditional(") == len(steps) - 1


def test_strides_beyond_the_window_make_no_program_of_their_size():
    """Phases that no tap reaches are not cut out one by one."""
    x = jnp.zeros((1, 256, 256, 1))
    for pool in (jaxpool.max_pool, jaxpool.avg_pool):
        for autodiff in ("vjp", "jvp"):
            grad = jax.grad(lambda x, p=pool, a=autodiff: p(x, (2, 2), (64, 64), autodiff=a).sum())
            assert str(jax.make_jaxpr(grad)(x)).count("\n") < 300


@pytest.mark.parametrize("padding", ["VALID", "SAME", ((1, 1), (1, 1)), ((0, 1), (2, 0))])
@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
def test_channels_first_phases_of_the_minor_axis_are_joined_last(autodiff, padding):
    """What is padded, cut or joined after them makes a loop that does not vectorise, twice as slow."""
    x = jnp.zeros((2, 4, 16, 20))

    def pool(x):
        return jaxpool.max_pool(x, (3, 3), (2, 2), padding, axes=(2, 3), autodiff=autodiff).sum()

    program = jax.jit(jax.grad(pool)).lower(x).as_text()
    ops = [line for line in program.splitlines() if " = stablehlo." in line]
    joined = [line for line in ops if "concatenate" in line]
    assert joined[-1].endswith("-> tensor<2x4x16x10x2xf32>")
    whole = [line for line in ops if line.endswith("-> tensor<2x4x16x20xf32>")]
    assert len(whole) == 1
    assert "stablehlo.reshape" in whole[0]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
@pytest.mark.parametrize("pool", [jaxpool.max_pool, jaxpool.min_pool])
def test_zeros_tie_and_keep_their_sign(pool, dtype):
    x = jnp.array([-0.0, 0.0, -0.0, -0.0], dtype)
    y = pool(x, (2,), axes=(0,))
    assert np.signbit(np.asarray(y, np.float32)).tolist() == [True, False, True]


@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_floats_are_selected_as_float32_is(dtype, kind, ties):
    """Zeros of both signs, NaN, infinities and the least normal numbers among few different numbers."""
    least = jnp.finfo(dtype).tiny
    some = np.asarray([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, least, -least], np.float32)
    x = jnp.asarray(np.random.default_rng(5).choice(some, (60, 8)), dtype)
    window = make_window(x.shape, (3,), axes=(0,), padding=1)
    y, index = select(x, window, kind, ties)
    want, want_index = select(x.astype(jnp.float32), window, kind, ties)
    np.testing.assert_array_equal(index, want_index)
    np.testing.assert_array_equal(np.asarray(y, np.float32), want)
    number = ~np.isnan(np.asarray(want))
    assert (np.signbit(np.asarray(y, np.float32)) == np.signbit(want))[number].all()
