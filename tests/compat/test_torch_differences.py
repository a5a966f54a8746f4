"""Cases that PyTorch gets wrong or decides differently, with the result of jaxpool, and cases without a PyTorch result.

In all other cases of `test_torch.py`, values, indices and gradients agree. Pools with `ties="last"` select PyTorch's
NaN, and `fmax` with `ties="first"` has PyTorch's ties.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.compat import torch as compat_torch
from tests.support.compat_cases import to_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")
F = torch.nn.functional

nan, inf = np.nan, np.inf
NAN_INPUT = [nan, 5.0, nan, 1.0]
X = np.sin(np.arange(2 * 3 * 6 * 8.0, dtype=np.float32)).reshape(2, 3, 6, 8)


def jax_value_and_grads(f, *values):
    """Value and gradients of the sum, as lists."""
    xs = [jnp.asarray(np.array(value), np.float32) for value in values]
    y, pullback = jax.vjp(f, *xs)
    return [np.float32(a).ravel().tolist() for a in (y, *pullback(jnp.ones_like(y)))]


def torch_value_and_grads(f, *values):
    xs = [torch.tensor(value, requires_grad=True) for value in values]
    y = f(*xs)
    y.sum().backward()
    return [a.detach().ravel().tolist() for a in (y, *[x.grad for x in xs])]


def check(original, functions, *values, theirs, ours):
    """Compare values and gradients of PyTorch's function, and of each function of jaxpool."""
    results = [(torch_value_and_grads(original, *values), theirs)]
    results += [(jax_value_and_grads(function, *values), ours) for function in functions]
    for got, wanted in results:
        for each, want in zip(got, wanted, strict=True):
            np.testing.assert_allclose(each, want, rtol=1e-6)


def vector_pool(pool, **options):
    """`pool` as a function of a vector, with one channel added."""
    return lambda x: pool(x[:, None], **options)


MAX_POOLS = {  # in PyTorch, and in jaxpool by `ties`
    "max_pool": (
        lambda x: F.max_pool1d(x[None], 4),
        lambda ties: vector_pool(jaxpool.max_pool, window_shape=(4,), ties=ties),
    ),
    "adaptive_max_pool": (
        lambda x: F.adaptive_max_pool1d(x[None], 1),
        lambda ties: vector_pool(jaxpool.adaptive_max_pool, output_shape=(1,), ties=ties),
    ),
}


@pytest.mark.parametrize("name", MAX_POOLS)
def test_max_pools_select_the_last_nan(name):
    """jaxpool treats NaN like any tie, by `ties`."""
    original, pool = MAX_POOLS[name]
    last, first, tie = [[nan], [0, 0, 1, 0]], [[nan], [1, 0, 0, 0]], [[5], [0, 1, 0, 0]]
    check(original, [pool("first")], NAN_INPUT, theirs=last, ours=first)
    check(original, [pool("last")], NAN_INPUT, theirs=last, ours=last)
    check(original, [pool("first")], [2.0, 5.0, 5.0, 1.0], theirs=tie, ours=tie)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_maxima_and_minima(kind):
    maximum, fmax, amax = f"{kind}imum", f"f{kind}", f"a{kind}"

    # With a NaN, PyTorch doubles the cotangent. jaxpool gives it to the NaN, or half to each of two NaNs.
    functions = [getattr(jaxpool, maximum)]
    functions += [getattr(compat_torch, name) for name in (maximum, kind)]
    theirs, ours = [[nan] * 3, [1, 1, 1], [1, 1, 1]], [[nan] * 3, [1, 0, 0.5], [0, 1, 0.5]]
    operands = [nan, 1.0, nan], [1.0, nan, nan]
    check(getattr(torch, maximum), functions, *operands, theirs=theirs, ours=ours)

    # Of tied operands, PyTorch's `fmax` selects the first. jaxpool splits a tie, unless `ties="first"`.
    operands, f = ([2.0, nan, nan], [2.0, nan, 1.0]), getattr(jaxpool, fmax)
    first, split = [[2, nan, 1], [1, 1, 0], [0, 0, 1]], [[2, nan, 1], [0.5, 0.5, 0], [0.5, 0.5, 1]]
    by_first = functools.partial(f, ties="first")
    check(getattr(torch, fmax), [by_first], *operands, theirs=first, ours=first)
    check(getattr(torch, fmax), [f], *operands, theirs=first, ours=split)

    # The whole gradient of PyTorch's `amax` is NaN. In jaxpool the NaNs share the cotangent, as in `torch.max(x)`.
    functions = [functools.partial(getattr(jaxpool, kind), axis=0)]
    functions += [functools.partial(getattr(compat_torch, amax), dim=0)]
    original, shared = functools.partial(getattr(torch, amax), dim=0), [[nan], [0.5, 0, 0.5, 0]]
    check(original, functions, NAN_INPUT, theirs=[[nan], [nan] * 4], ours=shared)
    check(getattr(torch, kind), [], NAN_INPUT, theirs=shared, ours=None)


