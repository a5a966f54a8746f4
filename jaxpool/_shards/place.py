"""The sharding of an array, as a `Place`: a mesh, and the names of its axes that shard each array axis.

It comes from the type of the array or from `jaxpool.sharded`. `on_shards` runs a function on the shards of arrays, in
a `jax.shard_map` unless the call is in one already.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from jax import Array, lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, reshard

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._ops.apply import Autodiff, apply_with_extra_args, in_reverse
from jaxpool._ops.op import Op

R = TypeVar("R")  # an array or a tuple of arrays

# The mesh axes of each axis of a pool's array, set by `jaxpool.sharded` inside a `jax.shard_map`, where types do not
# carry them. A user context of jax is local to a thread and part of every cache key. It is made at import, because jax
# does not allow making one while other threads use it.
shard_axes = jax.make_user_context(None)


@dataclasses.dataclass(frozen=True)
class Place:
    """The mesh axes that shard each axis of an array; `manual` inside a `shard_map` over them."""

    mesh: Mesh | AbstractMesh
    names: tuple[tuple[str, ...], ...]
    manual: bool

    def count(self, axis: int) -> int:
        """Number of shards along an axis of the array."""
        return math.prod(self.mesh.shape[name] for name in self.names[axis])

    def global_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The global shape of an array of `shape`, which is the shape of a shard if the place is manual."""
        if not self.manual:
            return tuple(shape)
        return tuple(size * self.count(axis) for axis, size in enumerate(shape))

    def for_operand(self, shape: Sequence[Any]) -> Place:
        """The sharding of an operand of `shape` that broadcasts against the array, or has more leading axes."""
        extra = len(shape) - len(self.names)
        names = [
            () if shape[extra + axis] == 1 < self.count(axis) else self.names[axis]
            for axis in range(max(-extra, 0), len(self.names))
        ]
        return dataclasses.replace(self, names=((),) * extra + tuple(names))

    def permuted(self, axes: Sequence[int]) -> Place:
        """The sharding of the array after a permutation of its axes."""
        return dataclasses.replace(self, names=tuple(self.names[axis] for axis in axes))

    def reduced(self, axes: Sequence[int]) -> Place:
        """The place of a reduction over `axes`: replicated along the mesh axes that shard them."""
        names = tuple(() if axis in axes else entry for axis, entry in enumerate(self.names))
        return dataclasses.replace(self, names=names)

    def spec_of(self, shape: Sequence[Any], of_array: Sequence[Any]) -> PartitionSpec:
        """The spec of an operand of `shape`; replicated if it does not broadcast against the shape `of_array`."""
        lead = len(shape) - len(of_array)
        pairs = zip(shape[max(lead, 0) :], of_array[max(-lead, 0) :], strict=True)
        if lead > 0 or not all(size in (1, other) for size, other in pairs):
            return PartitionSpec()
        return self.for_operand(shape).spec

    def part(self, x: Array) -> Array:
        """This device's part of x if the place is manual; x is replicated and broadcasts against the global array."""
        place = self.for_operand(x.shape)
        for axis, names in enumerate(place.names):
            if self.manual and names:
                size = x.shape[axis] // place.count(axis)
                x = lax.dynamic_slice_in_dim(x, lax.axis_index(names) * size, size, axis)
        return x

    @property
    def spec(self) -> PartitionSpec:
        """The partition spec for `jax.shard_map`."""
        return PartitionSpec(*[entry or None for entry in self.names])

    def non_explicit_axes(self, x: Array) -> tuple[str, ...]:
        """The mesh axes that shard x and that are not explicit in its type."""
        explicit = _of(jax.typeof(x).sharding.mesh, AxisType.Explicit)
        return tuple(name for entry in self.names for name in entry if name not in explicit)

    @property
    def mapped(self) -> frozenset[str]:
        """The mesh axes to map over: all explicit axes, and every axis that shards the array.

        XLA all-gathers arrays along explicit axes that are left out. The set is empty if it would hold every mesh axis:
        `jax.shard_map` then maps over all axes that no surrounding `vmap` uses.
        """
        names = _of(self.mesh, AxisType.Explicit).union(*self.names)
        return frozenset() if names == frozenset(self.mesh.axis_names) else names


