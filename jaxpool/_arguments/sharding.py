"""How an array is sharded along its axes: `ArraySharding`, read from its type or given to `jaxpool.sharded`.

The type of an array shows explicit mesh axes only. `jaxpool.sharded` makes automatic mesh axes explicit, and inside a
`shard_map` sets `context_axes`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from jax import Array, lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import Shape, Size, is_int

Result = TypeVar("Result")  # an array or a tuple of arrays
MeshAxes = tuple[tuple[str, ...], ...]  # the mesh axes that shard each of some array axes

# The mesh axes of each axis of a pool's array, set by `jaxpool.sharded` inside a `jax.shard_map`, where types carry no
# mesh axes. A JAX user context is thread-local and part of jit's cache key. The context is created at import, because
# JAX does not support creating contexts while other threads run.
context_axes = jax.make_user_context(None)
# True in a call of `jaxpool.sharded`. There, a pool that needs halos and cannot exchange them raises.
in_sharded = jax.make_user_context(False)


@dataclasses.dataclass(frozen=True)
class ArraySharding:
    """The mesh axes that shard each axis of an array; `is_manual` is True inside a `shard_map` over these mesh axes."""

    mesh: Mesh | AbstractMesh
    mesh_axes: MeshAxes
    is_manual: bool

    def num_shards(self, axis: int) -> int:
        """Number of shards along an axis of the array."""
        return math.prod(self.mesh.shape[name] for name in self.mesh_axes[axis])

    def global_shape(self, shape: Shape) -> tuple[Size, ...]:
        """The global shape of an array of `shape`, which is the shape of one shard if `is_manual`."""
        if not self.is_manual:
            return tuple(shape)
        return tuple(size * self.num_shards(axis) for axis, size in enumerate(shape))

    def operand_sharding(self, shape: Shape) -> ArraySharding:
        """The sharding of an operand whose `shape` has the axes of the array, perhaps after other leading axes.

        Leading axes, and axes that cannot be split, such as those of size 1, are not sharded.
        """
        num_extra = len(shape) - len(self.mesh_axes)
        mesh_axes = [
            () if shape[num_extra + axis] % self.num_shards(axis) else self.mesh_axes[axis]
            for axis in range(max(-num_extra, 0), len(self.mesh_axes))
        ]
        return dataclasses.replace(self, mesh_axes=((),) * num_extra + tuple(mesh_axes))

    def permute_axes(self, axes: Sequence[int]) -> ArraySharding:
        """The sharding of the array after a permutation of its axes."""
        return dataclasses.replace(self, mesh_axes=tuple(self.mesh_axes[axis] for axis in axes))

    def replicate_axes(self, axes: Sequence[int]) -> ArraySharding:
        """The sharding of the result of a reduction over `axes`, which no mesh axes shard any longer."""
        names = tuple(() if axis in axes else entry for axis, entry in enumerate(self.mesh_axes))
        return dataclasses.replace(self, mesh_axes=names)

    def local_shard(self, x: Array) -> Array:
        """This device's shard of x, a replicated array that broadcasts to the global array; x unless `is_manual`."""
        sharding = self.operand_sharding(x.shape)
        for axis, names in enumerate(sharding.mesh_axes):
            if self.is_manual and names:
                size = x.shape[axis] // sharding.num_shards(axis)
                x = lax.dynamic_slice_in_dim(x, lax.axis_index(names) * size, size, axis)
        return x

    @property
    def spec(self) -> PartitionSpec:
        """The sharding as a `PartitionSpec` for `jax.shard_map`."""
        return PartitionSpec(*[entry or None for entry in self.mesh_axes])

    def non_explicit_axes(self, x: Array) -> tuple[str, ...]:
        """The mesh axes that shard x and are not explicit mesh axes in the type of x."""
        explicit = axes_of_type(jax.typeof(x).sharding.mesh, AxisType.Explicit)
        return tuple(name for entry in self.mesh_axes for name in entry if name not in explicit)

    @property
    def mapped_axes(self) -> frozenset[str]:
        """The `axis_names` of `jax.shard_map`: every mesh axis that shards the array.

        Mesh axes that do not shard the array are left out, because a surrounding `vmap` may use them. If all mesh axes
        shard the array, the set is empty: `jax.shard_map` then maps over all mesh axes that no `vmap` uses.
        """
        mapped_axes = frozenset[str]().union(*self.mesh_axes)
        return frozenset() if mapped_axes == frozenset(self.mesh.axis_names) else mapped_axes


