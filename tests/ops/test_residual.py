"""Residuals of the backward pass: bytes in the leaves of the function that `jax.vjp` returns."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from tests.support import lax_pools

pytestmark = pytest.mark.usefixtures("strict")

AUTODIFF = pytest.mark.parametrize("autodiff", ["vjp", "jvp"])
X = np.arange(2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3)
NARROW = np.ones((2, 3), np.float32)
HALVED = {"window_shape": (2, 2), "strides": (2, 2)}
OUTPUTS = 2 * 4 * 4 * 3


def types_of(pullback):
    """Return shapes and dtypes of the residuals of a pullback."""
    return [(leaf.shape, leaf.dtype.name) for leaf in jax.tree.leaves(pullback)]


def residual_bytes(pullback):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pullback))


def square(size, **more):
    return {"window_shape": (size, size), "padding": "SAME", **more}


def index_of(window, ties):
    """Return options of a pool over both axes of `NARROW`."""
    return {"window_shape": window, "padding": "SAME", "axes": (0, 1), "ties": ties}


WINDOWS = {(3, 3): "uint8", (16, 16): "uint8", (16, 17): "uint16", (257, 256): "uint32"}
RESIDUALS = [  # function, options, arguments, shapes and dtypes of the residuals
    *[
        ("max_pool", HALVED, [X.astype(dtype)], [((2, 4, 4, 3), "uint8")])
        for dtype in ("float16", jnp.bfloat16, "float32")
    ],
    # the narrowest dtype for an index
    *[
        (name, index_of(window, ties), [NARROW], [((2, 3), dtype)])
        for window, dtype in WINDOWS.items()
        for name, ties in (("max_pool", "first"), ("min_pool", "last"))
    ],
    # one bit per tap
    *[
        ("max_pool", square(size, ties="split"), [X], [(X.shape, dtype)])
        for size, dtype in ((2, "uint8"), (3, "uint16"), (5, "uint32"))
    ],
    *[
        ("cummax", {"axis": 1}, [np.ones((2, size), np.float32)], [((2, size), dtype)])
        for size, dtype in ((256, "uint8"), (257, "uint16"))
    ],
    ("max", {"axis": 1, "ties": "last"}, [np.ones((2, 257), np.float32)], [((2, 1), "uint16")]),
    *[
        ("adaptive_max_pool", {"output_shape": (3,)}, [np.ones((2, n, 5), np.float32)], [one])
        for n, one in ((256, ((3, 2, 5), "uint8")), (770, ((3, 2, 5), "uint16")))
    ],
    (
        "adaptive_max_pool",
        {"output_shape": (6, 7), "ties": "split"},
        [np.ones((2, 13, 15, 5), np.float32)],
        [((6, 3, 3, 2, 5), "uint8")],
    ),
    ("adaptive_avg_pool", {"output_shape": (6, 7)}, [X], []),
    ("fmax", {"ties": "last"}, [X, X], [(X.shape, "uint8")]),
    ("sum_pool", square(3), [X], []),
    ("avg_pool", square(3), [X], []),
    ("avg_pool", square(3, count_include_pad=False), [X], []),
    *[
        ("maximum", {"ties": ties}, [X] * count, [(X.shape, "uint8")])
        for count in (2, 8)
        for ties in ("first", "last", "split")
    ],
]


@AUTODIFF
@pytest.mark.parametrize(("name", "options", "xs", "expected"), RESIDUALS)
def test_residual_types(name, options, xs, expected, autodiff):
    f = functools.partial(getattr(jaxpool, name), **options, autodiff=autodiff)
    assert types_of(jax.eval_shape(lambda *xs: jax.vjp(f, *xs)[1], *xs)) == expected


def test_one_sixteenth_of_the_bytes_of_lax():
    lax_pool = functools.partial(lax_pools.max_pool, **HALVED)
    assert residual_bytes(jax.vjp(lax_pool, X)[1]) == 16 * OUTPUTS


@AUTODIFF
@pytest.mark.parametrize("jit", [False, True])
def test_constant_operand_has_no_residual(jit, autodiff):
    def f(x):
        return jaxpool.maximum(X[::-1], x, X - np.float32(1), autodiff=autodiff)

    assert types_of(jax.vjp(jax.jit(f) if jit else f, X)[1]) == [(X.shape, "uint8")]


@AUTODIFF
def test_input_is_not_saved_between_layers(autodiff):
    """A pool after a layer whose backward pass needs no activations."""

    def net(x):
        return jaxpool.max_pool(x * np.float32(2), **HALVED, autodiff=autodiff).sum()

    *others, index = types_of(jax.vjp(jax.jit(net), X)[1])
    assert index == ((2, 4, 4, 3), "uint8")
    assert others in ([], [((), "float32")])


# Every op with an index as residual, under several transformations


def abstract_pullback(f, x=X):
    return jax.eval_shape(lambda x: jax.vjp(f, x)[1], x)


PULLBACKS = {  # function to a pullback; a scan has five
    "vjp": lambda f: jax.vjp(f, X)[1],
    "vjp of jit": lambda f: jax.vjp(jax.jit(f), X)[1],
    "vjp in jit": abstract_pullback,
    "vmap": lambda f: abstract_pullback(jax.vmap(f), X[None]),
    "vmap over the last axis": lambda f: abstract_pullback(jax.vmap(f, -1, -1), X[..., None]),
    "scan": lambda f: abstract_pullback(five_rounds(f)),
    "scan in jit": lambda f: abstract_pullback(jax.jit(five_rounds(f))),
    "linearize": lambda f: jax.linearize(f, X)[1],
    "linearize in jit": lambda f: jax.eval_shape(lambda x: jax.linearize(f, x)[1], X),
}
INDEX_POOLS = {
    "max_pool": (HALVED, OUTPUTS),
    "min_pool": (HALVED, OUTPUTS),
    "max_pool_with_argmax": (HALVED, OUTPUTS),
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
    for place, pullback_of in PULLBACKS.items():
        ((shape, dtype),) = types_of(pullback_of(f))
        count = 5 if place.startswith("scan") else 1
        assert (np.prod(shape), dtype) == (count * outputs, "uint8"), place


@AUTODIFF
@pytest.mark.parametrize("name", INDEX_POOL_NAMES)
def test_checkpoint_saves_neither_index_nor_mask(name, autodiff):
    """The residual is the input of each scan step. The backward pass recomputes the index of one step at a time."""
    f = index_pool(name, "first", autodiff)
    for policy in (None, "nothing_saveable", "dots_saveable"):
        policy = policy and getattr(jax.checkpoint_policies, policy)
        held = abstract_pullback(jax.checkpoint(f, policy=policy))
        assert types_of(held) == [(X.shape, "float32")]
    assert residual_bytes(abstract_pullback(five_rounds(jax.checkpoint(f)))) == 5 * X.nbytes


@pytest.mark.parametrize("name", INDEX_POOL_NAMES)
def test_everything_saveable_saves_only_the_index(name):
    everything = jax.checkpoint_policies.everything_saveable
    f = jax.checkpoint(index_pool(name, "first", "vjp"), policy=everything)
    arrays = [leaf for leaf in jax.tree.leaves(abstract_pullback(f)) if leaf.shape]
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
    said = "fewer than 2**32 elements along the reduced axes, which uint32 indices can name"
    for f, size in ((gradient, 2**17), (masked, 2**16)):
        with pytest.raises(ValueError, match=r"jaxpool\.global_max_pool: `x` must be") as error:
            shape_of(f, size)
        assert said in str(error.value)
