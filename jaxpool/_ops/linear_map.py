"""The two JAX primitives behind all ops, with their AD, batching and lowering rules.

`compute` evaluates an op. Its JVP rule computes output and residual by the op's primal, and the tangent by
`linear_map` with that residual. JAX differentiates kernels only with respect to residuals (`differentiable_residual`).

`linear_map` pairs an op's hand-written linear map with its transpose: the transpose of the primitive is the primitive
in the other direction. All AD modes run the op's kernels, and only the residual is saved for the backward pass. The
batching rule is `vmap` of the kernel.

Each platform has its own lowering. Only public modules of JAX are used: `jax.extend.core.Primitive` and
`jax.interpreters`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._arguments.sizes import is_int
from jaxpool._kernels.materialise import inlines_calls, store_arguments
from jaxpool._ops.op import Op, partitioned
from jaxpool._plan.problem import Platform, barrier_on

PLATFORMS: dict[str | None, Platform] = {
    "cpu": "cpu",
    "cuda": "gpu",
    "rocm": "gpu",
    "tpu": "tpu",
    None: "portable",  # any other platform
}

# The platform to trace for in place of the platform of the default device, for a device that is not present.
# Created at import, because JAX does not support creating user contexts while other threads run.
tracing_for = jax.make_user_context(None)

compute_p = core.Primitive("jaxpool")
linear_p = core.Primitive("jaxpool_linear_map")
Dims = tuple[int | None, ...]  # the axis of each argument that a vmap maps, or None


def traced_for() -> Platform:
    """The platform that a program is probably traced for: the platform of the default device.

    It decides the residual of an op. Lowered for another platform, the program gives the same results.
    """
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    name = tracing_for.value or getattr(device, "platform", device) or jax.default_backend()
    return PLATFORMS.get({"gpu": "cuda"}.get(name, name), "portable")


def compute(op: Op, what: str, *xs: Array) -> Any:
    """Bind the method `what` of `op` to xs. The derivative is the op's linear map; a residual has none."""
    params = (("op", op), ("what", what), ("batch", ()))
    tree = _types(_compute, tuple(map(jax.typeof, xs)), params, jax.sharding.get_abstract_mesh())[1]
    return jax.tree.unflatten(tree, compute_p.bind(*xs, **dict(params)))


def value(op: Op, *xs: Array) -> Array:
    """The output of `op`."""
    y: Array = value_and_residual(op, *xs)[0] if op.linear_in_x else compute(op, "value", *xs)
    return y


def value_and_residual(op: Op, *args: Array) -> tuple[Array, Any]:
    """The output and the residual of `op`, from its inputs and extra arguments."""
    xs = args[: op.inputs]
    if op.linear_in_x:
        y = linear_map(op, args[op.inputs :], xs, nonzero=(True,) * len(xs))[0]
    elif op.saved(None, *args) is None:
        output: tuple[Array, Any] = compute(op, "primal", *args)
        return output
    else:
        y = compute(op, "value_with_residual", *args)
    return y, op.saved(y, *args)


def linear_map(
    op: Op,
    residual: Any,
    xs: Sequence[Array],
    *,
    nonzero: tuple[bool, ...],
    transposed: bool = False,
) -> list[Array]:
    """Bind `op.linear` to the tangents xs, or if `transposed`, `op.transpose` to the cotangents xs.

    `nonzero` is True for the inputs that have a nonzero tangent, or whose cotangents are returned.
    """
    leaves, tree = jax.tree.flatten(residual)
    outputs: list[Array] = linear_p.bind(
        *leaves, *xs, op=op, tree=tree, nonzero=nonzero, transposed=transposed, batch=()
    )
    return outputs


def _mapped(run: Callable[..., Any], batch: tuple[Dims, ...]) -> Callable[..., Any]:
    for dims in batch:
        run = jax.vmap(run, in_axes=dims)
    return run


def _compute(*args: Array, op: Op, what: str, batch: tuple[Dims, ...], platform: Platform) -> Any:
    run: Callable[..., Any] = functools.partial(getattr(op, what), platform)
    if op.stores_inputs and what == "primal":
        run = store_arguments(barrier_on(platform), run)
    return _mapped(run, batch)(*args)


def _linear(
    *args: Array,
    op: Op,
    tree: Any,
    nonzero: tuple[bool, ...],
    transposed: bool,
    batch: tuple[Dims, ...],
    platform: Platform,
) -> Any:
    count = tree.num_leaves

    def run(*args: Array) -> Any:
        residual = jax.tree.unflatten(tree, args[:count])
        if transposed:
            dxs = op.transpose(platform, residual, *args[count:])
            return [dx for dx, wanted in zip(dxs, nonzero, strict=True) if wanted]
        tangents = iter(args[count:])
        y = op.linear(platform, residual, *[next(tangents) if one else None for one in nonzero])
        return y

    front_axes = (0,) * (len(args) - count)
    kernel = store_arguments(barrier_on(platform), run) if op.stores_residual else run
    return _mapped(kernel, tuple((*dims, *front_axes) for dims in batch))(*args)