def lp_pairs(p, **options):
    return vector_pool(jaxpool.lp_pool, p=p, window_shape=(2,), strides=(2,), **options)


def torch_lp_pairs(p, **options):
    return lambda x: F.lp_pool1d(x[None], p, 2, **options)


def test_lp_pools():
    # PyTorch gives NaN for a negative sum. jaxpool takes |x|, as ONNX does.
    x, root = [-3.0, 1.0], 28 ** (1 / 3)
    ours = [[root], [-9 / root**2, 1 / root**2]]
    check(torch_lp_pairs(3), [lp_pairs(3)], x, theirs=[[nan], [nan, nan]], ours=ours)
    check(torch_lp_pairs(1), [lp_pairs(1)], x, theirs=[[-2], [1, 1]], ours=[[4], [-1, 1]])

    # PyTorch scales an incomplete window up.
    functions = [lp_pairs(2, ceil_mode=True)]
    functions += [lambda x: compat_torch.lp_pool1d(x[None], 2, 2, None, True)]
    theirs, ours = [[5, 50**0.5], [0.6, 0.8, 2**0.5]], [[5, 5], [0.6, 0.8, 1]]
    original = torch_lp_pairs(2, ceil_mode=True)
    check(original, functions, [3.0, 4.0, 5.0], theirs=theirs, ours=ours)

    # PyTorch overflows, and has a NaN gradient at 0.
    overflow, large = [[inf], [0, 0]], [[5e30], [0.6, 0.8]]
    check(torch_lp_pairs(2), [lp_pairs(2)], [3e30, 4e30], theirs=overflow, ours=large)
    theirs, ours = [[4], [nan, 1]], [[4], [0, 1]]
    absolute = torch_lp_pairs(0.5)
    check(lambda x: absolute(x.abs()), [lp_pairs(0.5)], [0.0, 4.0], theirs=theirs, ours=ours)


def test_lp_pool_of_integers():
    """PyTorch rounds averages if the norm is an int."""
    x = np.int32([[3, 4, -5, 12]])
    got, want = compat_torch.lp_pool1d(x, 2.0, 2), F.lp_pool2d(to_torch(x)[None], 2.0, (1, 2))[0]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got.dtype == np.float32


def test_600_overlapping_cotangents_add_in_float32():
    """`tests/api/test_calls_against_oracle.py` tests maxima and sums."""
    x = torch.zeros(1, 1199, dtype=torch.bfloat16, requires_grad=True)
    F.avg_pool1d(x, 600, 1).sum().backward()
    assert x.grad[0, 599] == 0.5
    mean = jax.jit(jax.grad(lambda x: jaxpool.avg_pool(x, (600,)).sum()))
    assert mean(jnp.zeros((1199, 1), jnp.bfloat16))[599, 0] == 1


def test_window_of_only_padding():
    """A dilated window over few elements: `max_pool_with_argmax` raises, where PyTorch's index is out of range."""
    x = np.float32([[-2, -3]])
    want, index = F.max_pool1d(torch.tensor(x), 2, 1, 1, 3, return_indices=True)
    assert (want.item(), index.item()) == (-inf, 2)
    np.testing.assert_array_equal(compat_torch.max_pool1d(x, 2, 1, 1, 3), want)
    with pytest.raises(ValueError, match="every window holds a real element"):
        jaxpool.max_pool_with_argmax(x.T, (2,), 1, 1, window_dilation=3)


def test_unpool_index_dtypes():
    """PyTorch accepts int64 alone."""
    y, indices = compat_torch.max_pool2d(X, 2, return_indices=True)
    want = F.max_unpool2d(to_torch(y), to_torch(np.int64(indices)), 2)
    for dtype in (np.int32, np.uint8):
        x = compat_torch.max_unpool2d(y, indices.astype(dtype), 2)
        np.testing.assert_array_equal(x, want)


