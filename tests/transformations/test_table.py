"""Every op under every transformation in both derivative modes, in float64.

Each result is compared with that of a twin, which jax differentiates. `tests/support/transform_rows.py` has the ops and
their twins. A transformation maps a function of an array, and the array, to arrays. One test covers one op and one
group of transformations, and reports the combinations that differ. The transformations of a group run in one program,
except exports. `tests/sharded` has arrays whose types have a sharding.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import jet
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.support.compilation import FAST_COMPILE
from tests.support.transform_rows import MODES, POOLS, ROWS, SHAPE, VARIANTS, numbers, weights

pytestmark = pytest.mark.usefixtures("x64")


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
POLICIES = {
    "everything": policies.everything_saveable,
    "nothing": policies.nothing_saveable,
    "dots": policies.dots_saveable,
    "names": policies.save_only_these_names("y"),
    "other names": policies.save_any_names_but_these("y"),
}


def checkpointed(policy):
    def named(f):
        return lambda x: checkpoint_name(f(x), "y")

    return lambda f, x: jax.grad(jax.checkpoint(loss(named(f)), policy=policy))(x)


# One device, or two in `tests/sharded/test_eight_devices.py`
MESH = jax.sharding.Mesh(jax.devices()[: SHAPE[0]], ("i",))


def in_shard_map(of):
    """Apply `of(f)` to a batch sharded over the devices, in a `shard_map` with `check_vma=True`."""

    def cell(f, x):
        spread = jax.shard_map(of(f), mesh=MESH, in_specs=P("i"), out_specs=P("i"), check_vma=True)
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


# Groups: REVERSE for every mode, FORWARD for modes with forward-mode differentiation.

REVERSE = {
    "first": {
        "value": lambda f, x: f(x),
        **{name: orders("vjp")[name] for name in ("vjp", "vjp of vjp", "jvp of vjp")},
    },
    "orders": {
        "vjp of jit": lambda f, x: jax.grad(loss(jax.jit(f)))(x),
        **{name: cell for name, cell in orders("vjp").items() if name.count("of") == 2},
    },
    "vmap": {
        f"vmap of vjp, axis {axis}": vmapped(axis, lambda f: jax.grad(loss(f))) for axis in range(5)
    }
    | {
        "vmap of vjp of vjp": vmapped(1, lambda f: vjp(jax.grad(loss(f)))),
        "vmap of jvp of vjp": vmapped(1, lambda f: jvp(jax.grad(loss(f)))),
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
    "export": {
        "export": symbolic(lambda f: f),
        "export of vjp": symbolic(lambda f: jax.grad(square(f))),
    },
}
FORWARD = {
    "first": {name: orders("jvp")[name] for name in ("jvp", "vjp of jvp", "jvp of jvp")}
    | {"linearize": lambda f, x: jax.linearize(f, x)[1](weights(x.shape))},
    "orders": {
        "jvp of jit": lambda f, x: jvp(jax.jit(f))(x),
        **{name: cell for name, cell in orders("jvp").items() if name.count("of") == 2},
    },
    "vmap": {f"vmap of jvp, axis {axis}": vmapped(axis, jvp) for axis in range(5)}
    | {"vmap of vjp of jvp": vmapped(1, lambda f: vjp(jvp(loss(f))))}
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
    "export": {"export of jvp": symbolic(lambda f: self_jvp(square(f)))},
}


# The tests

TABLE = ROWS | VARIANTS
# Ops that differ in more than their loops: one for each topic, kind of result, and kind of arguments.
FIRST_OF_KIND = {
    (pool.topic, pool.adds is False, pool.coefficients, pool.operands): name
    for name, pool in reversed(POOLS.items())
}
# CI runs every group for one op, one group for each op of `FIRST_OF_KIND`, and `shard_map` for one op per
# implementation of a derivative. The other combinations are slow.
CI = {
    *(("max_pool", group) for group in REVERSE),
    *((name, "first") for name in FIRST_OF_KIND.values()),
    *((name, "shard_map") for name in ("avg_pool", "adaptive_max_pool", "max", "lp_pool")),
}


def columns(mode, group):
    """Return the transformations of a group that a mode supports."""
    return REVERSE[group] | ({} if mode == "vjp" else FORWARD[group])


def cells(name, group):
    """Return the results of an op in each mode, and of its twin, by transformation."""

    def program(x):
        modes = TABLE[name].modes()
        got = {
            mode: {column: cell(f, x) for column, cell in columns(mode, group).items()}
            for mode, f in modes.items()
        }
        twin = {
            column: cell(TABLE[name].twin, x) for column, cell in columns("both", group).items()
        }
        return got, twin

    if group == "export":
        return program(numbers())
    return jax.jit(program, compiler_options=FAST_COMPILE)(numbers())


def differs_from_twin(got, want):
    """Return True if a result differs from that of the twin."""
    pairs = list(zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True))
    return not pairs or not all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in pairs
    )


@pytest.mark.parametrize(
    ("name", "group"),
    [
        pytest.param(name, group, marks=() if (name, group) in CI else pytest.mark.slow)
        for name in TABLE
        for group in REVERSE
    ],
)
def test_op_under_transformations(name, group):
    got, twin = cells(name, group)
    wrong = [
        f"{column} ({mode})"
        for mode, results in got.items()
        for column, result in results.items()
        if differs_from_twin(result, twin[column])
    ]
    assert wrong == []


@pytest.mark.parametrize("autodiff", MODES)
def test_replicated_operand_in_shard_map(autodiff):
    """Cotangents of a replicated operand are summed over the devices, as for `jnp.maximum`."""

    def loss(maximum, x, level):
        def local(x, level):
            return jax.lax.psum((maximum(x, level) ** 2).sum(), "i")

        return jax.shard_map(local, mesh=MESH, in_specs=(P("i"), P()), out_specs=P())(x, level)

    ours = functools.partial(loss, functools.partial(jaxpool.maximum, autodiff=autodiff))
    arguments = numbers(), jnp.asarray(0.5)
    got = jax.jit(jax.grad(ours, (0, 1)))(*arguments)
    want = jax.jit(jax.grad(functools.partial(loss, jnp.maximum), (0, 1)))(*arguments)
    for dx, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(dx, expected, rtol=1e-12)


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", ["maximum", "max"])
def test_jet_has_no_rules(name, autodiff):
    """As the table in `docs/howto/derivatives.md` says."""
    call = functools.partial(getattr(jaxpool, name), autodiff=autodiff)
    arguments = (jnp.arange(3.0), 1.0) if name == "maximum" else (jnp.arange(3.0),)
    series = [[jnp.ones_like(x), jnp.ones_like(x)] for x in arguments]
    with pytest.raises((KeyError, jax.errors.UnexpectedTracerError)):
        jet.jet(call, arguments, series)
