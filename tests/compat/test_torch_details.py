"""The drop-ins for PyTorch: signatures, dtypes and documented differences."""

import functools
import inspect
import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.compat import torch as ours
from tests.support.compat_cases import to_torch, torch_function
from tests.support.compilation import FAST_COMPILE

torch = pytest.importorskip("torch")

F = torch.nn.functional
X = np.sin(np.arange(2 * 3 * 6 * 8.0, dtype=np.float32)).reshape(2, 3, 6, 8)


def signature_text(fn):
    """The text of a signature without annotations."""
    signature = inspect.signature(fn)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


MAX_POOL = "(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)"
AVG_POOL1D = "(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True)"
FRACTIONAL = (
    "(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, "
    "_random_samples=None, *, key=None)"
)
DOCUMENTED_SIGNATURES = {  # Python cannot inspect these functions of PyTorch
    "max_pool1d max_pool2d max_pool3d": MAX_POOL,
    "avg_pool1d": AVG_POOL1D,
    "avg_pool2d avg_pool3d": AVG_POOL1D[:-1] + ", divisor_override=None)",
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d": (
        "(input, output_size, return_indices=False)"
    ),
    "adaptive_avg_pool1d": "(input, output_size)",
    "fractional_max_pool2d fractional_max_pool3d": FRACTIONAL,
    "maximum minimum fmax fmin": "(input, other)",
    "amax amin": "(input, dim=(), keepdim=False)",
    "cummax cummin logcumsumexp": "(input, dim)",
}


@pytest.mark.parametrize("names", DOCUMENTED_SIGNATURES)
def test_documented_signature(names):
    for name in names.split():
        function = getattr(ours, name)
        assert signature_text(function) == DOCUMENTED_SIGNATURES[names]
        for parameter in {*inspect.signature(function).parameters} - {
            "input",
            "_random_samples",
            "key",
        }:
            assert parameter in torch_function(name).__doc__


INSPECTED = ["adaptive_avg_pool2d", "adaptive_avg_pool3d"]
INSPECTED += [f"{kind}{rank}d" for kind in ("lp_pool", "max_unpool") for rank in (1, 2, 3)]


@pytest.mark.parametrize("name", INSPECTED)
def test_signature(name):
    assert signature_text(getattr(ours, name)) == signature_text(torch_function(name))


