"""Functions of an array whose type carries its sharding equal those on one device, or raise an error of jaxpool."""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import requires_eight_devices
from tests.sharded.every import (
    FUNCTIONS,
    LAYOUTS,
    POOLS,
    call_of,
    first_array_function,
    layout_spec,
    must_raise_for_layout,
    result_or_none,
)

pytestmark = requires_eight_devices

KEY = jax.random.key(0)
BATCH, ROWS, CHANNELS = P("a"), P(None, "a"), P(None, None, None, "a")
NEEDS_UNSHARDED_ROWS = [
    n for n, p in POOLS.items() if p.takes("k") or p.takes("window_shape", "output_shape")
]
IMAGE_FUNCTIONS = [
    *NEEDS_UNSHARDED_ROWS,
    *[n for n, p in POOLS.items() if p.takes("reverse") or p.takes("levels")],
]
QUICK = [name for name in IMAGE_FUNCTIONS if POOLS[name].takes("k")] + ["cummax"]
MORE_REDUCTIONS = [("max", "first"), ("max", "last"), ("min", "split"), ("min", "last")]


def mesh_with(second):
    types = (AxisType.Explicit, second)
    return jax.make_mesh((2, 2), ("a", "b"), axis_types=types, devices=jax.devices()[:4])


def both(f):
    return jax.jit(lambda x: (f(x), jax.grad(lambda x: jnp.sum(f(x) ** 2))(x)))


def check(f, shape, spec, second=AxisType.Explicit):
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    mesh = mesh_with(second)
    with jax.set_mesh(mesh):
        got = both(f)(jax.device_put(x, NamedSharding(mesh, spec)))
    for one, several in zip(both(f)(x), got, strict=True):
        np.testing.assert_allclose(several, one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "ties"),
    [
        ("max", "split"),
        pytest.param("min", "first", marks=pytest.mark.slow),
        *[pytest.param(*case, marks=pytest.mark.slow) for case in MORE_REDUCTIONS],
    ],
)
def test_reductions_over_sharded_axes(name, ties):
    reduce = functools.partial(getattr(jaxpool, name), ties=ties)

    def every(x):
        ys = [reduce(x, axis=axis).ravel() for axis in (0, None, -1, (1, 0))]
        return sum(jnp.sum(y**2) for y in ys)

    check(every, (4, 2), P("a"))
    check(functools.partial(reduce, axis=(1, 3)), (2, 4, 2, 4), P(None, "a", None, "b"))


@pytest.mark.parametrize("name", ["cummax", "cummin_with_argmax"])
def test_scan_with_sharded_reset(name):
    scan = getattr(jaxpool, name)
    check(lambda x: jax.tree.leaves(scan(x, axis=1, reset=x > 0))[0], (4, 6, 2), P("a"))


def test_reduction_with_mask_over_sharded_axis():
    where = np.arange(8).reshape(4, 2) % 3 > 0
    check(lambda x: jaxpool.min(x, axis=0, where=where, initial=5.0), (4, 2), P("a"))


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in IMAGE_FUNCTIONS],
)
def test_sharded_batch_with_automatic_axis(name):
    check(POOLS[name].of(output_shape=(4, 4)), (4, 8, 8, 4), BATCH, AxisType.Auto)


@pytest.mark.parametrize("name", NEEDS_UNSHARDED_ROWS)
def test_sharded_pooled_axis_raises(name):
    with pytest.raises(ValueError, match=rf"jaxpool.{name}: `x` must be whole along axis 1"):
        check(POOLS[name].of(output_shape=(4, 4)), (4, 8, 8, 4), ROWS)


@pytest.mark.parametrize("spec", [ROWS, pytest.param(CHANNELS, marks=pytest.mark.slow)])
def test_pyramid(spec):
    check(POOLS["spatial_pyramid_pool"].of(), (4, 8, 8, 4), spec)


def test_pyramid_with_indivisible_levels_raises():
    with pytest.raises(ValueError, match=r"jaxpool.spatial_pyramid_pool: `levels` must be 1, or"):
        check(lambda x: jaxpool.spatial_pyramid_pool(x, (1, 3)), (4, 8, 8, 4), ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, p in POOLS.items() if p.takes("key", "padding")])
def test_random_draws_across_shards(name):
    """The random draw and the expectation equal those on one device."""
    settings = {"window_shape": (3,), "strides": (2,), "padding": "SAME"}
    ways = [POOLS[name].of(key=key, **settings) for key in (KEY, None)]
    check(lambda x: jnp.stack([way(x) for way in ways]), (2, 8, 2), ROWS)


QUICK_CASES = [("segment_max", "two"), ("maximum", "pooled, beside automatic")]
# Layouts with two mesh axes; test_four_devices.py compares those with one.
TWO_AXIS_LAYOUTS = [layout for layout in LAYOUTS if layout == "two" or "automatic" in layout]
SLOW_CASES = [
    (name, layout)
    for layout in TWO_AXIS_LAYOUTS
    for name in FUNCTIONS
    if (name, layout) not in QUICK_CASES
]


@functools.cache
def one_device_result(name):
    f, x = first_array_function(name)
    return jax.jit(f)(x)


@pytest.mark.parametrize(
    ("name", "layout"),
    [*QUICK_CASES, *[pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_CASES]],
)
def test_every_function(name, layout):
    f, x = first_array_function(name)
    spec, types = layout_spec(layout, x.ndim)
    mesh = mesh_with(types[1])
    with jax.set_mesh(mesh):
        got = result_or_none(lambda: jax.jit(f)(jax.device_put(x, NamedSharding(mesh, spec))))
    assert (got is None) == must_raise_for_layout(name, layout)
    if got is None:
        return
    for several, one in zip(
        jax.tree.leaves(got), jax.tree.leaves(one_device_result(name)), strict=True
    ):
        if name in ("max", "min") or POOLS[name].rounds(call_of(name).given):
            np.testing.assert_allclose(several, one, rtol=2e-6, atol=2e-6)
        else:
            np.testing.assert_array_equal(several, one)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["max", "min"])
def test_reduction_dtypes_and_derivatives(name):
    reduce = functools.partial(getattr(jaxpool, name), axis=0)
    forward = functools.partial(reduce, autodiff="jvp", ties="split")

    def every(x):
        typed = [reduce(x.astype(dtype)) for dtype in (np.int8, bool, np.float16, jnp.bfloat16)]
        y = reduce(jnp.where(x > 4, jnp.nan, jnp.where(x < -4, -0.0, jnp.abs(x))))
        _, tangent = jax.jvp(lambda x: forward(x) ** 3, (x,), (2 * x + 1,))
        found = [*typed, jnp.nan_to_num(y), jnp.isnan(y), tangent]
        return jnp.stack([each.astype(np.float32) for each in found])

    check(every, (4, 16), P("a"))