def kernel_of(equation: Any, platform: Platform) -> Callable[..., Any]:
    """The kernel that an equation of one of the two primitives runs on a platform."""
    run = _compute if equation.primitive is compute_p else _linear
    return functools.partial(run, platform=platform, **equation.params)


# JAX rules


@functools.partial(jax.jit, static_argnames=("primitive", "params"))
def _jitted(*args: Array, primitive: Any, params: tuple[tuple[str, Any], ...]) -> Any:
    if not any(isinstance(x, jax.core.Tracer) for x in args):
        # `jax_debug_nans` runs without jit to find the operation that made a NaN: this one.
        raise FloatingPointError(f"invalid value encountered in {dict(params)['op']}")
    return primitive.bind(*args, **dict(params))


@functools.lru_cache(maxsize=4096)
def _types(run: Callable[..., Any], avals: Any, params: Any, mesh: Any) -> tuple[Any, Any]:
    """The output types of `run` and their tree structure.

    Tracing the "portable" kernel also gives the right shardings and manual axes.
    """
    portable = functools.partial(run, platform="portable", **dict(params))
    program, shapes = jax.make_jaxpr(portable, return_shape=True)(*avals)
    return program.out_avals, jax.tree.structure(shapes)


def _define(primitive: Any, run: Callable[..., Any]) -> None:
    def evaluated(*args: Array, **params: Any) -> Any:
        with jax.disable_jit(False):
            return _jitted(*args, primitive=primitive, params=tuple(params.items()))

    def typed(*avals: Any, **params: Any) -> Any:
        return _types(run, avals, tuple(params.items()), jax.sharding.get_abstract_mesh())[0]

    def leaves(*args: Array, platform: Platform, **params: Any) -> Any:
        return jax.tree.leaves(run(*args, platform=platform, **params))

    primitive.multiple_results = True
    primitive.def_impl(evaluated)
    primitive.def_abstract_eval(typed)
    for name, platform in PLATFORMS.items():
        kernel = functools.partial(leaves, platform=platform)
        rule = _lowering(mlir.lower_fun(kernel, multiple_results=True))
        mlir.register_lowering(primitive, rule, platform=name)


