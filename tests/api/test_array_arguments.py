"""Arguments that are or hold arrays: raw PRNG keys, objects with `__jax_array__`, masked and big-endian arrays."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool._arguments.arrays import _raw_key_shape, is_prng_key
from jaxpool.testing import pools
from tests.support.junk import Wrapper

POOLS = pools()
IMPLS = ("threefry2x32", "rbg", "unsafe_rbg")
X = np.random.default_rng(0).uniform(0.5, 3, (2, 4, 6, 3)).astype(np.float32)
COEFFICIENTS = [(name, arg) for name, pool in POOLS.items() for arg in pool.coefficients]
CHANNELS = jnp.array([1.5, 2.0, 3.0])
RANDOM_POOLS = {
    name: lambda key, pool=pool: pool.run(pool.given(X) | {"key": key})
    for name, pool in POOLS.items()
    if pool.takes("key")
} | {
    name: lambda key, name=name: getattr(jaxpool.compat.torch, name)(X, 1, 2, key=key)
    for name in ("fractional_max_pool2d", "fractional_max_pool3d")
}
CALLS = {
    (name, kind): (POOLS[name], call)
    for name in POOLS
    for kind, call in POOLS[name].samples().items()
    if kind in ("small", "with where")
} | {
    (name, f"array {arg}"): (POOLS[name], POOLS[name].given(X, **{arg: np.asarray(CHANNELS)}))
    for name, arg in COEFFICIENTS
}
for _name in ("max", "min", "cummax", "cummin", "cummax_with_argmax", "cummin_with_argmax"):
    _pool = POOLS[_name]
    _mask = {"reset": X > 1, "where": X > 1, "initial": np.float32(0.5).reshape(())}
    CALLS[_name, "mask"] = _pool, _pool.given(X, **_mask)


def is_array(value):
    return isinstance(value, (np.ndarray, jax.Array))


def map_arrays(function, given):
    """The arguments `given` with `function(array)` in place of each array, also in tuples of arrays."""

    def convert(value):
        if isinstance(value, (tuple, list)) and value and all(map(is_array, value)):
            return type(value)(map(function, value))
        return function(value) if is_array(value) else value

    return {name: convert(value) for name, value in given.items()}


def programs(pool, given, convert):
    """The programs of a call, with `convert(array)` for each array: of NumPy arrays, and of traced arrays."""
    arrays = []
    map_arrays(arrays.append, given)

    def run(arrays):
        remaining = iter(arrays)
        return pool.run(map_arrays(lambda _: convert(next(remaining)), given))

    return str(jax.make_jaxpr(lambda: run(arrays))()), str(jax.make_jaxpr(run)(arrays))


@pytest.mark.parametrize("pool", RANDOM_POOLS)
def test_raw_keys_of_every_implementation_in_any_order(pool):
    for order in itertools.permutations(IMPLS):
        for impl in order:
            with jax.default_prng_impl(impl):
                key = jax.random.PRNGKey(7)
                shape = jax.eval_shape(RANDOM_POOLS[pool], key)
                assert shape == jax.eval_shape(RANDOM_POOLS[pool], jax.random.key(7))
                with pytest.raises(TypeError, match="`key` must be a PRNG key"):
                    RANDOM_POOLS[pool](jnp.zeros(6 - len(key), jnp.uint32))


def test_checks_of_raw_keys_trace_once_per_implementation(monkeypatch):
    keys = [jax.random.PRNGKey(0, impl=impl) for impl in IMPLS]
    for is_first in (True, False):
        for impl, key in zip(IMPLS, keys, strict=True):
            with jax.default_prng_impl(impl):
                assert is_prng_key(key)
                assert not is_prng_key(key[1:])
        if is_first:
            monkeypatch.delattr(jax.random, "key")


@pytest.mark.parametrize("impl", IMPLS)
def test_raw_keys_where_new_keys_are_typed(impl):
    """In `jax.enable_custom_prng`, `PRNGKey` returns typed keys, and functions of JAX take raw keys too."""
    key = jax.random.PRNGKey(7, impl=impl)
    _raw_key_shape.cache_clear()
    with jax.default_prng_impl(impl):
        with jax.enable_custom_prng(True):
            assert is_prng_key(key)
            assert is_prng_key(jax.random.PRNGKey(7))
        assert is_prng_key(key)


@pytest.mark.parametrize(("name", "kind"), CALLS)
def test_objects_with_jax_array_trace_to_the_program_of_their_array(name, kind):
    pool, given = CALLS[name, kind]
    assert any(map(is_array, given.values())) or "xs" in given or "features" in given
    want = programs(pool, given, lambda array: array)
    assert programs(pool, given, Wrapper) == want
    assert programs(pool, given, lambda array: Wrapper(Wrapper(Wrapper(array)))) == want


@pytest.mark.parametrize("name", POOLS)
def test_eager_calls_with_objects_with_jax_array(name):
    """Objects with `__jax_array__` may return such objects, or lists, whose dtype is that of `jnp.asarray`."""

    def as_list(array):
        return array if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array.tolist()

    pool, given = CALLS[name, "small"]
    want = pool.run(map_arrays(lambda array: jnp.asarray(as_list(array)), given))
    for convert in (
        lambda array: Wrapper(as_list(array)),
        lambda array: Wrapper(Wrapper(as_list(array))),
    ):
        jax.tree.map(np.testing.assert_array_equal, pool.run(map_arrays(convert, given)), want)


@pytest.mark.parametrize("name", [name for name in POOLS if POOLS[name].takes("temperature")])
def test_temperatures_of_segments_are_numbers(name):
    """Functions without array temperatures name the way out for arrays and for objects that hold them."""
    if name in dict(COEFFICIENTS):
        return
    for temperature in (CHANNELS, Wrapper(CHANNELS)):
        with pytest.raises(TypeError, match=r"`temperature` must be a finite number.*Divide x by"):
            POOLS[name].run(POOLS[name].given(X, temperature=temperature))


@pytest.mark.parametrize(("name", "argument"), COEFFICIENTS)
def test_parameters_of_flax_nnx(name, argument):
    nnx = pytest.importorskip("flax.nnx")

    class Pool(nnx.Module):
        def __init__(self):
            self.parameter = nnx.Param(CHANNELS)

        def __call__(self, x):
            return POOLS[name].of(**{argument: self.parameter})(x).sum()

    module = Pool()
    want = jax.value_and_grad(lambda p: POOLS[name].of(**{argument: p})(X).sum())(CHANNELS)
    value, gradients = nnx.value_and_grad(lambda module: module(X))(module)
    np.testing.assert_allclose(value, want[0], rtol=1e-6)
    np.testing.assert_allclose(gradients.parameter[...], want[1], rtol=1e-5)
    np.testing.assert_allclose(nnx.jit(lambda module: module(X))(module), want[0], rtol=1e-6)


@pytest.mark.parametrize(("name", "argument"), COEFFICIENTS)
def test_parameters_of_equinox(name, argument):
    eqx = pytest.importorskip("equinox")

    class Parameter(eqx.Module):
        value: jax.Array

        def __jax_array__(self):
            return self.value

    @functools.partial(eqx.filter_value_and_grad)
    def total(parameter):
        return POOLS[name].of(**{argument: parameter})(X).sum()

    want = jax.value_and_grad(lambda p: POOLS[name].of(**{argument: p})(X).sum())(CHANNELS)
    for run in (total, eqx.filter_jit(total)):
        value, gradient = run(Parameter(CHANNELS))
        np.testing.assert_allclose(value, want[0], rtol=1e-6)
        np.testing.assert_allclose(gradient.value, want[1], rtol=1e-5)


@pytest.mark.parametrize("pool", RANDOM_POOLS)
def test_sources_of_keys_of_flax_nnx(pool):
    nnx = pytest.importorskip("flax.nnx")
    rngs = nnx.Rngs(0)
    for source in (rngs, rngs.default, nnx.Rngs):
        with pytest.raises(TypeError, match=r"`key` must be a PRNG key.*; got .*R.*Pass rngs\(\)"):
            RANDOM_POOLS[pool](source)
    key = nnx.RngKey(jax.random.key(0), tag="default")
    got, want = (RANDOM_POOLS[pool](k) for k in (key, jax.random.key(0)))
    np.testing.assert_array_equal(got, want)


def test_source_of_keys_after_the_array():
    nnx = pytest.importorskip("flax.nnx")
    with pytest.raises(TypeError, match=r"`key` must come before `x`.*Pass rngs\(\)"):
        jaxpool.stochastic_pool(X, nnx.Rngs(0))


@pytest.mark.parametrize("kind", ["masked", "big-endian"])
@pytest.mark.parametrize("name", POOLS)
def test_unsupported_numpy_arrays(name, kind):
    """For each array argument, the message names the mask or the byte order, and what to pass instead."""
    parts = "without a mask" if kind == "masked" else "in the byte order of this machine"
    advice = r"\.filled\(value\)" if kind == "masked" else r"\.astype\("
    advice_for_x = r"with where=~numpy\.ma\.getmaskarray\(x\).*" if kind == "masked" else ""

    def convert(array):
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        array = np.asarray(array)
        return (
            np.ma.masked_array(array)
            if kind == "masked"
            else array.astype(array.dtype.newbyteorder(">"))
        )

    pool = POOLS[name]
    given = {
        arg: value
        for key, call in CALLS.items()
        if key[0] == name
        for arg, value in call[1].items()
    }
    for argument, value in map_arrays(convert, given).items():
        arrays = value if isinstance(value, (tuple, list)) else [value]
        is_bool = is_array(arrays[0]) and arrays[0].dtype.kind == "b"
        if (is_bool and kind == "big-endian") or not any(map(is_array, arrays)):
            continue
        message = rf"jaxpool\.{name}: `[^`]+` must be .*{parts}.*{advice_for_x if argument == 'x' else ''}{advice}"
        with pytest.raises(TypeError, match=message):
            pool.run(given | {argument: value})
