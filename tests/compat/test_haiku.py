"""The drop-ins for Haiku, compared with `haiku`."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.compat_cases import (
    assert_arrays_match,
    assert_same_error,
    compare,
    drawn_calls,
    function_call,
    geometries,
    ints,
    random_dtype,
)

hk = pytest.importorskip("haiku")

from jaxpool.compat import haiku as ours  # noqa: E402

X = jnp.arange(24.0).reshape(1, 4, 6, 1)
IGNORE_INT_WARNINGS = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def random_sizes(rng, ndim, greatest):
    """An int, or a tuple or list with an entry for some of the last axes."""
    if rng.random() < 0.4:
        return int(rng.integers(1, greatest + 1))
    sizes = ints(rng, rng.integers(1, ndim + 1), 1, greatest)
    return list(sizes) if rng.random() < 0.2 else sizes


def random_shape_and_args(rng):
    """A shape, and all arguments after the array."""
    ndim = int(rng.integers(2, 5))
    shape = ints(rng, ndim, 2, 6)
    axis = rng.choice([-1, -1, 1, 0, 1 - ndim, ndim - 1])
    args = (
        random_sizes(rng, ndim, 3),
        random_sizes(rng, ndim, 3),
        str(rng.choice(["SAME", "VALID"])),
        None if rng.random() < 0.2 else int(axis),
    )
    return shape, args


@IGNORE_INT_WARNINGS
@drawn_calls
@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_functions(name, calls):
    cases = []
    for rng in geometries(calls):
        options = {"exact": name == "max_pool", "dtype": random_dtype(rng, np.uint8)}
        cases.append(function_call(ours, hk, name, *random_shape_and_args(rng), **options))
    compare(cases)


@IGNORE_INT_WARNINGS
@pytest.mark.parametrize("name", ["MaxPool", "AvgPool"])
def test_modules(name):
    def net(module):
        def run(x):
            layer = getattr(module, name)(2, (2, 1, 1), padding="SAME", channel_axis=-1)
            named = getattr(module, name)((2, 1), 1, "VALID", name="named")
            assert isinstance(layer, hk.Module)
            assert isinstance(repr(layer), str)
            return named(layer(x)), layer.module_name, named.module_name

        return hk.transform(run)

    mine, original = net(ours), net(hk)
    assert mine.init(None, X) == original.init(None, X) == {}
    (y, *names), (want, *want_names) = (each.apply({}, None, X) for each in (mine, original))
    assert_arrays_match(y, want, 1e-6, name)
    assert names == want_names


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_int_sizes_warn_like_haiku(name):
    for module in (ours, hk):
        for sizes in [(2, (1, 1)), ((2, 1), 3)]:
            with pytest.warns(DeprecationWarning, match="vmap"):
                getattr(module, name)(X, *sizes, "SAME")
        getattr(module, name)(X, 1, (2, 1), "SAME")


@IGNORE_INT_WARNINGS
@pytest.mark.parametrize(
    ("value", "args"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], (2, 1, "SAME")),  # Haiku converts lists to arrays
        (np.float64([[1.0, 2.0], [3.0, 4.0]]), ((2,), (1,), "SAME")),
        (X, ((), (), "VALID")),
        (X, ((9, 9, 1), (1, 1, 1), "VALID")),  # larger than the input
        (X, (True, True, "SAME")),
        (jnp.zeros((0, 4, 1)), ((2, 1), (1, 1), "SAME")),
        (jnp.float32(3), (2, 2, "SAME")),
    ],
)
def test_unusual_arguments_match_haiku(value, args):
    for name in ("max_pool", "avg_pool"):
        try:
            want = getattr(hk, name)(value, *args)
        except Exception:
            assert_same_error(getattr(ours, name), getattr(hk, name), value, *args)
        else:
            assert_arrays_match(getattr(ours, name)(value, *args), want, 1e-6, name)


INVALID_ARGUMENTS = {
    "padding": ["same", ((0, 0), (0, 0)), None],
    "window_shape": [(1, 1, 1, 1, 1), (0, 1), 2.0, None],
    "strides": [-1, None],
    "value": [None, "image"],
}
INVALID_PAIRS = [
    {"strides": (0, 1), "padding": "VALID"},
    {"window_shape": 2, "channel_axis": 4},
    {"window_shape": 2, "channel_axis": -4},
]
INVALID_CALLS = INVALID_PAIRS + [
    {argument: value} for argument, values in INVALID_ARGUMENTS.items() for value in values
]


@IGNORE_INT_WARNINGS
@pytest.mark.parametrize("wrong", INVALID_CALLS, ids=str)
def test_invalid_arguments_raise_like_haiku(wrong):
    args = {"value": X, "window_shape": (2, 1), "strides": (1, 1), "padding": "SAME"} | wrong
    for name in ("max_pool", "avg_pool"):
        assert_same_error(getattr(ours, name), getattr(hk, name), **args)
