"""Cotangents of maxima that are looked up: the same as phase by phase, where, and in what program."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxpool._kernels.lookup import groups_looked_up

import jaxpool
from jaxpool._api.max_pool import max_pool
from jaxpool._kernels.route import route, route_by_steps
from jaxpool._kernels.select import select
from tests.support.compilation import FUSED
from tests.support.geometry import window_of
from tests.support.lookups import arguments, both_ways, gathers, lookups

WIDE = (2, 64, 64, 32)


def pool(window, strides, padding, **options):
    return lambda x: max_pool(x, window, strides, padding, **options)


GEOMETRIES = [
    # shape, window, strides, padding, dilation, ceil, axes; how many axes each loop goes over
    ((2, 13, 12, 32), (3, 3), (2, 2), "VALID", 1, False, None, [2]),
    ((2, 13, 12, 32), (5, 4), (2, 3), "SAME", 1, True, None, [2]),
    ((2, 13, 12, 32), (4, 4), (3, 3), "SAME", 1, False, (2, 1), [2]),
    ((2, 21, 22, 32), (13, 9), (2, 2), 3, 1, False, (2, 1), [1, 1]),
    ((2, 21, 22, 32), (4, 5), (1, 1), "SAME_LOWER", 1, False, None, [1, 1]),
    ((2, 14, 15, 32), (3, 2), (3, 2), ((1, 0), (0, 2)), 2, False, None, [2]),
    ((2, 14, 15, 32), (3, 5), (2, 1), "SAME", 3, False, None, [1, 1]),
    ((1, 9, 8, 7, 16), (3, 3, 3), (2, 2, 2), "SAME", 1, False, None, [3]),
    ((1, 9, 8, 7, 16), (3, 3, 3), (2, 2, 2), "SAME", 1, False, (3, 1, 2), [3]),
    ((1, 9, 8, 7, 16), (5, 5, 3), (2, 2, 1), "SAME", 1, False, None, [1, 1, 1]),
    ((1, 9, 8, 7, 16), (3, 4, 5), (2, 2, 2), "SAME", 1, False, (1, 3, 2), [2, 1]),
    ((70, 3, 16), (31,), (16,), "SAME", 1, False, (0,), [1]),
    ((1, 12, 40, 12), (3, 31), (2, 16), "SAME", 1, False, None, [2]),
    # Windows that do not meet, of narrow rows, and positions that no window reaches.
    ((40, 3), (20, 3), (20, 3), "SAME", 1, False, (0, 1), [2]),
    ((2, 23, 17, 1), (4, 3), (5, 7), ((2, 0), (0, 1)), 1, True, None, [2]),
    # Differences of indices that wrap into bytes: 240 and 255 taps, 20 and 17 of them at a position.
    ((1, 30, 44, 12), (12, 20), (2, 2), "SAME", 1, False, None, [1, 1]),
    ((1, 30, 44, 12), (15, 17), (2, 2), "SAME", 1, False, None, [1, 1]),
    # Windows of padding alone, along an axis too.
    ((1, 3, 8, 16), (4, 4), (2, 2), ((0, 6), (9, 0)), 1, False, None, [2]),
    ((1, 1, 30, 16), (1, 10), (2, 1), ((1, 0), (0, 0)), 1, False, None, [1, 1]),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_same_as_by_steps(geometry, dtype):
    """Of integers, whose sums are exact in any order. Many elements tie, some are NaN or infinite."""
    *geometry, loops = geometry
    window = window_of(*geometry)
    rng = np.random.default_rng(0)
    values, odds = [-np.inf, -1.0, 0.0, 1.0, 2.0, np.inf, np.nan], [0.1, *[0.2] * 4, 0.05, 0.05]
    x = jnp.asarray(rng.choice(values, geometry[0], p=odds), dtype)
    dy = jnp.asarray(rng.integers(-1, 2, window.pooled(geometry[0])), dtype)
    assert [len(group) for group in groups_looked_up(dy, window)] == loops
    for kind, ties in (("max", "first"), ("min", "last"), ("max", "last_nan")):
        index = jax.jit(lambda x, kind=kind, ties=ties: select(x, window, kind, ties)[1])(x)
        looked_up = jax.jit(lambda dy, index, ties=ties: route(dy, index, window, ties))
        by_steps = jax.jit(lambda dy, index, ties=ties: route_by_steps(dy, index, window, ties))
        assert lookups(looked_up, dy, index)
        assert not lookups(by_steps, dy, index)
        np.testing.assert_array_equal(
            looked_up(dy, index).astype(jnp.float32), by_steps(dy, index).astype(jnp.float32)
        )


def test_a_corner_that_no_window_reaches_along_both_axes():
    """128 taps, one too many of them twice: a byte would wrap to the first tap, which the last window chose."""
    x = jnp.zeros((2, 19, 35, 3))
    ours = pool((8, 16), (8, 16), "VALID")
    assert gathers(ours, x.shape)
    dx = jax.jit(jax.grad(lambda x: ours(x).sum()))(x)
    expected = np.zeros(x.shape)
    expected[:, :16:8, :32:16] = 1
    np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize("taps", [254, 255, 256, 257])
def test_indices_that_fill_their_type(taps):
    """One tap too many stands for windows that do not exist."""
    x = jnp.asarray(
        np.random.default_rng(0).permutation(4 * (2 * taps + 3)).reshape(4, -1, 1), jnp.float32
    )
    last = x.max() + 1
    x = x.at[0, taps].set(last).at[1, -4].set(last)  # the first and the last tap of the last window
    both = both_ways(pool((taps,), (taps,), ((0, 0),)))
    y = jax.eval_shape(pool((taps,), (taps,), ((0, 0),)), x)
    assert lookups(both, x, y)
    dx = both(x, jnp.ones(y.shape))[1]
    tiles = x[:, : 2 * taps].reshape(4, 2, taps)
    expected = np.zeros_like(tiles)
    np.put_along_axis(expected, np.argmax(tiles, 2)[..., None], 1, 2)
    np.testing.assert_array_equal(dx[:, : 2 * taps, 0], expected.reshape(4, -1))
    assert not dx[:, 2 * taps :].any()


@pytest.mark.parametrize(
    ("shape", "dtype", "window", "strides", "padding", "looked_up"),
    [
        (WIDE, "float32", 31, 16, "SAME", True),
        (WIDE, "float32", 13, 13, "VALID", True),
        (WIDE, "float32", 2, 2, "VALID", False),  # as fast phase by phase
        (WIDE, "float16", 2, 2, "VALID", True),
        (WIDE, "bfloat16", 2, 2, "VALID", True),
        ((2, 64, 64, 8), "bfloat16", 2, 2, "VALID", False),  # narrow
        ((2, 64, 64, 1), "bfloat16", 3, 3, "VALID", True),
        (WIDE, "float32", 3, 2, "SAME", False),  # read in place
        (WIDE, "float32", 3, 2, "VALID", True),  # from copies
        ((2, 64, 64, 16), "float32", 3, 2, "SAME", True),
        ((2, 64, 64, 8), "float32", 3, 2, "VALID", False),
        ((2, 64, 64, 8), "bfloat16", 3, 2, "VALID", True),
        ((2, 64, 64, 8), "bfloat16", 3, 1, "VALID", False),
        (WIDE, "bfloat16", 3, 1, "SAME", True),
        (WIDE, "float32", 3, 1, "SAME", False),
        (WIDE, "float32", 5, 1, "SAME", True),  # an axis at a time
        (WIDE, "float32", 13, 1, "SAME", False),  # 13 windows along an axis
        (WIDE, "float32", 31, 3, "SAME", True),
        (WIDE, "float32", 31, 2, "SAME", False),
        ((1, 1, 16_400, 32), "float32", 3, 2, "VALID", False),  # long tables
    ],
)  # fmt: skip
def test_where_cotangents_are_looked_up(shape, dtype, window, strides, padding, looked_up):
    count = 2 if shape[1] > 1 else 1
    ours = pool((window,) * count, (strides,) * count, padding)
    assert (gathers(ours, shape, dtype) > 0) == looked_up


def test_on_cpu_alone():
    ours = pool((13, 13), (6, 6), "SAME")
    assert gathers(ours, WIDE) > 0
    for platform in ("tpu", "cuda"):
        assert gathers(ours, WIDE, platform=platform) == 0


def test_nothing_is_selected_by_lookups():
    x, _ = arguments(pool((13, 13), (6, 6), "SAME"), WIDE)
    assert lookups(pool((13, 13), (6, 6), "SAME"), x) == 0


@pytest.mark.parametrize("shape", [(0, 64, 64, 32), (2, 64, 64, 0)])
def test_empty_arrays(shape):
    ours = pool((13, 13), (13, 13), "SAME")
    x = jnp.zeros(shape)
    y, vjp = jax.vjp(ours, x)
    assert jax.jit(lambda y: vjp(y)[0])(y).shape == shape


def test_arrays_of_unknown_size_are_not_looked_up():
    ours = pool((13, 13), (13, 13), "SAME")
    batch = jax.export.symbolic_shape("b")[0]
    assert not gathers(ours, (batch, 64, 64, 32))


def test_arrays_whose_type_says_how_they_are_sharded_are_not_looked_up():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))
    ours = pool((13, 13), (13, 13), "SAME")
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.zeros((2, 26, 26, 32)), jax.P("i"))
        assert not lookups(jax.grad(lambda x: ours(x).sum()), x)
        assert lookups(jax.grad(lambda x: ours(x).sum()), jax.device_put(x, jax.P()))


@pytest.mark.parametrize(
    ("window", "strides", "dtype", "most"),
    [
        ((31, 31), (16, 16), "float32", 0.3),
        ((13, 13), (13, 13), "float32", 0.2),
        ((2, 2), (2, 2), "bfloat16", 0.2),
        ((3, 3), (1, 1), "bfloat16", 0.6),  # the index
        ((5, 5), (2, 2), "float32", 0.8),  # what stands between the two loops
    ],
)  # fmt: skip
def test_what_is_kept_between(window, strides, dtype, most):
    """In arrays of x; the forward pass included."""
    shape = (8, 64, 64, 64)
    ours = pool(window, strides, "VALID")
    assert gathers(ours, shape, dtype)
    compiled = jax.jit(both_ways(ours)).lower(*arguments(ours, shape, dtype)).compile(FUSED)
    x_bytes = np.prod(shape) * jnp.dtype(dtype).itemsize
    assert compiled.memory_analysis().temp_size_in_bytes < most * x_bytes


def test_no_window_computes_again_what_it_sends():
    """A cotangent made of the result is read by four positions or more."""
    ours = pool((4, 4), (2, 2), "SAME")
    x = jax.ShapeDtypeStruct((8, 64, 64, 64), jnp.float32)
    loss = jax.value_and_grad(lambda x: jnp.sin(ours(x)).sum())
    program = jax.jit(loss).lower(x).compile(FUSED).as_text()
    parts = program.split("\n\n")
    looking_up = [part for part in parts if " gather(" in part]
    sending = [part for part in parts if re.search(r" cosine\(", part)]
    assert looking_up
    assert sending
    assert not set(looking_up) & set(sending)


@pytest.mark.parametrize(
    ("window", "strides", "dtype"),
    [((13, 13), (6, 6), "float32"), ((5, 5), (1, 1), "float32"), ((3, 3), (2, 2), "bfloat16")],
)  # fmt: skip
def test_derivatives_of_any_order(window, strides, dtype):
    """The transpose of a gather is a scatter: none is in the second derivative."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.permutation(2 * 20 * 20 * 32).reshape(2, 20, 20, 32) % 251, dtype)
    v = jnp.asarray(rng.integers(-3, 4, x.shape), dtype)
    ours = pool(window, strides, "SAME")
    assert gathers(ours, x.shape, dtype)

    def loss(x):
        return (ours(x).astype(jnp.float32) ** 2).sum()

    def hessian_times_v(x):
        return jax.grad(lambda x: (jax.grad(loss)(x) * v).astype(jnp.float32).sum())(x)

    assert "scatter" not in jax.jit(hessian_times_v).lower(x).as_text()
    forward = jax.jvp(jax.grad(loss), (x,), (v,))[1]
    # Around x the pool is linear: its transpose sends back what its tangent says.
    y_dot = jax.jvp(pool(window, strides, "SAME", autodiff="jvp"), (x,), (v,))[1]
    (expected,) = jax.vjp(ours, x)[1](2 * y_dot)
    assert np.any(expected)
    for got in (hessian_times_v(x), forward):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_mapped_over_any_axis(place):
    x = np.random.default_rng(0).integers(-9, 9, (3, 2, 20, 21, 32)).astype(np.float32)
    ours = pool((7, 7), (3, 3), "SAME")
    assert gathers(ours, x.shape[1:])
    gradient = jax.grad(lambda x: (ours(x) ** 2).sum())
    mapped = jax.vmap(gradient, place, place)(jnp.moveaxis(x, 0, place))
    np.testing.assert_array_equal(mapped, jnp.stack([gradient(each) for each in x], place))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_cotangents_are_added_in_float32_and_rounded_once(dtype):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal(WIDE), dtype)
    ours = pool((3, 3), (1, 1), "SAME")
    dy = jnp.asarray(rng.standard_normal(WIDE), dtype)
    assert gathers(ours, WIDE, dtype)
    got = jax.jit(both_ways(ours))(x, dy)[1]
    wide = jax.jit(both_ways(ours))(x.astype(jnp.float32), dy.astype(jnp.float32))[1]
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, wide.astype(dtype))


def test_programs_are_exported():
    ours = pool((13, 13), (6, 6), "SAME")
    x, dy = arguments(ours, WIDE)
    exported = jax.export.export(jax.jit(both_ways(ours)), platforms=["cpu", "cuda", "tpu"])(x, dy)
    rng = np.random.default_rng(0)
    values = [jnp.asarray(rng.standard_normal(each.shape), jnp.float32) for each in (x, dy)]
    expected = jax.jit(both_ways(ours))(*values)
    jax.tree.map(np.testing.assert_array_equal, list(exported.call(*values)), list(expected))


def test_unpooling_looks_up_too():
    """Windows that do not meet, as large as the output allows."""
    x = jnp.asarray(
        np.random.default_rng(0).permutation(2 * 24 * 24 * 16).reshape(2, 24, 24, 16), jnp.float32
    )
    y, position = jaxpool.max_pool_with_argmax(x, (6, 6), (6, 6))
    unpool = jax.jit(lambda y, position: jaxpool.max_unpool(y, position, (24, 24)))
    assert lookups(unpool, y, position)
    back = unpool(y, position)
    np.testing.assert_array_equal(back, np.where(np.isin(x, y), x, 0))
