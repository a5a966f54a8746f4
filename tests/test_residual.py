"""What the backward pass keeps alive: bytes in the leaves of the function that `jax.vjp` returns."""

import functools

import jax
import jax.numpy as jnp
import lax_pools
import numpy as np
import pytest

import jaxpool

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
X = np.arange(2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3)
OUTPUTS = 2 * 4 * 4 * 3  # of a 2x2 pool at stride 2


def kept(f, *xs):
    """Shapes and dtypes of what the vjp of f at xs holds."""
    pullback = jax.vjp(f, *xs)[1]
    return [(leaf.shape, leaf.dtype.name) for leaf in jax.tree.leaves(pullback)]


def kept_bytes(pullback):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pullback))


def max_pool(autodiff, window=(2, 2), strides=(2, 2), **more):
    return functools.partial(
        jaxpool.max_pool, window_shape=window, strides=strides, autodiff=autodiff, **more
    )


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("autodiff", MODES)
def test_one_byte_an_output_element_where_lax_keeps_sixteen(autodiff, jit):
    def pullback(f):
        def of(x):
            return jax.vjp(f, x)[1]

        return (jax.jit(of) if jit else of)(X)

    assert kept_bytes(pullback(max_pool(autodiff))) == OUTPUTS
    lax_pool = functools.partial(lax_pools.max_pool, window_shape=(2, 2), strides=(2, 2))
    assert kept_bytes(pullback(lax_pool)) == 16 * OUTPUTS


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float32])
@pytest.mark.parametrize("autodiff", MODES)
def test_the_index_does_not_grow_with_the_dtype(autodiff, dtype):
    assert kept(max_pool(autodiff), X.astype(dtype)) == [((2, 4, 4, 3), "uint8")]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize(
    ("function", "ties"), [(jaxpool.max_pool, "first"), (jaxpool.min_pool, "last")]
)
@pytest.mark.parametrize(
    ("window", "dtype"),
    [((3, 3), "uint8"), ((16, 16), "uint8"), ((16, 17), "uint16"), ((257, 256), "uint32")],
)
def test_the_narrowest_index_that_holds_the_window(window, dtype, ties, function, autodiff):
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
def test_split_ties_keep_one_bit_a_tap(window, dtype, autodiff):
    pool = max_pool(autodiff, window, (1, 1), padding="SAME", ties="split")
    assert kept(pool, X) == [((2, 8, 8, 3), dtype)]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("function", [jaxpool.sum_pool, jaxpool.avg_pool])
def test_sums_keep_nothing(function, autodiff):
    pool = functools.partial(function, window_shape=(3, 3), padding="SAME", autodiff=autodiff)
    assert kept(pool, X) == []
    if function is jaxpool.avg_pool:
        assert kept(functools.partial(pool, count_include_pad=False), X) == []


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("ties", ["first", "last", "split"])
@pytest.mark.parametrize("count", [2, 8])
def test_an_elementwise_maximum_keeps_one_byte_an_element(count, ties, autodiff):
    f = functools.partial(jaxpool.maximum, ties=ties, autodiff=autodiff)
    assert kept(f, *[X] * count) == [(X.shape, "uint8")]


@pytest.mark.parametrize("autodiff", MODES)
def test_under_vmap_and_scan(autodiff):
    f = max_pool(autodiff)
    assert kept(jax.vmap(f), X[None]) == [((1, 2, 4, 4, 3), "uint8")]

    def rounds(x):
        def body(carry, _):
            return carry + 1, f(carry)

        return jax.lax.scan(body, x, length=5)[1]

    pullback = jax.jit(lambda x: jax.vjp(rounds, x)[1])(X)
    assert [leaf.dtype.name for leaf in jax.tree.leaves(pullback)] == ["uint8"]
    assert kept_bytes(pullback) == 5 * OUTPUTS


@pytest.mark.parametrize("autodiff", MODES)
def test_under_checkpoint_the_input_is_kept_and_the_index_computed_again(autodiff):
    for policy in ("nothing_saveable", "dots_saveable"):
        policy = getattr(jax.checkpoint_policies, policy)
        f = jax.checkpoint(max_pool(autodiff), policy=policy)
        assert kept(f, X) == [(X.shape, "float32")]


def test_a_checkpoint_that_saves_everything_keeps_the_index():
    f = jax.checkpoint(max_pool("vjp"), policy=jax.checkpoint_policies.everything_saveable)
    arrays = [(shape, dtype) for shape, dtype in kept(f, X) if shape]
    assert arrays == [((2, 4, 4, 3), "uint8")]


@pytest.mark.parametrize("autodiff", MODES)
def test_between_other_layers_the_input_is_not_kept(autodiff):
    """A layer before the pool whose backward needs no activations, and a pool behind it."""

    def net(x):
        return max_pool(autodiff)(x * np.float32(2)).sum()

    assert kept(jax.jit(net), X) in (
        [((2, 4, 4, 3), "uint8")],
        [((), "float32"), ((2, 4, 4, 3), "uint8")],
    )