def _spec_axes(spec: object, ndim: int, mesh: Mesh | AbstractMesh) -> MeshAxes:
    """The mesh axis names in a `PartitionSpec` for each of the `ndim` axes of an array."""
    rule = "a jax.sharding.PartitionSpec with one entry for each axis of the array"
    hint = 'Pass PartitionSpec(None, "rows"), say, with names of axes of the mesh.'
    if not isinstance(spec, PartitionSpec):
        raise ArgumentError("spec", rule, spec, hint, TypeError)
    if len(spec) > ndim:
        raise ArgumentError("spec", f"{rule}, which has {ndim}", spec, hint)
    entries = [() if entry is None else entry for entry in (*spec, *[None] * (ndim - len(spec)))]
    mesh_axes = tuple(entry if isinstance(entry, tuple) else (entry,) for entry in entries)
    axes = sum(mesh_axes, ())
    if len(set(axes)) < len(axes) or not all(name in mesh.axis_names for name in axes):
        mesh_names = ", ".join(map(repr, mesh.axis_names))
        raise ArgumentError("spec", f"of distinct axes of the mesh, {mesh_names}", spec, hint)
    return mesh_axes


def axes_of_type(mesh: Mesh | AbstractMesh, axis_type: AxisType) -> frozenset[str]:
    """The names of the mesh axes of a type."""
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return frozenset(name for name, each in pairs if each == axis_type)


def keep_axes(allowed: frozenset[str], mesh_axes: MeshAxes) -> MeshAxes:
    """The mesh axis names of each array axis, restricted to names in `allowed`."""
    return tuple(tuple(name for name in entry if name in allowed) for entry in mesh_axes)


def _known_spec(x_sharding: NamedSharding | None, type_sharding: NamedSharding) -> PartitionSpec:
    """The `PartitionSpec` of `x_sharding`, or if x is traced, of its type."""
    if x_sharding is not None:
        return x_sharding.spec
    if manual_axes := axes_of_type(type_sharding.mesh, AxisType.Manual):
        rule = "given inside a shard_map, where types do not say which axes are sharded"
    else:
        rule = "given where neither the type of x nor x itself says how it is sharded"
    if not manual_axes and axes_of_type(type_sharding.mesh, AxisType.Explicit):
        return type_sharding.spec
    hint = 'Pass spec=PartitionSpec(None, "rows"), say, one entry for each axis of x.'
    raise ArgumentError("spec", rule, None, hint, TypeError)


def find_sharding(x: Array, mesh: Any, spec: Any) -> ArraySharding:
    """The sharding of x by `mesh` and `spec`; where an argument is None, it is read from x or the type of x."""
    type_sharding = jax.typeof(x).sharding
    x_sharding = None if isinstance(x, jax.core.Tracer) else x.sharding
    if not isinstance(x_sharding, NamedSharding):
        x_sharding = None
    if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
        rule, hint = "a jax.sharding.Mesh", "Pass what jax.make_mesh gave."
        raise ArgumentError("mesh", rule, mesh, hint, TypeError)
    context_mesh = jax.sharding.get_abstract_mesh()
    manual_axes = axes_of_type(context_mesh, AxisType.Manual)
    if mesh is not None and not context_mesh.empty and mesh.axis_names != context_mesh.axis_names:
        hint = "Leave it out, or call jax.set_mesh with it."
        raise ArgumentError("mesh", f"that of the context, {context_mesh}", mesh, hint)
    # Only the context mesh records which mesh axes are manual here.
    if manual_axes or (mesh is None and type_sharding.mesh.empty):
        mesh = context_mesh
    elif mesh is None:
        # The mesh of a concrete array has devices; the mesh of a type has no devices.
        mesh = (x_sharding or type_sharding).mesh
    if mesh.empty:
        rule = "given where neither the type of x nor a context says it"
        hint = "Pass the mesh over which x is sharded, or call jax.set_mesh."
        raise ArgumentError("mesh", rule, None, hint, TypeError)
    known_spec = _known_spec(x_sharding, type_sharding) if spec is None else spec
    mesh_axes = _spec_axes(known_spec, x.ndim, mesh)
    if explicit_axes := axes_of_type(type_sharding.mesh, AxisType.Explicit):
        type_axes = _spec_axes(type_sharding.spec, x.ndim, mesh)
        if keep_axes(explicit_axes, mesh_axes) != keep_axes(explicit_axes, type_axes):
            rule = f"what the type of x says, {type_sharding.spec}"
            raise ArgumentError("spec", rule, spec, "Leave it out, or call jax.reshard first.")
    used_axes = frozenset[str]().union(*mesh_axes)
    devices = x_sharding.device_set if x_sharding else set()
    if devices and isinstance(mesh, Mesh) and {*mesh.devices.flat} != devices:
        hint = "Pass the mesh of x, or move x by jax.device_put first."
        raise ArgumentError("mesh", f"of the {len(devices)} devices of x", mesh, hint)
    if used_axes & manual_axes and not used_axes <= manual_axes:
        rule = f"of axes that are all manual here, {sorted(manual_axes)}, or none of them"
        raise ArgumentError("spec", rule, spec, "Map the others in the same shard_map.")
    return ArraySharding(mesh, mesh_axes, bool(used_axes & manual_axes))


