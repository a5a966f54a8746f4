"""The two JAX primitives behind all ops, with their AD, batching and lowering rules.

`compute` evaluates an op. Its JVP rule computes the output and the residual, and the tangent by `linear_map` with that
residual: the hand-written `Op.linear`, or if `transposed`, `Op.transpose`. The transpose rule flips `transposed`. So
all AD modes run the op's kernels, and only the residual is saved for the backward pass. JAX's AD differentiates kernels
only with respect to residuals (`Op.has_differentiable_residual`). The batching rule is `vmap` of the kernel.

Each platform has its own lowering rule. `apply.py` binds the primitives. They use only public modules of JAX:
`jax.extend.core.Primitive` and `jax.interpreters`.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from jax.tree_util import PyTreeDef

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._arguments.sizes import is_int
from jaxpool._kernels.slices import inlines_calls, store_arguments
from jaxpool._ops.op import Arrays, Op, Residual, is_partitioned
from jaxpool._plan.problem import Platform, barrier_of

Kernel = Callable[..., Any]  # a function of arrays that returns a pytree of arrays
Params = tuple[tuple[str, Any], ...]  # the items of an equation's parameters

# The key None is any other platform.
PLATFORM_OF_JAX_NAME: dict[str | None, Platform] = {
    "cpu": "cpu",
    "cuda": "gpu",
    "rocm": "gpu",
    "tpu": "tpu",
    None: "portable",
}

# The platform to trace for instead of the default device's platform, to plan for a device that is not present.
# Created at import, because JAX does not support creating user contexts while other threads run.
platform_override = jax.make_user_context(None)

compute_p = core.Primitive("jaxpool")
linear_p = core.Primitive("jaxpool_linear_map")
Flags = tuple[bool, ...]
Dims = tuple[int | None, ...]  # the mapped axis of each argument, or None
# The `Dims` of each vmap, from the innermost on
Batch = tuple[Dims, ...]
Avals = tuple[jax.core.AbstractValue, ...]
Tangents = Sequence[Array | ad.Zero]
Batched = tuple[list[Array], list[int]]  # outputs, and the mapped axis of each
TangentPair = tuple[list[Array], Tangents]  # outputs, and the tangent of each


def tracing_platform() -> Platform:
    """The platform of the default device, which decides the residual of an op.

    JAX probably traces the program for this device. Lowered for another platform, the program gives the same results.
    """
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    name = platform_override.value or getattr(device, "platform", device) or jax.default_backend()
    return PLATFORM_OF_JAX_NAME.get({"gpu": "cuda"}.get(name, name), "portable")


def _params(op: Op, method: str) -> Params:
    """The parameters of the equation that `compute` binds."""
    return (("op", op), ("method", method), ("batch", ()))


def compute(op: Op, method: str, *xs: Array) -> Any:
    """Bind the method of `op` named `method` to xs. The output has the derivative `op.linear`, the residual none."""
    params = _params(op, method)
    outputs = compute_p.bind(*xs, **dict(params))
    if method != "primal":
        return outputs[0]
    return jax.tree.unflatten(_types(_compute, tuple(map(jax.typeof, xs)), params)[1], outputs)


def value(op: Op, *xs: Array) -> Array:
    """The output of `op`."""
    y: Array = value_and_residual(op, *xs)[0] if op.linear_in_x else compute(op, "value", *xs)
    return y


def value_and_residual(op: Op, *args: Array) -> tuple[Array, Residual]:
    """The output and the residual of `op`, with derivatives in forward and reverse mode.

    `args` holds the inputs of `op`, then its other arguments. Other arguments have no derivative, unless `op` is linear
    and sets `has_differentiable_residual`.
    """
    xs = args[: op.num_inputs]
    if op.linear_in_x:
        y = linear_map(op, args[op.num_inputs :], xs, nonzero=(True,) * len(xs))[0]
    elif op.saves_arguments:
        y = compute(op, "value_with_residual", *args)
    else:
        output: tuple[Array, Residual] = compute(op, "primal", *args)
        return output
    return y, op.saved_residual(y, *args)


def linear_map(
    op: Op,
    residual: Residual,
    xs: Sequence[Array],
    *,
    nonzero: Flags,
    transposed: bool = False,
    y_type: jax.core.AbstractValue | None = None,
) -> list[Array]:
    """Bind `op.linear` to the tangents xs, or if `transposed`, `op.transpose` to the cotangents xs.

    `nonzero` is True for each input that has a nonzero tangent, or if `transposed`, whose cotangent is returned.
    `y_type` is the type of the tangent of the output, if known: reverse mode then never traces `op.linear`.
    """
    leaves, tree = jax.tree.flatten(residual)
    params = {"op": op, "tree": tree, "nonzero": nonzero, "transposed": transposed, "batch": ()}
    params["y_type"] = y_type
    outputs: list[Array] = linear_p.bind(*leaves, *xs, **params)
    return outputs


def _nest_vmaps(kernel: Kernel, batch: Batch) -> Kernel:
    if not batch:
        return kernel
    for dims in batch:
        kernel = jax.vmap(kernel, in_axes=dims)

    def call(*args: Array) -> Any:
        with _mesh_context(args):
            return kernel(*args)

    return call


def _mesh_context(xs: Sequence[Array]) -> contextlib.AbstractContextManager[object]:
    """A context with the mesh of xs. `vmap` of jax 0.12 needs it, and outside of `jax.set_mesh` there is none."""
    meshes = [jax.typeof(x).sharding.mesh for x in xs]
    mesh = next((mesh for mesh in meshes if not mesh.empty), jax.sharding.get_abstract_mesh())
    return jax.sharding.use_abstract_mesh(mesh)


def _compute(*args: Array, op: Op, method: str, batch: Batch, platform: Platform) -> Any:
    kernel: Any = functools.partial(getattr(op, method), platform)
    if kernel.func.__func__ is Op.value_with_residual:
        # It is `value`, which is traced already if the pool is jitted.
        params = _params(op, "value")
        kernel = functools.partial(_call_kernel, kernel=_compute, platform=platform, params=params)
    if op.materialises_inputs and method == "primal":
        kernel = store_arguments(barrier_of(platform), kernel)
    return _nest_vmaps(kernel, batch)(*args)


def _linear(
    *args: Array,
    op: Op,
    tree: PyTreeDef,
    nonzero: Flags,
    transposed: bool,
    batch: Batch,
    platform: Platform,
    y_type: object,
) -> Array | list[Array]:
    num_residuals = tree.num_leaves

    def call_op(*args: Array) -> Array | list[Array]:
        residual, xs = jax.tree.unflatten(tree, args[:num_residuals]), args[num_residuals:]
        if transposed:
            return list(itertools.compress(op.transpose(platform, residual, *xs), nonzero))
        x_dots = iter(xs)
        tangents = [next(x_dots) if is_nonzero else None for is_nonzero in nonzero]
        return op.linear(platform, residual, *tangents)

    front_axes = (0,) * (len(args) - num_residuals)
    kernel = store_arguments(barrier_of(platform), call_op) if op.materialises_residual else call_op
    return _nest_vmaps(kernel, tuple((*dims, *front_axes) for dims in batch))(*args)


def kernel_of(equation: core.JaxprEqn, platform: Platform) -> Kernel:
    """The kernel that `equation`, with one of the two jaxpool primitives, runs on `platform`."""
    kernel = _compute if equation.primitive is compute_p else _linear
    return functools.partial(kernel, platform=platform, **equation.params)


# JAX rules


@functools.partial(jax.jit, static_argnames=("primitive", "params"))
def _bind_under_jit(*args: Array, primitive: core.Primitive, params: Params) -> list[Array]:
    if not any(isinstance(x, jax.core.Tracer) for x in args):
        # With `jax_debug_nans`, JAX reruns a program without jit to find the operation that made a NaN: this op.
        raise FloatingPointError(f"invalid value encountered in {dict(params)['op']}")
    return primitive.bind(*args, **dict(params))


@functools.partial(jax.jit, static_argnames=("kernel", "platform", "params"), inline=True)
def _call_kernel(*args: Array, kernel: Kernel, platform: Platform, params: Params) -> Any:
    """Call `kernel`. Abstract evaluation and lowering share one trace, from the cache of `jax.jit`."""
    return kernel(*args, platform=platform, **dict(params))


def _types(kernel: Kernel, avals: Avals, params: Params) -> tuple[Avals, PyTreeDef]:
    """The output types of `kernel`, with shardings and varying mesh axes, and their tree structure."""
    mesh = jax.sharding.get_abstract_mesh()
    return _types_on_platform(kernel, avals, params, tracing_platform(), mesh)


@functools.lru_cache(maxsize=4096)
def _types_on_platform(
    kernel: Kernel, avals: Avals, params: Params, platform: Platform, mesh: AbstractMesh
) -> tuple[Avals, PyTreeDef]:
    # Lowering rules run in the context of a mesh, even an empty mesh. The context is part of the key of jit's cache.
    with jax.sharding.use_abstract_mesh(mesh):
        traced = _call_kernel.trace(*avals, kernel=kernel, platform=platform, params=params)
    return traced.jaxpr.out_avals, jax.tree.structure(traced.out_info)


def _register_rules(primitive: core.Primitive, fn: Kernel) -> None:
    def evaluate(*args: Array, **params: object) -> list[Array]:
        with jax.disable_jit(False):
            return _bind_under_jit(*args, primitive=primitive, params=tuple(params.items()))

    def infer_types(*avals: jax.core.AbstractValue, **params: Any) -> Avals:
        if params.get("y_type"):
            return (params["y_type"],)
        return _types(fn, avals, tuple(params.items()))[0]

    def flat_kernel(*args: Array, platform: Platform, **params: object) -> list[Array]:
        y = _call_kernel(*args, kernel=fn, platform=platform, params=tuple(params.items()))
        return jax.tree.leaves(y)

    primitive.multiple_results = True
    primitive.def_impl(evaluate)
    primitive.def_abstract_eval(infer_types)
    for name, platform in PLATFORM_OF_JAX_NAME.items():
        kernel = functools.partial(flat_kernel, platform=platform)
        rule = _wrap_lowering_rule(mlir.lower_fun(kernel, multiple_results=True))
        mlir.register_lowering(primitive, rule, platform=name)


def _wrap_lowering_rule(lowering_rule: mlir.LoweringRule) -> mlir.LoweringRule:
    """Wrap a lowering rule so that kernels can read `inlines_calls` and `is_partitioned`."""

    def lower(ctx: Any, *args: Any, **params: object) -> Any:
        # JAX inlines all calls of a program that is lowered for several platforms or has symbolic sizes.
        has_symbolic_sizes = any(not is_int(size) for aval in ctx.avals_in for size in aval.shape)
        is_inlined = has_symbolic_sizes or len(ctx.module_context.platforms) > 1
        is_multi_device = is_partitioned.value or _has_many_devices(ctx.module_context)
        with inlines_calls(is_inlined), is_partitioned(is_multi_device):
            return lowering_rule(ctx, *args, **params)

    return lower


def _has_many_devices(module: mlir.ModuleContext) -> bool:
    """Return True if XLA partitions the program. XLA does not partition inside a `shard_map` over all mesh axes."""
    axis_context: Any = getattr(module, "axis_context", None)
    if hasattr(axis_context, "manual_axes"):
        sizes = axis_context.mesh.shape.items()
        return any(size > 1 for name, size in sizes if name not in axis_context.manual_axes)
    return getattr(axis_context, "num_devices", 1) > 1


def _batch_compute(args: Arrays, dims: Dims, *, batch: Batch, **params: object) -> Batched:
    outputs = compute_p.bind(*args, batch=(*batch, tuple(dims)), **params)
    return outputs, [0] * len(outputs)


def _move_to_front(x: Array, dim: int | None, mapped_x: Array, axis: int) -> Array:
    """Move the mapped axis of x to the front. An unmapped x is repeated, sharded like `axis` of `mapped_x`."""
    if dim is not None:
        return jnp.moveaxis(x, dim, 0) if dim else x
    like = jax.typeof(mapped_x).sharding
    spec = PartitionSpec(like.spec[axis], *jax.typeof(x).sharding.spec)
    sharding = None if spec[0] is None else NamedSharding(like.mesh, spec)
    return lax.broadcast(x, (mapped_x.shape[axis],), out_sharding=sharding)


def _batch_linear(
    args: Arrays, dims: Dims, *, tree: PyTreeDef, batch: Batch, **params: Any
) -> Batched:
    """Residuals keep their mapped axis in place; tangents and cotangents get the mapped axis as their first axis."""
    num_residuals = tree.num_leaves
    mapped_x, axis = next((x, dim) for x, dim in zip(args, dims, strict=True) if dim is not None)
    pairs = zip(args[num_residuals:], dims[num_residuals:], strict=True)
    with _mesh_context(args):
        xs = [_move_to_front(x, dim, mapped_x, axis) for x, dim in pairs]
    new_batch = (*batch, tuple(dims[:num_residuals]))
    params |= {"tree": tree, "batch": new_batch, "y_type": None}
    outputs = linear_p.bind(*args[:num_residuals], *xs, **params)
    return outputs, [0] * len(outputs)


def _zero_tangents(ys: Sequence[Array]) -> list[ad.Zero]:
    return [ad.Zero(jax.typeof(y).to_tangent_aval()) for y in ys]


def _jvp_compute(
    primals: Arrays, tangents: Tangents, *, op: Op, method: str, batch: Batch
) -> TangentPair:
    """JVP rule of `compute`: the output tangent is `linear_map`. Extra arguments and the residual are constants."""
    nonzero = tuple(not isinstance(dot, ad.Zero) for dot in tangents[: op.num_inputs])
    if not any(nonzero):
        ys = compute_p.bind(*primals, op=op, method=method, batch=batch)
        return ys, _zero_tangents(ys)

    def push_forward(*args: Array) -> tuple[list[Array], Array]:
        y, residual = value_and_residual(op, *args[: len(primals)])
        x_dots = match_varying_mesh_axes(args[len(primals) :], y)
        y_type = jax.typeof(y).to_tangent_aval()
        y_dot = linear_map(op, residual, x_dots, nonzero=nonzero, y_type=y_type)[0]
        return jax.tree.leaves((y, residual) if method == "primal" else y), y_dot

    x_dots = itertools.compress(tangents, nonzero)
    in_axes = tuple((*dims, *itertools.compress(dims, nonzero)) for dims in batch)
    ys, dot = _nest_vmaps(push_forward, in_axes)(*primals, *x_dots)
    return ys, [dot, *_zero_tangents(ys[1:])]


def _jvp_linear(primals: Arrays, tangents: Tangents, **params: Any) -> TangentPair:
    """JVP rule of `linear_map`. Residuals are constants, unless the op sets `has_differentiable_residual`."""
    num_residuals = params["tree"].num_leaves
    ys = linear_p.bind(*primals, **params)
    x_dots, out_dots = tangents[num_residuals:], _zero_tangents(ys)
    if not all(isinstance(dot, ad.Zero) for dot in x_dots):
        dots = map(ad.instantiate_zeros, x_dots)
        out_dots = linear_p.bind(*primals[:num_residuals], *dots, **params)
    leaf_tangents = {
        i: dot for i, dot in enumerate(tangents[:num_residuals]) if not isinstance(dot, ad.Zero)
    }
    if leaf_tangents and params["op"].has_differentiable_residual:
        residual_dots = _jvp_by_residual(primals, leaf_tangents, tuple(params.items()))
        out_dots = [ad.add_tangents(*pair) for pair in zip(out_dots, residual_dots, strict=True)]
    return ys, out_dots


@functools.partial(jax.jit, static_argnames="params")
def _jvp_by_residual(
    primals: Arrays, leaf_tangents: dict[int, Array], params: Params
) -> list[Array]:
    """The output tangents due to the residual tangents `leaf_tangents`, by JAX's AD of the portable kernel."""

    def kernel(moved_leaves: dict[int, Array]) -> list[Array]:
        args = [moved_leaves.get(i, x) for i, x in enumerate(primals)]
        return jax.tree.leaves(_linear(*args, platform="portable", **dict(params)))

    return jax.jvp(kernel, ({i: primals[i] for i in leaf_tangents},), (leaf_tangents,))[1]


