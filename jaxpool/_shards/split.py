"""`ArraySharding`, the sharding of an array: a mesh, and the names of the mesh axes that shard each array axis.

The sharding comes from the type of the array or from `jaxpool.sharded`. `on_shards` runs a function on the shards of
arrays: in a new `jax.shard_map`, or directly if the call is already inside a `shard_map`.

A `ShardedPool` has the windows of a pool and the sharding of the pooled array. Windowed pools of `_api` and `compat`
create a `ShardedPool` by `shard_pool_by_type` or `shard_pool_by_window`, and call its `run` or `apply` method.
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
from jaxpool._geometry.window import Axis, Window, make_window
from jaxpool._kernels.slices import reshape_like
from jaxpool._ops.apply import Autodiff, call_in_reverse_mode
from jaxpool._shards.halo import Halo, ShardGeometry, pool_with_halo

R = TypeVar("R")  # an array or a tuple of arrays
MeshAxes = tuple[tuple[str, ...], ...]  # the mesh axes that shard each of some array axes

# The mesh axes of each axis of a pool's array, set by `jaxpool.sharded` inside a `jax.shard_map`, where types carry no
# mesh axes. A JAX user context is thread-local and part of jit's cache key. The context is created at import, because
# JAX does not support creating contexts while other threads run.
context_axes = jax.make_user_context(None)


@dataclasses.dataclass(frozen=True)
class ArraySharding:
    """The mesh axes that shard each axis of an array; `is_manual` is True inside a `shard_map` over these mesh axes."""

    mesh: Mesh | AbstractMesh
    mesh_axes: MeshAxes
    is_manual: bool

    def num_shards(self, axis: int) -> int:
        """Number of shards along an axis of the array."""
        return math.prod(self.mesh.shape[name] for name in self.mesh_axes[axis])

    def global_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The global shape of an array of `shape`, which is the shape of one shard if `is_manual`."""
        if not self.is_manual:
            return tuple(shape)
        return tuple(size * self.num_shards(axis) for axis, size in enumerate(shape))

    def operand_sharding(self, shape: Sequence[Any]) -> ArraySharding:
        """The sharding of an operand of `shape`, whose last axes are those of the array; leading axes may be added.

        Axes that cannot be split, such as those of size 1, are not sharded.
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
        """The `axis_names` of `jax.shard_map`: all explicit mesh axes, and every mesh axis that shards the array.

        XLA all-gathers arrays along explicit mesh axes that are left out. If all mesh axes are included, the set is
        empty: `jax.shard_map` then maps over all mesh axes that no surrounding `vmap` uses.
        """
        mapped_axes = axes_of_type(self.mesh, AxisType.Explicit).union(*self.mesh_axes)
        return frozenset() if mapped_axes == frozenset(self.mesh.axis_names) else mapped_axes


def _spec_axes(spec: Any, ndim: int, mesh: Any) -> MeshAxes:
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


def axes_of_type(mesh: Any, axis_type: AxisType) -> frozenset[str]:
    """The names of the mesh axes of a type."""
    pairs = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return frozenset(name for name, each in pairs if each == axis_type)


def _keep_axes(allowed: frozenset[str], mesh_axes: MeshAxes) -> MeshAxes:
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
        if _keep_axes(explicit_axes, mesh_axes) != _keep_axes(explicit_axes, type_axes):
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


def all_gather_axes(sharding: ArraySharding, x: Array, axes: Sequence[int]) -> Array:
    """x, whose sharding is `sharding`, all-gathered along `axes`."""
    axes = [axis for axis in axes if sharding.mesh_axes[axis]]
    if axes and not sharding.is_manual:
        spec = sharding.replicate_axes(axes).spec
        return reshard(x, NamedSharding(jax.typeof(x).sharding.mesh, spec))
    for axis in axes:
        names = sharding.mesh_axes[axis]
        x = lax.all_gather(x, names, axis=axis, tiled=True, to="invarying")
    return x


def drop_unit_axes(sharding: ArraySharding | None, x: Array, axes: Sequence[int]) -> Array:
    """x without mesh axes of size 1 along `axes` in its type, which ops would treat as sharded axes."""
    if sharding is None or sharding.is_manual:
        return x
    return all_gather_axes(sharding, x, [axis for axis in axes if sharding.num_shards(axis) == 1])


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _shard_map(
    body: Callable[..., R],
    settings: tuple[Any, ...],
    sharding: ArraySharding,
    out_spec: PartitionSpec,
    *xs: Array,
) -> R:
    shardings = [sharding.operand_sharding(x.shape) for x in xs]
    mapped_body: Callable[..., R] = jax.shard_map(
        functools.partial(body, *settings),
        mesh=sharding.mesh,
        in_specs=tuple(each.spec for each in shardings),
        out_specs=out_spec,
        axis_names=sharding.mapped_axes,
    )
    return mapped_body(*map(_reshard_explicit, xs, shardings))


def _reshard_explicit(x: Array, sharding: ArraySharding) -> Array:
    """x resharded along the explicit mesh axes of `sharding`, or x itself if its type already has this sharding."""
    explicit, type_sharding = axes_of_type(sharding.mesh, AxisType.Explicit), jax.typeof(x).sharding
    spec = PartitionSpec(*[entry or None for entry in _keep_axes(explicit, sharding.mesh_axes)])
    if not explicit or (not type_sharding.mesh.empty and type_sharding.spec == spec):
        return x
    return reshard(x, NamedSharding(sharding.mesh, spec))


def on_shards(
    body: Callable[..., R],
    sharding: ArraySharding | None,
    *xs: Array,
    settings: tuple[Any, ...] = (),
    out_spec: PartitionSpec | None = None,
    autodiff: Autodiff | None = None,
) -> R:
    """Call `body(*settings, *xs)` on the shards of `xs`, which `sharding.operand_sharding` describes, or on `xs`.

    Results are sharded by `out_spec`, by default `sharding.spec`. Calls with equal `settings` are traced once.
    """
    if sharding is None:
        kwargs = {} if autodiff is None else {"autodiff": autodiff}
        operands = [reshape_like(x, x.shape, xs[0]) for x in xs[1:]]
        return body(*settings, xs[0], *operands, **kwargs)
    out_spec = sharding.spec if out_spec is None else out_spec
    shard_body: Callable[..., R] = functools.partial(body, *settings)
    if not sharding.is_manual:
        shard_body = functools.partial(_shard_map, body, settings, sharding, out_spec)
    result: R = call_in_reverse_mode(shard_body, *xs) if autodiff == "vjp" else shard_body(*xs)
    return result


# A function from the shape of an array to the `Window` over the array
WindowFn = Callable[[Sequence[Any]], Window]


@dataclasses.dataclass(frozen=True)
class ShardedPool(ShardGeometry):
    """The windows of a pool over the shards of an array, and the array's sharding; None if it is not sharded."""

    sharding: ArraySharding | None

    def run(self, body: Callable[..., R], x: Array, *settings: Any, **kwargs: Any) -> R:
        """Call `body(self, *settings, x)` on x, or on each shard of a sharded x; `kwargs` may set `autodiff`."""
        return on_shards(body, self.sharding, x, settings=(self, *settings), **kwargs)

    def apply(
        self,
        pool: Callable[..., Array],
        op: Any,
        x: Array,
        *operands: Array,
        mask: Array | None = None,
        **kwargs: Any,
    ) -> Array:
        """Call `pool(op, x, *operands)`, or `pool(op, x, mask, *operands)`, on x or on each shard of a sharded x.

        All arrays must broadcast against x; `mask` is a `where` mask. `kwargs` may set `autodiff`.
        """
        xs = (x, *operands) if mask is None else (x, mask, *operands)
        if self.sharding is None:
            return on_shards(pool, None, *xs, settings=(op,), **kwargs)
        settings = self, pool, op, mask is not None
        return on_shards(pool_with_halo, self.sharding, *xs, settings=settings, **kwargs)

    def pooled_shape(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """The output shape of the pool for an input of `shape`, which is a shard's shape inside a `shard_map`."""
        is_manual = self.sharding is not None and self.sharding.is_manual
        return (self.extended_window if is_manual else self.window).pooled_shape(shape)

    def check_reflection(self, arg_name: str = "x") -> None:
        """Raise unless each shard with its halo contains all rows that reflection padding reads at the array's ends."""
        for halo in self.halos:
            if any(max(ends) >= halo.num_rows - sum(ends) for ends in halo.pad_rows if any(ends)):
                axis, size = halo.dim.axis, halo.dim.size
                rule = f"of more rows in each of its {halo.num_shards} shards along axis {axis}, "
                rule += "where it is reflected"
                hint = "Use fewer devices there."
                raise ArgumentError(arg_name, rule, size, hint, attribute=f"shape[{axis}]")


def shard_pool_by_type(x: Array, window_fn: WindowFn) -> ShardedPool:
    """The `ShardedPool` for x, with the sharding that `sharding_from_type` finds.

    Raises `ArgumentError` if shards would differ in size.
    """
    sharding = sharding_from_type(x)
    if sharding is None:
        return ShardedPool(window_fn(x.shape), (), None)
    shape = sharding.global_shape(x.shape)
    window, halos = window_fn(shape), []
    for dim_index, dim in enumerate(window.dims):
        num_shards = sharding.num_shards(dim.axis)
        if dim.size % num_shards or dim.out % num_shards:
            raise _uneven_shards_error(shape, dim_index, dim, num_shards, window_fn)
        if num_shards > 1:
            halos.append(Halo(dim, sharding.mesh_axes[dim.axis], num_shards))
    return ShardedPool(window, tuple(halos), sharding)


def shard_pool_by_window(x: Array, window: Window) -> ShardedPool:
    """The `ShardedPool` for x and `window`. Raises inside a `shard_map` if `jaxpool.sharded` set `context_axes`."""
    if context_axes.value is not None:
        rule = "whole: inside a shard_map its window is not known"
        hint = "Pass a function of jaxpool itself."
        raise ArgumentError("x", rule, x.shape, hint, attribute="shape")

    def window_fn(shape: Sequence[Any]) -> Window:
        if [shape[axis] for axis in window.axes] == list(window.input_shape):
            return window
        return make_window(
            shape,
            window.window_shape,
            [dim.stride for dim in window.dims],
            [(dim.low, dim.high) for dim in window.dims],
            [dim.dilation for dim in window.dims],
            axes=window.axes,
        )

    return shard_pool_by_type(x, window_fn)


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


def check_divisible(
    sharding: ArraySharding | None,
    axis: int,
    size: Any,
    arg_name: str,
    value: Any,
    suffix: str = "",
    attr: str = "",
) -> None:
    """Raise an error about `arg_name` unless the shards along `axis` divide `size` evenly."""
    count = sharding.num_shards(axis) if sharding else 1
    if count > 1 and size % count != 0:
        rule = f"of a size along axis {axis} that its {count} shards divide{suffix}"
        hint = (
            _join_or(_multiples_near(size, count, 1)) if is_int(size) else f"a multiple of {count}"
        )
        raise ArgumentError(arg_name, rule, value, f"Use {hint} there.", attribute=attr)


def _multiples_near(size: int, divisor: int, num_steps: int) -> list[int]:
    """Positive multiples of `divisor` around `size`, nearest first, at most `num_steps` on either side."""
    nearest = size // divisor
    sizes = [divisor * n for n in range(nearest + 1 - num_steps, nearest + 1 + num_steps) if n > 0]
    return sorted(sizes, key=lambda n: abs(n - size))


def _join_or(sizes: Sequence[int]) -> str:
    """The sizes in ascending order, joined by "or", as text for an error message."""
    return " or ".join(map(str, sorted(sizes)))


def _uneven_shards_error(
    shape: Sequence[int], dim_index: int, dim: Axis, num_shards: int, window_fn: WindowFn
) -> ArgumentError:
    """The error for an axis whose shards would differ in size; the message suggests the nearest valid sizes."""
    valid_sizes: list[int] = []
    for size in _multiples_near(dim.size, num_shards, 4 * dim.stride):
        new_shape = [*shape[: dim.axis], size, *shape[dim.axis + 1 :]]
        try:
            out = window_fn(new_shape).dims[dim_index].out
        except ArgumentError:
            continue
        same_side = [n for n in valid_sizes if (n < dim.size) == (size < dim.size)]
        if out % num_shards == 0 and not same_side:
            valid_sizes.append(size)
    rule = f"of a size along axis {dim.axis} that its {num_shards} shards divide, "
    rule += f"as they must the {dim.out} of the output"
    hint = 'With this window, stride and padding no size near it works: pad by "SAME", '
    hint += f"and use one that {num_shards * dim.stride} divides."
    if valid_sizes:
        hint = f"Use {_join_or(valid_sizes)} there."
    return ArgumentError("x", rule, dim.size, hint, attribute=f"shape[{dim.axis}]")