def test_imports_are_lazy_and_need_no_pytorch():
    code = (
        "import sys, jaxpool; assert not any('jaxpool.compat' in name for name in sys.modules);"
        "import jaxpool.compat.torch; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("promotion", ["standard", "strict"])
def test_binary_dtype_promotion(promotion):
    names = ["bool", "int8", "uint8", "int32", "float16", "float32"]
    values = [np.ones(shape, name) for name in names for shape in ((2,), ())]
    with jax.numpy_dtype_promotion(promotion):
        for x, y in itertools.product(values, values):
            got, want = jax.eval_shape(ours.maximum, x, y), torch.maximum(to_torch(x), to_torch(y))
            assert str(got.dtype) == str(want.dtype).removeprefix("torch."), (x, y)


def test_cotangent_dtypes_match_operands():
    x, y = jnp.ones((2, 3), jnp.float16), jnp.zeros((3,), jnp.float32)
    dx, dy = jax.grad(lambda x, y: ours.maximum(x, y).sum(), (0, 1))(x, y)
    assert (dx.dtype, dx.shape) == (jnp.float16, (2, 3))
    assert (dy.dtype, dy.shape) == (jnp.float32, (3,))


def test_results_are_named_tuples():
    for name in ("max", "min", "cummax", "cummin"):
        result, want = getattr(ours, name)(X, 1), torch_function(name)(torch.from_numpy(X), 1)
        np.testing.assert_array_equal(result.values, want.values)
        np.testing.assert_array_equal(result.indices, want.indices)
    assert ours.aminmax(X)._fields == ("min", "max")
    assert isinstance(ours.max(X), jax.Array)
    np.testing.assert_array_equal(ours.max(X, other=-X), np.maximum(X, -X))
    np.testing.assert_array_equal(ours.max(jnp.asarray(X), jnp.asarray(-X)), np.maximum(X, -X))
    np.testing.assert_array_equal(ours.max(X, np.int64(1)).values, X.max(1))


FORWARD_MODE = {
    "max_pool2d": (2,),
    "avg_pool2d": (3, 2, 1),
    "lp_pool2d": (2, 2),
    "adaptive_max_pool2d": (4,),
    "adaptive_avg_pool2d": (4,),
    "amax": (1,),
    "max": (),
    "median": (),
    "nanmedian": (),
    "logcumsumexp": (1,),
}


@pytest.mark.parametrize("name", FORWARD_MODE)
def test_forward_mode_and_jit(name):
    """JVP and VJP, in one program, are transposes."""

    @functools.partial(jax.jit, compiler_options=FAST_COMPILE)
    def both(x, tangent):
        def pool(x):
            return getattr(ours, name)(x, *FORWARD_MODE[name])

        y, y_dot = jax.jvp(pool, (x,), (tangent,))
        dy = jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
        return (y_dot * dy).sum(), (jax.vjp(pool, x)[1](dy)[0] * tangent).sum()

    np.testing.assert_allclose(*both(jnp.asarray(X), np.cos(X)), rtol=1e-4)


def test_fractional_pool_needs_key():
    with pytest.raises(TypeError, match=r"jax\.random\.key"):
        ours.fractional_max_pool2d(X, 2, 3)
    key = jax.random.key(0)
    for dtype in (jnp.float32, jnp.bfloat16):
        x = jnp.asarray(X).astype(dtype)
        y, indices = ours.fractional_max_pool2d(x, 2, 3, return_indices=True, key=key)
        assert (y.dtype, y.shape) == (dtype, (2, 3, 3, 3))
        flat = x.reshape(2, 3, -1)
        selected = jnp.take_along_axis(flat, indices.reshape(2, 3, -1), 2).reshape(y.shape)
        np.testing.assert_array_equal(selected, y)
        np.testing.assert_array_equal(ours.fractional_max_pool2d(x, 2, 3, key=key), y)


def test_output_size_zero():
    for name, size in [("adaptive_max_pool2d", 0), ("adaptive_avg_pool2d", (0, 2))]:
        got, want = getattr(ours, name)(X, size), torch_function(name)(torch.from_numpy(X), size)
        assert got.shape == tuple(want.shape)
    y, indices = ours.adaptive_max_pool1d(X[0], 0, True)
    assert y.shape == indices.shape == (3, 6, 0)


def test_dilated_window_on_padding_only():
    x = np.full((1, 3), -2, np.float32)
    got = ours.max_pool1d(x, 2, 1, 1, 4)
    np.testing.assert_array_equal(got, F.max_pool1d(torch.from_numpy(x), 2, 1, 1, 4))
    np.testing.assert_array_equal(got, [[-np.inf]])


# Documented differences


def test_norms_of_integers():
    x = np.int32([[3, 4, -5, 12]])
    got, want = ours.lp_pool1d(x, 2.0, 2), F.lp_pool2d(torch.from_numpy(x)[None], 2.0, (1, 2))[0]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got.dtype == np.float32
    for refused_too in (x, x > 0):
        with pytest.raises(TypeError, match=r"norm_type=2\.0"):
            ours.lp_pool1d(refused_too, 2, 2)


def test_unpool_index_dtypes():
    y, indices = ours.max_pool2d(X, 2, return_indices=True)
    assert indices.dtype == np.int32
    for dtype in (np.int32, np.uint8):
        x = ours.max_unpool2d(y, indices.astype(dtype), 2)
        want = F.max_unpool2d(to_torch(y), torch.from_numpy(np.int64(indices)), 2)
        np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("rank", [2, 3])
def test_random_samples_have_no_gradient(rank):
    x = np.arange(4.0**rank, dtype=np.float32).reshape(1, 1, *(4,) * rank)
    samples = np.full((1, 1, rank), 0.5, np.float32)
    pool = getattr(ours, f"fractional_max_pool{rank}d")

    def loss(x, samples):
        return pool(x, 2, (2,) * rank, _random_samples=samples).sum()

    dx, none = jax.grad(loss, argnums=(0, 1))(x, samples)
    assert dx.sum() == 2**rank
    np.testing.assert_array_equal(none, np.zeros_like(samples))


@pytest.mark.parametrize(
    "name", ["max", "min", "amax", "amin", "cummax", "cummin", "median", "nanmedian"]
)
def test_numpy_argument_names_match_pytorch(name):
    x = np.array([[1, 3, 2], [5, 4, 6]], np.float32)
    for kwargs in ({"axis": 1}, {"axis": 1, "keepdims": True}, {"dim": 0, "keepdims": True}):
        pool = getattr(ours, name)
        try:
            want = getattr(torch, name)(torch.from_numpy(x), **kwargs)
        except TypeError:
            with pytest.raises(
                TypeError, match=f"jaxpool.compat.torch.{name}: there is no argument"
            ):
                pool(x, **kwargs)
            continue
        got = pool(x, **kwargs)
        got, want = ([got], [want]) if name in ("amax", "amin") else (got, want)
        for y, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(y, theirs.numpy())
    with pytest.raises(TypeError, match="`axis` must be missing where `dim` is given; got axis=1"):
        pool(x, axis=1, dim=1)


def test_logcumsumexp_of_large_and_infinite_values():
    """PyTorch's gradient takes logarithms of cotangents, and is NaN or loses terms here."""

    def both(*x):
        x = jnp.asarray(x, jnp.float32)
        return ours.logcumsumexp(x, 0), jax.grad(lambda x: ours.logcumsumexp(x, 0).sum())(x)

    inf = np.inf
    y, dx = both(3e38, -3e38, 3e38, -inf)
    np.testing.assert_allclose(y, np.float32([3e38] * 4))
    np.testing.assert_allclose(dx, [3, 0, 1, 0])
    y, dx = both(-inf, -inf, 0, inf)
    np.testing.assert_array_equal(y, np.float32([-inf, -inf, 0, inf]))
    np.testing.assert_allclose(dx, [1.5, 0.5, 1, 1])
    y, dx = both(0, 1000, -1000, 999)
    np.testing.assert_allclose(y, np.float32([0, 1000, 1000, 1000 + np.log1p(np.exp(-1))]))
    np.testing.assert_allclose(dx, [1, 2 + 1 / (1 + np.exp(-1)), 0, 1 / (1 + np.e)], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.ci
def test_logcumsumexp_hessian_matches_lax():
    x = np.sin(np.arange(5, dtype=np.float32))
    of = [
        jax.hessian(lambda x, f=f: (f(x) ** 2).sum())(x)
        for f in (lambda x: ours.logcumsumexp(x, 0), jax.lax.cumlogsumexp)
    ]
    np.testing.assert_allclose(*of, rtol=1e-4, atol=1e-5)


def test_logcumsumexp_of_a_long_axis():
    """Long enough for each kind of scan in the CPU plan."""
    x = np.random.default_rng(0).normal(size=(2, 70000)).astype(np.float32)
    y, dx = jax.value_and_grad(lambda x: ours.logcumsumexp(x, 1).sum())(x)
    wide = x.astype(np.float64)
    want = np.logaddexp.accumulate(wide, 1)
    np.testing.assert_allclose(y, want.sum(), rtol=1e-5)
    share = np.cumsum(np.exp(-want)[:, ::-1], 1)[:, ::-1] * np.exp(wide)
    np.testing.assert_allclose(dx, share, rtol=1e-4)


def test_median_of_long_int16_axis():
    x = np.random.default_rng(0).permutation(3001).astype(np.int16).reshape(1, 3001)
    for name in ("median", "nanmedian"):
        got, want = getattr(ours, name)(x, 1), getattr(torch, name)(to_torch(x), 1)
        for each, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(each, theirs)


@pytest.mark.parametrize(("name", "second"), [("median", (np.nan, 0)), ("nanmedian", (4, 1))])
def test_median_selects_the_first_of_ties(name, second):
    x = np.float32([[2, 1, 2, 3, 2], [np.nan, 4, 1, 4, np.nan]])
    (values, indices), pullback = jax.vjp(lambda x: tuple(getattr(ours, name)(x, 1)), x)
    np.testing.assert_array_equal(values, [2, second[0]])
    np.testing.assert_array_equal(indices, [0, second[1]])
    (dx,) = pullback((np.float32([5, 7]), np.zeros(2, jax.dtypes.float0)))
    np.testing.assert_array_equal(dx, [[5, 0, 0, 0, 0], np.where(np.arange(5) == second[1], 7, 0)])
