"""Every transformation of jax, in both derivative modes, to third order.

Near a fixed input a pool is linear, and the oracle has its matrix. `linear_twin` is the product with that matrix, which
jax differentiates by itself. Every transformation must give the same result for the pool and its twin.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxpool
from jaxpool.testing import oracle
from tests.support.later import LATER, first_values, later

MODES = ("vjp", "jvp")
SHAPE = (2, 4, 5, 2)
SAME = {"window_shape": (3, 2), "strides": (1, 1), "padding": "SAME"}
OPS = {
    "max": ("max_pool", SAME),
    "max split": ("max_pool", SAME | {"ties": "split"}),
    "min last, dilated": ("min_pool", SAME | {"ties": "last", "window_dilation": (1, 2)}),
    "max channels first": ("max_pool", {"window_shape": 3, "padding": 1, "axes": (3, 2)}),
    "avg": ("avg_pool", SAME | {"count_include_pad": False}),
    "sum": ("sum_pool", SAME),
    "strided max": ("max_pool", {"window_shape": (2, 3), "strides": (2, 2), "ceil_mode": True}),
    "strided avg": ("avg_pool", {"window_shape": (2, 2), "strides": (2, 2)}),
}


@pytest.fixture(autouse=True)
def _float64(x64):
    """Enable float64, which finite differences need."""


@functools.cache
def numbers(shape=SHAPE):
    """Distinct numbers, so that no finite difference crosses a tie."""
    size = int(np.prod(shape))
    return (np.random.default_rng(1).permutation(size) / 10 - size / 20).reshape(shape)


def weights(shape):
    return np.cos(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape)


def pool(name, autodiff):
    function, kwargs = OPS[name]
    return functools.partial(getattr(jaxpool, function), **kwargs, autodiff=autodiff)


@functools.cache
def matrix(name, shape=SHAPE):
    """Return the Jacobian of the pool at `numbers(shape)`, with one row per output element."""
    function, kwargs = OPS[name]
    answer = getattr(oracle, function)(numbers(shape), **kwargs)
    rows = np.zeros((answer.y.size, int(np.prod(shape))))
    for term in answer.terms:
        row = np.ravel_multi_index(term.output, answer.y.shape)
        rows[row, np.ravel_multi_index(term.position, shape)] = term.share
    return rows, answer.y.shape


def linear_twin(name, shape=SHAPE):
    rows, out = matrix(name, shape)
    return lambda x: (rows @ x.ravel()).reshape(out)


def loss(f):
    """Return a scalar with derivatives of every order."""

    def scalar(x):
        y = f(jnp.sin(x / 3) * 3)
        return (jnp.cos(y) * weights(y.shape)).sum()

    return scalar


def loss_of_four_numbers(f):
    """Return the loss as a function of four numbers, for full Hessians. Small directions preserve the order of x."""
    directions = weights((4, *SHAPE)) / 1000

    def scalar(t):
        return loss(f)(numbers() + jnp.tensordot(t, directions, 1))

    return scalar


def scan(f):
    """Return the loss after three scan steps, small enough to preserve the order of the elements."""

    def many(x):
        def body(carry, _):
            y = f(carry)
            return carry + y / 10000, y.sum()

        last, sums = jax.lax.scan(body, x, length=3)
        return (jnp.cos(last) * weights(x.shape)).sum() + sums.sum()

    return many


ONES = np.ones(4) / 1000
REVERSE = {
    "value": lambda f: f(numbers()),
    "jit": lambda f: jax.jit(f)(numbers()),
    "vjp": lambda f: jax.grad(loss(f))(numbers()),
    "jit of vjp": lambda f: jax.jit(jax.grad(loss(f)))(numbers()),
    "vjp of jit": lambda f: jax.grad(loss(jax.jit(f)))(numbers()),
    "vjp of vjp": lambda f: jax.jit(jax.grad(lambda x: (jax.grad(loss(f))(x) ** 2).sum()))(
        numbers()
    ),
    "jvp of vjp": lambda f: jax.jit(lambda x: jax.jvp(jax.grad(loss(f)), (x,), (weights(SHAPE),)))(
        numbers()
    )[1],
    "hessian": lambda f: jax.jit(jax.hessian(loss_of_four_numbers(f)))(ONES),
    "jacrev of jacrev": lambda f: jax.jit(jax.jacrev(jax.jacrev(loss_of_four_numbers(f))))(ONES),
    "third order": lambda f: jax.jit(jax.jacfwd(jax.hessian(loss_of_four_numbers(f))))(ONES),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(loss(f)))(numbers()),
    "eval_shape": lambda f: np.zeros(jax.eval_shape(f, numbers()).shape),
}
FORWARD = {
    "jvp": lambda f: jax.jvp(loss(f), (numbers(),), (weights(SHAPE),))[1],
    "tangent": lambda f: jax.jvp(f, (numbers(),), (weights(SHAPE),))[1],
    "jit of jvp": lambda f: jax.jit(lambda x: jax.jvp(f, (x,), (weights(SHAPE),))[1])(numbers()),
    "linearize": lambda f: jax.linearize(f, numbers())[1](weights(SHAPE)),
    "jacfwd": lambda f: jax.jit(jax.jacfwd(loss_of_four_numbers(f)))(ONES),
    "jvp of jvp": lambda f: jax.jit(jax.jacfwd(jax.jacfwd(loss_of_four_numbers(f))))(ONES),
    "vjp of jvp": lambda f: jax.jit(jax.jacrev(jax.jacfwd(loss_of_four_numbers(f))))(ONES),
}
# Slow tests cover every op with every transformation. Quick tests cover all transformations of one op, and one
# second-order transformation per mode of every other op. Reverse mode of "jvp" runs later.
FULL = ("max",)
QUICK = {"vjp": ("vjp of vjp",), "jvp": ("vjp of jvp",)}


def cells():
    for name in OPS:
        for autodiff, transformations in [("vjp", REVERSE), ("jvp", REVERSE | FORWARD)]:
            for transformation in transformations:
                case = f"{name}-{autodiff}-{transformation}"
                quick = name in FULL or transformation in QUICK[autodiff]
                again = autodiff == "jvp" and transformation in REVERSE and quick
                marks = LATER if again else () if quick else pytest.mark.slow
                yield pytest.param(name, autodiff, transformation, id=case, marks=marks)


@functools.cache
def expected(name, transformation):
    return (REVERSE | FORWARD)[transformation](linear_twin(name))


@pytest.mark.parametrize(("name", "autodiff", "transformation"), list(cells()))
def test_transformation(name, autodiff, transformation):
    got = (REVERSE | FORWARD)[transformation](pool(name, autodiff))
    want = expected(name, transformation)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


BOTH_WAYS = ("max", "max split")


@pytest.mark.parametrize(
    ("name", "autodiff"),
    [
        pytest.param(name, mode, marks=() if name in BOTH_WAYS else pytest.mark.slow)
        for mode in MODES
        for name in OPS
    ],
)
def test_finite_differences(name, autodiff):
    modes = ["rev"] if autodiff == "vjp" else ["fwd", "rev"]
    order = 2 if autodiff == "vjp" or name in BOTH_WAYS else 1
    x = numbers((1, 4, 4, 1))
    check_grads(jax.jit(pool(name, autodiff)), (x,), order=order, modes=modes, eps=1e-3)


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", ["max", "avg"])
def test_scan_and_checkpointed_scan(name, autodiff):
    want = jax.jit(jax.grad(scan(linear_twin(name))))(numbers())
    got = jax.jit(jax.grad(scan(pool(name, autodiff))))(numbers())
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    got = jax.jit(jax.grad(scan(jax.checkpoint(pool(name, autodiff)))))(numbers())
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", ["max split", pytest.param("avg", marks=pytest.mark.slow)])
def test_second_gradient_through_scan(name, autodiff):
    """In this case, jax 0.10 calls functions with custom derivatives without their rules."""

    def twice(f):
        def squares(scales, x):
            def one(scale):
                return (f(numbers() * scale * x) + x * f(numbers() * scale)) ** 2

            return jax.lax.map(one, scales).sum()

        return jax.jit(jax.grad(lambda scales: jax.grad(squares, 1)(scales, 1.0)))(ONES * 1000)

    got, want = twice(pool(name, autodiff)), twice(linear_twin(name))
    np.testing.assert_allclose(got, want, rtol=1e-10)


POLICIES = ("everything_saveable", "nothing_saveable", "dots_saveable")


@pytest.mark.parametrize("policy", first_values(1, POLICIES))
@pytest.mark.parametrize("autodiff", MODES)
def test_checkpoint_policies(policy, autodiff):
    policy = getattr(jax.checkpoint_policies, policy)
    want = jax.grad(loss(linear_twin("max")))(numbers())
    got = jax.jit(jax.grad(jax.checkpoint(loss(pool("max", autodiff)), policy=policy)))(numbers())
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("autodiff", MODES)
def test_cond_and_while(autodiff):
    f, twin = pool("max", autodiff), linear_twin("max")

    def either(f, x):
        return jax.lax.cond(x[0, 0, 0, 0] < 1e9, loss(f), lambda x: x.sum(), x)

    got = jax.grad(functools.partial(either, f))(numbers())
    want = jax.grad(functools.partial(either, twin))(numbers())
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)

    def repeated(x):
        return jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (0, x))[1]

    np.testing.assert_array_equal(repeated(numbers()), f(f(numbers())))


@pytest.mark.parametrize(
    ("name", "axis", "autodiff"),
    [("max", axis, mode) for axis, mode in zip((0, 2, 4), ("vjp", "jvp", "vjp"), strict=True)]
    + [later("max", axis, mode) for axis, mode in ((0, "jvp"), (2, "vjp"), (4, "jvp"))]
    + [later(name, axis, "vjp") for axis, name in enumerate(OPS) if axis],
)
def test_vmap_is_one_more_batch_axis(name, axis, autodiff):
    f = pool(name, autodiff)
    axis %= numbers().ndim + 1
    xs = np.stack([numbers(), numbers()[::-1], -numbers()])

    def value_and_gradient(x):
        return f(x), jax.grad(lambda x: (f(x) ** 2).sum())(x)

    one_by_one = [value_and_gradient(x) for x in xs]
    mapped = jax.jit(jax.vmap(value_and_gradient, in_axes=axis))(np.moveaxis(xs, 0, axis))
    for got, *want in zip(mapped, *one_by_one, strict=True):
        np.testing.assert_allclose(got, np.stack(want), rtol=1e-12)


@pytest.mark.parametrize("name", OPS)
def test_both_modes_give_the_same_gradient(name):
    first, second = (jax.jit(jax.grad(loss(pool(name, mode))))(numbers()) for mode in MODES)
    np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-14)
    if name.startswith("strided"):  # disjoint windows give the same bits
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", OPS)
def test_jvp_and_vjp_are_transposes(name):
    f = pool(name, "jvp")
    rng = np.random.default_rng(2)
    x = rng.integers(-1, 2, SHAPE).astype(np.float64)  # with ties
    v = rng.standard_normal(SHAPE)
    y, tangent = jax.jvp(f, (x,), (v,))
    w = rng.standard_normal(y.shape)
    (cotangent,) = jax.vjp(f, x)[1](w)
    np.testing.assert_allclose((tangent * w).sum(), (v * cotangent).sum(), rtol=1e-12)


def test_forward_mode_differs_from_lax():
    """The tangent of the selected element for NaN, infinities and padding, where lax gives 0 or a mixture."""
    f = functools.partial(jaxpool.max_pool, window_shape=(3,), padding=1, autodiff="jvp")
    for values, want in [
        ([-np.inf, -np.inf, -np.inf], [1, 1, 2]),
        ([np.nan, 5.0, np.nan], [1, 1, 3]),
        ([np.inf, np.inf, 0.0], [1, 1, 2]),
    ]:
        x, v = np.array(values)[:, None], np.array([1.0, 2.0, 3.0])[:, None]
        np.testing.assert_array_equal(jax.jvp(f, (x,), (v,))[1][:, 0], want)


@pytest.mark.parametrize("name", first_values(1, ["max_pool", "min_pool", "avg_pool", "sum_pool"]))
def test_forward_mode_needs_autodiff_jvp(name):
    """Forward mode raises a TypeError by default and works with `autodiff="jvp"`."""
    f = functools.partial(getattr(jaxpool, name), window_shape=(2, 2))
    x = numbers()
    for transform in (
        lambda f: jax.jvp(f, (x,), (x,)),
        lambda f: jax.linearize(f, x)[1](x),
        lambda f: jax.jacfwd(f)(x),
    ):
        with pytest.raises(TypeError, match=r"custom_vjp|forward-mode"):
            transform(f)
        transform(functools.partial(f, autodiff="jvp"))


@pytest.mark.parametrize("autodiff", MODES)
def test_donated_and_symbolic_arguments(autodiff):
    f = functools.partial(jaxpool.max_pool, window_shape=(2, 2), strides=(2, 2), autodiff=autodiff)
    gradient = jax.jit(jax.grad(lambda x: f(x).sum()))
    batch, channels = jax.export.symbolic_shape("b, c")
    exported = jax.export.export(gradient)(
        jax.ShapeDtypeStruct((batch, 4, 4, channels), np.float64)
    )
    for shape in [(1, 4, 4, 3), (3, 4, 4, 1)]:
        np.testing.assert_array_equal(exported.call(numbers(shape)), gradient(numbers(shape)))
    donated = jax.jit(jax.grad(lambda x: f(x).sum()), donate_argnums=0)
    x = numbers((2, 4, 4, 1))
    np.testing.assert_array_equal(donated(jnp.array(x)), gradient(x))
