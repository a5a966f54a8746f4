"""Adaptive pools against PyTorch in float64: values, indices and gradients."""

import functools

import jax
import numpy as np
import pytest

import jaxpool

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.usefixtures("x64", "strict")

# Sizes of the pooled axes, and the number of windows along each axis.
GEOMETRIES = [
    ((10,), (4,)),
    ((7,), (7,)),
    ((5,), (11,)),
    ((1,), (3,)),
    ((67,), (2,)),
    ((200,), (3,)),
    ((7, 9), (3, 4)),
    ((6, 8), (3, 2)),
    ((3, 5), (7, 2)),
    ((6, 5), (1, 3)),
    ((4, 3), (None, 2)),
    ((4, 5, 3), (3, 2, 2)),
    ((2, 3, 4), (3, 3, 2)),
]
ROUNDS = 8


def drawn(shape, kind, rng):
    if kind == "ties":
        return rng.integers(-2, 3, shape).astype(np.float64)
    x = rng.standard_normal(shape)
    if kind == "infinities":
        x = rng.choice([-np.inf, -np.inf, 0.0, 1.0, np.inf], shape)
    return x


@functools.partial(jax.jit, static_argnames=("outputs", "kind"))
def ours(x, dy, outputs, kind):
    axes = tuple(range(2, x.ndim))
    if kind == "avg":
        pool = functools.partial(jaxpool.adaptive_avg_pool, output_shape=outputs, axes=axes)
        y, pullback = jax.vjp(pool, x)
        return y, None, pullback(dy)[0]
    pool = functools.partial(jaxpool.adaptive_max_pool_with_argmax, output_shape=outputs, axes=axes)
    y, pullback, indices = jax.vjp(pool, x, has_aux=True)
    return y, indices, pullback(dy)[0]


def theirs(x, dy, outputs, kind):
    function = getattr(torch.nn.functional, f"adaptive_{kind}_pool{len(outputs)}d")
    tensor = torch.tensor(x, requires_grad=True)
    # PyTorch's 1d functions take an int.
    size = outputs[0] if len(outputs) == 1 else outputs
    if kind == "avg":
        y, indices = function(tensor, size), None
    else:
        y, indices = function(tensor, size, return_indices=True)
    (dx,) = torch.autograd.grad(y, tensor, torch.tensor(dy))
    return y.detach().numpy(), None if indices is None else indices.numpy(), dx.numpy()


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(("sizes", "outputs"), GEOMETRIES)
def test_value_indices_and_gradient(sizes, outputs, kind):
    rng = np.random.default_rng(sum(sizes))
    kinds = ("ties", "normal", "infinities") if kind == "max" else ("ties", "normal")
    shape = (2, 3, *[m if n is None else n for m, n in zip(sizes, outputs, strict=True)])
    for number in range(ROUNDS):
        x = drawn((2, 3, *sizes), kinds[number % len(kinds)], rng)
        dy = rng.standard_normal(shape)
        y, indices, dx = ours(x, dy, outputs, kind)
        want_y, want_indices, want_dx = theirs(x, dy, outputs, kind)
        np.testing.assert_allclose(y, want_y, rtol=0 if kind == "max" else 1e-13, atol=1e-15)
        if kind == "max":
            np.testing.assert_array_equal(indices, want_indices)
        np.testing.assert_allclose(dx, want_dx, rtol=1e-13, atol=1e-14)


def test_pytorch_takes_the_last_nan_and_ours_the_one_that_ties_chooses():
    x = np.array([np.nan, 5.0, np.nan, 1.0, 2.0])[None, None]
    _, want, _ = theirs(x, np.ones((1, 1, 2)), (2,), "max")
    _, indices, _ = ours(x, np.ones((1, 1, 2)), (2,), "max")
    np.testing.assert_array_equal(want[0, 0], [2, 2])
    np.testing.assert_array_equal(indices[0, 0], [0, 2])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_drawn_geometries(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    sizes = tuple(int(size) for size in rng.integers(1, 14 - 3 * rank, rank))
    outputs = tuple(int(size) for size in rng.integers(1, 14 - 3 * rank, rank))
    test_value_indices_and_gradient(sizes, outputs, "max")
    test_value_indices_and_gradient(sizes, outputs, "avg")
