"""The linear map of an op is one primitive with two directions, however often it is transposed."""

import dataclasses
import functools
import inspect
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core
from jax.interpreters import ad
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from jaxpool._ops.apply import apply
from jaxpool._ops.op import Op
from jaxpool._ops.primitives import linear_map, linear_p
from tests.support.compilation import FAST_COMPILE
from tests.support.later import first_values
from tests.support.transform_rows import ROWS, VARIANTS, numbers, weights

MODES = ("vjp", "jvp")
TABLE = ROWS | VARIANTS
X = np.random.default_rng(0).integers(-9, 9, (2, 4, 6, 2)).astype(np.float32)
MASK = np.arange(24).reshape(4, 6, 1) % 5 > 0


def transposed(f, like):
    """Return the transpose of a linear function of arrays like `like`."""
    return lambda dy: jax.linear_transpose(f, like)(dy)[0]


def equations(jaxpr):
    """Yield every equation of a jaxpr and of its sub-jaxprs."""
    yield from jaxpr.eqns
    for inner in core.subjaxprs(jaxpr):
        yield from equations(inner)


def equations_of(f, *args):
    """Return every equation of the jaxpr of f."""
    return list(equations(jax.make_jaxpr(f)(*args).jaxpr))


# `jax.linear_transpose` of pools that are linear

SAME = {"window_shape": (3, 3), "padding": "SAME"}
LINEAR = {
    "avg_pool": functools.partial(jaxpool.avg_pool, window_shape=(2, 3), strides=(2, 1)),
    "avg_pool, real": functools.partial(jaxpool.avg_pool, **SAME, count_include_pad=False),
    "sum_pool": functools.partial(jaxpool.sum_pool, **SAME),
    "adaptive_avg_pool": functools.partial(jaxpool.adaptive_avg_pool, output_shape=(3, 4)),
    "adaptive_avg_pool, even": functools.partial(jaxpool.adaptive_avg_pool, output_shape=(2, 3)),
}
WITHOUT_MODES = {
    "global_avg_pool": jaxpool.global_avg_pool,
    "global_avg_pool, masked": functools.partial(jaxpool.global_avg_pool, where=MASK),
    "spatial_pyramid_pool": lambda x: jaxpool.spatial_pyramid_pool(x, (1, 2, 3), kind="avg"),
}
TRANSPOSABLE = {
    name: functools.partial(f, autodiff="jvp") for name, f in LINEAR.items()
} | WITHOUT_MODES


