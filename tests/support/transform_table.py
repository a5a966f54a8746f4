"""Transformations of the table: each maps a function of an array, and the array, to arrays.

All transformations of a group, except of `NOT_JITTED`, run in one program for the modes of an op and its twin.
"""

import contextlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.support.compilation import FAST_COMPILE


def weights(shape):
    return jnp.asarray(np.cos(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape))


def loss(f):
    """Return a scalar with derivatives of every order. The inner sine preserves the order of the elements."""

    def scalar(x):
        y = f(jnp.sin(x / 3) * 3)
        return (jnp.cos(y) * weights(y.shape)).sum()

    return scalar


def square(f):
    """Return the sum of squares, which also works for symbolic shapes."""
    return lambda x: (f(x) ** 2).sum()


def vjp(f):
    return jax.grad(lambda x: (f(x) * weights(jnp.shape(f(x)))).sum())


def jvp(f):
    return lambda x: jax.jvp(f, (x,), (weights(x.shape),))[1]


def nested(*transforms):
    """Nest derivatives of the loss, the innermost last, as in "jvp of vjp"."""

    def cell(f, x):
        g = loss(f)
        for transform in reversed(transforms):
            g = transform(g)
        return g(x)

    return cell


def orders(innermost):
    """Return every nesting up to third order whose innermost derivative has the mode `innermost`."""
    modes = {"vjp": vjp, "jvp": jvp}
    return {
        " of ".join((*outer, innermost)): nested(*[modes[mode] for mode in (*outer, innermost)])
        for count in range(3)
        for outer in itertools.product(modes, repeat=count)
    }


STEP = 1e-4


def differences(g):
    """Return the directional derivative along the weights as a central difference of values."""

    def cell(f, x):
        ahead, behind = (g(f)(x + h * weights(x.shape)) for h in (STEP, -STEP))
        return (ahead - behind) / (2 * STEP)

    return cell


def on_explicit_mesh(spec, context):
    """Return the gradient for an x whose type has a sharding. The mesh comes from x or also from a context."""

    def cell(f, x):
        mesh = jax.make_mesh((1,), ("i",), (AxisType.Explicit,))
        x = jax.device_put(x, NamedSharding(mesh, spec))
        with jax.set_mesh(mesh) if context else contextlib.nullcontext():
            dx = jax.jit(jax.grad(square(f)), compiler_options=FAST_COMPILE)(x)
        assert dx.sharding.is_equivalent_to(x.sharding, x.ndim)
        return np.asarray(dx)

    return cell


# What is computed for a twin in place of a transformation: exact derivatives, and gradients without a mesh.
FOR_TWINS = {
    "jvp, by differences": nested(jvp),
    "jvp of vjp, by differences": nested(jvp, vjp),
    "jvp of vjp of vjp, by differences": nested(jvp, vjp, vjp),
    "vjp of sharded batch": lambda f, x: jax.grad(square(f))(x),
    "vjp of sharded channels": lambda f, x: jax.grad(square(f))(x),
}


def loss_of_two_numbers(f, x):
    """Return the loss as a function of two numbers, for full Hessians. Small directions preserve the order of x."""
    directions = weights((2, *x.shape)) / 1000
    return lambda t: loss(f)(x + jnp.tensordot(t, directions, 1))


ONES = np.full(2, 1e-3)


def vmapped(axis, of):
    """Map `of(f)` over an axis of a stack."""

    def cell(f, x):
        stack = jnp.stack([x, x[::-1], -x], axis)
        rank = jax.eval_shape(of(f), x).ndim
        return jax.vmap(of(f), axis, min(axis, rank))(stack)

    return cell


def scan(f):
    """Return the loss after three scan steps, small enough to preserve the order of the elements."""

    def many(x):
        def body(carry, _):
            y = f(carry)
            return carry + y.sum() * weights(x.shape) / 1e5, y

        last, ys = jax.lax.scan(body, x, length=3)
        return loss(lambda x: x)(last) + (ys**2).sum()

    return many


def second_gradient_through_map(f, x):
    """In this case, jax 0.10 calls functions with custom derivatives without their rules."""

    def squares(scales, level):
        def one(scale):
            return (f(x * scale * level) + level * f(x * scale)) ** 2

        return jax.lax.map(one, scales).sum()

    return jax.grad(lambda scales: jax.grad(squares, 1)(scales, 1.0))(np.ones(2))


