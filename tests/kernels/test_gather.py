"""Sums that look up their elements: where, in what program, and how they are rounded."""

import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxpool
from jaxpool._geometry import taps
from jaxpool._kernels import dense as kernels
from jaxpool._kernels import gather
from tests.support.compilation import FUSED
from tests.support.geometry import window_of
from tests.support.lookups import arguments, both_ways, gathers, lookups

WIDE = (2, 64, 64, 32)


def average(window, strides, padding, **options):
    return lambda x: jaxpool.avg_pool(x, window, strides, padding, **options)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_nothing_is_kept_between_two_loops(strides, dtype, padding):
    """Of two results with a division, for one of which XLA would add a copy, and a rounding."""
    pool = average((3, 3), strides, padding)
    shape = (8, 64, 64, 64)
    assert gathers(pool, shape, dtype)
    both = jax.jit(both_ways(pool)).lower(*arguments(pool, shape, dtype)).compile(FUSED)
    x_bytes = np.prod(shape) * jnp.dtype(dtype).itemsize
    assert both.memory_analysis().temp_size_in_bytes < x_bytes // 16


@pytest.mark.parametrize(("strides", "most"), [((1, 1), 2.1), ((2, 2), 0.6)])
def test_cotangents_divided_by_counts_are_rounded_in_the_loop(strides, most):
    """What remains is dy in float32, divided."""
    pool = average((3, 3), strides, "SAME", count_include_pad=False)
    x, dy = arguments(pool, (8, 64, 64, 64), "bfloat16")
    compiled = jax.jit(lambda x, dy: jax.vjp(pool, x)[1](dy)).lower(x, dy).compile(FUSED)
    kept = compiled.memory_analysis().temp_size_in_bytes / (2 * np.prod(x.shape))
    assert kept < most


