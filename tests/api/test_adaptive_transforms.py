"""Adaptive pools under every transformation; their programs and residuals."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import oracle
from tests.support.adaptive_pools import MODES, column, drawn

pytestmark = pytest.mark.usefixtures("strict")

# Transformations

MATRIX = {
    "max": ("adaptive_max_pool", {"output_shape": (3, 2)}),
    "max split": ("adaptive_max_pool", {"output_shape": (3, 2), "ties": "split"}),
    "max, more than positions": ("adaptive_max_pool", {"output_shape": (6, 4)}),
    "avg": ("adaptive_avg_pool", {"output_shape": (3, 2)}),
}
SHAPE = (2, 4, 3, 2)


def numbers():
    """Distinct numbers, so that no finite step crosses a tie."""
    size = int(np.prod(SHAPE))
    return (np.random.default_rng(1).permutation(size) / 10).reshape(SHAPE)


def pool(name, autodiff):
    function, kwargs = MATRIX[name]
    return functools.partial(getattr(jaxpool, function), **kwargs, autodiff=autodiff)


@functools.cache
def linear_twin(name):
    """The pool at `numbers()`, which is linear there, as a matrix that the oracle knows."""
    function, kwargs = MATRIX[name]
    answer = getattr(oracle, function)(numbers(), **kwargs)
    rows = np.zeros((answer.y.size, int(np.prod(SHAPE))))
    for term in answer.terms:
        row = np.ravel_multi_index(term.output, answer.y.shape)
        rows[row, np.ravel_multi_index(term.position, SHAPE)] = term.share
    return lambda x: (rows @ x.ravel()).reshape(answer.y.shape)


def loss(f):
    def scalar(x):
        y = f(jnp.sin(x / 9) * 9)
        return (jnp.cos(y) * np.cos(np.arange(y.size)).reshape(y.shape)).sum()

    return scalar


def along(f):
    """The loss as a function of two numbers, in steps that keep the order."""
    steps = np.cos(np.arange(2 * np.prod(SHAPE))).reshape(2, *SHAPE) / 1000
    return lambda t: loss(f)(numbers() + jnp.tensordot(t, steps, 1))


def rounds(f):
    def many(x):
        def body(carry, _):
            y = f(carry)
            return carry + y.sum() / 1e5, y

        return jnp.cos(jax.lax.scan(body, x, length=3)[1]).sum()

    return many


T = np.ones(2) / 1000
REVERSE = {
    "reverse": lambda f: jax.grad(loss(f))(numbers()),
    "hessian": lambda f: jax.hessian(along(f))(T),
    "reverse twice": lambda f: jax.jacrev(jax.jacrev(along(f)))(T),
    "third": lambda f: jax.jvp(jax.grad(lambda t: jax.grad(along(f))(t)[0]), (T,), (T,))[1],
    "scan": lambda f: jax.grad(rounds(jax.checkpoint(f)))(numbers()),
    "vmap": lambda f: jax.vmap(jax.grad(loss(f)), in_axes=2, out_axes=4)(
        jnp.stack([numbers(), numbers() * 2], axis=2)
    ),
}
FORWARD = {
    "forward": lambda f: jax.jvp(loss(f), (numbers(),), (np.cos(numbers()),))[1],
    "forward twice": lambda f: jax.jacfwd(jax.jacfwd(along(f)))(T),
    "reverse over forward": lambda f: jax.jacrev(jax.jacfwd(along(f)))(T),
    "linearize": lambda f: jax.linearize(f, numbers())[1](np.cos(numbers())),
}


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", MATRIX)
def test_transformations(name, autodiff, x64):
    """All in one program: what jax makes of the pool and of its linear twin."""
    transforms = REVERSE if autodiff == "vjp" else REVERSE | FORWARD
    if name != "max":
        few = ("hessian", "vmap") if autodiff == "vjp" else ("reverse", "forward")
        transforms = {key: transforms[key] for key in few}
    elif autodiff == "jvp":
        transforms = {"reverse": REVERSE["reverse"], "scan": REVERSE["scan"]} | FORWARD

    def everything(f):
        return jax.jit(lambda: {key: transform(f) for key, transform in transforms.items()})()

    got, want = everything(pool(name, autodiff)), everything(linear_twin(name))
    for key in transforms:
        np.testing.assert_allclose(got[key], want[key], rtol=1e-9, atol=1e-11, err_msg=key)


@pytest.mark.parametrize("name", MATRIX)
def test_tangents_are_the_transpose_of_cotangents_and_shares_sum_to_them(name, x64):
    rng = np.random.default_rng(2)
    x = rng.integers(-1, 2, SHAPE).astype(np.float64)  # with ties
    v = rng.standard_normal(SHAPE)

    @jax.jit
    def both(x, v, w):
        y, tangent = jax.jvp(pool(name, "jvp"), (x,), (v,))
        return y, tangent, jax.vjp(pool(name, "vjp"), x)[1](w)[0]

    shape = jax.eval_shape(pool(name, "vjp"), x).shape
    w = rng.standard_normal(shape)
    _, tangent, cotangent = both(x, v, w)
    np.testing.assert_allclose((tangent * w).sum(), (v * cotangent).sum(), rtol=1e-12)
    np.testing.assert_allclose(cotangent.sum((1, 2)), w.sum((1, 2)), rtol=1e-12)


@pytest.mark.parametrize("function", ["adaptive_max_pool", "adaptive_avg_pool"])
def test_forward_mode_needs_the_other_mode(function):
    f = functools.partial(getattr(jaxpool, function), output_shape=(2,))
    x = column(1, 2, 3)
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(f, (x,), (x,))
    jax.jvp(functools.partial(f, autodiff="jvp"), (x,), (x,))


@pytest.mark.parametrize("autodiff", MODES)
def test_symbolic_batch_and_channels(autodiff):
    f = functools.partial(jaxpool.adaptive_max_pool, output_shape=(3, 2), autodiff=autodiff)
    gradient = jax.jit(jax.grad(lambda x: f(x).sum()))
    b, c = jax.export.symbolic_shape("b, c")
    exported = jax.export.export(gradient)(jax.ShapeDtypeStruct((b, 4, 3, c), np.float32))
    for shape in [(1, 4, 3, 2), (3, 4, 3, 1)]:
        (x,) = drawn(shape, ("ties",))
        np.testing.assert_array_equal(exported.call(x), gradient(x))


# Programs and residuals


def gradient(name, autodiff):
    return jax.jit(jax.grad(lambda x: (pool(name, autodiff)(x) ** 2).sum()))


def operations(f, platforms, shape=SHAPE):
    x = jax.ShapeDtypeStruct(shape, np.float32)
    program = jax.export.export(f, platforms=platforms)(x).mlir_module()
    return set(re.findall(r"\b(?:stablehlo|chlo|mhlo)\.(\w+)", program))


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", MATRIX)
def test_the_gradient_holds_neither_scatter_nor_loop(name, autodiff):
    """In one program for three platforms, and mapped for one."""
    found = operations(gradient(name, autodiff), ["cpu", "cuda", "tpu"])
    assert "multiply" in found
    mapped = jax.jit(jax.vmap(gradient(name, autodiff)))
    found |= operations(mapped, ["tpu"], (5, *SHAPE))
    assert not [word for word in found if "scatter" in word or word == "while"]


def kept(f, x):
    """Shapes and types of what the vjp of f at x holds."""
    leaves = jax.tree.leaves(jax.eval_shape(lambda x: jax.vjp(f, x)[1], x))
    return [(leaf.shape, leaf.dtype.name) for leaf in leaves]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("length", "dtype"), [(13, "uint8"), (256, "uint8"), (770, "uint16")])
def test_the_residual_is_one_narrow_index_an_output_element(length, dtype, jit, autodiff):
    x = np.zeros((2, length, 5), np.float32)
    f = functools.partial(jaxpool.adaptive_max_pool, output_shape=(3,), autodiff=autodiff)
    ((shape, kind),) = kept(jax.jit(f) if jit else f, x)
    assert (int(np.prod(shape)), kind) == (2 * 3 * 5, dtype)


@pytest.mark.parametrize("autodiff", MODES)
def test_the_residual_of_a_split_is_one_bit_a_tap_and_an_average_keeps_nothing(autodiff):
    x = np.zeros((2, 13, 15, 5), np.float32)
    f = functools.partial(jaxpool.adaptive_max_pool, output_shape=(6, 7), autodiff=autodiff)
    ((shape, kind),) = kept(functools.partial(f, ties="split"), x)
    taps = 2 * (6 * 3) * (7 * 3) * 5
    assert kind == "uint8"
    assert taps / 8 <= np.prod(shape) < taps / 6
    average = functools.partial(jaxpool.adaptive_avg_pool, output_shape=(6, 7), autodiff=autodiff)
    assert kept(average, x) == []