def _lowering(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a lowering rule so that kernels can read `inlines_calls` and `partitioned`.

    JAX inlines the calls of programs for several platforms and of programs with symbolic sizes.
    """

    def lower(ctx: Any, *args: Any, **params: Any) -> Any:
        symbolic = any(not is_int(size) for aval in ctx.avals_in for size in aval.shape)
        many = partitioned.value or _has_many_devices(ctx.module_context)
        inlines = symbolic or len(ctx.module_context.platforms) > 1
        with inlines_calls(inlines), partitioned(many):
            return rule(ctx, *args, **params)

    return lower


def _has_many_devices(module: Any) -> bool:
    """Return True if XLA partitions the program. In a `shard_map` over all mesh axes it does not."""
    axes: Any = getattr(module, "axis_context", None)
    if hasattr(axes, "manual_axes"):
        sizes = axes.mesh.shape.items()
        return any(size > 1 for name, size in sizes if name not in axes.manual_axes)
    return getattr(axes, "num_devices", 1) > 1


def _batch_compute(args: Any, dims: Any, *, batch: tuple[Dims, ...], **params: Any) -> Any:
    outputs = compute_p.bind(*args, batch=(*batch, tuple(dims)), **params)
    return outputs, [0] * len(outputs)


def _in_front(x: Array, dim: int | None, mapped: Array, axis: int) -> Array:
    """Move the mapped axis of x to the front. An unmapped x is repeated, sharded like `axis` of `mapped`."""
    if dim is not None:
        return jnp.moveaxis(x, dim, 0) if dim else x
    like = jax.typeof(mapped).sharding
    spec = PartitionSpec(like.spec[axis], *jax.typeof(x).sharding.spec)
    sharding = None if spec[0] is None else NamedSharding(like.mesh, spec)
    return lax.broadcast(x, (mapped.shape[axis],), out_sharding=sharding)


def _batch_linear(
    args: Any, dims: Any, *, tree: Any, batch: tuple[Dims, ...], **params: Any
) -> Any:
    """Residuals keep their mapped axis in place; tangents and cotangents get it as their first axis."""
    count = tree.num_leaves
    mapped, axis = next((x, dim) for x, dim in zip(args, dims, strict=True) if dim is not None)
    pairs = zip(args[count:], dims[count:], strict=True)
    in_front = [_in_front(x, dim, mapped, axis) for x, dim in pairs]
    new = (*batch, tuple(dims[:count]))
    outputs = linear_p.bind(*args[:count], *in_front, tree=tree, batch=new, **params)
    return outputs, [0] * len(outputs)


def _zero(aval: Any) -> ad.Zero:
    return ad.Zero(aval.to_tangent_aval())


def _jvp_compute(primals: Any, tangents: Any, *, op: Op, what: str, batch: tuple[Dims, ...]) -> Any:
    """The tangent of the output is the linear map. Extra arguments and the residual are constants."""
    nonzero = tuple(not isinstance(dot, ad.Zero) for dot in tangents[: op.inputs])
    if not any(nonzero):
        ys = compute_p.bind(*primals, op=op, what=what, batch=batch)
        return ys, [_zero(jax.typeof(y)) for y in ys]
    moved = [which for which, moves in enumerate(nonzero) if moves]

    def pushed(*args: Array) -> tuple[list[Array], Array]:
        y, residual = value_and_residual(op, *args[: len(primals)])
        dots = match_varying_mesh_axes(args[len(primals) :], y)
        dot = linear_map(op, residual, dots, nonzero=nonzero)[0]
        return jax.tree.leaves((y, residual) if what == "primal" else y), dot

    in_axes = tuple((*dims, *(dims[which] for which in moved)) for dims in batch)
    ys, dot = _mapped(pushed, in_axes)(*primals, *[tangents[which] for which in moved])
    return ys, [dot, *[_zero(jax.typeof(y)) for y in ys[1:]]]


def _jvp_linear(primals: Any, tangents: Any, **params: Any) -> Any:
    """Residuals are constants, unless the op has `differentiable_residual`."""
    count = params["tree"].num_leaves
    ys = linear_p.bind(*primals, **params)
    dots, out_dots = tangents[count:], [_zero(jax.typeof(y)) for y in ys]
    if not all(isinstance(dot, ad.Zero) for dot in dots):
        dots = [ad.instantiate_zeros(dot) for dot in dots]
        out_dots = linear_p.bind(*primals[:count], *dots, **params)
    moved = {
        which: dot
        for which, dot in enumerate(tangents[:count])
        if params["op"].differentiable_residual and not isinstance(dot, ad.Zero)
    }
    if moved:
        residual_dots = _by_residual(primals, moved, tuple(params.items()))
        out_dots = [ad.add_tangents(*pair) for pair in zip(out_dots, residual_dots, strict=True)]
    return ys, out_dots


@functools.partial(jax.jit, static_argnames="params")
def _by_residual(primals: Any, moved: dict[int, Array], params: Any) -> Any:
    """The output tangents due to the residual tangents `moved`, by JAX's AD of the portable kernel."""

    def portable(known: dict[int, Array]) -> Any:
        args = [known.get(which, x) for which, x in enumerate(primals)]
        return jax.tree.leaves(_linear(*args, platform="portable", **dict(params)))

    return jax.jvp(portable, ({which: primals[which] for which in moved},), (moved,))[1]


def _transpose_linear(
    cotangents: Any,
    *args: Any,
    tree: Any,
    transposed: bool,
    nonzero: tuple[bool, ...],
    **params: Any,
) -> Any:
    count = tree.num_leaves
    residual, xs = args[:count], args[count:]
    rest = {"tree": tree, "transposed": not transposed, **params}
    if all(isinstance(ct, ad.Zero) for ct in cotangents):
        outputs = [_zero(x.aval) if ad.is_undefined_primal(x) else None for x in xs]
    elif transposed:  # the cotangents of the inputs' cotangents are tangents of the inputs
        known = iter(cotangents)
        every = [next(known) if one else None for one in nonzero]
        now = tuple(ct is not None and not isinstance(ct, ad.Zero) for ct in every)
        tangents = [ct for ct, one in zip(every, now, strict=True) if one]
        outputs = linear_p.bind(*residual, *tangents, nonzero=now, **rest)
    else:
        dys = [ad.instantiate_zeros(ct) for ct in cotangents]
        outputs = linear_p.bind(*residual, *dys, nonzero=nonzero, **rest)
        pairs = zip(outputs, xs, strict=True)
        outputs = [ct if ad.is_undefined_primal(x) else None for ct, x in pairs]
    return [None] * count + list(outputs)


_define(compute_p, _compute)
_define(linear_p, _linear)
batching.primitive_batchers[compute_p] = _batch_compute
batching.primitive_batchers[linear_p] = _batch_linear
ad.primitive_jvps[compute_p] = _jvp_compute
ad.primitive_jvps[linear_p] = _jvp_linear
ad.primitive_transposes[linear_p] = _transpose_linear
