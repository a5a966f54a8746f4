"""Every public function of an array can be traced with any axis sharded, except axes that must not be sharded.

Sharding such an axis raises an error of jaxpool. `test_four_devices.py` and `test_explicit.py` compare the results with
those of one device.
"""

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from tests.sharded.every import (
    FUNCTIONS,
    LAYOUTS,
    call_of,
    first_array_function,
    layout_spec,
    must_raise,
    must_raise_for_layout,
    result_or_none,
    sharded_call,
)

QUICK = ("channels",)


@pytest.mark.parametrize(
    "layout",
    [
        *QUICK,
        *[pytest.param(each, marks=pytest.mark.slow) for each in LAYOUTS if each not in QUICK],
    ],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_trace_with_each_layout(name, layout):
    f, x = first_array_function(name)
    spec, types = layout_spec(layout, x.ndim)
    mesh = AbstractMesh((2, 2), ("a", "b"), axis_types=types)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
    with jax.sharding.use_abstract_mesh(mesh):
        found = result_or_none(lambda: jax.jit(f).trace(like))
    assert (found is None) == must_raise_for_layout(name, layout)


@pytest.mark.parametrize("kind", ["auto", "manual"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_trace_under_sharded(name, kind):
    """Only a spatial pyramid uses an all-gather, for its cells and channels."""
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
        assert name == "spatial_pyramid_pool" or "all_gather" not in str(program)
