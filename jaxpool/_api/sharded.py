"""Public `sharded`: calls a pool in a context where the type of x shows its sharding, so that the pool sends halos."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jax.tree_util import DictKey

from jaxpool._arguments.arrays import PyTree, as_array, is_array, unwrap_array
from jaxpool._arguments.calls import FunctionWrapper
from jaxpool._arguments.decorator import public
from jaxpool._arguments.errors import ArgumentError, is_nested_deeply, name_function_in_errors
from jaxpool._arguments.sharding import (
    ArraySharding,
    check_divisible,
    context_axes,
    find_sharding,
    in_sharded,
)

# Arguments, of functions and of those in `compat`, whose axes are those of the pooled array. They are sharded like the
# array. Other arrays, such as keys, kernels and boxes, keep the sharding that they show, or are replicated, even if
# their sizes equal those of the array.
OPERAND_NAMES = (
    *("x", "y", "xs", "features", "input", "inputs", "other"),
    *("indices", "where", "reset", "temperature", "p"),
)
P = ParamSpec("P")
R = TypeVar("R")


@public
def sharded(
    pool: Callable[P, R],
    *,
    mesh: Mesh | AbstractMesh | None = None,
    spec: PartitionSpec | None = None,
) -> Callable[P, R]:
    """Returns a version of `pool` for arrays that are sharded along the pooled axes.

    `y = sharded(pool, spec=spec)(x, ...)` is `y = pool(x, ...)`, where x is sharded by `spec`, and y has the same
    sharding. Each device pools its own shard. Neighbours send the halo, the rows that the windows reach beyond the
    shard, by collective-permutes, forward and backward. Pools over whole axes are all-reduces. A function that needs
    a whole axis raises if the axis is sharded.

    Under explicit axis types, the default of `jax.make_mesh`, the type of x shows its sharding, and `pool` alone
    suffices. Under automatic axis types the sharding is read from x outside of `jax.jit` and `jax.grad`; `spec` works
    anywhere. `pool` alone is correct too, but XLA chooses the communication. Inside a `jax.shard_map` over the axes
    of `spec`, x is the shard of this device; sizes, windows and positions refer to the whole array.

    Gradient: as in `pool`, in its modes and to any order.

    Args:
      pool: a function of this library that takes an array, or outside of a `shard_map` a composition of such
        functions. The array is the first argument, or follows a `key`; of several operands, the operand with the most
        axes, and of those the one with the fewest axes of size 1. Arguments whose axes are those of the array are
        sharded like the array: `y`, `indices`, `where`, `reset`, `temperature` and `p`, also as parameters of a
        composition. Other arrays keep their sharding. Inside a `shard_map` other arrays are the parts of this device.
        Over automatic mesh axes, `pool` gets the array of an object with `__jax_array__` that is not a pytree.
      mesh: the mesh of x; None reads the mesh from the type of x, from x, or from `jax.set_mesh`.
      spec: a `jax.sharding.PartitionSpec` with one entry per axis of x. None reads the spec from the type of x, or
        from x outside of `jax.jit` and `jax.grad`.

    Returns:
      A function with the signature of `pool`, whose results are sharded like x along the remaining axes. The number
      of shards of an axis must divide the sizes of x and y. The function can be pickled and copied if `pool`
      and `mesh` can.

    Raises:
      TypeError: `pool` is not callable, or the returned function finds that `mesh` or `spec` is unknown or of the
        wrong kind.
      ValueError: the returned function finds that `mesh` or `spec` does not match x, or that shards would differ in
        size. Errors of `pool` have the name of `pool`.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> from jax.sharding import NamedSharding, PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",), (jax.sharding.AxisType.Auto,))
      >>> spec = PartitionSpec("rows")
      >>> x = jax.device_put(jnp.array([[1.0, 3.0], [2.0, 5.0]]), NamedSharding(mesh, spec))
      >>> pool = jaxpool.sharded(jaxpool.max_pool, spec=spec)
      >>> y = jax.jit(lambda x: pool(x, (2,), (2,), axes=(0,)))(x)
      >>> y, y.sharding.spec[0]
      (Array([[2., 5.]], dtype=float32), 'rows')

    References:
      `jax.sharding.explicit_axes`; `jax.shard_map` and `jax.lax.ppermute`.
    """
    if not callable(pool):
        hint = "Pass jaxpool.max_pool, say."
        rule = "a function of an array"
        raise ArgumentError("pool", rule, pool, hint, TypeError, must_be_static=False)

    return cast(Callable[P, R], _ShardedFunction(pool, mesh, spec))


class _ShardedFunction(FunctionWrapper):
    """The result of `sharded`: a callable that runs `pool` on an array sharded by `mesh` and `spec`."""

    def __init__(self, pool: Callable[..., PyTree], mesh: object, spec: object) -> None:
        super().__init__(pool, functools.partial(_ShardedFunction, mesh=mesh, spec=spec))
        self._pool, self._mesh, self._spec = pool, mesh, spec

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        pool = self._pool
        call = _flatten_call(pool, args, kwargs)
        if call is None:  # `pool` raises its own error
            return pool(*args, **kwargs)
        with name_function_in_errors("sharded"):
            x = as_array(call.leaves[call.x_index])
        with name_function_in_errors("sharded", **{"x.shape": x.shape}):
            sharding = find_sharding(x, self._mesh, self._spec)
            for axis, size in enumerate(sharding.global_shape(x.shape)):
                check_divisible(sharding, axis, size, "x", size, attr=f"shape[{axis}]")
            with in_sharded(True):
                if sharding.is_manual:
                    with context_axes(sharding.mesh_axes):
                        return pool(*args, **kwargs)
                non_explicit_axes = sharding.non_explicit_axes(x)
                if not non_explicit_axes:
                    return pool(*args, **kwargs)
                return _call_with_explicit_axes(non_explicit_axes, sharding, x, pool, call)


@dataclasses.dataclass(frozen=True, eq=False)
class _FlatCall:
    """The leaves of the arguments of a call, and which of them are x and arrays that are sharded like x."""

    leaves: list[PyTree]
    treedef: PyTree  # of the pair of args and kwargs
    x_index: int
    operand_indices: set[int]


def _flatten_call(
    pool: Callable[..., PyTree], args: tuple[PyTree, ...], kwargs: dict[str, PyTree]
) -> _FlatCall | None:
    """The call `pool(*args, **kwargs)`; None if it has no pooled array."""
    try:
        signature = inspect.signature(pool)
        arguments = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # wrong arguments, or a pool without a signature
        return None
    if is_nested_deeply((args, kwargs)):
        return None
    first_name = next((name for name in arguments if name != "key"), None)
    # In a `shard_map`, x may be a dict of feature levels. Elsewhere JAX would sort its keys, and with them the levels.
    accepts_dict = AxisType.Manual in jax.sharding.get_abstract_mesh().axis_types
    parameters = [p for p in signature.parameters.values() if p.kind < p.KEYWORD_ONLY]
    pairs, treedef = jax.tree_util.tree_flatten_with_path(
        (args, kwargs), is_leaf=lambda node: not isinstance(node, tuple | list | dict)
    )
    leaves, pooled, operand_indices = [], {}, set()
    for index, ((_, argument, *path), leaf) in enumerate(pairs):
        leaves.append(leaf)
        is_named = isinstance(argument, DictKey)
        name = argument.key if is_named else parameters[min(argument.idx, len(parameters) - 1)].name
        in_dict = any(isinstance(key, DictKey) for key in path)
        is_item = len(path) < 2 and (not in_dict or (accepts_dict and name == first_name == "x"))
        if name in (first_name, "y", "other") and is_item and is_array(leaf):
            shape = np.shape(unwrap_array(leaf))
            pooled[index] = (len(shape), -shape.count(1))
        if index in pooled or (name in OPERAND_NAMES and is_item):
            operand_indices.add(index)
    if not pooled:
        return None
    x_index = max(pooled, key=lambda n: pooled[n])
    return _FlatCall(leaves, treedef, x_index, operand_indices)


def _own_spec(y: Array, sharding: ArraySharding) -> PartitionSpec:
    """The spec of y if y shows that it is sharded over the mesh of `sharding`, else that of a replicated array."""
    own = jax.typeof(y).sharding if isinstance(y, jax.core.Tracer) else y.sharding
    if isinstance(own, NamedSharding) and own.mesh.axis_names == sharding.mesh.axis_names:
        return own.spec
    return PartitionSpec()


def _as_tree_of_arrays(value: object) -> PyTree | None:
    """`value`, if it is an array or a pytree of arrays, or the array that it holds; None for other values."""
    if jax.tree_util.all_leaves([value]):  # `jax.tree.leaves` of an iterator would warn
        array = unwrap_array(value)
        return array if isinstance(array, jax.Array) else None
    arrays = jax.tree.leaves(value)
    return value if arrays and all(isinstance(y, jax.Array) for y in arrays) else None


def _call_with_explicit_axes(
    mesh_axes: tuple[str, ...],
    sharding: ArraySharding,
    x: Array,
    pool: Callable[..., PyTree],
    call: _FlatCall,
) -> PyTree:
    """Call `pool` with explicit `mesh_axes`. Other arrays than operands keep their sharding, and NumPy arrays stay."""
    trees = {n: _as_tree_of_arrays(leaf) for n, leaf in enumerate(call.leaves)}
    arrays = {n: tree for n, tree in trees.items() if tree is not None}
    if not any(y is x for y in jax.tree.leaves(arrays.get(call.x_index))):
        arrays[call.x_index] = x  # converted, or computed by `__jax_array__`

    def spec_of(n: int, y: Array) -> PartitionSpec:
        is_operand = n in call.operand_indices
        return sharding.operand_sharding(y.shape).spec if is_operand else _own_spec(y, sharding)

    specs = {n: jax.tree.map(functools.partial(spec_of, n), tree) for n, tree in arrays.items()}

    def call_pool(arrays: dict[int, PyTree]) -> PyTree:
        merged_leaves = [arrays.get(n, leaf) for n, leaf in enumerate(call.leaves)]
        args, kwargs = jax.tree.unflatten(call.treedef, merged_leaves)
        return pool(*args, **kwargs)

    explicit_call = jax.sharding.explicit_axes(call_pool, axes=mesh_axes, in_sharding=(specs,))
    if not jax.sharding.get_abstract_mesh().empty:
        return explicit_call(arrays)
    # `explicit_call` needs a mesh in its context. jax.set_mesh, which sets the devices too, raises inside a trace.
    is_traced = any(isinstance(y, jax.core.Tracer) for y in jax.tree.leaves(arrays))
    if isinstance(sharding.mesh, Mesh) and not is_traced:
        try:
            context = jax.set_mesh(sharding.mesh)
        except ValueError:
            pass
        else:
            with context:
                return explicit_call(arrays)

    mesh: Any = sharding.mesh
    if isinstance(mesh, Mesh) and jax.typeof(x).sharding.mesh.empty:
        mesh = Mesh(mesh.devices, mesh.axis_names)  # with automatic axes, as x has no mesh

    def call_in_mesh(arrays: dict[int, PyTree]) -> PyTree:
        if isinstance(mesh, Mesh) and AxisType.Explicit not in mesh.axis_types:
            # The sharding constraint tells jax the devices of the mesh.
            unconstrained = PartitionSpec.UNCONSTRAINED
            spec = PartitionSpec(*[axes or unconstrained for axes in sharding.mesh_axes])
            constrained_x = lax.with_sharding_constraint(
                arrays[call.x_index], NamedSharding(mesh, spec)
            )
            arrays = {**arrays, call.x_index: constrained_x}
        with jax.sharding.use_abstract_mesh(getattr(mesh, "abstract_mesh", mesh)):
            return explicit_call(arrays)

    return jax.jit(call_in_mesh)(arrays)