def _entries(spec: Any, ndim: int, mesh: Any) -> tuple[tuple[str, ...], ...]:
    """The mesh axis names of each of `ndim` axes in a partition spec."""
    rule = "a jax.sharding.PartitionSpec with one entry for each axis of the array"
    hint = 'Pass PartitionSpec(None, "rows"), say, with names of axes of the mesh.'
    if not isinstance(spec, PartitionSpec):
        raise ArgumentError("spec", rule, spec, hint, TypeError)
    if len(spec) > ndim:
        raise ArgumentError("spec", f"{rule}, which has {ndim}", spec, hint)
    names = []
    for entry in (*spec, *[None] * (ndim - len(spec))):
        names.append(() if entry is None else entry if isinstance(entry, tuple) else (entry,))
    every = [name for entry in names for name in entry]
    if len(set(every)) < len(every) or not all(name in mesh.axis_names for name in every):
        known = ", ".join(map(repr, mesh.axis_names))
        raise ArgumentError("spec", f"of distinct axes of the mesh, {known}", spec, hint)
    return tuple(names)


def _of(mesh: Any, kind: AxisType) -> frozenset[str]:
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return frozenset(name for name, each in pairs if each == kind)


def _among(chosen: frozenset[str], names: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    """The names of each axis, restricted to `chosen`."""
    return [tuple(name for name in entry if name in chosen) for entry in names]


def _known_spec(x: Array, typed: NamedSharding) -> PartitionSpec:
    """The spec of x from its type, or from the sharding of a concrete array."""
    manual = _of(typed.mesh, AxisType.Manual)
    if not isinstance(x, jax.core.Tracer) and isinstance(x.sharding, NamedSharding):
        return x.sharding.spec
    if not manual and _of(typed.mesh, AxisType.Explicit):
        return typed.spec
    if manual:
        rule = "given inside a shard_map, where types do not say which axes are sharded"
    else:
        rule = "given where neither the type of x nor x itself says how it is sharded"
    hint = 'Pass spec=PartitionSpec(None, "rows"), say, one entry for each axis of x.'
    raise ArgumentError("spec", rule, None, hint, TypeError)


def find_place(x: Array, mesh: Any, spec: Any) -> Place:
    """The place of x from `mesh` and `spec`; None reads them from its type or from x itself."""
    typed = jax.typeof(x).sharding
    if mesh is not None and not isinstance(mesh, (Mesh, AbstractMesh)):
        rule, hint = "a jax.sharding.Mesh", "Pass what jax.make_mesh gave."
        raise ArgumentError("mesh", rule, mesh, hint, TypeError)
    context = jax.sharding.get_abstract_mesh()
    inside = _of(context, AxisType.Manual)
    if mesh is not None and not context.empty and mesh.axis_names != context.axis_names:
        hint = "Leave it out, or call jax.set_mesh with it."
        raise ArgumentError("mesh", f"that of the context, {context}", mesh, hint)
    if inside:  # the `mesh` argument does not know which axes are manual here
        mesh = context
    elif mesh is None:
        sharding = None if isinstance(x, jax.core.Tracer) else x.sharding
        # The mesh of a concrete array has devices, the mesh of a type has none.
        typed_mesh = sharding.mesh if isinstance(sharding, NamedSharding) else typed.mesh
        mesh = context if typed.mesh.empty else typed_mesh
    if mesh.empty:
        rule = "given where neither the type of x nor a context says it"
        hint = "Pass the mesh over which x is sharded, or call jax.set_mesh."
        raise ArgumentError("mesh", rule, None, hint, TypeError)
    names = _entries(_known_spec(x, typed) if spec is None else spec, x.ndim, mesh)
    explicit = _of(typed.mesh, AxisType.Explicit)
    if explicit and _among(explicit, names) != _among(explicit, _entries(typed.spec, x.ndim, mesh)):
        rule = f"what the type of x says, {typed.spec}"
        raise ArgumentError("spec", rule, spec, "Leave it out, or call jax.reshard first.")
    used = frozenset[str]().union(*names)
    sharding = None if isinstance(x, jax.core.Tracer) else x.sharding
    devices = sharding.device_set if isinstance(sharding, NamedSharding) else set()
    if devices and isinstance(mesh, Mesh) and {*mesh.devices.flat} != devices:
        hint = "Pass the mesh of x, or move x by jax.device_put first."
        raise ArgumentError("mesh", f"of the {len(devices)} devices of x", mesh, hint)
    if used & inside and not used <= inside:
        rule = f"of axes that are all manual here, {sorted(inside)}, or none of them"
        raise ArgumentError("spec", rule, spec, "Map the others in the same shard_map.")
    return Place(mesh, names, bool(used & inside))


def place_by_type(x: Array) -> Place | None:
    """The place of x from the context of `jaxpool.sharded` or from its type; None if it is in neither.

    Types carry explicit mesh axes, but no automatic or manual axes.
    """
    if shard_axes.value is not None:
        if x.ndim != len(shard_axes.value):
            rule = f"of {len(shard_axes.value)} axes, as jaxpool.sharded was told inside this shard_map"
            raise ArgumentError("x", rule, x.ndim, "Call it for this pool alone.", attribute="ndim")
        return Place(jax.sharding.get_abstract_mesh(), shard_axes.value, True)
    typed = jax.typeof(x).sharding
    if not any(typed.spec):
        return None
    names = _entries(PartitionSpec(*typed.spec), x.ndim, typed.mesh)
    if not all(is_int(size) for size, entry in zip(x.shape, names, strict=True) if entry):
        return None
    context = jax.sharding.get_abstract_mesh()
    return Place(typed.mesh if context.empty else context, names, False)


def gathered(place: Place, x: Array, axes: Sequence[int]) -> Array:
    """x, sharded as `place` says, all-gathered along `axes`."""
    if not any(place.names[axis] for axis in axes):
        return x
    if place.manual:
        for axis in axes:
            if place.names[axis]:
                x = lax.all_gather(x, place.names[axis], axis=axis, tiled=True, to="invarying")
        return x
    parts = [None if axis in axes else part for axis, part in enumerate(place.spec)]
    return reshard(x, NamedSharding(jax.typeof(x).sharding.mesh, PartitionSpec(*parts)))


def undivided(place: Place | None, x: Array, axes: Sequence[int]) -> Array:
    """x without mesh axes of size 1 along `axes` in its type, which the ops would take for sharded."""
    if place is None or place.manual:
        return x
    return gathered(place, x, [axis for axis in axes if place.count(axis) == 1])


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _mapped(
    body: Callable[..., R], settings: tuple[Any, ...], place: Place, out: PartitionSpec, *xs: Array
) -> R:
    places = [place.for_operand(x.shape) for x in xs]
    run = jax.shard_map(
        functools.partial(body, *settings),
        mesh=place.mesh,
        in_specs=tuple(each.spec for each in places),
        out_specs=out,
        axis_names=place.mapped,
    )
    result: R = run(*map(_spread, xs, places))
    return result


def _spread(x: Array, place: Place) -> Array:
    """x resharded along the explicit mesh axes of `place`, unless its type has that spec."""
    explicit = _of(place.mesh, AxisType.Explicit)
    if not explicit:
        return x
    spec = PartitionSpec(*[entry or None for entry in _among(explicit, place.names)])
    typed = jax.typeof(x).sharding
    if not typed.mesh.empty and typed.spec == spec:
        return x
    return reshard(x, NamedSharding(place.mesh, spec))


def on_shards(
    body: Callable[..., R],
    place: Place,
    *xs: Array,
    settings: tuple[Any, ...] = (),
    out: PartitionSpec | None = None,
    autodiff: Autodiff = "jvp",
) -> R:
    """`body(*settings, *xs)` of the shards of `xs`, sharded as `place.for_operand`; results are sharded as `out`.

    `out` is the spec of `place` by default. Equal settings, which are hashable, are traced once.
    """
    out = place.spec if out is None else out
    run: Callable[..., R] = functools.partial(body, *settings)
    if not place.manual:
        run = functools.partial(_mapped, body, settings, place, out)
    result: R = run(*xs) if autodiff == "jvp" else in_reverse(run, *xs)
    return result


def apply_on_shards(op: Op, place: Place | None, *xs: Array) -> Array:
    """Apply `op`, whose pooled axes are not sharded, to arrays or to their shards."""
    return output_of(op, *xs) if place is None else on_shards(output_of, place, *xs, settings=(op,))


def output_of(op: Op, *xs: Array) -> Array:
    """The output of `op`, without its residual."""
    return apply_with_extra_args(op, *xs)[0]
