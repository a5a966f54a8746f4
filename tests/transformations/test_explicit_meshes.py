"""Operands of elementwise functions and masks with other shardings than x, on an explicit mesh of one device."""

import functools

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool


def on_explicit_mesh(f, xs, specs):
    """Return `f` of arrays on a mesh, each with the sharding of its spec, and the arrays."""
    mesh = jax.make_mesh((1, 1), ("i", "j"), (AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        given = [
            jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(xs, specs, strict=True)
        ]
        return jax.jit(f)(*given), given


@pytest.mark.parametrize("op", ["maximum", "minimum", "fmax", "fmin"])
@pytest.mark.parametrize("ties", ["split", "first"])
def test_broadcast_of_sharded_axis_of_size_one(op, ties):
    """An axis of size 1, sharded over one device, has a gradient. That of `jnp.broadcast_to` raises."""
    xs = np.arange(6, dtype=np.float32).reshape(3, 2), np.float32([[2], [3], [9]])
    specs = P(None, "i"), P(None, "i")

    def gradients(*xs):
        function = functools.partial(getattr(jaxpool, op), ties=ties)
        return jax.grad(lambda *xs: (function(*xs) ** 2).sum(), (0, 1))(*xs)

    got, given = on_explicit_mesh(gradients, xs, specs)
    for x, dx, want in zip(given, got, gradients(*xs), strict=True):
        assert dx.sharding.is_equivalent_to(x.sharding, 2)
        np.testing.assert_array_equal(dx, want)
    broadcast = jax.grad(lambda x, one: (jnp.broadcast_to(one, x.shape) ** 2).sum(), 1)
    with pytest.raises(ValueError, match="Expected cotangent type"):
        on_explicit_mesh(broadcast, xs, specs)


@pytest.mark.parametrize("op", ["maximum", "fmax"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_operands_with_different_shardings(op, dtype):
    """Scalars, replicated arrays, and arrays sharded along another axis are valid operands, as for jax's functions."""
    rng, function = np.random.default_rng(0), getattr(jaxpool, op)
    x, row = (jnp.asarray(rng.integers(-3, 4, shape), dtype) for shape in ((8, 3, 4), (3, 4)))
    xs = x, row, -x

    def loss(x, row, other):
        y = function(function(function(x, row), 0.5), other)
        return (y * y).astype(np.float32).sum()

    gradients = jax.grad(loss, (0, 1, 2))
    got, _ = on_explicit_mesh(gradients, xs, [P("i"), P(), P(None, None, "j")])
    for dx, want in zip(got, jax.jit(gradients)(*xs), strict=True):
        np.testing.assert_array_equal(dx, want)


@pytest.mark.parametrize("spec", [P("i"), P()], ids=str)
@pytest.mark.parametrize("of_mask", [P(None, "j"), P()], ids=str)
def test_masks_with_different_shardings(spec, of_mask):
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    mask = np.arange(24).reshape(4, 6) % 3 > 0
    gradient = jax.grad(lambda x, mask: jaxpool.max(x, axis=1, where=mask, initial=0.0).sum())
    got, _ = on_explicit_mesh(gradient, [x, mask], [spec, of_mask])
    np.testing.assert_array_equal(got, gradient(x, mask))
