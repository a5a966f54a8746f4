"""Zeros of both signs tie. If there is a gradient, a selection returns the exact bits of the selected element."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.compat import torch
from jaxpool.testing import pools
from tests.support.compilation import FAST_COMPILE

RECORDS = pools()
KERNEL_SUMS = ("dilate", "erode")  # sums of an element and a kernel entry
SELECTIONS = [
    name
    for name, record in RECORDS.items()
    if record.ties and not record.marks and name not in KERNEL_SUMS
]


def signed_zeros(rng, shape):
    """Zeros of both signs, and some ones of both signs."""
    x = np.where(rng.random(shape) < 0.5, np.float32(-0.0), np.float32(0))
    return np.where(rng.random(shape) < 0.1, rng.choice([np.float32(-1), np.float32(1)]), x)


def make_selection(record, ties):
    """A function from operands to a flat output, and operands that are mostly zeros."""
    rng = np.random.default_rng(0)
    arguments = record.given(signed_zeros(rng, (1, 4, 4, 2)), ties=ties)
    leaves, tree = jax.tree.flatten({name: arguments.pop(name) for name in record.operands})
    operands = [signed_zeros(rng, np.shape(leaf)) for leaf in leaves]

    def function(*operands):
        y = record.run(arguments | jax.tree.unflatten(tree, operands))
        return (y[0] if isinstance(y, tuple) else y).ravel()

    return function, operands


def float_bits(x):
    return np.asarray(x, np.float32).view(np.int32)


@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize("name", SELECTIONS)
def test_value_has_the_bits_of_the_selected_element(name, ties):
    function, operands = make_selection(RECORDS[name], ties)

    def run(*operands):
        y, pullback = jax.vjp(function, *operands)
        rows = jax.vmap(pullback)(jnp.eye(y.size))
        return y, jnp.concatenate([row.reshape(y.size, -1) for row in rows], 1)

    y, rows = jax.jit(run, compiler_options=FAST_COMPILE)(*operands)
    chosen = np.asarray(rows) != 0
    np.testing.assert_array_equal(chosen.sum(1), 1)
    flat = np.concatenate([x.ravel() for x in operands])
    np.testing.assert_array_equal(float_bits(y), float_bits(flat[chosen.argmax(1)]))


@pytest.mark.parametrize("ties", ["first", "last"])
def test_windows_of_unequal_lengths(ties):
    """An adaptive pool whose windows are copied next to each other."""
    x = signed_zeros(np.random.default_rng(3), (1, 60, 3))
    y, index = jax.jit(lambda x: jaxpool.adaptive_max_pool_with_argmax(x, (7,), ties=ties))(x)
    np.testing.assert_array_equal(float_bits(y), float_bits(np.take_along_axis(x, index, 1)))


@pytest.mark.parametrize("values", [(-0.0, 1.0), (0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0, 0.0)])
@pytest.mark.parametrize("name", ["median", "nanmedian", "max", "min", "cummax", "cummin"])
def test_torch_drop_in_values_match_their_indices(name, values):
    x = np.array(values, np.float32)
    y, index = getattr(torch, name)(x, 0)
    np.testing.assert_array_equal(float_bits(y), float_bits(x[index]))


@pytest.mark.parametrize("reset", [None, np.arange(300) % 7 == 3], ids=["whole", "runs"])
@pytest.mark.parametrize("ties", ["first", "last"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["cummax_with_argmax", "cummin_with_argmax"])
def test_cumulative_values_match_their_indices(name, ties, reverse, reset):
    x = signed_zeros(np.random.default_rng(1), (3, 300))
    y, index = getattr(jaxpool, name)(x, ties=ties, reverse=reverse, reset=reset)
    np.testing.assert_array_equal(float_bits(y), float_bits(np.take_along_axis(x, index, 1)))


@pytest.mark.parametrize("ties", ["first", "last"])
def test_rank_pool_values_match_the_selected_elements(ties):
    x = signed_zeros(np.random.default_rng(2), (1, 90, 1))
    for window in ((41,), (90,)):
        y, pullback = jax.vjp(lambda x, w=window: jaxpool.rank_pool(x, 20, w, ties=ties), x)
        rows = jax.vmap(pullback)(jnp.eye(y.size).reshape(y.size, *y.shape))[0]
        chosen = np.asarray(rows).reshape(y.size, -1).argmax(1)
        np.testing.assert_array_equal(float_bits(y).ravel(), float_bits(x).ravel()[chosen])


def test_median_of_masked_window_is_positive_zero():
    x = np.full((1, 3, 1), -0.0, np.float32)
    y = jax.vjp(lambda x: jaxpool.median_pool(x, (3,), where=np.zeros((3, 1), bool)), x)[0]
    assert float_bits(y).ravel() == 0
