"""Any function of arrays, for arrays that are sharded along the axes that it pools."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxpool._arguments.arrays import as_array, is_array
from jaxpool._arguments.calls import Wrapper, public
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool._shards.place import Place, find_place, shard_axes
from jaxpool._shards.split import check_even

P = ParamSpec("P")
R = TypeVar("R")


@public
def sharded(pool: Callable[P, R], *, mesh: Any = None, spec: Any = None) -> Callable[P, R]:
    """Gives a function for arrays that are sharded along the axes that it pools.

    `y = sharded(pool, spec=spec)(x, ...)` is `y = pool(x, ...)`, with x sharded as `spec` says, and y
    likewise. Each device pools its own shard with the kernels that one device runs, and its neighbours
    send it the rows that its windows reach, no more: the halo. Those are collective-permutes, forward
    and backward; pools over whole axes are all-reduces. What needs an axis whole says so where that
    axis is sharded.

    How x is sharded is read from its type where that says it, as it does under explicit axis types, those of
    `jax.make_mesh`. There the plain function does the same, and `sharded(pool)` is that. Under automatic axis types
    the array itself says it outside of `jax.jit` and `jax.grad`, and `spec` anywhere; the plain functions are right
    there too, and XLA sends what it thinks of. Inside a `jax.shard_map` over the axes that `spec` names, x is the
    shard of this device, sizes and windows are meant for the whole array, and so are positions.

    Gradient: as of `pool`, in the modes that it has, to any order. Cotangents of rows that were sent are added in
    the type of x: with 8- and 16-bit floats they are rounded before and after.

    Args:
      pool: a function of this library that takes an array, or outside of a `shard_map` one made of such. The array
        is its first argument, after a `key` if there is one; of several operands, the one of most axes. Other
        arrays are sharded as far as they broadcast against it, or whole on every device; inside a `shard_map` they
        are what this device has of them.
      mesh: the mesh over which x is sharded; None reads it from the type of x, from x, or from `jax.set_mesh`.
      spec: a `jax.sharding.PartitionSpec` with one entry for each axis of x; None reads it from the type of x, or
        from x outside of `jax.jit` and `jax.grad`.

    Returns:
      A function of the signature of `pool`, which gives what that gives, sharded as x where the axes of x stay. Along
      a sharded axis x has a size that the shards divide, and so has y. The function can be pickled and copied if
      `pool` and `mesh` can.

    Raises:
      TypeError: `pool` is no function; from the function returned: nothing says what `mesh` or `spec` is, or one of
        them is of the wrong kind.
      ValueError: from the function returned: `mesh` or `spec` is not that of x, or shards would not be of one size.
        What `pool` refuses, it refuses in its own name.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import jaxpool
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
        with calling("sharded"):
            hint = "Pass jaxpool.max_pool, say."
            raise ArgumentError("pool", "a function of an array", pool, hint, TypeError)

    return cast(Callable[P, R], _Sharded(pool, mesh, spec))


class _Sharded(Wrapper):
    """`pool` of an array that is sharded as `mesh` and `spec` say."""

    def __init__(self, pool: Callable[..., Any], mesh: Any, spec: Any) -> None:
        super().__init__(pool, functools.partial(_Sharded, mesh=mesh, spec=spec))
        self._pool, self._mesh, self._spec = pool, mesh, spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        pool = self._pool
        given = _array(pool, args, kwargs)
        if given is None:  # it says itself what is missing
            return pool(*args, **kwargs)
        with calling("sharded"):
            x = as_array(given)
        with calling("sharded", **{"x.shape": x.shape}):
            place = find_place(x, self._mesh, self._spec)
            check_even(place, place.whole(x.shape), range(x.ndim))
        if place.manual:
            with shard_axes(place.names):
                return pool(*args, **kwargs)
        untold = place.untold(x)
        if not untold:
            return pool(*args, **kwargs)
        return _explicitly(untold, place, given, x, pool, args, kwargs)


def _array(pool: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """The array that `pool` pools, of those that it is called with; None if there is none."""
    try:
        known = inspect.signature(pool)
        bound = known.bind(*args, **kwargs).arguments
    except (
        TypeError,
        ValueError,
    ):  # a call that the pool refuses, or a pool that does not say what it takes
        return None
    name = next((name for name in bound if name != "key"), None)
    if name is None:
        return None
    several = bound[name] if isinstance(bound[name], tuple | list) else [bound[name]]
    arrays = [each for each in several if is_array(each)]
    return max(arrays, key=np.ndim, default=None)


def _explicitly(
    axes: tuple[str, ...],
    place: Place,
    given: Any,
    x: Array,
    pool: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any],
) -> Any:
    """`pool(*args, **kwargs)`, whose array lies as `place` says, which within types tell of mesh `axes` as well.

    It was `given` as an argument, which became x.

    NumPy arrays beside x stay as they are: their values are known, on every device.
    """
    leaves, tree = jax.tree.flatten(
        (args, kwargs),
        is_leaf=lambda each: each is given or not isinstance(each, tuple | list | dict),
    )
    leaves = [x if leaf is given else leaf for leaf in leaves]
    at = [n for n, leaf in enumerate(leaves) if leaf is x or isinstance(leaf, jax.Array)]
    specs = tuple(place.spec_of(np.shape(leaves[n]), np.shape(x)) for n in at)

    def call(*arrays: Array) -> Any:
        args, kwargs = jax.tree.unflatten(tree, _replaced(leaves, at, arrays))
        return pool(*args, **kwargs)

    run = jax.sharding.explicit_axes(call, axes=axes, in_sharding=specs)
    arrays = [leaves[n] for n in at]
    if not jax.sharding.get_abstract_mesh().empty:
        return run(*arrays)
    # It runs in the context of a mesh, which jax sets with its devices only where nothing is traced.
    if isinstance(place.mesh, Mesh) and not any(isinstance(y, jax.core.Tracer) for y in arrays):
        try:
            context = jax.set_mesh(place.mesh)
        except ValueError:
            pass
        else:
            with context:
                return run(*arrays)

    mesh: Any = place.mesh
    if isinstance(mesh, Mesh) and jax.typeof(x).sharding.mesh.empty:
        mesh = Mesh(mesh.devices, mesh.axis_names)  # its axes are automatic to an array of no mesh

    def with_mesh(*arrays: Array) -> Any:
        if isinstance(mesh, Mesh) and AxisType.Explicit not in mesh.axis_types:
            # So that jax knows the devices.
            free = PartitionSpec(*[entry or PartitionSpec.UNCONSTRAINED for entry in place.names])
            which = next(n for n, leaf in enumerate(at) if leaves[leaf] is x)
            near = lax.with_sharding_constraint(arrays[which], NamedSharding(mesh, free))
            arrays = tuple(_replaced(arrays, [which], [near]))
        with jax.sharding.use_abstract_mesh(getattr(mesh, "abstract_mesh", mesh)):
            return run(*arrays)

    return jax.jit(with_mesh)(*arrays)


def _replaced(values: Any, at: Any, others: Any) -> list[Any]:
    """`values` with `others` in the places `at`."""
    found = dict(zip(at, others, strict=True))
    return [found.get(n, value) for n, value in enumerate(values)]