@pytest.mark.parametrize("name", TRANSPOSABLE)
def test_linear_transpose_of_linear_pool(name):
    f = TRANSPOSABLE[name]

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def directions(x, dy):
        back = transposed(f, x)
        stack = jnp.stack([dy, -dy], 1)
        return {
            "y": f(x),
            "pullback": jax.vjp(LINEAR.get(name, f), x)[1](dy)[0],
            "transpose": back(dy),
            "of jit": transposed(jax.jit(f), x)(dy),
            "vmap": jax.vmap(back, 1)(stack)[0],
            "of vmap": transposed(jax.vmap(f, 1, 1), jnp.stack([x, x], 1))(stack)[:, 0],
            "again": transposed(back, dy)(x),
        }

    dy = np.asarray(weights(jax.eval_shape(f, X).shape), np.float32)
    got = directions(X, dy)
    np.testing.assert_allclose(np.vdot(got["y"], dy), np.vdot(X, got["transpose"]), rtol=1e-4)
    for column in ("pullback", "of jit", "vmap", "of vmap"):
        np.testing.assert_array_equal(got[column], got["transpose"], err_msg=column)
    np.testing.assert_array_equal(got["again"], got["y"])
    # Outside jit this is a separate program, where XLA may contract other products and sums.
    np.testing.assert_allclose(transposed(f, X)(dy), got["transpose"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LINEAR)
def test_linear_transpose_in_default_mode(name):
    f = LINEAR[name]
    y, back = jax.vjp(f, X)
    for of in (f, jax.jit(f), jax.vmap(f)):
        with pytest.raises(NotImplementedError, match=r"Transpose rule.* 'custom_vjp_call'"):
            jax.eval_shape(transposed(of, X), y)
    again = transposed(lambda dy: back(dy)[0], y)
    np.testing.assert_allclose(again(X), y, rtol=1e-6)


def test_documentation_lists_transposable_pools():
    for name in [*LINEAR, *WITHOUT_MODES]:
        text = inspect.getdoc(getattr(jaxpool, name.split(",")[0]))
        says = re.search(r"^ *autodiff: (.*(?:\n {4,}.*)*)", text, re.MULTILINE)
        assert "`jax.linear_transpose`" in (says[1] if name in LINEAR else text), name
    text = (pathlib.Path(__file__).parents[2] / "docs/howto/derivatives.md").read_text(
        encoding="utf-8"
    )
    (line,) = re.findall(r"^\| `linear_transpose` of (.*)$", text, re.MULTILINE)
    pools, advice = line.split(" | ")
    assert set(re.findall(r"`(\w+)`", pools)) == {name.split(",")[0] for name in LINEAR}
    assert advice.startswith('`autodiff="jvp"`')
    assert "`global_avg_pool`" in advice


# Transposes of pullbacks and of linearised functions

QUICK = ("max_pool", "adaptive_max_pool", "maximum", "max", "cummax", "max_unpool", "lp_pool")


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in TABLE]
)
def test_pullback_and_linearize_are_transposes(name):
    def directions(x, dy):
        for f in TABLE[name].modes().values():
            y, back = jax.vjp(f, x)
            push = transposed(lambda dy, back=back: back(dy)[0], y)
            pulled = [back(dy)[0], transposed(push, x)(dy)]
            pushed = [push(x), transposed(transposed(push, x), y)(x)]
            yield pulled, pushed
        for mode, f in TABLE[name].modes().items():
            if mode != "vjp":
                linear = jax.linearize(f, x)[1]
                back = transposed(linear, x)
                yield [back(dy)], [linear(x), transposed(back, jax.eval_shape(f, x))(x)]

    x, dy = numbers(), weights(jax.eval_shape(TABLE[name].f, numbers()).shape)
    modes = len(TABLE[name].modes())
    run = jax.jit(lambda x, dy: list(directions(x, dy)), compiler_options=FAST_COMPILE)
    found = run(x, dy)
    (pullback, *_), (pushforward, *_) = found[0]
    for pulled, pushed in found[:modes]:
        np.testing.assert_array_equal(pulled[0], pullback)
        np.testing.assert_array_equal(pushed[0], pushforward)
    np.testing.assert_allclose(np.vdot(pushforward, dy), np.vdot(pullback, x), rtol=1e-9)
    for pulled, pushed in found:
        for each in pulled:
            np.testing.assert_allclose(each, pullback, rtol=1e-9, atol=1e-12)
        for each in pushed:
            np.testing.assert_allclose(each, pushforward, rtol=1e-9, atol=1e-12)


# Unused cotangents


def nonzero_flags_of_transposes(f, *args):
    """Return the flags `nonzero` of every transposed linear map in the program of f."""
    found = [eqn for eqn in equations_of(f, *args) if eqn.primitive.name == "jaxpool_linear_map"]
    transposed = [eqn for eqn in found if eqn.params["transposed"]]
    assert all(len(eqn.outvars) == sum(eqn.params["nonzero"]) for eqn in transposed)
    return [eqn.params["nonzero"] for eqn in transposed]


ONE = np.ones((3, 4), np.float32)
SECOND = (False, True, False)


@jax.custom_jvp
def doubled(x):
    return 2 * x


@functools.partial(doubled.defjvp, symbolic_zeros=True)
def _doubled_jvp(primals, tangents):
    (x,), (dot,) = primals, tangents
    zero = isinstance(dot, jax.custom_derivatives.SymbolicZero)
    return doubled(x), dot if zero else 2 * dot


