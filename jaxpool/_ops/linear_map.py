"""What an op computes and the linear map of its derivative, which has two directions, as primitives of jax.

`linear_map` couples an op's linear map with its transpose, both written by hand. To jax it is one
operation: its transpose is itself in the other direction, and its batching rule is `vmap` of either.
So forward mode, reverse mode and whatever is transposed again run the op's own kernels, and what a
program keeps for the backward is the residual, whatever the kernels are made of.

A third one, `attach`, is the output of an op as AD sees it: its tangent is that map of those of the inputs.

The two primitives are lowered for each platform by the plan for it: nothing made for one reaches
another, and a program that is exported for several holds a form for each.

Only public modules of jax are used: `jax.extend.core.Primitive` and `jax.interpreters`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from jaxpool._arguments.arrays import vary_together
from jaxpool._plan.problem import Platform

if TYPE_CHECKING:
    from jaxpool._ops.op import Op

PLATFORMS: dict[str | None, Platform] = {
    "cpu": "cpu",
    "cuda": "gpu",
    "rocm": "gpu",
    "tpu": "tpu",
    None: "portable",  # any other
}

compute_p = core.Primitive("jaxpool")
linear_p = core.Primitive("jaxpool_linear_map")
attach_p = core.Primitive("derivative_of_jaxpool")
Dims = tuple[int | None, ...]  # of each argument the axis that a vmap maps, None where it has none


def compute(op: Op, what: str, *xs: Array) -> Any:
    """`op.value` or `op.primal` of xs, of which AD knows nothing."""
    params = (("op", op), ("what", what), ("batch", ()))
    tree = _types(_compute, tuple(map(jax.typeof, xs)), params, jax.sharding.get_abstract_mesh())[1]
    return jax.tree.unflatten(tree, compute_p.bind(*xs, **dict(params)))


def linear_map(
    op: Op, residual: Any, xs: Sequence[Array], *, given: tuple[bool, ...], turned: bool = False
) -> list[Array]:
    """`op.linear`, of the tangents that are given, or `turned` `op.transpose`, the cotangents of those."""
    leaves, tree = jax.tree.flatten(residual)
    found: list[Array] = linear_p.bind(
        *leaves, *xs, op=op, tree=tree, given=given, turned=turned, batch=()
    )
    return found


def attach(op: Op, y: Array, residual: Any, xs: Sequence[Array]) -> Array:
    """y, with the tangent that the op's linear map gives to the tangents of xs.

    A primitive and no `jax.custom_jvp`: of that, `jax.lax.scan` of jax 0.10 keeps the function alone where
    a gradient is taken of a gradient, and the function here would be y, without a derivative.
    """
    leaves, tree = jax.tree.flatten(residual)
    found: Array = attach_p.bind(y, *leaves, *xs, op=op, tree=tree, batch=())
    return found


def _mapped(run: Callable[..., Any], batch: tuple[Dims, ...]) -> Callable[..., Any]:
    for dims in batch:
        run = jax.vmap(run, in_axes=dims)
    return run


def _compute(*args: Array, op: Op, what: str, batch: tuple[Dims, ...], on: Platform) -> Any:
    return _mapped(functools.partial(getattr(op, what), on), batch)(*args)


def _linear(
    *args: Array,
    op: Op,
    tree: Any,
    given: tuple[bool, ...],
    turned: bool,
    batch: tuple[Dims, ...],
    on: Platform,
) -> Any:
    count = tree.num_leaves

    def run(*args: Array) -> Any:
        residual = jax.tree.unflatten(tree, args[:count])
        if turned:
            dxs = op.transpose(on, residual, *args[count:])
            return [dx for dx, wanted in zip(dxs, given, strict=True) if wanted]
        tangents = iter(args[count:])
        y = op.linear(on, residual, *[next(tangents) if one else None for one in given])
        return y

    lanes = (0,) * (len(args) - count)
    return _mapped(run, tuple((*dims, *lanes) for dims in batch))(*args)


# Rules of jax


@functools.partial(jax.jit, static_argnames=("primitive", "params"))
def _jitted(*args: Array, primitive: Any, params: tuple[tuple[str, Any], ...]) -> Any:
    if not any(isinstance(x, jax.core.Tracer) for x in args):
        # `jax_debug_nans` takes the jit away to find the operation behind a NaN: here it is.
        raise FloatingPointError(f"invalid value encountered in {dict(params)['op']}")
    return primitive.bind(*args, **dict(params))


@functools.lru_cache(maxsize=4096)
def _types(run: Callable[..., Any], avals: Any, params: Any, mesh: Any) -> tuple[Any, Any]:
    """The types of what `run` gives, and their structure.

    Read off its portable form, so that shardings and manual axes are right too.
    """
    portable = functools.partial(run, on="portable", **dict(params))
    program, shapes = jax.make_jaxpr(portable, return_shape=True)(*avals)
    return program.out_avals, jax.tree.structure(shapes)


def _define(primitive: Any, run: Callable[..., Any]) -> None:
    def evaluated(*args: Array, **params: Any) -> Any:
        with jax.disable_jit(False):
            return _jitted(*args, primitive=primitive, params=tuple(params.items()))

    def typed(*avals: Any, **params: Any) -> Any:
        return _types(run, avals, tuple(params.items()), jax.sharding.get_abstract_mesh())[0]

    def leaves(*args: Array, on: Platform, **params: Any) -> Any:
        return jax.tree.leaves(run(*args, on=on, **params))

    primitive.multiple_results = True
    primitive.def_impl(evaluated)
    primitive.def_abstract_eval(typed)
    for name, platform in PLATFORMS.items():
        kernel = functools.partial(leaves, on=platform)
        rule = mlir.lower_fun(kernel, multiple_results=True)
        mlir.register_lowering(primitive, rule, platform=name)


def _batch_compute(args: Any, dims: Any, *, batch: tuple[Dims, ...], **params: Any) -> Any:
    found = compute_p.bind(*args, batch=(*batch, tuple(dims)), **params)
    return found, [0] * len(found)


def _in_front(x: Array, dim: int | None, mapped: Array, axis: int) -> Array:
    """x with the mapped axis in front: if it has none, repeated, and sharded as `axis` of `mapped` is."""
    if dim is not None:
        return jnp.moveaxis(x, dim, 0) if dim else x
    like = jax.typeof(mapped).sharding
    spec = PartitionSpec(like.spec[axis], *jax.typeof(x).sharding.spec)
    sharding = None if spec[0] is None else NamedSharding(like.mesh, spec)
    return lax.broadcast(x, (mapped.shape[axis],), out_sharding=sharding)


def _batch_linear(
    args: Any, dims: Any, *, tree: Any, batch: tuple[Dims, ...], **params: Any
) -> Any:
    """Residuals are mapped where they are; what the map is linear in has the mapped axis in front."""
    count = tree.num_leaves
    mapped, axis = next((x, dim) for x, dim in zip(args, dims, strict=True) if dim is not None)
    pairs = zip(args[count:], dims[count:], strict=True)
    lanes = [_in_front(x, dim, mapped, axis) for x, dim in pairs]
    new = (*batch, tuple(dims[:count]))
    found = linear_p.bind(*args[:count], *lanes, tree=tree, batch=new, **params)
    return found, [0] * len(found)


def _zero(aval: Any) -> ad.Zero:
    return ad.Zero(aval.to_tangent_aval())


def _jvp_linear(primals: Any, tangents: Any, **params: Any) -> Any:
    """Residuals have no tangents, they are constants to AD, unless the op says otherwise."""
    count = params["tree"].num_leaves
    ys = linear_p.bind(*primals, **params)
    dots, found = tangents[count:], [_zero(jax.typeof(y)) for y in ys]
    if not all(isinstance(dot, ad.Zero) for dot in dots):
        dots = [ad.instantiate_zeros(dot) for dot in dots]
        found = linear_p.bind(*primals[:count], *dots, **params)
    moved = {
        which: dot
        for which, dot in enumerate(tangents[:count])
        if params["op"].differentiable_given and not isinstance(dot, ad.Zero)
    }
    if moved:
        more = _by_residual(primals, moved, tuple(params.items()))
        found = [ad.add_tangents(*pair) for pair in zip(found, more, strict=True)]
    return ys, found


@functools.partial(jax.jit, static_argnames="params")
def _by_residual(primals: Any, moved: dict[int, Array], params: Any) -> Any:
    """The tangents of what the portable form gives, where some of the residual `moved`."""

    def portable(known: dict[int, Array]) -> Any:
        args = [known.get(which, x) for which, x in enumerate(primals)]
        return jax.tree.leaves(_linear(*args, on="portable", **dict(params)))

    return jax.jvp(portable, ({which: primals[which] for which in moved},), (moved,))[1]


def _transpose_linear(
    cotangents: Any, *args: Any, tree: Any, turned: bool, given: tuple[bool, ...], **params: Any
) -> Any:
    count = tree.num_leaves
    residual, xs = args[:count], args[count:]
    rest = {"tree": tree, "turned": not turned, **params}
    if all(isinstance(ct, ad.Zero) for ct in cotangents):
        found = [_zero(x.aval) if ad.is_undefined_primal(x) else None for x in xs]
    elif turned:  # the cotangents are tangents of the inputs now
        known = iter(cotangents)
        every = [next(known) if one else None for one in given]
        now = tuple(ct is not None and not isinstance(ct, ad.Zero) for ct in every)
        tangents = [ct for ct, one in zip(every, now, strict=True) if one]
        found = linear_p.bind(*residual, *tangents, given=now, **rest)
    else:
        dys = [ad.instantiate_zeros(ct) for ct in cotangents]
        found = linear_p.bind(*residual, *dys, given=given, **rest)
        pairs = zip(found, xs, strict=True)
        found = [ct if ad.is_undefined_primal(x) else None for ct, x in pairs]
    return [None] * count + list(found)


def _jvp_compute(primals: Any, tangents: Any, *, op: Op, what: str, batch: Any) -> Any:
    """The value's: the rules of AD that lie around it are lost where `attach` says."""
    if what != "value":
        raise NotImplementedError("A residual has no derivative.")

    def differentiable(*xs: Array) -> Array:
        y, residual = compute(op, "primal", *lax.stop_gradient(xs))
        return attach(op, y, residual, xs)

    dots = tuple(map(ad.instantiate_zeros, tangents))
    y, dot = jax.jvp(_mapped(differentiable, batch), tuple(primals), dots)
    return [y], [dot]


