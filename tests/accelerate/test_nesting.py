"""`accelerate` outside of other transformations, and reductions that it leaves to lax."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpool import accelerate
from jaxpool._accelerate.bind import KNOWN_PARAMETERS, _make_dispatcher
from tests.support.accelerated import (
    X,
    is_replaced,
    max_pool,
    min_pool,
    numbers,
    program,
    sum_pool,
)

P = jax.sharding.PartitionSpec


def test_derivatives_of_accelerated_functions():
    def energy(x):
        return (max_pool(x) ** 3).sum()

    fast = accelerate(energy)
    for transform in (
        jax.jacfwd,
        jax.jacrev,
        lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (jnp.cos(x),)),
    ):
        assert is_replaced(transform(fast), X)
    assert is_replaced(jax.vmap(jax.vmap(fast, 2)), jnp.ones((3, 4, 4, 2)))
    for second in (jax.hessian, lambda f: jax.jacrev(jax.jacrev(f))):
        want = jnp.diag(6 * X.ravel()) * (jax.grad(energy)(X) != 0).ravel()
        np.testing.assert_array_equal(second(fast)(X).reshape(16, 16), want)
    (dx,) = jax.linear_transpose(accelerate(sum_pool), X)(numbers(2, 2))
    np.testing.assert_array_equal(dx, jnp.kron(numbers(2, 2), jnp.ones((2, 2))))


def test_previously_traced_jaxpr():
    nested_jaxpr = jax.make_jaxpr(jax.jit(lambda x: max_pool(jnp.sin(x))))(X)
    flat_jaxpr = jax.make_jaxpr(max_pool)(X)

    def run(traced, x):
        return jax.core.eval_jaxpr(traced.jaxpr, traced.consts, x)[0].sum()

    assert is_replaced(accelerate(functools.partial(run, flat_jaxpr)), X)
    assert is_replaced(accelerate(jax.grad(functools.partial(run, nested_jaxpr))), X)


# Reductions that accelerate leaves to lax


def test_programs_without_pools_unchanged():
    def step(x):
        dw = jax.grad(lambda w: jnp.tanh(x @ w).sum())(x)
        return dw, jnp.sort(x), jnp.cumsum(x, 1)

    def variadic_reduction(x):
        def join(a, b):
            return jax.tree.map(lambda a, b: lax.select(a > b, a, b), a, b)

        return lax.reduce_window((x, x), (-jnp.inf, -jnp.inf), join, (2, 2), (2, 2), "VALID")

    for unchanged in (step, variadic_reduction):
        assert program(accelerate(unchanged), X) == program(unchanged, X)
    assert is_replaced(accelerate(lambda x: x), X)


def test_cumulative_ops_lower_unchanged():
    def cumulative(x):
        return lax.cummax(x), jnp.cumsum(x), lax.cumlogsumexp(x)

    x, fast = numbers(9), accelerate(jax.jit(cumulative))
    assert fast.lower(x).as_text() == jax.jit(cumulative).lower(x).as_text()


def window_of(init, reduction, **options):
    """A reduction of windows of 2x2."""
    return lambda x: lax.reduce_window(x, init, reduction, (2, 2), (1, 1), "VALID", **options)


NO_MAX_MIN_OR_SUM = "the reduction is no max, min or sum of two numbers"
LEFT_TO_LAX = [
    ("base_dilation is not 1", window_of(0.0, lax.add, base_dilation=(2, 2))),
    ("negative padding", lambda x: max_pool(x, padding=((-1, 0), (0, 0)))),
    ("every window is one element", lambda x: max_pool(x, (1, 1), (1, 1))),
    ("complex64 has no sum here", lambda x: window_of(0.0, lax.add)(x + 1j)),
    (NO_MAX_MIN_OR_SUM, window_of(1.0, lax.mul)),
    (NO_MAX_MIN_OR_SUM, window_of(-jnp.inf, lambda a, b: lax.max(b, b))),
    (
        "a running reduction: so lax computes cumsum and cummax",
        lambda x: max_pool(x, (4, 1), (1, 1), ((3, 0), (0, 0))),
    ),
    (
        "window_shape is not at most the padded input, 4 along axis 0 (it spans 5)",
        lambda x: max_pool(x, (5, 1)),
    ),
    (
        "the initial value of a padded sum may not be 0",
        lambda x: lax.reduce_window(x, x[0, 0], lax.add, (2, 2), (1, 1), "SAME"),
    ),
]


REDUCTIONS_BY_PRIMITIVE = {
    lax.reduce_window_max_p: max_pool,
    lax.reduce_window_min_p: min_pool,
    lax.reduce_window_sum_p: sum_pool,
    lax.reduce_window_p: window_of(1.0, lax.mul, window_dilation=(2, 2)),
}


@pytest.mark.parametrize("primitive", REDUCTIONS_BY_PRIMITIVE, ids=str)
def test_primitive_parameters_match_known_parameters(primitive):
    """With a missing or new parameter, `accelerate` leaves all reductions to lax until `windows.py` reads it."""
    assert set(KNOWN_PARAMETERS) == set(REDUCTIONS_BY_PRIMITIVE)
    (eqn,) = jax.make_jaxpr(REDUCTIONS_BY_PRIMITIVE[primitive])(X).eqns
    assert eqn.primitive is primitive
    assert eqn.params.keys() == KNOWN_PARAMETERS[primitive]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"window_reversal": (False, True)}, "has a parameter that is not known here"),
        ({"base_dilation": None}, "lacks a parameter that is read here"),
        ({"window_dimensions": None}, "lacks a parameter that is read here"),
    ],
)
def test_unknown_or_missing_parameters_left_to_lax(monkeypatch, change, reason):
    """If lax's primitives have other parameters, reductions stay with lax and the report names the parameter."""
    primitive, bound_params, entries = lax.reduce_window_max_p, [], []
    (eqn,) = jax.make_jaxpr(max_pool)(X).eqns
    params = {name: value for name, value in (eqn.params | change).items() if value is not None}
    monkeypatch.setattr(primitive, "bind", lambda *args, **params: bound_params.append(params))
    monkeypatch.setattr(primitive, "bind", _make_dispatcher(primitive, primitive.bind))
    accelerate(lambda: primitive.bind(X, **params), report=entries.append)()
    assert bound_params == [params]
    (name,) = change
    expected_reason = f"lax's reduce_window_max {reason}: {name}"
    assert [(left.taken_over, left.reason) for left in entries] == [(False, expected_reason)]
    assert str(entries[0]).endswith(f"left to lax ({expected_reason})")