@pytest.mark.parametrize("before", [lambda x: x, jnp.tanh], ids=["as it is", "tanh"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_no_tap_computes_again_what_it_reads(strides, before):
    """A cotangent made of the result, and an input made of another array: both are read by nine taps or four."""
    pool = average((3, 3), strides, "SAME")

    def loss(x):
        return (pool(before(x)) ** 2).sum()

    x = jax.ShapeDtypeStruct((8, 64, 64, 64), jnp.float32)
    compiled = jax.jit(jax.value_and_grad(loss)).lower(x).compile(FUSED)
    program = compiled.as_text()
    assert len(re.findall(r" gather\(", program)) > 0
    for computation in program.split("\n\n"):
        if " gather(" in computation:
            assert not re.search(r" (tanh|multiply)\(.*\n(.*\n)* .* gather\(", computation)
    assert compiled.memory_analysis().temp_size_in_bytes < 2.1 * 4 * np.prod(x.shape)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("op", ["avg_pool", "sum_pool"])
def test_derivatives_of_any_order(op, dtype):
    """Rounding by bits has no derivative of its own; the transpose of a gather is a scatter."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1, 16, 16, 32)), dtype)
    v = jnp.asarray(np.random.default_rng(1).standard_normal(x.shape), dtype)
    assert gathers(average((3, 3), (2, 2), "SAME"), x.shape, dtype)

    def loss(x):
        return (getattr(jaxpool, op)(x, (3, 3), (2, 2), "SAME") ** 2).astype(jnp.float32).sum()

    def along_v(x):
        return (jax.grad(loss)(x) * v).astype(jnp.float32).sum()

    twice = jax.jit(jax.grad(along_v))
    assert "scatter" not in twice.lower(x).as_text()
    forward = jax.jvp(jax.grad(loss), (x,), (v,))[1]
    weights = jax.lax.reduce_window(
        v.astype(jnp.float32), 0.0, jax.lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
    )
    (expected,) = jax.vjp(
        lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        v.astype(jnp.float32),
    )[1](2 * weights / (81 if op == "avg_pool" else 1))
    tolerance = 1e-5 if dtype == "float32" else 3e-2
    scale = np.abs(expected).max()
    for got in (twice(x), forward):
        np.testing.assert_allclose(got.astype(jnp.float32), expected, atol=tolerance * scale)


@pytest.mark.parametrize(("window", "strides"), [(31, 20), (40, 2), (61, 3), (64, 32)])
def test_second_derivatives_of_long_windows_with_strides(window, strides):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((1, 70, 66, 2)), jnp.float32)
    v = jnp.asarray(np.random.default_rng(1).standard_normal(x.shape), jnp.float32)
    pool = average((window, window), (strides, strides), "SAME")
    assert bool(gathers(pool, x.shape)) == (strides > 8)

    def theirs(x):
        return jax.lax.reduce_window(
            x, 0.0, jax.lax.add, (1, window, window, 1), (1, strides, strides, 1), "SAME"
        ) / (window * window)

    def twice(pool):
        return jax.grad(lambda x: (jax.grad(lambda x: (pool(x) ** 2).sum())(x) * v).sum())(x)

    np.testing.assert_allclose(twice(pool), twice(theirs), rtol=1e-4, atol=1e-7)


def test_tables_are_looked_up_on_cpu_alone():
    pool = average((3, 3), (2, 2), "SAME")
    assert gathers(pool, WIDE) > 0
    for platform in ("tpu", "cuda"):
        assert gathers(pool, WIDE, platform=platform) == 0


@pytest.mark.parametrize(
    ("shape", "window", "strides", "padding", "axes", "ways"),
    [
        (WIDE, 3, 1, "SAME", (1, 2), 2),
        (WIDE, 3, 1, "VALID", (1, 2), 1),  # forward nothing is missing
        (WIDE, 4, 1, "SAME", (1, 2), 0),  # 16 taps
        (WIDE, 4, 2, "SAME", (1, 2), 2),
        (WIDE, 7, 2, "SAME", (1, 2), 0),
        (WIDE, 7, 2, "VALID", (1, 2), 1),  # a quarter of the positions at the ends
        (WIDE, 31, 2, "VALID", (1, 2), 1),  # an axis at a time
        (WIDE, 40, 2, "VALID", (1, 2), 0),  # 20 taps a phase
        (WIDE, 31, 20, "SAME", (1, 2), 1),  # many phases
        ((2, 64, 64, 1), 31, 20, "SAME", (1, 2), 1),
        (WIDE, 2, 2, "VALID", (1, 2), 0),  # windows that do not meet
        ((2, 64, 64, 11), 3, 2, "SAME", (1, 2), 0),  # narrow
        ((2, 64, 64, 4, 8), 3, 2, "SAME", (1, 2), 2),  # wide by two axes
        ((2, 32, 64, 64), 3, 2, "SAME", (2, 3), 0),
        ((8, 7, 7, 512), 3, 1, "SAME", (1, 2), 0),  # mostly ends
        ((8, 7, 7, 512), 3, 2, "SAME", (1, 2), 2),
        ((2, 512, 32), 3, 2, "SAME", (1,), 0),
        ((1, 8, 40_000, 32), 3, 2, "SAME", (1, 2), 0),  # long tables
        ((2, 16, 16, 16, 32), 3, 2, "SAME", (1, 2, 3), 2),
        ((2, 16, 16, 16, 12), 3, (1, 2, 2), "VALID", (1, 2, 3), 1),  # 12 taps a phase
        ((2, 16, 16, 16, 11), 3, 2, "SAME", (1, 2, 3), 0),
        ((2, 16, 16, 16, 32), 3, 1, "SAME", (1, 2, 3), 0),
        (
            (2, 16, 16, 16, 4),
            3,
            1,
            "VALID",
            (1, 2, 3),
            1,
        ),  # bounds to test, of two positions at either end
        ((2, 16, 16, 16, 3), 3, 1, "VALID", (1, 2, 3), 0),
        ((2, 16, 16, 16, 32), (4, 3, 3), 1, "VALID", (1, 2, 3), 0),  # 36 taps
        ((1, 3, 3, 32), 3, 1, "SAME", (1, 2), 0),  # small
    ],
)
def test_where_tables_are_looked_up(shape, window, strides, padding, axes, ways):
    count = len(axes)
    window, strides = np.broadcast_to(window, count), np.broadcast_to(strides, count)
    pool = average(tuple(window.tolist()), tuple(strides.tolist()), padding, axes=axes)
    x, dy = arguments(pool, shape)
    forward = lookups(pool, x)
    assert (forward > 0) == (ways == 2)
    assert (lookups(both_ways(pool), x, dy) > forward) == (ways > 0)


def test_of_elements_that_do_not_exist_the_nearest_is_looked_up():
    (dim,) = window_of((7,), (3,), (2,), 1, 1, False, (0,)).dims
    elements, exist = taps.tables(taps.of_outputs(dim))
    np.testing.assert_array_equal(elements, [[0, 1, 3, 5], [0, 2, 4, 6], [1, 3, 5, 6]])
    np.testing.assert_array_equal(exist, [[0, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]])
    elements, exist = taps.tables(taps.of_inputs(dim))
    np.testing.assert_array_equal(elements[:, exist.all(0)], [[0, 1, 2], [1, 2, 3]])
    np.testing.assert_array_equal(exist, [[1] * 7, [0, 1, 0, 1, 0, 1, 0]])


def test_positions_that_no_window_reaches():
    dims = window_of((1, 30, 30, 32), (2, 2), (4, 4), 0, 1, False, (1, 2)).dims
    phases = [taps.of_inputs(dim)[2:] for dim in dims]  # the last two phases of four have no taps
    dy = jnp.ones((1, 7, 7, 32))
    assert not gather.gathered_sums(dy, (1, 2), phases).any()


@pytest.mark.parametrize(
    ("channels", "strides", "dtype", "ways"),
    [
        (20, 2, "float32", 2),
        (19, 2, "float32", 1),  # cotangents in phases
        (12, 2, "float32", 1),
        (11, 2, "float32", 0),
        (12, 1, "float32", 2),
        (11, 1, "float32", 0),
        (12, 2, "bfloat16", 2),
        (11, 2, "float16", 0),
    ],
)
def test_narrow_rows(channels, strides, dtype, ways):
    pool = average((3, 3), (strides, strides), "SAME")
    x, dy = arguments(pool, (2, 64, 64, channels), dtype)
    forward = lookups(pool, x)
    assert (forward > 0) == (ways > 0)
    assert (lookups(both_ways(pool), x, dy) > forward) == (ways == 2)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_what_is_not_finite_stays_where_it_is(strides):
    """Masked, not multiplied by 0."""
    x = np.ones((1, 16, 16, 32), np.float32)
    x[0, 0, 0, :3] = np.inf, -np.inf, np.nan
    x[0, 15, 15, :] = np.inf
    pool = average((3, 3), strides, "SAME")
    assert gathers(pool, x.shape)
    y, vjp = jax.vjp(pool, jnp.asarray(x))
    expected = jax.lax.reduce_window(
        x, np.float32(0), jax.lax.add, (1, 3, 3, 1), (1, *strides, 1), "SAME"
    )
    np.testing.assert_allclose(y, expected / 9, rtol=1e-6)
    dy = np.zeros(y.shape, np.float32)
    dy[0, 0, 0, 0] = dy[0, -1, -1, 1] = np.inf
    dx = np.asarray(vjp(jnp.asarray(dy))[0])
    assert np.isfinite(dx[..., 2:]).all()
    assert np.isinf(dx[..., :2]).sum() == (8 if strides == (1, 1) else 9 + 4)


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_mapped_over_any_axis(place):
    x = np.random.default_rng(0).integers(-9, 9, (3, 2, 20, 21, 32)).astype(np.float32)
    pool = average((3, 3), (2, 2), "SAME", divisor=1)
    assert gathers(pool, x.shape[1:])
    gradient = jax.grad(lambda x: (pool(x) ** 2).sum())
    for function, out in [(pool, place), (gradient, place)]:
        mapped = jax.vmap(function, place, out)(jnp.moveaxis(x, 0, place))
        expected = jnp.stack([function(each) for each in x], out)
        np.testing.assert_array_equal(mapped, expected)


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
def test_averages_as_of_float64(count_include_pad, autodiff):
    x = np.random.default_rng(0).standard_normal((2, 20, 21, 32))
    options = {"count_include_pad": count_include_pad, "autodiff": autodiff}
    pool = average((3, 3), (2, 2), ((1, 1), (0, 2)), **options)
    assert gathers(pool, x.shape)
    with jax.enable_x64(True):
        y, vjp = jax.vjp(pool, jnp.asarray(x))
        dx = vjp(y)[0]
    y32, vjp = jax.vjp(pool, jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(y32, y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(vjp(y32)[0], dx, rtol=1e-5, atol=1e-6)


def test_rounding_by_bits_is_that_of_a_cast():
    """Every bfloat16, what lies half way to the next one and beside it, and NaNs of several kinds."""
    every = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.asarray([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (every[:, None] | low).ravel().view(np.float32)
    end = kernels.End(jnp.bfloat16)
    got = np.asarray(jax.jit(lambda x: kernels.finished(x, end, by_bits=True))(x))
    with np.errstate(invalid="ignore"):
        expected = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    finite = ~np.isnan(x)
    np.testing.assert_array_equal(got[finite].view(np.uint16), expected[finite].view(np.uint16))


def test_bfloat16_is_rounded_once():
    x = np.random.default_rng(0).standard_normal(WIDE).astype(ml_dtypes.bfloat16)
    pool = average((3, 3), (2, 2), "SAME")
    assert gathers(pool, WIDE, "bfloat16")
    y = jax.jit(pool)(x)
    expected = jax.jit(pool)(x.astype(np.float32)).astype(jnp.bfloat16)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(y, expected)


def test_programs_are_exported():
    pool = average((3, 3), (2, 2), "SAME")
    x, dy = arguments(pool, WIDE)
    assert gathers(pool, WIDE)
    platforms = ["cpu", "cuda", "tpu"]
    exported = jax.export.export(jax.jit(both_ways(pool)), platforms=platforms)(x, dy)
    values = [np.random.default_rng(0).standard_normal(each.shape) for each in (x, dy)]
    values = [jnp.asarray(each, jnp.float32) for each in values]
    expected = jax.jit(both_ways(pool))(*values)
    jax.tree.map(np.testing.assert_array_equal, list(exported.call(*values)), list(expected))
