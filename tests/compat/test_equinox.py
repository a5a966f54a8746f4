"""The drop-ins for Equinox, compared with `equinox.nn`."""

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
    random_dtype,
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


@pytest.mark.parametrize("name", ours.__all__)
def test_class_hierarchy(name):
    mine = getattr(ours, name)
    assert issubclass(mine, eqx.Module)
    assert issubclass(mine, getattr(theirs, name))
    assert issubclass(mine, ours.AdaptivePool if "Adaptive" in name else ours.Pool)


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


def draw_call(kind, rng):
    """A layer of a random rank: "Max", "AdaptiveAvg" and so on, or "" for `Pool`."""
    rank = int(rng.integers(1, 4))
    if "Adaptive" in kind:
        shape = (int(rng.integers(1, 3)), *ints(rng, rank, 2, 9 if rank < 3 else 5))
        target = tuple(int(rng.integers(1, size + 1)) for size in shape[1:])
        args = (min(target) if rng.random() < 0.3 else target,)
    else:
        shape, args = random_shape_and_args(rng, rank)
    if not kind:
        reductions = [(-np.inf, lax.max), (jnp.inf, lax.min), (0.0, lax.add)]
        return call("Pool", shape, *reductions[rng.integers(3)], rank, *args)
    options = {"exact": kind.endswith("Max"), "dtype": random_dtype(rng)}
    return call(f"{kind}Pool{rank}d", shape, *args, **options)


@drawn_calls
@pytest.mark.parametrize("kind", ["Max", "Avg", "", "AdaptiveMax", "AdaptiveAvg"])
def test_random_calls(kind, calls):
    compare(draw_call(kind, rng) for rng in geometries(calls))


def test_adaptive_operations():
    compare(
        [
            call("AdaptivePool", (2, 7, 6), (3, 4), 2, operation)
            for operation in (jnp.max, jnp.min, jnp.mean, jnp.sum, jnp.median, jnp.amax)
        ],
        ("normal", "ties"),
    )


@pytest.mark.parametrize("name", ["AdaptiveMaxPool2d", "AdaptiveAvgPool2d"])
def test_adaptive_gradients_and_forward_mode(name):
    each = call(name, X.shape, 2)
    program = str(jax.make_jaxpr(jax.grad(lambda x: each.ours(x).sum()))(X))
    assert "reduce_window" not in program
    assert "scatter" not in program
    got, want = (jax.jvp(fn, (X,), (jnp.sin(X),))[1] for fn in (each.ours, each.theirs))
    assert_arrays_match(got, want, 1e-6, name)


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


INVALID_LAYERS = {  # constructor arguments, for X
    "MaxPool2d": [
        *[(2, 1, 3), (2, 3, 0, True), (2, 1, (1, 1, 1)), (2, 1, ((1, 1),)), (2.0,), (2, 1.5)],
        *[((2,),), ((2, 2, 2),), (2, (1, 1, 1)), (0,), (2, 0), (2, -1)],
    ],
    "AvgPool1d": [(2,)],
    "AvgPool2d": [(2, 1, 3)],
    "AdaptiveMaxPool2d": [((2, 2, 2),), (5,)],
    "AdaptiveAvgPool2d": [((2, 7),), (0,), (-1,), (2.0,), ((2.0, 2),)],
}
INVALID_INPUTS = {  # for a layer made with 2
    "MaxPool2d": [X[None], X[0], [[1.0]]],
    "AvgPool2d": [X > 3],
    "AdaptiveMaxPool2d": [X[0], X[None]],
}
INVALID_CALLS = [(name, args, X) for name, each in INVALID_LAYERS.items() for args in each]
INVALID_CALLS += [(name, (2,), x) for name, each in INVALID_INPUTS.items() for x in each]


@pytest.mark.parametrize(("name", "args", "x"), INVALID_CALLS, ids=str)
def test_invalid_calls_raise_like_equinox(name, args, x):
    alike = expect_both_raise if "Adaptive" in name else assert_same_error
    alike(*(lambda m=m: getattr(m, name)(*args)(x) for m in (ours, theirs)))


def test_nan_receives_cotangent_of_adaptive_window():
    """A documented difference: all gradients of Equinox are NaN."""
    x = jnp.array([[jnp.nan, 5.0, 2.0]])
    got, want = (
        jax.grad(lambda x, m=m: m.AdaptiveMaxPool1d(1)(x).sum())(x) for m in (ours, theirs)
    )
    np.testing.assert_array_equal(got[0], [1, 0, 0])
    np.testing.assert_array_equal(want[0], [np.nan] * 3)
