"""The drop-ins for Equinox, compared with `equinox.nn`."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.support.compat_cases import (
    Call,
    assert_arrays_match,
    assert_same_error,
    compare,
    drawn_calls,
    expect_both_raise,
    geometries,
    ints,
)

eqx = pytest.importorskip("equinox")

from jaxpool.compat import equinox as ours  # noqa: E402

theirs = eqx.nn
X = jnp.arange(24.0).reshape(1, 4, 6)


def call(name, shape, *args, **options):
    """The layer `name` of both libraries, made with `args`."""
    mine, original = getattr(ours, name)(*args), getattr(theirs, name)(*args)
    return Call(mine, original, shape, f"{name}{args}{shape}", **options)


def random_sizes(rng, rank, least, greatest):
    """An int, or one int per axis as a tuple or a list."""
    if rng.random() < 0.4:
        return int(rng.integers(least, greatest + 1))
    sizes = ints(rng, rank, least, greatest)
    return list(sizes) if rng.random() < 0.2 else sizes


def random_shape_and_args(rng, rank):
    """A shape, with kernel size, stride, padding and `use_ceil` that Equinox accepts for it."""
    while True:
        shape = (int(rng.integers(1, 3)), *ints(rng, rank, 2, 7 if rank < 3 else 5))
        padding = random_sizes(rng, rank, 0, 2)
        if rng.random() < 0.3:
            padding = tuple(ints(rng, 2, 0, 2) for _ in range(rank))
        args = random_sizes(rng, rank, 1, 3), random_sizes(rng, rank, 1, 3), padding
        args = (*args, bool(rng.integers(2)))
        layer = getattr(theirs, f"MaxPool{rank}d")(*args)
        try:
            jax.eval_shape(layer, jax.ShapeDtypeStruct(shape, np.float32))
        except RuntimeError:
            continue
        return shape, args


def random_dtype(rng):
    return (np.float32, np.float32, np.float32, np.int32, jnp.bfloat16)[rng.integers(5)]


@pytest.mark.parametrize("name", ours.__all__)
def test_class_hierarchy_and_signature(name):
    mine, original = getattr(ours, name), getattr(theirs, name)
    assert issubclass(mine, eqx.Module)
    assert issubclass(mine, original)
    assert inspect.signature(mine) == inspect.signature(original)
    args = [
        [(p.name, p.kind, p.default) for p in inspect.signature(cls.__call__).parameters.values()]
        for cls in (mine, original)
    ]
    assert args[0] == args[1]
    base = "AdaptivePool" if "Adaptive" in name else "Pool"
    assert issubclass(mine, getattr(ours, base))


@pytest.mark.parametrize(
    ("name", "args"),
    [("MaxPool2d", (3, 2, 1, True)), ("AvgPool1d", (2,)), ("AdaptiveMaxPool2d", (3,))],
)
def test_module_tree_matches_equinox(name, args):
    mine, original = getattr(ours, name)(*args), getattr(theirs, name)(*args)
    assert jax.tree.leaves(mine) == jax.tree.leaves(original)
    assert repr(mine) == repr(original)
    assert vars(mine) == vars(original)
    assert mine == getattr(ours, name)(*args)


@drawn_calls
@pytest.mark.parametrize("kind", ["Max", "Avg"])
def test_max_and_avg_pools(kind, calls):
    cases = []
    for rng in geometries(calls):
        rank = int(rng.integers(1, 4))
        shape, args = random_shape_and_args(rng, rank)
        options = {"exact": kind == "Max", "dtype": random_dtype(rng)}
        cases.append(call(f"{kind}Pool{rank}d", shape, *args, **options))
    compare(cases)


@drawn_calls
def test_pool(calls):
    reductions = [(-np.inf, lax.max), (jnp.inf, lax.min), (0.0, lax.add)]
    cases = []
    for rng in geometries(calls):
        rank = int(rng.integers(1, 4))
        shape, args = random_shape_and_args(rng, rank)
        cases.append(call("Pool", shape, *reductions[rng.integers(3)], rank, *args))
    compare(cases)


@drawn_calls
@pytest.mark.parametrize("kind", ["Max", "Avg"])
def test_adaptive_pools(kind, calls):
    cases = []
    for rng in geometries(calls):
        rank = int(rng.integers(1, 4))
        shape = (int(rng.integers(1, 3)), *ints(rng, rank, 2, 9 if rank < 3 else 5))
        target = tuple(int(rng.integers(1, size + 1)) for size in shape[1:])
        if rng.random() < 0.3:
            target = min(target)
        options = {"exact": kind == "Max", "dtype": random_dtype(rng)}
        cases.append(call(f"Adaptive{kind}Pool{rank}d", shape, target, **options))
    compare(cases)


def test_adaptive_operations():
    compare(
        [
            call("AdaptivePool", (2, 7, 6), (3, 4), 2, operation)
            for operation in (jnp.max, jnp.min, jnp.mean, jnp.sum, jnp.median, jnp.amax)
        ],
        ("normal", "ties"),
    )


def test_adaptive_windows_match_equinox():
    layer = ours.AdaptiveMaxPool1d(4)
    np.testing.assert_array_equal(layer(jnp.arange(10.0)[None])[0], [2, 5, 7, 9])


@pytest.mark.parametrize(
    ("init", "operation"), [(1.0, lax.mul), (-jnp.inf, jnp.maximum), (0.0, lax.max), (5.0, lax.add)]
)
def test_other_reductions_use_lax(init, operation):
    got, want = (m.Pool(init, operation, 2, 2, 1, 1)(X) for m in (ours, theirs))
    assert_arrays_match(got, want, 0, "value")


@pytest.mark.parametrize(
    "name", ["MaxPool2d", "AvgPool2d", "AdaptiveMaxPool2d", "AdaptiveAvgPool2d"]
)
def test_gradients_use_jaxpool_kernels(name):
    program = jax.make_jaxpr(jax.grad(lambda x: getattr(ours, name)(2)(x).sum()))
    assert "reduce_window" not in str(program(X))
    assert "scatter" not in str(program(X))


@pytest.mark.parametrize(
    "name", ["MaxPool2d", "AvgPool2d", "AdaptiveMaxPool2d", "AdaptiveAvgPool2d"]
)
def test_forward_mode(name):
    each = call(name, X.shape, 2)
    got, want = (jax.jvp(fn, (X,), (jnp.sin(X),))[1] for fn in (each.ours, each.theirs))
    assert_arrays_match(got, want, 1e-6, name)


def test_model_training_step():
    """A vmapped batch, a jitted step and a module tree, in the style of Equinox users."""

    def model(module):
        layers = [
            theirs.Conv2d(1, 3, 3, key=jax.random.key(0)),
            module.MaxPool2d(2, 2, use_ceil=True),
            module.AvgPool2d(2),
            module.AdaptiveAvgPool2d(1),
        ]
        return theirs.Sequential(layers)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def step(model, x):
        return jnp.sum(jax.vmap(model)(x) ** 2)

    x = jax.random.normal(jax.random.key(1), (4, 1, 9, 9))
    (got, grads), (want, want_grads) = (step(model(module), x) for module in (ours, theirs))
    assert_arrays_match(got, want, 1e-5, "loss")
    got, want = (jax.tree.leaves(eqx.filter(g, eqx.is_array)) for g in (grads, want_grads))
    for one, other in zip(got, want, strict=True):
        assert_arrays_match(one, other, 1e-5, "gradient")


def test_unusual_valid_arguments():
    cases = [
        call("MaxPool2d", X.shape, (9, 9)),  # larger than the input
        call("AvgPool2d", X.shape, 1, 2),
        call("MaxPool2d", X.shape, 1, 1, 0),
        call("MaxPool2d", X.shape, 1, 1, 1),  # some windows hold only padding
        call("AvgPool2d", X.shape, True, 2),
        call("MaxPool2d", (0, 4, 6), 2),
        call("AdaptiveMaxPool2d", X.shape, [2, 3]),
    ]
    compare(cases, ("normal", "ties"))


INVALID_CALLS = [
    ("MaxPool2d", (2, 1, 3), X),
    ("MaxPool2d", (2, 3, 0, True), X),
    ("MaxPool2d", (2, 1, (1, 1, 1)), X),
    ("MaxPool2d", (2, 1, ((1, 1),)), X),
    ("MaxPool2d", (2.0,), X),
    ("MaxPool2d", (2, 1.5), X),
    ("MaxPool2d", ((2,),), X),
    ("MaxPool2d", ((2, 2, 2),), X),
    ("MaxPool2d", (2, (1, 1, 1)), X),
    ("MaxPool2d", (0,), X),
    ("MaxPool2d", (2, 0), X),
    ("MaxPool2d", (2, -1), X),
    ("MaxPool2d", (2,), X[None]),
    ("MaxPool2d", (2,), X[0]),
    ("MaxPool2d", (2,), [[1.0]]),
    ("AvgPool1d", (2,), X),
    ("AvgPool2d", (2, 1, 3), X),
    ("AvgPool2d", (2,), X > 3),
    ("AdaptiveMaxPool2d", (2,), X[0]),
    ("AdaptiveMaxPool2d", (2,), X[None]),
    ("AdaptiveMaxPool2d", ((2, 2, 2),), X),
    ("AdaptiveMaxPool2d", (5,), X),
    ("AdaptiveAvgPool2d", ((2, 7),), X),
    ("AdaptiveAvgPool2d", (0,), X),
    ("AdaptiveAvgPool2d", (-1,), X),
    ("AdaptiveAvgPool2d", (2.0,), X),
    ("AdaptiveAvgPool2d", ((2.0, 2),), X),
]


@pytest.mark.parametrize(("name", "args", "x"), INVALID_CALLS, ids=str)
def test_invalid_calls_raise_like_equinox(name, args, x):
    alike = expect_both_raise if "Adaptive" in name else assert_same_error
    alike(*(lambda m=m: getattr(m, name)(*args)(x) for m in (ours, theirs)))


# Documented differences


def test_nan_receives_window_cotangent():
    x = jnp.array([[jnp.nan, 5.0, 2.0]])
    for layer, want in (("MaxPool1d", [0, 1, 0]), ("AdaptiveMaxPool1d", [np.nan] * 3)):
        size = 3 if layer == "MaxPool1d" else 1
        got, peer = (
            jax.grad(lambda x, m=m, layer=layer, size=size: getattr(m, layer)(size)(x).sum())(x)
            for m in (ours, theirs)
        )
        np.testing.assert_array_equal(got[0], [1, 0, 0])
        np.testing.assert_array_equal(peer[0], want)


def test_minus_inf_next_to_padding_keeps_cotangent():
    x = jnp.full((1, 3), -jnp.inf)
    got, want = (jax.grad(lambda x, m=m: m.MaxPool1d(3, 1, 1)(x).sum())(x) for m in (ours, theirs))
    np.testing.assert_array_equal(got[0], [2, 1, 0])
    np.testing.assert_array_equal(want[0], [1, 1, 0])


def test_low_precision_sums_round_once():
    y = ours.AvgPool1d(512)(jnp.ones((1, 512), jnp.bfloat16))
    assert float(y[0, 0]) == 1
