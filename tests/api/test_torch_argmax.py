"""Max pooling with indices, unpooling and fractional pooling against PyTorch in float64.

Values, indices and gradients agree, except that PyTorch selects the last NaN of a window.
"""

import functools
import itertools

import jax
import numpy as np
import pytest

import jaxpool
from jaxpool._api.random import fractional_op
from jaxpool._ops.apply import apply_with_extra_args

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")

pytestmark = pytest.mark.usefixtures("strict", "x64")

ROUNDS = 25


def drawn(rng, shape, kind):
    if kind == "normal":
        return rng.standard_normal(shape)
    if kind == "ties":
        return rng.integers(-1, 2, shape).astype(np.float64)
    return np.where(rng.random(shape) < 0.7, -np.inf, rng.integers(-1, 2, shape))


def rounds(seed, shape):
    rng = np.random.default_rng(seed)
    for kind in itertools.islice(itertools.cycle(["normal", "ties", "lowest"]), ROUNDS):
        yield rng, drawn(rng, shape, kind)


def tensor(x):
    return torch.tensor(np.asarray(x))


POOLS = [
    # input shape, window, strides, padding, dilation, ceil_mode
    ((2, 2, 9), (3,), (2,), (1,), (1,), False),
    ((2, 2, 9), (2,), (3,), (0,), (2,), True),
    ((3, 10), (5,), (1,), (2,), (2,), False),
    ((2, 2, 6, 7), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((2, 2, 6, 7), (3, 2), (2, 3), (1, 1), (1, 1), True),
    ((2, 2, 6, 7), (3, 3), (1, 1), (1, 1), (1, 1), False),
    ((2, 6, 7), (2, 3), (1, 2), (1, 0), (3, 2), False),
    ((1, 1, 12, 11), (6, 5), (1, 2), (3, 2), (1, 2), True),
    ((2, 1, 4, 5, 6), (2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 2), False),
    ((2, 1, 4, 5, 6), (3, 2, 2), (2, 2, 3), (1, 0, 1), (1, 2, 1), True),
]


@pytest.mark.parametrize(("shape", "window", "strides", "padding", "dilation", "ceil_mode"), POOLS)
def test_max_pool_with_argmax(shape, window, strides, padding, dilation, ceil_mode):
    rank = len(window)

    @jax.jit
    def ours(x, dy):
        pool = functools.partial(
            jaxpool.max_pool_with_argmax,
            window_shape=window,
            strides=strides,
            padding=padding,
            window_dilation=dilation,
            ceil_mode=ceil_mode,
            axes=tuple(range(-rank, 0)),
        )
        y, pullback, indices = jax.vjp(pool, x, has_aux=True)
        return y, indices, pullback(dy)[0]

    pool = getattr(torch.nn.functional, f"max_pool{rank}d")
    for rng, x in rounds(0, shape):
        theirs = tensor(x).requires_grad_()
        y, indices = pool(
            theirs, window, strides, padding, dilation, ceil_mode, return_indices=True
        )
        dy = rng.standard_normal(y.shape)
        y.backward(tensor(dy))
        got = ours(x, dy)
        np.testing.assert_array_equal(got[0], y.detach().numpy())
        np.testing.assert_array_equal(got[1], indices.numpy())
        np.testing.assert_allclose(got[2], theirs.grad.numpy(), rtol=1e-13, atol=1e-13)


def test_a_window_with_nans_differs():
    x = np.array([[1.0, np.nan, 2.0, np.nan, 5.0]])
    _, theirs = torch.nn.functional.max_pool1d(tensor(x), 5, return_indices=True)
    first, last = (
        jaxpool.max_pool_with_argmax(x, (5,), axes=(1,), ties=ties)[1].item()
        for ties in ("first", "last")
    )
    assert (theirs.item(), first, last) == (3, 1, 3)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((2, 2, 4), (9,)), ((2, 2, 3, 4), (6, 8)), ((2, 3, 4), (5, 9)), ((1, 2, 2, 3, 2), (4, 6, 5))],
)
def test_max_unpool(shape, sizes):
    """Values with distinct indices; gradients with any indices, for elements that are not overwritten."""
    rank = len(sizes)
    axes = tuple(range(-rank, 0))
    lanes = shape[: len(shape) - rank]

    @jax.jit
    def ours(y, indices, dx):
        unpool = functools.partial(jaxpool.max_unpool, spatial_shape=sizes, axes=axes)
        x, pullback = jax.vjp(lambda y: unpool(y, indices), y)
        return x, pullback(dx)[0]

    unpool = getattr(torch.nn.functional, f"max_unpool{rank}d")
    count, taken = int(np.prod(sizes)), int(np.prod(shape[len(lanes) :]))
    for number, (rng, y) in enumerate(rounds(1, shape)):
        distinct = number % 2 == 0
        indices = np.stack(
            [
                rng.permutation(count)[:taken] if distinct else rng.integers(0, count, taken)
                for _ in np.ndindex(*lanes)
            ]
        ).reshape(shape)
        dx = rng.standard_normal((*lanes, *sizes))
        theirs = tensor(y).requires_grad_()
        x = unpool(theirs, tensor(indices), 2, output_size=sizes)
        x.backward(tensor(dx))
        got = ours(y, indices, dx)
        if distinct:
            np.testing.assert_array_equal(got[0], x.detach().numpy())
        rows = indices.reshape(-1, taken)
        last = [[place not in row[n + 1 :] for n, place in enumerate(row)] for row in rows]
        stays = np.array(last).reshape(shape)
        np.testing.assert_array_equal(got[1], np.where(stays, theirs.grad.numpy(), 0))


@pytest.mark.parametrize(
    ("shape", "window", "out"),
    [
        ((2, 3, 9, 7), (2, 3), (5, 4)),
        ((2, 3, 12, 12), (2, 2), (8, 7)),
        ((3, 6, 5), (3, 2), (1, 4)),
        ((2, 2, 6, 7, 5), (2, 3, 1), (3, 4, 4)),
    ],
)
def test_fractional_max_pool(shape, window, out):
    """PyTorch's random numbers start with the last axis in two dimensions."""
    rank = len(out)
    axes = tuple(range(len(shape) - rank, len(shape)))
    op = fractional_op(shape, window, out, axes)
    lanes = shape[: len(shape) - rank]
    batched = lanes if len(lanes) == 2 else (1, *lanes)

    @jax.jit
    def ours(x, samples, dy):
        y, pullback, residual = jax.vjp(
            lambda x: apply_with_extra_args(op, x, *samples), x, has_aux=True
        )
        return y, op.position(residual), pullback(dy)[0]

    pool = getattr(torch.nn.functional, f"fractional_max_pool{rank}d")
    for rng, x in rounds(2, shape):
        samples = rng.random((*batched, rank))
        theirs = tensor(x).requires_grad_()
        y, indices = pool(theirs, window, out, return_indices=True, _random_samples=tensor(samples))
        dy = rng.standard_normal(y.shape)
        y.backward(tensor(dy))
        order = samples[..., ::-1] if rank == 2 else samples
        by_axis = np.moveaxis(order, -1, 0).reshape(rank, *lanes, *[1] * rank)
        got = ours(x, by_axis, dy)
        np.testing.assert_array_equal(got[0], y.detach().numpy())
        np.testing.assert_array_equal(got[1], indices.numpy())
        np.testing.assert_allclose(got[2], theirs.grad.numpy(), rtol=1e-13, atol=1e-13)