GRADIENT_TRANSFORMATIONS = {
    "grad": lambda loss: jax.grad(loss, 1),
    "grad of jit": lambda loss: jax.grad(jax.jit(loss), 1),
    "jit of grad": lambda loss: jax.jit(jax.grad(loss, 1)),
    "grad of checkpoint": lambda loss: jax.grad(jax.checkpoint(loss), 1),
    "vmap of grad": lambda loss: jax.vmap(jax.grad(loss, 1), (0, None, 0)),
    "grad of vmap": lambda loss: jax.grad(lambda *xs: jax.vmap(loss)(*xs).sum(), 1),
    "grad of scan": lambda loss: jax.grad(
        lambda x, y, z: jax.lax.scan(lambda y, _: (y, loss(x, y, z)), y, length=2)[1].sum(), 1
    ),
    "grad of cond": lambda loss: jax.grad(
        lambda *xs: jax.lax.cond(xs[0].sum() > 0, loss, lambda x, y, z: y.sum(), *xs), 1
    ),
    "custom_jvp outside": lambda loss: jax.grad(
        lambda x, y, z: loss(doubled(x), doubled(y), doubled(z)), 1
    ),
    "stop_gradient": lambda loss: (
        lambda *xs: jax.grad(
            lambda x, y, z: loss(jax.lax.stop_gradient(x), y, jax.lax.stop_gradient(z)), (0, 1, 2)
        )(*xs)[1]
    ),
    "a number": lambda loss: jax.grad(lambda x, y, z: loss(1.0, y, z[0, :1]), 1),
}


def squared_maximum(autodiff):
    return lambda *xs: (jaxpool.maximum(*xs, autodiff=autodiff) ** 2).sum()


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("where", GRADIENT_TRANSFORMATIONS)
def test_unused_cotangent_is_not_computed(where, autodiff):
    f = GRADIENT_TRANSFORMATIONS[where](squared_maximum(autodiff))
    assert nonzero_flags_of_transposes(f, ONE, ONE, 0 * ONE) == [SECOND]


@pytest.mark.parametrize("autodiff", MODES)
def test_unused_second_cotangent_is_not_computed(autodiff):
    def of_gradient(*xs):
        return (jax.grad(squared_maximum(autodiff))(*xs) ** 2).sum()

    asked = nonzero_flags_of_transposes(jax.grad(of_gradient, 1), ONE, 2 * ONE, ONE)
    assert sorted(asked) == [SECOND, (True, False, False)]


# A mapped axis that is sharded


@pytest.mark.parametrize(
    "name", first_values(1, ["max_pool", "adaptive_max_pool", "maximum", "logsumexp_pool"])
)
def test_pullback_vmapped_over_sharded_axis(name):
    """Also covers several residuals for one cotangent."""
    mesh = jax.make_mesh((1, 1), ("i", "j"), (AxisType.Explicit,) * 2, devices=jax.devices()[:1])
    f = ROWS[name].f
    x = jnp.asarray(numbers(), np.float32)
    dy = jnp.asarray(weights(jax.eval_shape(f, x).shape), np.float32)

    def pullback(x, dy):
        return jax.vjp(f, x)[1](dy)[0]

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def both(xs, dys, x, dy):
        return {
            "cotangents": jax.vmap(pullback, (None, 0))(x, dys),
            "residuals": jax.vmap(pullback, (3, None), 3)(jnp.moveaxis(xs, 0, 3), dy),
            "two axes": jax.vmap(jax.vmap(pullback, (None, 0)), (0, None))(xs, dys),
        }

    stacks = jnp.stack([x, -x]), jnp.stack([dy, dy / 2])
    want = both(*stacks, x, dy)
    with jax.set_mesh(mesh):
        shardings = NamedSharding(mesh, P("i")), NamedSharding(mesh, P("j"))
        got = both(*jax.device_put(stacks, shardings), x, dy)
    specs = {"cotangents": ("j",), "residuals": (None, None, None, "i"), "two axes": ("i", "j")}
    for column, dx in got.items():
        assert dx.sharding.spec[: len(specs[column])] == specs[column]
        np.testing.assert_allclose(dx, want[column], rtol=1e-5, atol=1e-6, err_msg=column)


# jax_debug_nans


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("op", ["max_pool", "sum_pool"])
def test_debug_nans_names_the_op(op, autodiff, capsys):
    f = functools.partial(getattr(jaxpool, op), window_shape=(2, 2), autodiff=autodiff)
    x = jnp.asarray(X).at[0, 0, 0, 0].set(np.nan)
    name = {"max_pool": "SelectPool", "sum_pool": "SumPool"}[op]
    with jax.debug_nans(True):
        jax.grad(lambda x: f(x).sum())(X)
        for of in (f, jax.jit(f), jax.vmap(f)):
            with pytest.raises(FloatingPointError, match=name):
                of(x)
    capsys.readouterr()  # discards the messages of jax