def branch(f):
    return lambda x: jax.lax.cond(x.reshape(-1)[0] < 1e9, loss(f), lambda x: x.sum(), x)


def loop(f):
    """Return a while loop around f, which has no reverse mode."""

    def rounds(x):
        def body(carry):
            count, x = carry
            return count + 1, x + f(x).sum() * weights(x.shape) / 1e5

        return jax.lax.while_loop(lambda carry: carry[0] < 3, body, (0, x))[1]

    return rounds


policies = jax.checkpoint_policies
OFFLOADED = {"offload_src": "device", "offload_dst": "pinned_host"}
POLICIES = {name: getattr(policies, name) for name in dir(policies) if name[0] != "_"} | {
    "save_only_these_names": policies.save_only_these_names("y"),
    "save_anything_except_these_names": policies.save_anything_except_these_names("y"),
    "save_any_names_but_these": policies.save_any_names_but_these("y"),
    "save_from_both_policies": policies.save_from_both_policies(
        policies.dots_saveable, policies.save_only_these_names("y")
    ),
    "offload_dot_with_no_batch_dims": policies.offload_dot_with_no_batch_dims(**OFFLOADED),
    "save_and_offload_only_these_names": policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["y"], names_which_can_be_offloaded=[], **OFFLOADED
    ),
}


def checkpointed(policy):
    def named(f):
        return lambda x: checkpoint_name(f(x), "y")

    return lambda f, x: jax.grad(jax.checkpoint(loss(named(f)), policy=policy))(x)


def in_shard_map(of):
    """Apply `of(f)` to a batch sharded over all devices, in a `shard_map` with `check_vma=True`."""

    def cell(f, x):
        mesh = jax.make_mesh((len(jax.devices()),), ("i",), (AxisType.Auto,))
        spread = jax.shard_map(of(f), mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=True)
        return spread(x)

    return cell


def gradient_through_shard_map(f, x):
    return jax.grad(loss(lambda x: in_shard_map(lambda f: f)(f, x)))(x)


def psum_gradient(f, x):
    """Return the gradient of a sum over all devices."""

    def of(f):
        return jax.grad(lambda x: jax.lax.psum(square(f)(x), "i"))

    return in_shard_map(of)(f, x)


def symbolic(of):
    """Export `of(f)` once with symbolic batch and channels, and call it at two sizes."""

    def cell(f, x):
        batch, channels = jax.export.symbolic_shape("b, c")
        spec = jax.ShapeDtypeStruct((batch, *x.shape[1:-1], channels), x.dtype)
        exported = jax.export.export(jax.jit(of(f)))(spec)
        return [exported.call(x), exported.call(x[:1, ..., :1])]

    return cell


def self_jvp(f):
    """Return the jvp with x as its own tangent, which works for any shape."""
    return lambda x: jax.jvp(f, (x,), (x,))[1]


def donated(f, x):
    x = jnp.array(x)
    dx = jax.jit(jax.grad(loss(f)), donate_argnums=0, compiler_options=FAST_COMPILE)(x)
    assert x.is_deleted()
    return dx


def pullback(f, x):
    y, back = jax.vjp(f, x)
    return back(weights(y.shape))[0]


# Groups: REVERSE for every mode, FORWARD for modes with forward-mode differentiation.

