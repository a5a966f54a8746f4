"""`max`, `min` and `maxout`: axes, masks, initial values, dtypes, residuals and programs."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.testing import assert_close, draw_values, oracle
from tests.support.compilation import FAST_COMPILE
from tests.support.later import first_values

pytestmark = pytest.mark.usefixtures("strict")

MODES = ("vjp", "jvp")
TIES = ("split", "first", "last")
nan, inf = np.nan, np.inf
SHAPE = (3, 5, 4)
WHERE = {"axis": (1, 2), "where": np.arange(20).reshape(5, 4) % 3 > 0, "initial": 1}

CASES = [  # a function, its arguments and the dtype
    ("max", {}, "float32"),
    ("max", {"axis": 1}, "float32"),
    ("min", {"axis": -1, "keepdims": True}, "float32"),
    ("max", {"axis": (-1, 0)}, "float32"),
    ("max", {"axis": [0, 1], "keepdims": True}, "float32"),
    ("max", {"axis": ()}, "float32"),
    ("max", {"axis": 1, "initial": 0}, "float32"),
    ("max", {"axis": 1, "where": np.zeros((3, 1, 1), bool), "initial": 1}, "float32"),
    ("max", WHERE, "float32"),
    *[("min", WHERE, dtype) for dtype in ("bool", "int8", "bfloat16", "float8_e4m3fn")],
    ("maxout", {"groups": 4, "axis": 2}, "float32"),
    ("maxout", {"groups": 1, "axis": 1}, "float32"),
    ("maxout", {"groups": 3, "axis": 0}, "float32"),
]


@pytest.mark.parametrize("autodiff", first_values(1, MODES))
@pytest.mark.parametrize(("name", "options", "dtype"), CASES)
def test_value_and_cotangent(name, options, dtype, autodiff):
    mode = {} if name == "maxout" else {"autodiff": autodiff}
    floats = jnp.issubdtype(dtype, jnp.floating)

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def program(x, dy):
        found = {}
        for ties in TIES:
            f = functools.partial(getattr(jaxpool, name), ties=ties, **options, **mode)
            if floats:
                y, back = jax.vjp(f, x)
                found[ties] = y, back(dy)[0]
            else:
                found[ties] = f(x), None
        return found

    rng = np.random.default_rng(0)
    for values in ("ties", "special", "lowest", "normal"):
        x = draw_values(rng, SHAPE, dtype, values, greatest=name == "min")
        wanted = {ties: getattr(oracle, name)(x, **options, ties=ties) for ties in TIES}
        dy = draw_values(rng, wanted["split"].y.shape, dtype, "normal" if floats else "ties")
        for ties, (y, dx) in program(x, dy).items():
            assert_close(y, wanted[ties].y, 0, f"value of {x} with {ties}")
            if floats:
                eps = np.maximum(1e-6, float(jnp.finfo(dtype).eps))
                bound = eps * np.abs(np.float32(dy)).max()
                want = wanted[ties].cotangents(dy)[0]
                assert_close(dx, want, bound, f"cotangent of {x} with {ties}")


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
def test_64_bit_dtypes(dtype, x64):
    x = draw_values(np.random.default_rng(5), SHAPE, dtype, "lowest")
    assert_close(jaxpool.max(x, 1), oracle.max(x, 1).y, 0, "value")
    if dtype == np.float64:
        assert jax.grad(lambda x: jaxpool.max(x, 1).sum())(x).dtype == dtype


def test_scalars():
    assert jax.grad(jaxpool.max)(3.0) == 1


# Initial values


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


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(("name", "initial"), [("max", -inf), ("min", inf)])
def test_fully_masked_rows_give_initial_and_zero_gradient(name, initial, ties):
    where = np.array([[True, False], [False, False]])
    x = np.float32([[-inf, 9], [8, 7]])
    f = functools.partial(getattr(jaxpool, name), axis=1, where=where, initial=initial, ties=ties)
    y, back = jax.vjp(f, x)
    np.testing.assert_array_equal(y, [-inf, initial])
    np.testing.assert_array_equal(back(jnp.ones(2))[0], [[1, 0], [0, 0]])


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


@pytest.mark.parametrize("ties", TIES)
def test_empty_axes(ties):
    x = np.zeros((3, 0, 2), np.float32)
    np.testing.assert_array_equal(jaxpool.max(x, 1, initial=2), np.full((3, 2), 2))
    np.testing.assert_array_equal(jaxpool.min(x, initial=2, keepdims=True), [[[2]]])
    for options in ({"axis": 0}, {"axis": (1, 2), "initial": -inf}):
        dx = jax.grad(lambda x, o=options: jaxpool.max(x, **o, ties=ties).sum())(x)
        assert dx.shape == x.shape


# Residuals and programs


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("size", [1, 7, 9, 15, 256, 257])
def test_axis_lengths_around_packing_blocks(size, ties):
    """Axis lengths with short and missing blocks of bits, and around the range of a byte."""
    x = np.random.default_rng(6).integers(0, 3, (2, size)).astype(np.float32)
    dx = jax.grad(lambda x: jaxpool.max(x, 1, ties=ties).sum())(x)
    want = oracle.max(x, 1, ties=ties).cotangent(np.ones(2, np.float32))
    np.testing.assert_allclose(dx, want, rtol=1e-6)


@pytest.mark.parametrize("options", [{"axis": 1}, WHERE])
@pytest.mark.parametrize("ties", TIES)
def test_backward_pass_has_no_scatter_loop_or_sort(ties, options):
    f = functools.partial(jaxpool.max, **options, ties=ties)
    program = jax.jit(jax.grad(lambda x: (f(x) ** 2).sum())).lower(np.ones(SHAPE, np.float32))
    operations = " ".join(re.findall(r"stablehlo\.\w+", program.as_text()))
    assert "reduce" in operations
    assert not re.search("scatter|while|sort", operations)
    if ties == "split":  # other tie rules gather the value at its index, one element per output
        assert "gather" not in operations


def test_split_cotangent_rounded_once():
    """Shares of 1/3 in bfloat16. The tangent of 600 ones is 1; a bfloat16 sum would stop at 256."""
    x = jnp.zeros(3, jnp.bfloat16)
    want = np.full(3, 1 / 3, np.float32).astype(jnp.bfloat16)
    np.testing.assert_array_equal(jax.grad(jaxpool.max)(x), want)
    ones = jnp.ones(600, jnp.bfloat16)
    f = functools.partial(jaxpool.max, autodiff="jvp")
    assert jax.jvp(f, (ones,), (ones,))[1] == 1


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float8_e5m2, np.float32])
def test_initial_int_beyond_64_bits(dtype):
    """ml_dtypes does not convert such ints to its floats."""
    y = jaxpool.max(jnp.zeros(2, dtype), initial=2**15 if dtype == jnp.float8_e5m2 else 2**63)
    assert float(y) in (2.0**15, 2.0**63)
    assert jaxpool.max(jnp.zeros(2, dtype), initial=2**64) == jnp.asarray(2.0**64, dtype)
