"""`max`, `min` and `maxout`: tie rules, masks, initial values, dtypes and transformations."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import assert_close, draw_values, oracle
from tests.support.compilation import FAST_COMPILE

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
TIES = ("split", "first", "last")
nan, inf = np.nan, np.inf
SHAPE = (3, 5, 4)

# arguments other than x, ties and autodiff
CALLS = {
    "all": {},
    "one": {"axis": 1},
    "last, kept": {"axis": -1, "keepdims": True},
    "two, not in order": {"axis": (-1, 0)},
    "list": {"axis": [0, 1], "keepdims": True},
    "none": {"axis": ()},
    "initial": {"axis": 1, "initial": 0},
    "where": {"axis": (1, 2), "where": np.arange(20).reshape(5, 4) % 3 > 0, "initial": -1},
    "nowhere": {"axis": 1, "where": np.zeros((3, 1, 1), bool), "initial": 1, "keepdims": True},
}


def value_and_cotangent_program(f, **options):
    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def program(x, dy):
        y, pullback = jax.vjp(functools.partial(f, **options), x)
        return y, pullback(dy)[0]

    return program


def gradient_of_sum(f, x, dtype=np.float32):
    gradient = jax.jit(jax.grad(lambda x: f(x).sum()), compiler_options=FAST_COMPILE)
    return np.asarray(gradient(np.asarray(x, dtype)))


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


MASK_AND_AXIS_CALLS = ("one", "two, not in order", "where")
ALL_CASES = [
    *[("max", call, "vjp") for call in CALLS],
    *[slow("max", call, "jvp") for call in MASK_AND_AXIS_CALLS],
    ("min", "where", "vjp"),
    *[slow("min", call, "vjp") for call in MASK_AND_AXIS_CALLS[:2]],
]


@pytest.mark.parametrize(("name", "call", "autodiff"), ALL_CASES)
def test_value_and_cotangent(name, call, autodiff):
    f = functools.partial(getattr(jaxpool, name), autodiff=autodiff, **CALLS[call])

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def program(x, dy):
        pools = {ties: jax.vjp(functools.partial(f, ties=ties), x) for ties in TIES}
        return {ties: (y, pullback(dy)[0]) for ties, (y, pullback) in pools.items()}

    rng = np.random.default_rng(0)
    for values in ("ties", "ties", "special", "lowest", "normal"):
        x = draw_values(rng, SHAPE, np.float32, values, greatest=name == "min")
        wanted = {ties: getattr(oracle, name)(x, **CALLS[call], ties=ties) for ties in TIES}
        dy = draw_values(rng, wanted["split"].y.shape, np.float32, "normal")
        for ties, (y, dx) in program(x, dy).items():
            want = wanted[ties]
            assert_close(y, want.y, 0, f"value of {x} with {ties}")
            bound = 1e-6 * np.abs(dy).max()
            assert_close(dx, want.cotangents(dy)[0], bound, f"cotangent of {x} with {ties}")


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("kind", ["max", "min"])
def test_full_window_pool_equals_reduction(kind, ties):
    axes, window = (2, 0), (SHAPE[2], SHAPE[0])
    reduction = functools.partial(getattr(jaxpool, kind), axis=axes, keepdims=True)
    pool = functools.partial(getattr(jaxpool, f"{kind}_pool"), window_shape=window, axes=axes)
    both = [value_and_cotangent_program(f, ties=ties) for f in (reduction, pool)]
    rng = np.random.default_rng(2)
    for values in ("ties", "special", "lowest"):
        x = draw_values(rng, SHAPE, np.float32, values)
        dy = draw_values(rng, (1, SHAPE[1], 1), np.float32, "normal")
        (y, dx), (want, expected) = (f(x, dy) for f in both)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_allclose(dx, expected, rtol=1e-6)


DTYPES = [
    *[np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32],
    *[jnp.bfloat16, np.float16, np.float32],
    *[getattr(jnp, name) for name in dir(jnp) if name.startswith("float8_")],
]
QUICK_DTYPES = [np.bool_, np.int8, jnp.bfloat16, jnp.float8_e4m3fn]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in ("max", "min") for dtype in QUICK_DTYPES]
    + [slow("max", dtype) for dtype in DTYPES if dtype not in QUICK_DTYPES],
    ids=lambda value: value if isinstance(value, str) else np.dtype(value).name,
)
def test_dtypes(name, dtype):
    options = {"axis": (1, 2), "where": np.arange(20).reshape(5, 4) % 3 > 0}
    options["initial"] = name == "min" if dtype == np.bool_ else 1
    floating = jnp.issubdtype(dtype, jnp.floating)
    f = functools.partial(getattr(jaxpool, name), **options)
    program = value_and_cotangent_program(f) if floating else jax.jit(lambda x, dy: (f(x), None))
    rng = np.random.default_rng(4)
    for values in ("ties", "special", "lowest"):
        x = draw_values(rng, SHAPE, dtype, values, greatest=name == "min")
        dy = draw_values(rng, SHAPE[:1], dtype, "ties")
        want = getattr(oracle, name)(x, **options)
        y, dx = program(x, dy)
        assert_close(y, want.y, 0, f"value of {x}")
        if floating:
            bound = float(jnp.finfo(dtype).eps) * np.abs(np.float32(dy)).max()
            assert_close(dx, want.cotangents(dy)[0], bound, f"cotangent of {x}")


def test_64_bit_dtypes(x64):
    for dtype in (np.int64, np.uint64, np.float64):
        x = draw_values(np.random.default_rng(5), SHAPE, dtype, "lowest")
        y = jaxpool.max(x, 1)
        assert_close(y, oracle.max(x, 1).y, 0, "value")
    assert gradient_of_sum(lambda x: jaxpool.max(x, 1), x, np.float64).dtype == np.float64


@pytest.mark.parametrize("autodiff", MODES)
def test_nan_infinity_and_zero_examples(autodiff):
    f = functools.partial(jaxpool.max, autodiff=autodiff)
    first, last = (functools.partial(f, ties=ties) for ties in ("first", "last"))
    np.testing.assert_array_equal(gradient_of_sum(f, [1, nan, 2, nan]), [0, 0.5, 0, 0.5])
    np.testing.assert_array_equal(gradient_of_sum(first, [1, nan, 2, nan]), [0, 1, 0, 0])
    np.testing.assert_array_equal(gradient_of_sum(last, [1, nan, 2, nan]), [0, 0, 0, 1])
    np.testing.assert_array_equal(gradient_of_sum(f, [-inf, -inf]), [0.5, 0.5])
    np.testing.assert_array_equal(gradient_of_sum(last, [-inf, -inf]), [0, 1])
    np.testing.assert_array_equal(gradient_of_sum(f, [0.0, -0.0, -1]), [0.5, 0.5, 0])
    np.testing.assert_array_equal(
        gradient_of_sum(functools.partial(jaxpool.min, autodiff=autodiff), [nan, inf]), [1, 0]
    )
    assert np.isnan(f(np.float32([inf, nan])))
    assert gradient_of_sum(f, 3.0) == 1  # a scalar has no axes


def test_gradient_of_initial():
    def f(x, initial, **options):
        return jaxpool.max(x, initial=initial, **options)

    x = np.float32([1, 3, 3])
    for initial, want in [(3.0, ([0, 0.5, 0.5], 0)), (4.0, ([0, 0, 0], 1)), (nan, ([0, 0, 0], 1))]:
        dx, d_initial = jax.grad(f, (0, 1))(x, np.float32(initial))
        np.testing.assert_array_equal(dx, want[0])
        assert d_initial == want[1]
        tangent = jax.jvp(functools.partial(f, autodiff="jvp"), (x, initial), (x, 7.0))[1]
        assert tangent == (7 if want[1] else 3)
    nans = np.float32([nan, 1])
    np.testing.assert_array_equal(jax.grad(f)(nans, nan), [1, 0])
    assert jaxpool.max(np.arange(3), initial=np.int8(5)).dtype == jnp.arange(3).dtype


def test_fully_masked_rows_give_initial_and_zero_gradient():
    where = np.array([[True, False], [False, False]])
    x = np.float32([[-inf, 9], [8, 7]])
    for kind, initial in [("max", -inf), ("min", inf)]:
        for ties in TIES:
            f = functools.partial(getattr(jaxpool, kind), axis=1, where=where, ties=ties)
            y, dx = value_and_cotangent_program(f, initial=initial)(x, np.ones(2, np.float32))
            np.testing.assert_array_equal(y, [-inf, initial])
            np.testing.assert_array_equal(dx, [[1, 0], [0, 0]])


def test_empty_axes():
    x = np.zeros((3, 0, 2), np.float32)
    assert jaxpool.max(x, 0).shape == (0, 2)
    np.testing.assert_array_equal(jaxpool.max(x, 1, initial=2), np.full((3, 2), 2))
    np.testing.assert_array_equal(jaxpool.min(x, initial=2, keepdims=True), [[[2]]])
    for ties in TIES:
        f = functools.partial(jaxpool.max, axis=(1, 2), initial=-inf, ties=ties)
        assert gradient_of_sum(f, x).shape == x.shape
        assert (
            gradient_of_sum(functools.partial(jaxpool.max, axis=0, ties=ties), x).shape == x.shape
        )


@pytest.mark.parametrize("ties", TIES)
def test_split_ties_at_axis_lengths_around_packing_blocks(ties):
    """Axis lengths with short and missing blocks of bits, and around the range of a byte."""
    rng = np.random.default_rng(6)
    for size in (1, 7, 9, 15, 256, 257):
        x = rng.integers(0, 3, (2, size)).astype(np.float32)
        want = oracle.max(x, 1, ties=ties).cotangent(np.ones(2, np.float32))
        got = gradient_of_sum(functools.partial(jaxpool.max, axis=1, ties=ties), x)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def residual_types(f, *xs):
    leaves = jax.tree.leaves(jax.eval_shape(lambda *xs: jax.vjp(f, *xs)[1], *xs))
    return [(leaf.shape, leaf.dtype.name) for leaf in leaves]


@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("jit", [False, True])
def test_residual_shapes_and_dtypes(jit, autodiff):
    def f(axis, **options):
        f = functools.partial(jaxpool.max, axis=axis, autodiff=autodiff, **options)
        return jax.jit(f) if jit else f

    x = np.zeros((2, 16, 16), np.float32)
    long = np.zeros((2, 16, 17), np.float32)
    assert residual_types(f((1, 2), ties="first"), x) == [((2, 1, 1), "uint8")]
    assert residual_types(f((1, 2), ties="last"), long) == [((2, 1, 1), "uint16")]
    assert residual_types(f((1, 2)), x) == [
        ((2, 16, 16), "float32"),
        ((2, 1, 1), "float32"),
    ]  # x and y
    assert residual_types(f(1), long) == [((2, 16, 17), "float32"), ((2, 1, 17), "float32")]
    masked = f((1, 2), ties="first", where=np.ones((16, 16), bool), initial=0)
    arrays = [(shape, dtype) for shape, dtype in residual_types(masked, x) if shape]
    assert sorted(arrays) == [((2,), "uint8"), ((2, 1, 1), "uint16")]


@pytest.mark.parametrize("call", ["one", "where"])
@pytest.mark.parametrize("autodiff", MODES)
@pytest.mark.parametrize("ties", TIES)
def test_backward_pass_has_no_scatter_loop_or_sort(ties, autodiff, call):
    f = functools.partial(jaxpool.max, **CALLS[call], ties=ties, autodiff=autodiff)
    program = jax.jit(jax.grad(lambda x: (f(x) ** 2).sum())).lower(np.ones(SHAPE, np.float32))
    operations = set(re.findall(r"stablehlo\.(\w+)", program.as_text()))
    assert "reduce" in operations
    assert not [name for name in operations if re.search("scatter|while|sort", name)]
    if ties == "split":  # other tie rules gather the value at its index, one element per output
        assert "gather" not in operations


@pytest.mark.parametrize("ties", TIES)
def test_symbolic_sizes_of_unreduced_axes(ties):
    f = jax.jit(jax.grad(lambda x: jaxpool.max(x, (1, 2), ties=ties).sum()))
    batch, channels = jax.export.symbolic_shape("b, c")
    shape = jax.ShapeDtypeStruct((batch, 4, 3, channels), np.float32)
    exported = jax.export.export(f)(shape)
    x = np.random.default_rng(8).integers(0, 3, (2, 4, 3, 5)).astype(np.float32)
    np.testing.assert_array_equal(exported.call(x), f(x))


def test_split_cotangent_rounded_once():
    """Shares of 1/3 in bfloat16. The tangent of 600 ones is 1; a bfloat16 sum would stop at 256."""
    x = jnp.zeros(3, jnp.bfloat16)
    want = np.full(3, 1 / 3, np.float32).astype(jnp.bfloat16)
    np.testing.assert_array_equal(jax.grad(jaxpool.max)(x), want)
    ones = jnp.ones(600, jnp.bfloat16)
    f = functools.partial(jaxpool.max, autodiff="jvp")
    assert jax.jvp(f, (ones,), (ones,))[1] == 1


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(("groups", "axis"), [(2, -1), (4, 2), (5, 1), (1, 1), (3, 0)])
def test_maxout_matches_the_oracle(groups, axis, ties):
    f = functools.partial(jaxpool.maxout, groups=groups, axis=axis, ties=ties)
    program = value_and_cotangent_program(f)
    rng = np.random.default_rng(9)
    for values in ("ties", "special"):
        x = draw_values(rng, SHAPE, np.float32, values)
        want = oracle.maxout(x, groups, axis=axis, ties=ties)
        dy = draw_values(rng, want.y.shape, np.float32, "normal")
        y, dx = program(x, dy)
        assert_close(y, want.y, 0, "value")
        assert_close(dx, want.cotangent(dy), 1e-6, "cotangent")


def test_maxout_forward_mode_and_bools():
    x = np.float32([[1, 1, 2, 0]])
    tangent = jax.jvp(lambda x: jaxpool.maxout(x, 2), (x,), (np.float32([[4, 2, 3, 9]]),))[1]
    np.testing.assert_array_equal(tangent, [[3, 3]])
    np.testing.assert_array_equal(jaxpool.maxout(x > 1, 2), [[False, True]])


def test_fully_masked_float8_e8m0fnu_gives_initial():
    x = jnp.full((2,), 4, jnp.float8_e8m0fnu)
    y = jaxpool.min(x, where=jnp.zeros((2,), bool), initial=2.0)
    assert (y.dtype, float(y)) == (x.dtype, 2.0)


@pytest.mark.parametrize("initial", [0, 1, False, True, np.int32(1)])
def test_initial_of_bools(initial):
    bools = np.array([[True, False], [False, False]])
    for ours, twin in ((jaxpool.max, jnp.max), (jaxpool.min, jnp.min)):
        y = ours(bools, axis=1, initial=initial)
        assert y.dtype == bool
        np.testing.assert_array_equal(y, twin(bools, axis=1, initial=initial))
    with pytest.raises(
        ValueError, match="`initial` must be a number that bool holds; got initial=2"
    ):
        jaxpool.max(bools, initial=2)
