"""Cases that PyTorch gets wrong or decides differently, with the result of jaxpool: one test for each difference.

In all other cases of `tests/compat/test_torch.py`, values, indices and gradients agree. Pools with `ties="last"` select
PyTorch's NaN, and `fmax` with `ties="first"` has PyTorch's ties.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._api.random import make_fractional_op
from jaxpool._ops.op import value_and_residual
from jaxpool.compat import torch as compat_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")
F = torch.nn.functional

nan, inf = np.nan, np.inf
NAN_INPUT = [nan, 5.0, nan, 1.0]


def jax_value_and_grads(f, *values, dtype=np.float32):
    """Value and gradients of the sum, as lists."""
    xs = [jnp.asarray(np.array(value), dtype) for value in values]
    y, pullback = jax.vjp(f, *xs)
    return [np.float32(a).ravel().tolist() for a in (y, *pullback(jnp.ones_like(y)))]


def torch_value_and_grads(f, *values, dtype=torch.float32):
    xs = [torch.tensor(value, dtype=dtype, requires_grad=True) for value in values]
    y = f(*xs)
    y.sum().backward()
    return [a.detach().float().ravel().tolist() for a in (y, *[x.grad for x in xs])]


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


def fractional_pool(ties):
    op = make_fractional_op((1, 4), (1, 4), (1, 1), (0, 1))
    op = dataclasses.replace(op, ties=ties)
    samples = np.zeros((2, 1, 1), np.float32)
    return lambda x: value_and_residual(op, x[None], *samples)[0]


def torch_fractional_pool(x):
    samples = torch.zeros(1, 1, 2)
    return F.fractional_max_pool2d(x[None, None, None], (1, 4), (1, 1), _random_samples=samples)


MAX_POOLS = {  # in PyTorch, and in jaxpool by `ties`
    "max_pool": (
        lambda x: F.max_pool1d(x[None], 4),
        lambda ties: vector_pool(jaxpool.max_pool, window_shape=(4,), ties=ties),
    ),
    "adaptive_max_pool": (
        lambda x: F.adaptive_max_pool1d(x[None], 1),
        lambda ties: vector_pool(jaxpool.adaptive_max_pool, output_shape=(1,), ties=ties),
    ),
    "fractional_max_pool": (torch_fractional_pool, fractional_pool),
}


@pytest.mark.parametrize("name", MAX_POOLS)
def test_max_pools_select_the_last_nan(name):
    """jaxpool treats NaN like any tie, by `ties`."""
    original, pool = MAX_POOLS[name]
    last, first, tie = [[nan], [0, 0, 1, 0]], [[nan], [1, 0, 0, 0]], [[5], [0, 1, 0, 0]]
    check(original, [pool("first")], NAN_INPUT, theirs=last, ours=first)
    check(original, [pool("last")], NAN_INPUT, theirs=last, ours=last)
    check(original, [pool("first")], [2.0, 5.0, 5.0, 1.0], theirs=tie, ours=tie)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_maximum_with_nan_doubles_the_cotangent(name):
    """jaxpool gives the cotangent to the NaN, or half to each of two NaNs."""
    functions = [
        getattr(jaxpool, name),
        getattr(compat_torch, name),
        getattr(compat_torch, name[:3]),
    ]
    theirs, ours = [[nan] * 3, [1, 1, 1], [1, 1, 1]], [[nan] * 3, [1, 0, 0.5], [0, 1, 0.5]]
    operands = [nan, 1.0, nan], [1.0, nan, nan]
    check(getattr(torch, name), functions, *operands, theirs=theirs, ours=ours)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_amax_with_nan_has_an_all_nan_gradient(name):
    """In jaxpool the NaNs share the cotangent, as in `torch.max` without an axis."""
    original = functools.partial(getattr(torch, name), dim=0)
    drop_in = functools.partial(getattr(compat_torch, name), dim=0)
    shared = [[nan], [0.5, 0, 0.5, 0]]
    functions = [functools.partial(getattr(jaxpool, name[1:]), axis=0), drop_in]
    check(original, functions, NAN_INPUT, theirs=[[nan], [nan] * 4], ours=shared)
    check(torch.max, [], NAN_INPUT, theirs=shared, ours=None)


@pytest.mark.parametrize("name", ["fmax", "fmin"])
def test_fmax_gives_tied_cotangent_to_the_first_operand(name):
    """jaxpool splits a tie, unless `ties="first"`."""
    operands, f = ([2.0, nan, nan], [2.0, nan, 1.0]), getattr(jaxpool, name)
    first, split = [[2, nan, 1], [1, 1, 0], [0, 0, 1]], [[2, nan, 1], [0.5, 0.5, 0], [0.5, 0.5, 1]]
    by_first = functools.partial(f, ties="first")
    check(getattr(torch, name), [by_first], *operands, theirs=first, ours=first)
    check(getattr(torch, name), [f], *operands, theirs=first, ours=split)


def lp_pairs(p, **options):
    return vector_pool(jaxpool.lp_pool, p=p, window_shape=(2,), strides=(2,), **options)


def torch_lp_pairs(p, **options):
    return lambda x: F.lp_pool1d(x[None], p, 2, **options)


def test_lp_pool_uses_signed_powers():
    """PyTorch gives NaN for a negative sum. jaxpool takes |x|, as ONNX does."""
    x, root = [-3.0, 1.0], 28 ** (1 / 3)
    ours = [[root], [-9 / root**2, 1 / root**2]]
    check(torch_lp_pairs(3), [lp_pairs(3)], x, theirs=[[nan], [nan, nan]], ours=ours)
    check(torch_lp_pairs(1), [lp_pairs(1)], x, theirs=[[-2], [1, 1]], ours=[[4], [-1, 1]])


def test_lp_pool_rescales_incomplete_windows():
    """jaxpool does not scale an incomplete window."""
    original = torch_lp_pairs(2, ceil_mode=True)
    functions = [lp_pairs(2, ceil_mode=True)]
    functions += [lambda x: compat_torch.lp_pool1d(x[None], 2, 2, None, True)]
    theirs, ours = [[5, 50**0.5], [0.6, 0.8, 2**0.5]], [[5, 5], [0.6, 0.8, 1]]
    check(original, functions, [3.0, 4.0, 5.0], theirs=theirs, ours=ours)


def test_lp_pool_overflows_and_has_nan_gradient_at_zero():
    """jaxpool stays finite."""
    overflow, large = [[inf], [0, 0]], [[5e30], [0.6, 0.8]]
    check(torch_lp_pairs(2), [lp_pairs(2)], [3e30, 4e30], theirs=overflow, ours=large)
    theirs, ours = [[4], [nan, 1]], [[4], [0, 1]]
    absolute = torch_lp_pairs(0.5)
    check(lambda x: absolute(x.abs()), [lp_pairs(0.5)], [0.0, 4.0], theirs=theirs, ours=ours)


def test_overlapping_cotangents_stop_at_256_in_bfloat16():
    """600 windows cover the middle element. jaxpool adds in float32."""
    x = np.zeros(1199, np.float32)
    x[599] = 1
    half = {"dtype": torch.bfloat16}
    assert torch_value_and_grads(lambda x: F.max_pool1d(x[None], 600, 1), x, **half)[1][599] == 256
    assert torch_value_and_grads(lambda x: F.avg_pool1d(x[None], 600, 1), x, **half)[1][599] == 0.5
    for pool, want in [(jaxpool.max_pool, 600), (jaxpool.avg_pool, 1)]:
        f = jax.jit(vector_pool(pool, window_shape=(600,)))
        assert jax_value_and_grads(f, x, dtype=jnp.bfloat16)[1][599] == want


def test_window_of_only_padding():
    """Dilation 3 over two elements: PyTorch returns -inf with an index out of range, jaxpool raises."""
    x = np.array([[1.0], [2.0]], np.float32)
    y, index = F.max_pool1d(torch.tensor(x.T), 2, 1, 1, 3, return_indices=True)
    assert (y.item(), index.item()) == (-inf, 2)
    with pytest.raises(ValueError, match="every window holds a real element"):
        jaxpool.max_pool_with_argmax(x, (2,), 1, 1, window_dilation=3)


def test_3d_calls_that_raise_in_pytorch():
    """The maximum number of fractional windows, and an average with a window larger than the unpadded input."""
    with pytest.raises(RuntimeError, match="too large"):
        F.fractional_max_pool3d(torch.zeros(1, 1, 4, 4, 4), 1, 4)
    x = np.arange(64.0, dtype=np.float32).reshape(4, 4, 4, 1)
    y = jaxpool.fractional_max_pool(jax.random.key(0), x, 1, (4, 4, 4))
    np.testing.assert_array_equal(y, x)
    with pytest.raises(RuntimeError, match="smaller than kernel"):
        F.avg_pool3d(torch.zeros(1, 1, 2, 2, 2), 3, 1, 1)
    ones = np.ones((2, 2, 2, 1), np.float32)
    y = jaxpool.avg_pool(ones, (3, 3, 3), padding=1, count_include_pad=False)
    np.testing.assert_array_equal(y, ones)


def test_max_unpool_gradient_of_colliding_indices():
    """The value is PyTorch's on CPU: the last in row-major order wins. PyTorch's gradient is not its derivative."""
    y, indices = np.array([1.0, 2.0, 3.0], np.float32), np.array([0, 0, 1])
    x = torch.tensor(y, requires_grad=True)
    want = F.max_unpool1d(x[None], torch.tensor(indices)[None], 2, output_size=(6,))
    want.sum().backward()
    unpooled = functools.partial(
        compat_torch.max_unpool1d, indices=indices[None], kernel_size=2, output_size=(6,)
    )
    got, pullback = jax.vjp(unpooled, y[None])
    np.testing.assert_array_equal(got, want.detach())
    np.testing.assert_array_equal(got[0], [2, 3, 0, 0, 0, 0])
    np.testing.assert_array_equal(x.grad, [1, 1, 1])
    np.testing.assert_array_equal(pullback(np.ones_like(got))[0][0], [0, 1, 1])