def test_fractional_pool_with_key():
    key = jax.random.key(0)
    for dtype in (jnp.float32, jnp.bfloat16):
        x = jnp.asarray(X).astype(dtype)
        y, indices = compat_torch.fractional_max_pool2d(x, 2, 3, return_indices=True, key=key)
        assert (y.dtype, y.shape) == (dtype, (2, 3, 3, 3))
        selected = jnp.take_along_axis(x.reshape(2, 3, -1), indices.reshape(2, 3, -1), 2)
        np.testing.assert_array_equal(selected.reshape(y.shape), y)
        np.testing.assert_array_equal(compat_torch.fractional_max_pool2d(x, 2, 3, key=key), y)


@pytest.mark.parametrize("rank", [2, 3])
def test_random_samples_have_no_gradient(rank):
    x = np.arange(4.0**rank, dtype=np.float32).reshape(1, 1, *(4,) * rank)
    samples = np.full((1, 1, rank), 0.5, np.float32)
    pool = getattr(compat_torch, f"fractional_max_pool{rank}d")

    def loss(x, samples):
        return pool(x, 2, (2,) * rank, _random_samples=samples).sum()

    dx, none = jax.grad(loss, argnums=(0, 1))(x, samples)
    assert dx.sum() == 2**rank
    np.testing.assert_array_equal(none, np.zeros_like(samples))


def test_logcumsumexp_of_large_and_infinite_values():
    """PyTorch's gradient takes logarithms of cotangents, and is NaN or loses terms here."""

    def both(*x):
        x = jnp.asarray(x, jnp.float32)
        y = compat_torch.logcumsumexp(x, 0)
        return y, jax.grad(lambda x: compat_torch.logcumsumexp(x, 0).sum())(x)

    y, dx = both(3e38, -3e38, 3e38, -inf)
    np.testing.assert_allclose(y, np.float32([3e38] * 4))
    np.testing.assert_allclose(dx, [3, 0, 1, 0])
    y, dx = both(-inf, -inf, 0, inf)
    np.testing.assert_array_equal(y, np.float32([-inf, -inf, 0, inf]))
    np.testing.assert_allclose(dx, [1.5, 0.5, 1, 1])
    y, dx = both(0, 1000, -1000, 999)
    np.testing.assert_allclose(y, np.float32([0, 1000, 1000, 1000 + np.log1p(np.exp(-1))]))
    np.testing.assert_allclose(dx, [1, 2 + 1 / (1 + np.exp(-1)), 0, 1 / (1 + np.e)], rtol=1e-5)


def test_logcumsumexp_of_a_long_axis():
    """Long enough for each kind of scan in the CPU plan."""
    x = np.random.default_rng(0).normal(size=(2, 70000)).astype(np.float32)
    y, dx = jax.value_and_grad(lambda x: compat_torch.logcumsumexp(x, 1).sum())(x)
    wide = x.astype(np.float64)
    want = np.logaddexp.accumulate(wide, 1)
    np.testing.assert_allclose(y, want.sum(), rtol=1e-5)
    share = np.cumsum(np.exp(-want)[:, ::-1], 1)[:, ::-1] * np.exp(wide)
    np.testing.assert_allclose(dx, share, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.ci
def test_logcumsumexp_hessian_matches_lax():
    x = np.sin(np.arange(5, dtype=np.float32))
    of = [
        jax.hessian(lambda x, f=f: (f(x) ** 2).sum())(x)
        for f in (lambda x: compat_torch.logcumsumexp(x, 0), jax.lax.cumlogsumexp)
    ]
    np.testing.assert_allclose(*of, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "second"), [("median", (nan, 0)), ("nanmedian", (4, 1))])
def test_median_selects_the_first_of_ties(name, second):
    x = np.float32([[2, 1, 2, 3, 2], [nan, 4, 1, 4, nan]])
    (values, indices), pullback = jax.vjp(lambda x: tuple(getattr(compat_torch, name)(x, 1)), x)
    np.testing.assert_array_equal(values, [2, second[0]])
    np.testing.assert_array_equal(indices, [0, second[1]])
    (dx,) = pullback((np.float32([5, 7]), np.zeros(2, jax.dtypes.float0)))
    np.testing.assert_array_equal(dx, [[5, 0, 0, 0, 0], np.where(np.arange(5) == second[1], 7, 0)])
