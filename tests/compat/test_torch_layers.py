"""The drop-ins for layers of `torch.nn`."""

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool.compat import torch as ours

torch = pytest.importorskip("torch")

LAYERS = [name for name in ours.__all__ if name[0].isupper()]
SIZES = {1: (7,), 2: (6, 7), 3: (4, 5, 4)}
FRACTIONAL_LAYERS = [name for name in LAYERS if name.startswith("Fractional")]
POOL_LAYERS = [name for name in LAYERS if not name.startswith(("Fractional", "MaxUnpool"))]


def parameters_of(cls):
    """The arguments of a class, without annotations."""
    parameters = inspect.signature(cls).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]


def random_arguments(name, count=3):
    """Random arguments for PyTorch's layer and ours."""
    rng = np.random.default_rng(sum(map(ord, name)))
    rank = int(name[-2])

    def ints(low, high):
        one = int(rng.integers(low, high))
        each = tuple(int(n) for n in rng.integers(low, high, rank))
        return each if rng.random() < 0.5 else one

    for i in range(count):
        flag = bool(i % 2)
        if name.startswith("Adaptive"):
            yield {"output_size": ints(1, 6)} | ({"return_indices": flag} if "Max" in name else {})
        # PyTorch's 1d layer takes only an int; incomplete windows differ
        elif name.startswith("LP"):
            size = 2 if rank == 1 else ints(2, 4)
            yield {"norm_type": (2, 3.0)[i % 2], "kernel_size": size}
        else:
            arguments = {"kernel_size": ints(2, 4), "padding": int(rng.integers(0, 2))}
            arguments |= {"ceil_mode": flag, "stride": None if flag else ints(1, 3)}
            if name.startswith("Avg"):
                arguments |= {"count_include_pad": i < 1}
                arguments |= {"divisor_override": 5 if i == 2 else None} if rank > 1 else {}
            else:
                arguments |= {"return_indices": i < 2, "dilation": ints(1, 2)}
            yield arguments


def to_numpy(result):
    results = result if isinstance(result, tuple) else (result,)
    return [np.asarray(one) for one in results]


def assert_close(got, want):
    for ours_, theirs in zip(to_numpy(got), to_numpy(want), strict=True):
        np.testing.assert_allclose(ours_, theirs, rtol=1e-5, atol=1e-6)


def test_all_pytorch_pooling_layers_exist():
    theirs = {name for name in dir(torch.nn) if "pool" in name.lower()}
    assert set(LAYERS) == {name for name in theirs if inspect.isclass(getattr(torch.nn, name))}


@pytest.mark.parametrize("name", LAYERS)
def test_signature(name):
    assert parameters_of(getattr(ours, name)) == parameters_of(getattr(torch.nn, name))


@pytest.mark.parametrize("name", POOL_LAYERS)
def test_against_pytorch(name):
    x = np.abs(np.random.default_rng(1).normal(size=(2, 2, *SIZES[int(name[-2])])))
    x = x.astype(np.float32)
    cases = list(random_arguments(name))
    layers = [getattr(ours, name)(**case) for case in cases]
    every = jax.jit(lambda x: [layer(x) for layer in layers])(x)
    for case, layer, got in zip(cases, layers, every, strict=True):
        theirs = getattr(torch.nn, name)(**case)
        assert_close(got, theirs(torch.from_numpy(x)))
        assert repr(layer) == repr(theirs)
        attributes = {
            field.name: getattr(theirs, field.name) for field in dataclasses.fields(layer)
        }
        assert attributes == {name: getattr(layer, name) for name in attributes}


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_unpooling(rank):
    x = np.random.default_rng(2).normal(size=(1, 2, *(4,) * rank)).astype(np.float32)
    pool, unpool = (f"{name}{rank}d" for name in ("MaxPool", "MaxUnpool"))
    y, indices = getattr(ours, pool)(2, return_indices=True)(x)
    theirs = getattr(torch.nn, unpool)(2)
    layer = getattr(ours, unpool)(2)
    assert repr(layer) == repr(theirs)
    tensors = torch.from_numpy(np.array(y)), torch.from_numpy(np.array(indices, np.int64))
    assert_close(layer(y, indices), theirs(*tensors))
    assert_close(layer(y, indices, x.shape[2:]), theirs(*tensors, x.shape[2:]))


@pytest.mark.parametrize("name", FRACTIONAL_LAYERS)
@pytest.mark.parametrize("size", [{"output_size": 2}, {"output_ratio": 0.6}])
def test_fractional_layers(name, size):
    rank = int(name[-2])
    x = np.random.default_rng(3).normal(size=(2, 2, *SIZES[rank])).astype(np.float32)
    samples = np.random.default_rng(4).random((2, 2, rank)).astype(np.float32)
    layer = getattr(ours, name)(2, **size, return_indices=True, _random_samples=samples)
    theirs = getattr(torch.nn, name)(
        2, **size, return_indices=True, _random_samples=torch.from_numpy(samples)
    )
    assert_close(layer(x), theirs(torch.from_numpy(x)))
    keyed = getattr(ours, name)(2, **size)
    assert keyed(x, key=jax.random.key(0)).shape == layer(x)[0].shape


def test_layers_are_frozen_and_hashable():
    assert ours.MaxPool2d(2) == ours.MaxPool2d(2, 2) != ours.MaxPool3d(2)
    assert hash(ours.MaxPool2d(2)) == hash(ours.MaxPool2d(2, 2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        ours.AvgPool1d(2).stride = 3
    x = jnp.arange(8.0).reshape(1, 2, 4)
    run = functools.partial(jax.jit, static_argnums=0)(lambda layer, x: layer(x))
    np.testing.assert_array_equal(run(ours.MaxPool2d(2), x), [[[5.0, 7.0]]])
