"""Adaptive pools: against the oracle, as windowed pools, and under every transformation."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._adaptive import adaptive_max_op
from jaxpool._kernels_adaptive import adaptive_position
from jaxpool._ragged import adaptive_window
from jaxpool._rules import apply_kept
from jaxpool.testing import _oracle_adaptive as oracle
from jaxpool.testing import draw_values
from jaxpool.testing._oracle import is_floating

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
TIES = ("first", "last", "split")
INF, NAN = np.inf, np.nan
FLOATS = [
    np.float32,
    np.float16,
    jnp.bfloat16,
    jnp.float8_e4m3fn,
    jnp.float8_e4m3fnuz,
    jnp.float8_e4m3b11fnuz,
    jnp.float8_e5m2,
    jnp.float8_e5m2fnuz,
]
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]

# Shape, output_shape, axes: more windows than positions, fewer, both; one axis even, one uneven.
GEOMETRIES = {
    "7 to 5": ((2, 7, 3), (5,), None),
    "3 to 8": ((3, 3, 2), (8,), None),
    "5x7 to 3x4": ((2, 5, 7, 2), (3, 4), None),
    "6x5 to 3x8, axes turned": ((2, 6, 5), (8, 3), (-1, 1)),
    "channels first": ((2, 3, 4, 6), (3, 6), (2, 3)),
    "3-D, one kept": ((3, 4, 2, 5, 1), (2, None, 3), None),
}


def column(*values, dtype=np.float32):
    return np.array(values, dtype)[:, None]


@functools.partial(jax.jit, static_argnames=("output_shape", "axes", "ties", "autodiff"))
def maximum(x, dy, output_shape, axes=None, ties="first", autodiff="vjp"):
    """y, indices and, where there is one, the cotangent of x."""
    pool = functools.partial(
        jaxpool.adaptive_max_pool_with_argmax,
        output_shape=output_shape,
        axes=axes,
        ties=ties,
        autodiff=autodiff,
    )
    if dy is None:
        return *pool(x), None
    y, pullback, indices = jax.vjp(pool, x, has_aux=True)
    return y, indices, pullback(dy)[0]


@functools.partial(jax.jit, static_argnames=("output_shape", "axes", "autodiff"))
def average(x, dy, output_shape, axes=None, autodiff="vjp"):
    """y and the cotangent of x."""
    pool = functools.partial(
        jaxpool.adaptive_avg_pool, output_shape=output_shape, axes=axes, autodiff=autodiff
    )
    if dy is None:
        return pool(x), None
    y, pullback = jax.vjp(pool, x)
    return y, pullback(dy)[0]


def drawn(shape, kinds=("ties", "special", "lowest"), dtype=np.float32):
    rng = np.random.default_rng(len(shape) + sum(shape))
    return [draw_values(rng, shape, dtype, kind) for kind in kinds]


def small_integers(shape, dtype=np.float32):
    """Cotangents whose sums are exact."""
    return draw_values(np.random.default_rng(3), shape, dtype, "ties")


CELLS = [(name, ties, "vjp") for name in GEOMETRIES for ties in ("first", "split")]
CELLS += [(name, "last", "vjp") for name in ("7 to 5", "6x5 to 3x8, axes turned")]
CELLS += [("5x7 to 3x4", ties, "jvp") for ties in TIES]


@pytest.mark.parametrize(("name", "ties", "autodiff"), CELLS)
def test_max_value_indices_and_cotangent(name, ties, autodiff):
    shape, output_shape, axes = GEOMETRIES[name]
    for x in drawn(shape):
        answer = oracle.adaptive_max_pool(x, output_shape, axes=axes, ties=ties)
        first = oracle.adaptive_max_pool(
            x, output_shape, axes=axes, ties="first" if ties == "split" else ties
        )
        dy = small_integers(answer.y.shape)
        y, indices, dx = maximum(x, dy, output_shape, axes, ties, autodiff)
        assert indices.dtype == np.int32
        np.testing.assert_array_equal(y, answer.y)
        np.testing.assert_array_equal(indices, first.indices)
        if ties == "split":
            np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(dx, answer.cotangent(dy))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_avg_value_and_cotangent(name):
    autodiff = "jvp" if len(name) % 2 else "vjp"
    shape, output_shape, axes = GEOMETRIES[name]
    for x in drawn(shape, ("ties", "normal")):
        answer = oracle.adaptive_avg_pool(x, output_shape, axes=axes)
        dy = small_integers(answer.y.shape)
        y, dx = average(x, dy, output_shape, axes, autodiff)
        np.testing.assert_allclose(y, answer.y, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=lambda dtype: np.dtype(dtype).name)
def test_every_type(dtype):
    shape, output_shape, axes = (3, 5, 2), (3,), None
    for x in drawn(shape, dtype=dtype):
        answer = oracle.adaptive_max_pool(x, output_shape)
        dy = small_integers(answer.y.shape, dtype) if is_floating(dtype) else None
        y, indices, dx = maximum(x, dy, output_shape, axes)
        assert y.dtype == dtype
        np.testing.assert_array_equal(np.asarray(y).astype(float), answer.y.astype(float))
        np.testing.assert_array_equal(indices, answer.indices)
        if dy is not None:
            assert dx.dtype == dtype
            want = answer.cotangent(dy).astype(float)
            np.testing.assert_array_equal(np.asarray(dx).astype(float), want)
    (x,) = drawn(shape, ("normal",), dtype)
    answer = oracle.adaptive_avg_pool(x, output_shape)
    y, _ = average(x, None, output_shape)
    assert y.dtype == (dtype if is_floating(dtype) else np.float32)
    eps = float(jnp.finfo(y.dtype).eps)
    np.testing.assert_allclose(
        np.asarray(y).astype(float), answer.y.astype(float), rtol=eps, atol=1e-6
    )


def test_a_type_without_sign_zero_or_infinity():
    x = column(0.5, 4, 2, 1, 0.25, dtype=jnp.float8_e8m0fnu)
    y = np.asarray(jaxpool.adaptive_max_pool(x, (3,)))
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y.astype(float), column(4, 4, 1))


def test_float64(x64):
    (x,) = drawn((2, 5, 7, 2), ("normal",), np.float64)
    x += 1e-12
    answer = oracle.adaptive_max_pool(x, (3, 4))
    dy = np.random.default_rng(0).standard_normal(answer.y.shape)
    y, indices, dx = maximum(x, dy, (3, 4))
    np.testing.assert_array_equal(y, answer.y)
    np.testing.assert_array_equal(indices, answer.indices)
    np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-15, atol=1e-15)


# By hand


def test_the_windows_of_pytorch_not_those_of_equinox():
    x = np.arange(10, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(jaxpool.adaptive_max_pool(x, (4,)), column(2, 4, 7, 9))


def test_more_windows_than_positions():
    x = column(1, 5, 3)
    y, indices, dx = maximum(x, column(1, 2, 3, 4, 5), (5,))
    np.testing.assert_array_equal(y, column(1, 5, 5, 5, 3))
    np.testing.assert_array_equal(indices, column(0, 1, 1, 1, 2))
    np.testing.assert_array_equal(dx, column(1, 9, 5))


def test_nan_and_infinities():
    x = column(NAN, -INF, NAN, -INF, -INF)
    for ties, want in [("first", (0, 2, 3)), ("last", (0, 2, 4)), ("split", (0, 2, 3))]:
        y, indices, dx = maximum(x, column(1, 2, 4), (3,), None, ties)
        np.testing.assert_array_equal(y, column(NAN, NAN, -INF))
        np.testing.assert_array_equal(indices, column(*want))
        tail = {"first": (4, 0), "last": (0, 4), "split": (2, 2)}[ties]
        np.testing.assert_array_equal(dx, column(1, 0, 2, *tail))


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("autodiff", MODES)
def test_a_cotangent_that_is_not_finite_reaches_the_chosen_element_alone(autodiff, ties):
    x = column(1, 9, 2, 8, 3)
    _, _, dx = maximum(x, column(NAN, 1, INF), (3,), None, ties, autodiff)
    np.testing.assert_array_equal(dx, column(0, NAN, 0, INF, 0))


def test_sums_are_kept_in_float32_and_rounded_once():
    x = column(*[1] * 512, dtype=jnp.bfloat16)
    y, _ = average(np.concatenate([x, x[:1]]), None, (2,))
    np.testing.assert_array_equal(np.asarray(y).astype(float), column(1, 1))
    one = column(1, 2, dtype=jnp.bfloat16)
    dy = np.ones((601, 1), jnp.bfloat16)
    for got in (maximum(one, dy, (601,))[2], average(one, dy, (601,))[1]):
        assert float(got[1, 0]) in (300, 301)
    assert float(maximum(one, dy, (601,))[2][1, 0]) == float(jnp.bfloat16(301))


def test_many_windows_over_few_positions():
    x = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    for n in (100, 99):
        answer = oracle.adaptive_max_pool(x, (n,))
        dy = small_integers(answer.y.shape)
        y, indices, dx = maximum(x, dy, (n,))
        np.testing.assert_array_equal(y, answer.y)
        np.testing.assert_array_equal(indices, answer.indices)
        np.testing.assert_array_equal(dx, answer.cotangent(dy))


LONG = (2, 201, 2, 2)  # windows of 67 and of 101 positions: reduced as blocks, not tap by tap


@pytest.mark.parametrize("outputs", [3, 2])
@pytest.mark.parametrize("ties", TIES)
def test_long_windows(ties, outputs):
    for x in drawn(LONG):
        answer = oracle.adaptive_max_pool(x, (outputs, 1), ties=ties)
        dy = small_integers(answer.y.shape)
        y, indices, dx = maximum(x, dy, (outputs, 1), None, ties)
        np.testing.assert_array_equal(y, answer.y)
        if ties != "split":
            np.testing.assert_array_equal(indices, answer.indices)
        np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-6, atol=1e-6)
        answer = oracle.adaptive_avg_pool(np.nan_to_num(x, posinf=3, neginf=3), (outputs, 1))
        y, dx = average(np.nan_to_num(x, posinf=3, neginf=3), dy, (outputs, 1))
        np.testing.assert_allclose(y, answer.y, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(dx, answer.cotangent(dy), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("length", [9, 201])
def test_the_order_of_pytorch_the_first_number_and_the_last_nan(length):
    x = np.zeros((length, 3), np.float32)
    x[1:5, 0] = NAN
    x[2:4, 1] = 5
    window = adaptive_window(x.shape, (2,), None)
    _, tap = jax.jit(lambda x: apply_kept(adaptive_max_op(window, "last_nan"), "jvp", x))(x)
    indices = adaptive_position(tap, window)
    np.testing.assert_array_equal(
        indices, [[4, 2, 0], [4 if length == 9 else 100] + [length // 2] * 2]
    )


def test_positions_beyond_what_a_byte_holds():
    """Windows of 17 by 18 taps."""
    x = np.zeros((33, 35, 2), np.float32)
    x[16, 17, 1] = x[32, 34, 0] = 1
    y, indices, dx = maximum(x, np.ones((2, 2, 2), np.float32), (2, 2))
    np.testing.assert_array_equal(indices[..., 1], 16 * 35 + 17)
    np.testing.assert_array_equal(indices[..., 0], [[0, 17], [16 * 35, 32 * 35 + 34]])
    assert dx[16, 17, 1] == 4
    assert y.sum() == 5


def test_empty_batch_and_channels():
    for shape in [(0, 5, 7, 2), (2, 5, 7, 0)]:
        x = np.ones(shape, np.float32)
        y, indices, dx = maximum(x, np.ones((shape[0], 3, 4, shape[3]), np.float32), (3, 4))
        assert y.shape == indices.shape == (shape[0], 3, 4, shape[3])
        assert dx.shape == shape
        assert jaxpool.adaptive_avg_pool(x, (3, 4)).shape == y.shape


@pytest.mark.parametrize("ties", ["last", "split"])
def test_one_over_everything_is_a_reduction(ties):
    (x,) = drawn((2, 4, 5, 2), ("ties",))
    dy = small_integers((2, 1, 1, 2))
    y, _, dx = maximum(x, dy, (1, 1), None, ties)

    @jax.jit
    def reduced(x, dy):
        want, pullback = jax.vjp(lambda x: jaxpool.max(x, (1, 2), keepdims=True, ties=ties), x)
        return want, pullback(dy)[0]

    want, want_dx = reduced(x, dy)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_allclose(dx, want_dx, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"ties": "split"}, {"autodiff": "jvp"}], ids=str)
def test_where_the_length_divides_it_is_the_windowed_pool(options):
    """The same program, to the letter."""
    x = np.zeros((2, 6, 8, 3), np.float32)
    window = {"window_shape": (3, 2), "strides": (3, 2)}
    for adaptive, windowed in [
        (jaxpool.adaptive_max_pool, jaxpool.max_pool),
        (jaxpool.adaptive_avg_pool, jaxpool.avg_pool),
    ]:
        if windowed is jaxpool.avg_pool and "ties" in options:
            continue
        programs = [
            jax.jit(jax.grad(lambda x, pool=pool: (pool(x) ** 2).sum())).lower(x).as_text()
            for pool in (
                functools.partial(adaptive, output_shape=(2, 4), **options),
                functools.partial(windowed, **window, **options),
            )
        ]
        assert programs[0] == programs[1]


def test_unpooling_puts_every_maximum_back():
    x = np.random.default_rng(0).permutation(70).reshape(1, 10, 7, 1).astype(np.float32)
    y, indices = jaxpool.adaptive_max_pool_with_argmax(x, (4, 3))
    back = np.asarray(jaxpool.max_unpool(y, indices, (10, 7)))
    np.testing.assert_array_equal(back, np.where(np.isin(x, y), x, 0))


def test_an_int_for_all_axes_a_list_and_none():
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    want = jaxpool.adaptive_max_pool(x, (3, 3), axes=(0, 1))
    np.testing.assert_array_equal(jaxpool.adaptive_max_pool(x, 3, axes=(0, 1)), want)
    np.testing.assert_array_equal(jaxpool.adaptive_max_pool(x, [3, 3], axes=[0, -1]), want)
    np.testing.assert_array_equal(jaxpool.adaptive_avg_pool(x, (None, None), axes=(0, 1)), x)


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


def operations(f, platform, shape=SHAPE):
    x = jax.ShapeDtypeStruct(shape, np.float32)
    program = jax.export.export(f, platforms=[platform])(x).mlir_module()
    return set(re.findall(r"\b(?:stablehlo|chlo|mhlo)\.(\w+)", program))


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("name", MATRIX)
def test_the_gradient_holds_neither_scatter_nor_loop(name, autodiff, platform):
    found = operations(gradient(name, autodiff), platform)
    assert "multiply" in found
    if platform == "tpu":
        mapped = jax.jit(jax.vmap(gradient(name, autodiff)))
        found = operations(mapped, platform, (5, *SHAPE))
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


# Messages

IMAGE = np.zeros((2, 4, 5, 3), np.float32)
EXPECTED = "an int, or a tuple with a positive int or None for each pooled axis"
ADVICE = "Pass a tuple such as (7, 7), or (7, None) to keep the size of the second axis."
CONTEXT = "x.shape=(2, 4, 5, 3), output_shape"
MESSAGES = [
    (
        {"output_shape": "3"},
        TypeError,
        f"`output_shape` must be {EXPECTED}; got output_shape='3' ({CONTEXT}=3). {ADVICE}",
    ),
    (
        {"output_shape": (3, 2.0)},
        TypeError,
        f"`output_shape` must be {EXPECTED}; got output_shape=(3, 2.0) ({CONTEXT}=(3, 2.0)). "
        + ADVICE,
    ),
    (
        {"output_shape": (True, 2)},
        TypeError,
        f"`output_shape` must be {EXPECTED}; got output_shape=(True, 2) ({CONTEXT}=(True, 2)). "
        + ADVICE,
    ),
    (
        {"output_shape": (0, 2)},
        ValueError,
        f"`output_shape` must be {EXPECTED}; got output_shape=(0, 2) ({CONTEXT}=(0, 2)). {ADVICE}",
    ),
    (
        {"output_shape": ()},
        ValueError,
        f"`output_shape` must be {EXPECTED}; got output_shape=() ({CONTEXT}=()). {ADVICE}",
    ),
    (
        {"output_shape": 3},
        TypeError,
        f"`axes` must be given when `output_shape` is an int; got axes=None ({CONTEXT}=3). "
        "Pass axes=(1, 2), say.",
    ),
    (
        {"output_shape": (3, 2), "axes": (1,)},
        ValueError,
        "`axes` must be 2 axes, one for each entry of the shape; got axes=(1,) "
        f"({CONTEXT}=(3, 2)). Make the lengths agree.",
    ),
    (
        {"output_shape": (3, 2), "axes": (1, 4)},
        ValueError,
        "`axes` must be distinct ints from -4 to 3; got axes=(1, 4) "
        f"({CONTEXT}=(3, 2)). Name each pooled axis of x once.",
    ),
    (
        {"output_shape": (3, 2, 1, 1)},
        ValueError,
        "`x` must be an array of at least 5 axes, 4 pooled and channels; got x=4 "
        f"({CONTEXT}=(3, 2, 1, 1)). Pass axes=... to pool an array without a channel axis, or add "
        "the axis with x[..., None].",
    ),
    (
        {"output_shape": (3, 2), "autodiff": "both"},
        ValueError,
        "`autodiff` must be 'vjp' or 'jvp'; got autodiff='both' "
        f"({CONTEXT}=(3, 2)). Leave it out for 'vjp'.",
    ),
    (
        {"output_shape": (3, 2), "ties": "all"},
        ValueError,
        "`ties` must be 'first', 'last' or 'split'; got ties='all' "
        f"({CONTEXT}=(3, 2)). Leave it out for 'first'.",
    ),
]


@pytest.mark.parametrize(
    "name", ["adaptive_max_pool", "adaptive_max_pool_with_argmax", "adaptive_avg_pool"]
)
@pytest.mark.parametrize(("arguments", "kind", "message"), MESSAGES)
def test_messages(name, arguments, kind, message):
    if name == "adaptive_avg_pool" and "ties" in arguments:
        return
    with pytest.raises(kind, match=f"^{re.escape(f'jaxpool.{name}: {message}')}$"):
        getattr(jaxpool, name)(IMAGE, **arguments)


def test_messages_about_x():
    f = jaxpool.adaptive_max_pool
    with pytest.raises(TypeError, match=r"^jaxpool.adaptive_max_pool: `x` must be an array; got"):
        f([1.0], (2,))
    message = (
        "jaxpool.adaptive_max_pool: `x` must be of at least one element along pooled axis 1; got "
        "x=0 (x.shape=(2, 0, 3), output_shape=(2,)). Batch and channel axes may be empty, pooled "
        "axes not."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        f(np.zeros((2, 0, 3), np.float32), (2,))
    (n,) = jax.export.symbolic_shape("n")
    message = (
        "jaxpool.adaptive_max_pool: `x` must be of known size along pooled axis 1; got x=n "
        "(x.shape=(2, n, 3), output_shape=(2,)). Batch and channel axes may be symbolic, pooled "
        "axes not."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        jax.eval_shape(
            functools.partial(f, output_shape=(2,)), jax.ShapeDtypeStruct((2, n, 3), np.float32)
        )


def test_too_many_positions_for_the_indices():
    message = (
        "jaxpool.adaptive_max_pool_with_argmax: `x` must be of fewer than 2**31 positions along "
        "the pooled axes, which int32 indices can name; got x=(65536, 32768) "
        "(x.shape=(65536, 32768, 1), output_shape=(2, 2)). Pool parts of the array."
    )
    x = jax.ShapeDtypeStruct((65536, 32768, 1), np.float32)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        jax.eval_shape(
            functools.partial(jaxpool.adaptive_max_pool_with_argmax, output_shape=(2, 2)), x
        )
