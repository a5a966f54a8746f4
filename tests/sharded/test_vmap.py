"""`vmap` of every function with arrays that are sharded over explicit mesh axes."""

import contextlib

import jax
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.sharded.cases import POOLS, assert_close, axis_types, mesh_of, requires_eight_devices
from tests.sharded.test_array_arguments import (
    ARRAYS_OF_X,
    QUICK,
    calls_of,
    run_of,
    spec_of,
    variants_of,
)
from tests.support.later import later

# jax 0.12 needs the mesh in the context for some gradients under `vmap`, also for those of `jnp.maximum`
NEEDS_MESH_CONTEXT = jax.__version_info__ >= (0, 11)


MESH = AbstractMesh((2,), ("a",), axis_types=axis_types(1, "explicit"))


def vmapped_calls(name, is_mapped_axis_sharded, make_run=run_of):
    """Yield calls of a function under `vmap`, their arrays, and specs along the mapped axis or the last axis of x."""
    for arrays, others in calls_of(name):
        pairs = jax.tree.map(variants_of, arrays)
        specs = jax.tree.map(lambda _: P("a") if is_mapped_axis_sharded else P(), pairs)
        if not is_mapped_axis_sharded:
            key = next(key for key in arrays if key in ARRAYS_OF_X)
            specs[key] = jax.tree.map(
                lambda x: P() if x.shape[-1] % 2 else spec_of(x.ndim - 1), pairs[key]
            )
        yield jax.vmap(make_run(name, others)), pairs, specs


def trace(run, pairs, specs):
    """Trace a call with arrays that are sharded over `MESH`."""

    def type_of(x, spec):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(MESH, spec))

    return jax.eval_shape(run, jax.tree.map(type_of, pairs, specs))


@pytest.mark.parametrize("is_mapped_axis_sharded", [True, later(False)])
@pytest.mark.parametrize("name", POOLS)
def test_trace_vmap_of_sharded_arrays(name, is_mapped_axis_sharded):
    for run, pairs, specs in vmapped_calls(name, is_mapped_axis_sharded):
        context = jax.sharding.use_abstract_mesh(MESH)
        with context if NEEDS_MESH_CONTEXT else contextlib.nullcontext():
            trace(run, pairs, specs)


@pytest.mark.parametrize("is_mapped_axis_sharded", [True, later(False)])
@pytest.mark.parametrize("name", [name for name, pool in POOLS.items() if not pool.takes("boxes")])
def test_values_need_no_mesh_context(name, is_mapped_axis_sharded):
    """Pools over boxes call `jnp.concatenate`, which needs the mesh in the context with jax 0.12."""

    def value_of(name, others):
        return lambda arrays: POOLS[name].run(others | arrays)

    for run, pairs, specs in vmapped_calls(name, is_mapped_axis_sharded, value_of):
        trace(run, pairs, specs)


@requires_eight_devices
@pytest.mark.parametrize("is_mapped_axis_sharded", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        name if name in (*QUICK, "max") else pytest.param(name, marks=pytest.mark.slow)
        for name in POOLS
    ],
)
def test_vmap_of_sharded_arrays(name, is_mapped_axis_sharded):
    mesh = mesh_of((2,), "explicit")
    for run, pairs, specs in vmapped_calls(name, is_mapped_axis_sharded):
        placed = jax.tree.map(
            lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), pairs, specs
        )
        with jax.set_mesh(mesh) if NEEDS_MESH_CONTEXT else contextlib.nullcontext():
            result = jax.jit(run)(placed)
        assert_close(result, jax.jit(run)(pairs), 1e-5, str(list(pairs)))