@pytest.mark.parametrize(("reason", "pool"), LEFT_TO_LAX)
def test_unsupported_reductions_unchanged_with_reason(reason, pool):
    entries = []
    assert program(accelerate(pool, report=entries.append), X) == program(pool, X)
    assert [(left.taken_over, left.reason) for left in entries] == [(False, reason)]


def test_max_residual_is_x_on_a_default_tpu_device(monkeypatch):
    entries = []

    def program(x):
        return max_pool(x) + sum_pool(x)

    def residual_dtypes(program):
        _, pullback = jax.eval_shape(
            functools.partial(jax.vjp, program), jax.ShapeDtypeStruct(X.shape, X.dtype)
        )
        return {each.dtype.name for each in jax.tree.leaves(pullback)}

    accelerated = accelerate(program, report=entries.append)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert residual_dtypes(accelerated) == {X.dtype.name}
    assert [(each.kind, each.taken_over) for each in entries] == [("max", True), ("sum", True)]
    with jax.default_device(jax.devices("cpu")[0]):
        assert residual_dtypes(accelerated) == {"uint8"}


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_reductions_inside_kernels_are_not_taken_over(platform):
    """Some kernels for GPUs and TPUs are lax reductions themselves, and are lowered while `accelerate` is active."""

    def pools(x):
        total = lax.reduce_window(x, 0.0, lax.add, (13, 13), (1, 1), "SAME")
        maxima = lax.reduce_window(x, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME")
        return total.sum(), maxima

    def lowered(x):
        return [
            jax.jit(accelerate(f)).trace(x).lower(lowering_platforms=(platform,)).as_text()
            for f in (lambda x: pools(x)[1], jax.grad(lambda x: pools(x)[0]))
        ]

    x, programs = jnp.zeros((30, 30)), []
    accelerate(lambda x: programs.extend(lowered(x)))(x)
    has_reduce_window = ["reduce_window" in program for program in programs]
    expected = {"cpu": [False, False], "cuda": [False, True], "tpu": [True, True]}
    assert has_reduce_window == expected[platform]
    # Outside of `accelerate`, the kernels are the same.
    assert programs == lowered(x)


def test_reduction_over_sharded_axis_is_taken_over():
    mesh = jax.make_mesh((1,), ("i",), (jax.sharding.AxisType.Explicit,), devices=jax.devices()[:1])
    entries = []
    with jax.set_mesh(mesh):
        fast = accelerate(max_pool, report=entries.append)
        for spec in (P("i"), P()):
            fast(jax.device_put(X, jax.NamedSharding(mesh, spec)))
    assert entries
    assert {entry.reason for entry in entries} == {None}


PARAMETERS_OF_A_SUM = dict.fromkeys(KNOWN_PARAMETERS[lax.reduce_window_sum_p], (1,))
PARAMETERS_OF_A_SUM["padding"] = ((0, 0),)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: max_pool(x, (2,)),
        lambda x: max_pool(x, (0, 1)),
        lambda x: max_pool(x, (2, 2), (2,)),
        lambda x: max_pool(["a"]),
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1), (1, 1), "FULL"),
        lambda x: lax.reduce_window(x.astype(jnp.bfloat16), jnp.inf, jnp.minimum, (2, 2)),
        lambda x: lax.reduce_window(x > 0, False, lax.add, (2, 2)),
        lambda x: lax.reduce_window_sum_p.bind("three", **PARAMETERS_OF_A_SUM),
    ],
)
def test_invalid_arguments_raise_the_errors_of_lax(wrong):
    def raised(fn):
        with pytest.raises((TypeError, ValueError, RuntimeError, AttributeError)) as error:
            fn(X)
        return error.type, str(error.value).splitlines()[0]

    assert raised(accelerate(wrong)) == raised(wrong)