NOT_JITTED = ("explicit mesh", "outside")
REVERSE = {
    "first": {
        "value": lambda f, x: f(x),
        **{name: orders("vjp")[name] for name in ("vjp", "vjp of vjp", "jvp of vjp")},
    },
    "differences": {
        "jvp, by differences": differences(loss),
        "jvp of vjp, by differences": differences(lambda f: jax.grad(loss(f))),
        "jvp of vjp of vjp, by differences": differences(lambda f: vjp(jax.grad(loss(f)))),
    },
    "orders": {
        "vjp of jit": lambda f, x: jax.grad(loss(jax.jit(f)))(x),
        **{name: cell for name, cell in orders("vjp").items() if name.count("of") == 2},
        "hessian": lambda f, x: jax.hessian(loss_of_two_numbers(f, x))(ONES),
        "jacrev of jacrev": lambda f, x: jax.jacrev(jax.jacrev(loss_of_two_numbers(f, x)))(ONES),
    },
    "vmap": {
        f"vmap of vjp, axis {axis}": vmapped(axis, lambda f: jax.grad(loss(f))) for axis in range(5)
    }
    | {
        "vjp of vmap": lambda f, x: jax.grad(loss(lambda x: vmapped(2, lambda f: f)(f, x)))(x),
        "vmap of vmap": lambda f, x: jax.vmap(jax.vmap(jax.grad(loss(f)), 1, 1), 3, 3)(
            jnp.stack([jnp.stack([x, -x], 1)] * 2, 3)
        ),
    },
    "control": {
        "scan": lambda f, x: jax.grad(scan(f))(x),
        "checkpoint in scan": lambda f, x: jax.grad(scan(jax.checkpoint(f)))(x),
        "checkpoint of scan": lambda f, x: jax.grad(jax.checkpoint(scan(f)))(x),
        "vjp of vjp of map": second_gradient_through_map,
        "cond": lambda f, x: jax.grad(branch(f))(x),
        "while": lambda f, x: loop(f)(x),
    },
    "checkpoint": {f"checkpoint, {name}": checkpointed(policy) for name, policy in POLICIES.items()}
    | {"checkpoint": lambda f, x: jax.grad(jax.checkpoint(loss(f)))(x)},
    "shard_map": {
        "shard_map of vjp": in_shard_map(lambda f: jax.grad(loss(f))),
        "vjp of shard_map": gradient_through_shard_map,
        "vjp of psum in shard_map": psum_gradient,
    },
    "explicit mesh": {
        "vjp of sharded batch": on_explicit_mesh(P("i"), context=False),
        "vjp of sharded channels": on_explicit_mesh(P(None, None, None, "i"), context=True),
    },
    "outside": {
        "value, not jitted": lambda f, x: f(x),
        "vjp, not jitted": pullback,
        "eval_shape": lambda f, x: np.zeros(jax.eval_shape(f, x).shape),
        "eval_shape of vjp": lambda f, x: np.zeros(jax.eval_shape(jax.grad(loss(f)), x).shape),
        "export": symbolic(lambda f: f),
        "export of vjp": symbolic(lambda f: jax.grad(square(f))),
        "donated": donated,
    },
}
FORWARD = {
    "differences": {},
    "explicit mesh": {},
    "first": {name: orders("jvp")[name] for name in ("jvp", "vjp of jvp", "jvp of jvp")}
    | {"linearize": lambda f, x: jax.linearize(f, x)[1](weights(x.shape))},
    "orders": {
        "jvp of jit": lambda f, x: jvp(jax.jit(f))(x),
        **{name: cell for name, cell in orders("jvp").items() if name.count("of") == 2},
        "jacfwd": lambda f, x: jax.jacfwd(loss_of_two_numbers(f, x))(ONES),
        "jacfwd of jacfwd": lambda f, x: jax.jacfwd(jax.jacfwd(loss_of_two_numbers(f, x)))(ONES),
        "jacrev of jacfwd": lambda f, x: jax.jacrev(jax.jacfwd(loss_of_two_numbers(f, x)))(ONES),
    },
    "vmap": {f"vmap of jvp, axis {axis}": vmapped(axis, jvp) for axis in range(5)}
    | {"jvp of vmap": lambda f, x: jvp(lambda x: vmapped(2, lambda f: f)(f, x))(x)},
    "control": {
        "jvp of scan": lambda f, x: jvp(scan(f))(x),
        "jvp of cond": lambda f, x: jvp(branch(f))(x),
        "jvp of while": lambda f, x: jvp(loop(f))(x),
    },
    "checkpoint": {"jvp of checkpoint": lambda f, x: jvp(jax.checkpoint(loss(f)))(x)},
    "shard_map": {
        "shard_map of jvp": in_shard_map(jvp),
        "jvp of shard_map": lambda f, x: jvp(lambda x: in_shard_map(lambda f: f)(f, x))(x),
    },
    "outside": {
        "jvp, not jitted": lambda f, x: jvp(f)(x),
        "linearize, not jitted": lambda f, x: jax.linearize(f, x)[1](weights(x.shape)),
        "export of jvp": symbolic(lambda f: self_jvp(square(f))),
    },
}