def sharding_from_type(x: Array) -> ArraySharding | None:
    """The sharding of x from the context of `jaxpool.sharded` or from the type of x; None if neither has a sharding.

    The type of an array carries explicit mesh axes, but no automatic or manual mesh axes.
    """
    if context_axes.value is not None:
        if x.ndim != len(context_axes.value):
            rule = f"of {len(context_axes.value)} axes, as jaxpool.sharded was told inside this shard_map"
            raise ArgumentError("x", rule, x.ndim, "Call it for this pool alone.", attribute="ndim")
        return ArraySharding(jax.sharding.get_abstract_mesh(), context_axes.value, True)
    type_sharding = jax.typeof(x).sharding
    if not any(type_sharding.spec):
        return None
    names = _spec_axes(PartitionSpec(*type_sharding.spec), x.ndim, type_sharding.mesh)
    if not all(is_int(size) for size, entry in zip(x.shape, names, strict=True) if entry):
        return None
    context_mesh = jax.sharding.get_abstract_mesh()
    return ArraySharding(type_sharding.mesh if context_mesh.empty else context_mesh, names, False)


def check_unsharded(x: Array, *axes: int, checks_types: bool = True, arg_name: str = "x") -> None:
    """Raise if one of `axes` is sharded; without `checks_types`, only in a `shard_map`, which adds no collectives."""
    sharding = sharding_from_type(x)
    if sharding is None or not (sharding.is_manual or checks_types):
        return
    for axis in axes:
        if (count := sharding.num_shards(axis)) == 1:
            continue
        rule, spec = f"whole along axis {axis}, not in {count} shards", sharding.spec
        hint = f"Give a spec that has None for axis {axis}, to jax.reshard or to jaxpool.sharded."
        if sharding.is_manual:
            names = sharding.mesh_axes[axis]
            hint = f"Call jax.lax.all_gather(x, {names}, axis={axis}, tiled=True) before it."
        raise ArgumentError(arg_name, rule, spec, hint, shown_value=f"a spec of {spec}")


def call_with_auto_sharding(
    function: Callable[..., Result], x_axes: Sequence[int | None], x: Array, *args: Array
) -> Result:
    """Call `function(x, *args)`; if the mesh has explicit axes, XLA chooses the shardings inside the function.

    `x_axes` has the axis of x whose sharding each axis of the result has, or None for an unsharded axis.
    """
    meshes = [jax.typeof(array).sharding.mesh for array in (x, *args)]
    context_mesh = jax.sharding.get_abstract_mesh()
    mesh = next((m for m in (context_mesh, *meshes) if AxisType.Explicit in m.axis_types), None)
    if mesh is None:
        return function(x, *args)
    axis_types = zip(mesh.axis_names, mesh.axis_types, strict=True)
    axes = tuple(name for name, axis_type in axis_types if axis_type == AxisType.Explicit)
    spec = jax.typeof(x).sharding.spec
    out_spec = PartitionSpec(*[None if axis is None else spec[axis] for axis in x_axes])
    with jax.sharding.use_abstract_mesh(mesh):
        return jax.sharding.auto_axes(function, axes=axes, out_sharding=out_spec)(x, *args)


def check_divisible(
    sharding: ArraySharding | None,
    axis: int,
    size: Size,
    arg_name: str,
    value: object,
    suffix: str = "",
    attr: str = "",
) -> None:
    """Raise an error about `arg_name` unless the shards along `axis` divide `size` evenly."""
    count = sharding.num_shards(axis) if sharding else 1
    if count > 1 and size % count != 0:
        rule = f"of a size along axis {axis} that its {count} shards divide{suffix}"
        hint = join_or(multiples_near(size, count, 1)) if is_int(size) else f"a multiple of {count}"
        raise ArgumentError(arg_name, rule, value, f"Use {hint} there.", attribute=attr)


def multiples_near(size: int, divisor: int, num_steps: int) -> list[int]:
    """Positive multiples of `divisor` around `size`, nearest first, at most `num_steps` on either side."""
    nearest = size // divisor
    sizes = [divisor * n for n in range(nearest + 1 - num_steps, nearest + 1 + num_steps) if n > 0]
    return sorted(sizes, key=lambda n: abs(n - size))


def join_or(sizes: Sequence[int]) -> str:
    """The sizes in ascending order, joined by "or", as text for an error message."""
    return " or ".join(map(str, sorted(sizes)))