def _jvp_attach(primals: Any, tangents: Any, *, tree: Any, **params: Any) -> Any:
    first = 1 + tree.num_leaves
    y = attach_p.bind(*primals, tree=tree, **params)
    given = tuple(not isinstance(dot, ad.Zero) for dot in tangents[first:])
    if not any(given):
        return y, _zero(jax.typeof(y))
    known = [dot for dot, one in zip(tangents[first:], given, strict=True) if one]
    dots = vary_together(known, y)
    residual = primals[1:first]
    return y, linear_p.bind(*residual, *dots, tree=tree, given=given, turned=False, **params)[0]


def _batch_attach(
    args: Any, dims: Any, *, tree: Any, batch: tuple[Dims, ...], **params: Any
) -> Any:
    """As `_batch_linear`."""
    first = 1 + tree.num_leaves
    mapped, axis = next((x, dim) for x, dim in zip(args, dims, strict=True) if dim is not None)
    y, *xs = (
        _in_front(x, dim, mapped, axis)
        for which, (x, dim) in enumerate(zip(args, dims, strict=True))
        if which == 0 or which >= first
    )
    new = (*batch, tuple(dims[1:first]))
    return attach_p.bind(y, *args[1:first], *xs, tree=tree, batch=new, **params), 0


attach_p.def_impl(lambda y, *_, **__: y)
attach_p.def_abstract_eval(lambda y, *_, **__: y)
mlir.register_lowering(attach_p, mlir.lower_fun(lambda y, *_, **__: y, multiple_results=False))
ad.primitive_jvps[attach_p] = _jvp_attach
ad.primitive_jvps[compute_p] = _jvp_compute
batching.primitive_batchers[attach_p] = _batch_attach
_define(compute_p, _compute)
_define(linear_p, _linear)
batching.primitive_batchers[compute_p] = _batch_compute
batching.primitive_batchers[linear_p] = _batch_linear
ad.primitive_jvps[linear_p] = _jvp_linear
ad.primitive_transposes[linear_p] = _transpose_linear