def test_op_without_methods_raises():
    for what in ("primal", "linear", "transpose"):
        with pytest.raises(TypeError, match=r"Op describes no (primal|linear map|transpose)"):
            getattr(Op(), what)("cpu", ())


@dataclasses.dataclass(frozen=True)
class Scaled(Op):
    """x times a constant."""

    linear_in_x = True

    def linear(self, platform, given, x):
        return given[0] * x

    def transpose(self, platform, given, dy):
        return (given[0] * dy,)


def test_residuals_have_no_tangent():
    x, scale = jnp.arange(3.0), jnp.full(3, 2.0)

    def scaled(scale):
        return linear_map(Scaled(), (scale,), (x,), nonzero=(True,))[0]

    y, tangent = jax.jvp(scaled, (scale,), (scale,))
    np.testing.assert_array_equal(y, [0, 2, 4])
    np.testing.assert_array_equal(tangent, [0, 0, 0])


def test_unrelated_error_does_not_mention_autodiff():
    @dataclasses.dataclass(frozen=True)
    class Broken(Op):
        def primal(self, platform, x):
            raise TypeError("broken")

    with pytest.raises(TypeError, match="broken") as raised:
        apply(Broken(), jnp.ones(2), autodiff="vjp")
    assert "autodiff" not in str(raised.value)


def test_transpose_of_symbolic_zero_cotangent():
    """If one of two results is unused, jax may call the rule with symbolic zeros only."""
    aval = jax.typeof(jnp.ones(3))
    params = {"op": Scaled(), "tree": jax.tree.structure((0,)), "nonzero": (True,), "batch": ()}
    transpose = ad.primitive_transposes[linear_p]
    known, asked = jnp.ones(3), ad.UndefinedPrimal(aval)
    scale, dx = transpose([ad.Zero(aval)], known, asked, transposed=False, **params)
    assert scale is None
    assert isinstance(dx, ad.Zero)


# The rule of the primitive `jaxpool`


@pytest.mark.parametrize("name", ["max_pool", "adaptive_max_pool", "maximum", "cummax"])
def test_forward_mode_equations(name):
    f = ROWS[name].modes()["jvp"]
    x = jnp.asarray(numbers(), np.float32)

    def ours(f, *args):
        every = [eqn for eqn in equations_of(f, *args) if "jaxpool" in eqn.primitive.name]
        return [(eqn.primitive.name, eqn.params.get("method")) for eqn in every]

    programs = equations_of(f, x), equations_of(lambda x: jax.jvp(f, (x,), (x,)), x)
    assert not any("custom" in eqn.primitive.name for eqns in programs for eqn in eqns)
    assert ours(f, x) == [("jaxpool", "value")]
    pushed = [("jaxpool", "primal"), ("jaxpool_linear_map", None)]
    assert ours(lambda x: jax.jvp(f, (x,), (x,)), x) == pushed
    assert ours(lambda x: jax.vjp(f, x)[1](f(x)), x)[:1] == pushed[:1]


def test_tangents_under_nested_vmap():
    """Under `vmap` the rule sees one equation with the mapped axis of each argument, or None."""
    order = np.random.default_rng(0).permutation(24 + 6).astype(np.float32)
    x, y = jnp.asarray(order[:24].reshape(3, 4, 2)), jnp.asarray(order[24:].reshape(2, 3))
    largest = functools.partial(jaxpool.maximum, autodiff="jvp")

    def each(x, y):
        rows = jax.vmap(largest, (1, None))
        return jax.vmap(rows, (None, 0), 1)(x[..., 0], y)

    got = jax.jit(lambda *xs: jax.jvp(each, xs, (2 * x, 3 * y)))(x, y)
    a, b = x[..., 0].T[:, None], y[None]
    np.testing.assert_array_equal(got[0], jnp.maximum(a, b))
    np.testing.assert_array_equal(got[1], jnp.where(a > b, 2 * a, 3 * b))