def _transpose_linear(
    cotangents: Tangents,
    *args: Any,
    tree: PyTreeDef,
    transposed: bool,
    nonzero: Flags,
    **params: Any,
) -> Sequence[Array | ad.Zero | None]:
    num_residuals = tree.num_leaves
    residual, xs = args[:num_residuals], args[num_residuals:]
    params |= {"tree": tree, "transposed": not transposed, "y_type": None}
    bind = functools.partial(linear_p.bind, *residual, **params)
    if all(isinstance(ct, ad.Zero) for ct in cotangents):
        outputs = [
            ad.Zero(x.aval.to_tangent_aval()) if ad.is_undefined_primal(x) else None for x in xs
        ]
    elif transposed:  # the cotangents of the inputs' cotangents are tangents of the inputs
        cotangent_iter = iter(cotangents)
        all_cotangents = [next(cotangent_iter) if flag else None for flag in nonzero]
        nonzero_now = tuple(ct is not None and not isinstance(ct, ad.Zero) for ct in all_cotangents)
        tangents = itertools.compress(all_cotangents, nonzero_now)
        outputs = bind(*tangents, nonzero=nonzero_now)
    else:
        outputs = bind(*map(ad.instantiate_zeros, cotangents), nonzero=nonzero)
        pairs = zip(outputs, xs, strict=True)
        outputs = [ct if ad.is_undefined_primal(x) else None for ct, x in pairs]
    return [None] * num_residuals + list(outputs)


_register_rules(compute_p, _compute)
_register_rules(linear_p, _linear)
batching.primitive_batchers[compute_p] = _batch_compute
batching.primitive_batchers[linear_p] = _batch_linear
ad.primitive_jvps[compute_p] = _jvp_compute
ad.primitive_jvps[linear_p] = _jvp_linear
ad.primitive_transposes[linear_p] = _transpose_linear
