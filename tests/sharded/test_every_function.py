"""Every public function of an array returns for sharded arrays what it returns on one device.

Only for axes that must not be sharded, it raises an error of jaxpool.
"""

import functools

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from tests.sharded.cases import (
    KINDS,
    assert_close,
    collectives,
    mesh_of,
    requires_eight_devices,
    with_gradient,
)
from tests.sharded.every import (
    FUNCTIONS,
    LAYOUTS,
    POOLS,
    call_of,
    layout_spec,
    must_raise,
    must_raise_for_layout,
    result_or_none,
    sharded_call,
)

PYRAMID = "spatial_pyramid_pool"  # cells and channels become one axis, which takes an all-gather


@pytest.mark.parametrize("name", FUNCTIONS)
def test_trace_with_sharded_channels(name):
    call = call_of(name)
    x = call.xs[0]
    spec, types = layout_spec("channels", x.ndim)
    mesh = AbstractMesh((2, 2), ("a", "b"), axis_types=types)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
    with jax.sharding.use_abstract_mesh(mesh):
        found = result_or_none(lambda: jax.jit(with_gradient(call.plain)).trace(like))
    assert (found is None) == must_raise_for_layout(call, "channels")


@pytest.mark.parametrize("kind", ["auto", "manual"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_trace_under_sharded(name, kind):
    call, mesh = call_of(name), AbstractMesh((4,), ("a",), axis_types=(AxisType.Auto,))
    x = call.xs[0]
    with jax.sharding.use_abstract_mesh(mesh):

        def traced():
            run, _ = sharded_call(call, 1, kind, mesh)
            return jax.make_jaxpr(run, return_shape=True)(x)

        found = result_or_none(traced)
        assert (found is None) == must_raise(call, 1, kind)
        if found is None:
            return
        program, shapes = found
        assert jax.tree.map(lambda y: y.shape, shapes) == jax.tree.map(
            lambda y: y.shape, jax.eval_shape(call.plain, x)
        )
        assert name == PYRAMID or "all_gather" not in str(program)


# Results on several devices


def quick_or_slow(cases, quick):
    return [pytest.param(*case, marks=() if case in quick else pytest.mark.slow) for case in cases]


@functools.cache
def one_device_result(name):
    call = call_of(name)
    return jax.jit(with_gradient(call.plain))(call.xs[0])


def assert_equals_one_device(call, got):
    rounded = call.name in ("max", "min", PYRAMID) or POOLS[call.name].rounds(call.given)
    assert_close(got, one_device_result(call.name), 2e-6 if rounded else 0.0)


SHARDED = [
    (name, axis, kind)
    for name in FUNCTIONS
    for axis in range(call_of(name).xs[0].ndim)
    for kind in KINDS
]
QUICK_SHARDED = [
    *((name, 1, "manual") for name, pool in POOLS.items() if pool.takes("key", "padding")),
    ("dilate", 2, "auto"),
    (PYRAMID, 1, "manual"),
]


@requires_eight_devices
@pytest.mark.parametrize(("name", "axis", "kind"), quick_or_slow(SHARDED, QUICK_SHARDED))
def test_value_cotangent_and_collectives(name, axis, kind):
    call, mesh = call_of(name), mesh_of((4,), kind)

    def compiled():
        run, spec = sharded_call(call, axis, kind, mesh)
        x = jax.device_put(call.xs[0], NamedSharding(mesh, spec))
        return jax.jit(with_gradient(run)).lower(x).compile(), x

    with jax.set_mesh(mesh):
        found = result_or_none(compiled)
    assert (found is None) == must_raise(call, axis, kind)
    if found is None:
        return
    program, x = found
    assert_equals_one_device(call, program(x))
    # XLA decides how a function of boxes or segments is sharded.
    if not (POOLS[name].takes("boxes") or POOLS[name].takes("segment_ids")):
        allowed = {"collective-permute", "all-reduce"} | (
            {"all-gather"} if name == PYRAMID else set()
        )
        assert {each for each, _ in collectives(program)} <= allowed


# The test above compares layouts with one mesh axis.
EXPLICIT = [(name, layout) for layout in LAYOUTS if layout != "channels" for name in FUNCTIONS]
QUICK_EXPLICIT = [
    ("segment_max", "two"),
    ("maximum", "pooled, beside automatic"),
    ("k_max_pool", "first, beside automatic"),
    ("cummax", "first, beside automatic"),
]


@requires_eight_devices
@pytest.mark.parametrize(("name", "layout"), quick_or_slow(EXPLICIT, QUICK_EXPLICIT))
def test_sharding_in_the_type(name, layout):
    call = call_of(name)
    spec, types = layout_spec(layout, call.xs[0].ndim)
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=types)
    with jax.set_mesh(mesh):
        x = jax.device_put(call.xs[0], NamedSharding(mesh, spec))
        got = result_or_none(lambda: jax.jit(with_gradient(call.plain))(x))
    assert (got is None) == must_raise_for_layout(call, layout)
    if got is not None:
        assert_equals_one_device(call, got)
