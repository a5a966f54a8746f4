"""Meshes of other devices than the array, and meshes of which only some axes are explicit or manual."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import requires_eight_devices


@requires_eight_devices
def test_mesh_of_other_devices_raises():
    every, one = (Mesh(np.array(jax.devices()[:n]), ("rows",)) for n in (2, 1))
    x = jax.device_put(jnp.ones((1, 8, 4, 1)), NamedSharding(every, P(None, "rows")))
    with pytest.raises(ValueError, match="`mesh` must be of the 2 devices of x; got mesh="):
        jaxpool.sharded(jaxpool.max_pool, mesh=one, spec=P(None, "rows"))(x, (2, 2), (2, 2))
    y = jaxpool.sharded(jaxpool.max_pool, mesh=every, spec=P(None, "rows"))(x, (2, 2), (2, 2))
    np.testing.assert_array_equal(y, np.ones((1, 4, 2, 1)))


def gradient(x):
    return jax.grad(lambda x: jaxpool.k_max_pool(x, 2).sum())(x)


@requires_eight_devices
@pytest.mark.parametrize("kind", ["explicit and automatic axes", "manual and automatic axes"])
def test_multi_platform_lowering_on_mixed_mesh(kind):
    """A gradient that stores results of several types, in a conditional as calls are inlined there."""
    is_explicit = kind.startswith("explicit")
    types = (AxisType.Explicit if is_explicit else AxisType.Auto, AxisType.Auto)
    mesh = jax.make_mesh((2, 4), ("rows", "columns"), axis_types=types)
    x = jax.device_put(jnp.ones((8, 12, 3)), NamedSharding(mesh, P("rows")))
    by_rows = {"in_specs": P("rows"), "out_specs": P("rows"), "axis_names": {"rows"}}
    function = gradient if is_explicit else jax.shard_map(gradient, mesh=mesh, **by_rows)
    with jax.set_mesh(mesh):
        lowered = jax.jit(function).trace(x).lower(lowering_platforms=("cpu", "cuda"))
    assert "stablehlo.case" in lowered.as_text()
