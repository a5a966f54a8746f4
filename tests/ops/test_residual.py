"""Residuals of the backward pass: bytes in the leaves of the function that `jax.vjp` returns."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support import lax_pools

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
X = np.arange(2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3)
OUTPUTS = 2 * 4 * 4 * 3  # of a 2x2 pool at stride 2


def residual_types(f, *xs):
    """Return shapes and dtypes of the residuals of the vjp of f at xs."""
    pullback = jax.vjp(f, *xs)[1]
    return [(leaf.shape, leaf.dtype.name) for leaf in jax.tree.leaves(pullback)]


def residual_bytes(pullback):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pullback))


def max_pool(autodiff, window=(2, 2), strides=(2, 2), **more):
    return functools.partial(
        jaxpool.max_pool, window_shape=window, strides=strides, autodiff=autodiff, **more
    )


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("autodiff", MODES)
def test_one_byte_per_output_element(autodiff, jit):
    def pullback(f):
        def of(x):
            return jax.vjp(f, x)[1]

        return (jax.jit(of) if jit else of)(X)

    assert residual_bytes(pullback(max_pool(autodiff))) == OUTPUTS
    lax_pool = functools.partial(lax_pools.max_pool, window_shape=(2, 2), strides=(2, 2))
    assert residual_bytes(pullback(lax_pool)) == 16 * OUTPUTS


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32])
@pytest.mark.parametrize("autodiff", MODES)
def test_index_size_is_independent_of_dtype(autodiff, dtype):
    assert residual_types(max_pool(autodiff), X.astype(dtype)) == [((2, 4, 4, 3), "uint8")]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize(
    ("function", "ties"), [(jaxpool.max_pool, "first"), (jaxpool.min_pool, "last")]
)
@pytest.mark.parametrize(
    ("window", "dtype"),
    [((3, 3), "uint8"), ((16, 16), "uint8"), ((16, 17), "uint16"), ((257, 256), "uint32")],
)
def test_narrowest_index_dtype(window, dtype, ties, function, autodiff):
    pool = functools.partial(
        function, window_shape=window, padding="SAME", axes=(0, 1), ties=ties, autodiff=autodiff
    )
    pullback = jax.eval_shape(lambda x: jax.vjp(pool, x)[1], np.ones((2, 3), np.float32))
    assert [(leaf.shape, leaf.dtype.name) for leaf in jax.tree.leaves(pullback)] == [
        ((2, 3), dtype)
    ]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize(
    ("window", "dtype"), [((2, 2), "uint8"), ((3, 3), "uint16"), ((5, 5), "uint32")]
)
def test_split_ties_save_one_bit_per_tap(window, dtype, autodiff):
    pool = max_pool(autodiff, window, (1, 1), padding="SAME", ties="split")
    assert residual_types(pool, X) == [((2, 8, 8, 3), dtype)]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("function", [jaxpool.sum_pool, jaxpool.avg_pool])
def test_sums_have_no_residual(function, autodiff):
    pool = functools.partial(function, window_shape=(3, 3), padding="SAME", autodiff=autodiff)
    assert residual_types(pool, X) == []
    if function is jaxpool.avg_pool:
        assert residual_types(functools.partial(pool, count_include_pad=False), X) == []


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize("count", [2, 8])
def test_maximum_saves_one_byte_per_element(count, ties, autodiff):
    f = functools.partial(jaxpool.maximum, ties=ties, autodiff=autodiff)
    assert residual_types(f, *[X] * count) == [(X.shape, "uint8")]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("jit", [False, True])
def test_constant_operand_has_no_residual(jit, autodiff):
    def f(x):
        return jaxpool.maximum(X[::-1], x, X - np.float32(1), autodiff=autodiff)

    assert residual_types(jax.jit(f) if jit else f, X) == [(X.shape, "uint8")]


@pytest.mark.parametrize("autodiff", MODES)
def test_residuals_under_vmap_and_scan(autodiff):
    f = max_pool(autodiff)
    assert residual_types(jax.vmap(f), X[None]) == [((1, 2, 4, 4, 3), "uint8")]

    def rounds(x):
        def body(carry, _):
            return carry + 1, f(carry)

        return jax.lax.scan(body, x, length=5)[1]

    pullback = jax.jit(lambda x: jax.vjp(rounds, x)[1])(X)
    assert [leaf.dtype.name for leaf in jax.tree.leaves(pullback)] == ["uint8"]
    assert residual_bytes(pullback) == 5 * OUTPUTS


@pytest.mark.parametrize("autodiff", MODES)
def test_checkpoint_saves_only_the_input(autodiff):
    for policy in ("nothing_saveable", "dots_saveable"):
        policy = getattr(jax.checkpoint_policies, policy)
        f = jax.checkpoint(max_pool(autodiff), policy=policy)
        assert residual_types(f, X) == [(X.shape, "float32")]


def test_everything_saveable_saves_the_index():
    f = jax.checkpoint(max_pool("vjp"), policy=jax.checkpoint_policies.everything_saveable)
    arrays = [(shape, dtype) for shape, dtype in residual_types(f, X) if shape]
    assert arrays == [((2, 4, 4, 3), "uint8")]


@pytest.mark.parametrize("autodiff", MODES)
def test_input_is_not_saved_between_layers(autodiff):
    """A pool after a layer whose backward pass needs no activations."""

    def net(x):
        return max_pool(autodiff)(x * np.float32(2)).sum()

    assert residual_types(jax.jit(net), X) in (
        [((2, 4, 4, 3), "uint8")],
        [((), "float32"), ((2, 4, 4, 3), "uint8")],
    )


# Every op with an index as residual, under several transformations

PULLBACKS = {  # function to a pullback, and the number of indices in it
    "vjp": (lambda f: jax.vjp(f, X)[1], 1),
    "vjp of jit": (lambda f: jax.vjp(jax.jit(f), X)[1], 1),
    "vjp in jit": (lambda f: jax.eval_shape(lambda x: jax.vjp(f, x)[1], X), 1),
    "vmap": (lambda f: jax.eval_shape(lambda x: jax.vjp(jax.vmap(f), x)[1], X[None]), 1),
    "vmap over the last axis": (
        lambda f: jax.eval_shape(lambda x: jax.vjp(jax.vmap(f, -1, -1), x)[1], X[..., None]),
        1,
    ),
    "scan": (lambda f: jax.eval_shape(lambda x: jax.vjp(five_rounds(f), x)[1], X), 5),
    "scan in jit": (
        lambda f: jax.eval_shape(lambda x: jax.vjp(jax.jit(five_rounds(f)), x)[1], X),
        5,
    ),
    "linearize": (lambda f: jax.linearize(f, X)[1], 1),
    "linearize in jit": (lambda f: jax.eval_shape(lambda x: jax.linearize(f, x)[1], X), 1),
}
INDEX_POOLS = {
    "max_pool": ({"window_shape": (2, 2), "strides": (2, 2)}, OUTPUTS),
    "min_pool": ({"window_shape": (2, 2), "strides": (2, 2)}, OUTPUTS),
    "max_pool_with_argmax": ({"window_shape": (2, 2), "strides": (2, 2)}, OUTPUTS),
    "adaptive_max_pool": ({"output_shape": (3, 5)}, 2 * 3 * 5 * 3),
    "adaptive_max_pool_with_argmax": ({"output_shape": (3, 5)}, 2 * 3 * 5 * 3),
    "cummax": ({"axis": 1}, X.size),
    "cummin": ({"axis": 2, "reverse": True}, X.size),
    "max": ({"axis": (1, 2)}, 2 * 3),
    "min": ({"axis": 0}, 8 * 8 * 3),
}
# One op per kernel
QUICK = ("max_pool", "max_pool_with_argmax", "adaptive_max_pool", "cummax", "max")
INDEX_POOL_NAMES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in INDEX_POOLS
]


def five_rounds(f):
    def rounds(x):
        return jax.lax.scan(lambda x, _: (x + np.float32(1), f(x)), x, length=5)[1]

    return rounds


def index_pool(name, ties, autodiff):
    kwargs = INDEX_POOLS[name][0] | {"ties": ties, "autodiff": autodiff}
    f = functools.partial(getattr(jaxpool, name), **kwargs)
    return (lambda x: f(x)[0]) if name.endswith("argmax") else f


@pytest.mark.parametrize(
    ("ties", "autodiff"),
    [
        ("first", "vjp"),
        ("last", "jvp"),
        pytest.param("first", "jvp", marks=pytest.mark.slow),
        pytest.param("last", "vjp", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", INDEX_POOL_NAMES)
def test_one_byte_per_output_element_in_each_pullback(name, ties, autodiff):
    f, outputs = index_pool(name, ties, autodiff), INDEX_POOLS[name][1]
    held = {place: jax.tree.leaves(look(f)) for place, (look, _) in PULLBACKS.items()}
    assert {place: [leaf.dtype.name for leaf in leaves] for place, leaves in held.items()} == {
        place: ["uint8"] for place in PULLBACKS
    }
    assert {place: residual_bytes(leaves) for place, leaves in held.items()} == {
        place: count * outputs for place, (_, count) in PULLBACKS.items()
    }


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", INDEX_POOL_NAMES)
def test_checkpoint_saves_neither_index_nor_mask(name, autodiff):
    """The residual is the input of each scan step. The backward pass recomputes the index of one step at a time."""
    f = jax.checkpoint(index_pool(name, "first", autodiff))
    assert residual_bytes(PULLBACKS["vjp in jit"][0](f)) == X.nbytes
    assert residual_bytes(PULLBACKS["scan"][0](f)) == 5 * X.nbytes


@pytest.mark.parametrize("name", INDEX_POOL_NAMES)
def test_everything_saveable_saves_only_the_index(name):
    everything = jax.checkpoint_policies.everything_saveable
    f = jax.checkpoint(index_pool(name, "first", "vjp"), policy=everything)
    arrays = [leaf for leaf in jax.tree.leaves(PULLBACKS["vjp in jit"][0](f)) if leaf.shape]
    assert [leaf.dtype.name for leaf in arrays] == ["uint8"]
    assert residual_bytes(arrays) == INDEX_POOLS[name][1]


def test_too_many_elements_for_index_raises():
    def shape_of(f, size, *more):
        return jax.eval_shape(f, jax.ShapeDtypeStruct((1, 2**16, size, 1), np.float32), *more).shape

    def gradient(x):
        return jax.grad(lambda x: jaxpool.global_max_pool(x).sum())(x)

    def masked(x):
        return jaxpool.global_max_pool(x, where=x > 0)

    assert shape_of(jaxpool.global_max_pool, 2**16 - 1) == shape_of(masked, 2**16 - 1) == (1, 1)
    assert shape_of(gradient, 2**16 - 1) == (1, 2**16, 2**16 - 1, 1)
    for f, size in ((gradient, 2**17), (masked, 2**16)):
        said = "fewer than 2**32 elements along the reduced axes, which uint32 indices can name"
        with pytest.raises(ValueError, match=r"jaxpool\.global_max_pool: `x` must be") as error:
            shape_of(f, size)
        assert said in str(error.value)
