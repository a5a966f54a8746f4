"""Maxima over short rows: as parts of long rows, with indices found in float32, and of three axes in two steps."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._kernels import regions
from jaxpool._kernels import select as selecting
from jaxpool._kernels.select import select, select_value
from jaxpool._plan import steps
from jaxpool._plan.steps import select_steps
from tests.support.geometry import window_of

GEOMETRIES = [
    # shape, window, strides, padding, dilation, ceil, axes; how many of the steps pass over long rows
    (((2, 13, 17, 9), (5, 5), (1, 1), "SAME", 1, False, None), 2),
    (((2, 13, 17, 15), (4, 6), (1, 1), "VALID", 1, False, None), 1),
    (((2, 13, 17, 12), (13, 5), (1, 1), 2, 1, False, None), 3),
    (((2, 13, 17, 8), (5, 5), (2, 3), ((3, 0), (1, 2)), 1, True, None), 1),
    (((2, 13, 17, 4), (3, 3), (1, 1), "SAME", 1, False, (2, 1)), 0),  # one step
    (((1, 9, 8, 11, 15), (3, 3, 3), (1, 1, 1), "SAME", 2, False, None), 3),
    (((1, 9, 8, 11, 10), (3, 3, 3), (1, 1, 1), "SAME", 1, False, (3, 1, 2)), 3),
    (((1, 9, 8, 11, 4), (3, 3, 3), (2, 2, 2), "SAME", 1, False, None), 1),
    (((1, 9, 8, 11, 3), (3, 3, 3), (2, 2, 2), "SAME", 1, False, None), 0),
    (((1, 9, 8, 11, 8), (3, 3, 3), (2, 2, 2), ((4, 0), (0, 1), (3, 3)), 2, True, (2, 1, 3)), 1),
    (((2, 31, 2, 5), (3,), (1,), "SAME", 1, False, (1,)), 1),  # both that follow are the row
    (((2, 31, 11), (9,), (2,), "SAME_LOWER", 1, False, None), 0),
]


def numbers(shape, dtype):
    """Few different ones, so that many tie, and NaN, infinities and both zeros among them."""
    x = np.random.default_rng(0).integers(-2, 3, shape).astype(np.float32)
    flat = x.reshape(-1)
    flat[::17], flat[::19], flat[::23], flat[::7] = np.nan, np.inf, -np.inf, -0.0
    return jnp.asarray(x, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(("geometry", "count"), GEOMETRIES)
def test_the_same_as_over_short_rows(geometry, count, dtype, monkeypatch):
    window = window_of(*geometry)
    x = numbers(geometry[0], "float32")
    x = (
        jnp.nan_to_num(x, nan=5, posinf=4, neginf=-4).astype(dtype)
        if dtype == "int8"
        else x.astype(dtype)
    )
    found = []
    long_rows = selecting._long_rows

    def counted(*args):
        found.append(long_rows(*args))
        return found[-1]

    def every(x):
        return [
            select(x, window, kind, ties)
            for kind, ties in (("max", "first"), ("min", "last"), ("max", "last_nan"))
        ], select_value(x, window, "min", "first")

    monkeypatch.setattr(regions, "LARGE", 1 << 60)
    short = jax.jit(every)(x)
    monkeypatch.setattr(regions, "LARGE", 0)
    monkeypatch.setattr(selecting, "_long_rows", counted)
    long = jax.jit(lambda x: every(x))(x)
    jax.tree.map(np.testing.assert_array_equal, long, short)
    assert sum(each is not None for each in found) == 4 * count
    assert len(found) == 4 * len(select_steps(window, forward=True))


@pytest.mark.parametrize(
    ("row", "axes", "dtype", "count"),
    [
        (3, 2, "float32", 0),
        (4, 2, "float32", 1),
        (8, 2, "float32", 1),
        (9, 2, "float32", 2),
        (12, 2, "float32", 2),
        (13, 2, "float32", 1),  # along the last axis
        (13, 3, "float32", 3),
        (15, 3, "float32", 3),
        (16, 3, "float32", 2),
        (16, 3, "bfloat16", 3),
        (17, 3, "bfloat16", 0),
    ],
)
def test_rows_that_are_short(row, axes, dtype, count):
    shape = (64, *[24] * axes, row)
    window = window_of(shape, (5,) * axes, (1,) * axes, "SAME", 1, False, None)
    x = jax.ShapeDtypeStruct(shape, dtype)

    def long(x):
        key = selecting.sort_key(x, "max", "first")
        each = select_steps(window, forward=True)
        found = [selecting._long_rows(step, key, window.axes) for step in each]
        assert sum(one is not None for one in found) == count
        return key

    jax.eval_shape(long, x)


@pytest.mark.parametrize("channels", [1, 8, 9, 12, 16, 19, 20])
@pytest.mark.parametrize(
    ("window", "strides"), [((1, 3), (1, 1)), ((3, 1), (2, 1)), ((2, 2), (2, 2)), ((1, 3), (1, 2))]
)
def test_indices_found_in_float32(window, strides, channels):
    x = numbers((2, 9, 11, channels), "float32")
    for ties in ("first", "last"):

        def pool(x, ties=ties):
            return jaxpool.max_pool(x, window, strides, "SAME", ties=ties)

        y, vjp = jax.vjp(pool, x)
        wide = jnp.concatenate([x] * 40, -1)  # rows that are long in any case
        y_wide, vjp_wide = jax.vjp(pool, wide)
        np.testing.assert_array_equal(y, y_wide[..., :channels])
        np.testing.assert_array_equal(vjp(y)[0], vjp_wide(y_wide)[0][..., :channels])
    program = jax.jit(lambda x: jax.vjp(pool, x)).lower(x).as_text()
    converted = re.search(r"stablehlo.convert .*xf32>\) -> tensor<.*xui8>", program)
    assert bool(converted) == (9 <= channels <= 19)


def test_short_rows_stay_as_they_are_elsewhere():
    """No reshape on other platforms, nor where a type says how x is sharded."""
    x = jnp.zeros((4, 48, 48, 12))

    def pool(x):
        return jaxpool.max_pool(x, (5, 5), (1, 1), "SAME")

    def reshapes(x, platform):
        text = jax.jit(pool).trace(x).lower(lowering_platforms=(platform,)).as_text()
        return text.count("stablehlo.reshape")

    assert reshapes(x, "cpu") > reshapes(x, "cuda") == reshapes(x, "tpu")
    mesh = jax.make_mesh((1,), ("b",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        for spec in ("b", None, None, None), (None, None, None, "b"):
            there = jax.device_put(x, jax.NamedSharding(mesh, jax.P(*spec)))
            assert reshapes(there, "cpu") == reshapes(x, "cuda")
            assert jax.typeof(jax.grad(lambda x: pool(x).sum())(there)).sharding.spec == jax.P(
                *spec
            )


@pytest.mark.parametrize(
    ("window", "strides", "counts"),
    [
        ((3, 3, 3), (2, 2, 2), [9, 3]),
        ((3, 3, 3), (1, 1, 2), [9, 3]),
        ((3, 3, 3), (2, 1, 1), [3, 3, 3]),  # no strides in the last two
        ((2, 3, 3), (2, 2, 2), [9, 2]),
        ((4, 4, 4), (2, 2, 2), [4, 4, 4]),  # 16 taps
        ((2, 2, 2), (1, 1, 1), [8]),
        ((13, 3, 3), (2, 2, 2), [9, 13]),
        ((2, 3, 4), (2, 2, 2), [24]),
        ((3, 3, 3), (3, 3, 3), [3, 3, 3]),  # that do not meet
        ((1, 3, 3), (1, 2, 2), [9]),
    ],
)
def test_three_axes_in_two_steps(window, strides, counts):
    geometry = window_of((1, 15, 9, 10, 3), window, strides, "SAME", 1, False, None)
    assert [len(step.starts) for step in select_steps(geometry, forward=True)] == counts


@pytest.mark.parametrize("ties", ["first", "last", "last_nan"])
@pytest.mark.parametrize(
    ("axes", "padding", "dilation", "ceil"),
    [
        ((1, 2, 3), "SAME", 1, False),
        ((3, 1, 2), ((2, 0), (0, 1), (1, 2)), 1, True),
        ((2, 3, 1), "VALID", 2, False),
    ],
)
def test_two_steps_select_as_one(axes, padding, dilation, ceil, ties, monkeypatch):
    x = numbers((1, 15, 9, 10, 3), "float32")
    geometry = window_of(x.shape, (3, 3, 3), (2, 2, 2), padding, dilation, ceil, axes)
    assert len(select_steps(geometry, forward=True)) == 2
    two = select(x, geometry, "max", ties)
    monkeypatch.setattr(selecting, "select_steps", lambda window, **_: (steps.flat_step(window),))
    jax.tree.map(np.testing.assert_array_equal, two, select(x, geometry, "max", ties))


def test_rows_under_vmap_over_a_sharded_axis():
    mesh = jax.make_mesh((1,), ("b",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    x = numbers((2, 4, 48, 48, 12), "float32")

    def pools(x):
        return jax.vmap(lambda x: jaxpool.max_pool(x, (5, 5), (1, 1), "SAME"))(x)

    want = pools(x)
    with jax.set_mesh(mesh):
        there = jax.device_put(x, jax.NamedSharding(mesh, jax.P("b")))
        np.testing.assert_array_equal(pools(there), want)
        assert jax.grad(lambda x: pools(x).sum())(there).shape == x.shape
