"""The records of public functions: they are complete, their claims hold, and unsupported calls raise."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxpool
from jaxpool.testing import Call, _record, assert_pool_matches, calls, pools
from tests.support.drawn import examples
from tests.support.later import later

POOLS = pools()
EACH_POOL = pytest.mark.parametrize("name", POOLS)


def call_of(pool, arguments):
    """The call, with a cotangent if all of its arrays are floats."""
    call = Call(pool, arguments)
    floats = all(jnp.issubdtype(np.asarray(x).dtype, jnp.floating) for x in call.operands())
    if pool.marks or not floats:
        return call
    y = call.answer().y
    return Call(pool, arguments, np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype))


def test_argument_without_usual_value_error(monkeypatch):
    def unheard_of_pool(x, spread):
        return x

    monkeypatch.setattr(jaxpool, "unheard_of_pool", unheard_of_pool, raising=False)
    pool = _record.Pool("unheard_of_pool", unheard_of_pool, unheard_of_pool)
    said = r"^jaxpool.unheard_of_pool has no usual value for its argument `spread`: give it to `@record"
    with pytest.raises(LookupError, match=said):
        pool.given(np.zeros((1, 2, 2, 1)))


# Claims of the records. The quick run has the hardest call of pools that few other tests compare with loops.

QUICK = {
    name
    for name, pool in POOLS.items()
    if pool.takes("key") or pool.takes("indices") or pool.takes("levels") or pool.takes("k")
}


def mark_slow(names, quick):
    """Parametrize one argument. Names outside `quick` are slow."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def sample_parameters():
    """Yield the name of each pool with the names of its samples."""
    for name, pool in POOLS.items():
        hardest = "special values" if "special" in pool.covers else "small"
        for words in pool.samples():
            is_quick = name in QUICK and words == hardest
            yield pytest.param(name, words, marks=() if is_quick else pytest.mark.slow)


@functools.cache
def sample(name, words):
    return call_of(POOLS[name], POOLS[name].samples()[words])


@pytest.mark.parametrize(("name", "words"), list(sample_parameters()))
def test_the_function_does_in_a_right_call_what_the_oracle_says(name, words):
    assert_pool_matches(POOLS[name].function, sample(name, words))


# Functions whose drawn calls are in the quick run. `tests/api/test_against_oracle.py` draws windowed pools.
QUICK_DRAWN = ("maxout", "cummax", "dilate", "erode", "k_max_pool", "fmin")
FLOATS = (np.float32, jnp.bfloat16, np.float16, jnp.float8_e4m3fn, jnp.float8_e5m2)


def dtypes_of(pool):
    """The dtypes of drawn calls. Sums of narrower floats have larger errors than the oracle allows."""
    if pool.takes("kernel"):
        return (*FLOATS[:3], np.int32)
    selects = not pool.adds and not pool.rounds_weights and not pool.tolerance
    return (*FLOATS, np.int8, np.uint8, np.int32, np.bool_) if selects else FLOATS[:2]


@pytest.mark.parametrize("name", mark_slow(POOLS, QUICK_DRAWN))
@examples(5)
@given(data=st.data())
def test_drawn_calls_match_oracle(name, data):
    pool = POOLS[name]
    mode = {"autodiff": data.draw(st.sampled_from(pool.modes))} if pool.modes else {}
    call = data.draw(calls(pool, dtypes=dtypes_of(pool)))
    assert_pool_matches(functools.partial(pool.function, **mode), call, jit=False)


@pytest.mark.parametrize("name", mark_slow(POOLS, QUICK))
def test_wrong_function_is_detected(name):
    """The tests above can fail: a function with one wrong element raises."""
    call = sample(name, "small")

    def other(*args, **kwargs):
        y = POOLS[name].function(*args, **kwargs)
        first = y[0] if isinstance(y, tuple) else y
        return ~first if POOLS[name].marks else first.at[(0,) * first.ndim].add(1)

    with pytest.raises(AssertionError, match=rf"^value of .*pools\(\)\['{name}'\]"):
        assert_pool_matches(other, call, jit=False)


@EACH_POOL
def test_selections_return_input_elements(name):
    pool, call = POOLS[name], sample(name, "small")
    elements = np.concatenate([np.ravel(x) for x in [*call.operands(), np.zeros(1)]])
    held = np.isin(call.answer().y, elements).all()
    if pool.marks:
        assert call.answer().y.dtype == bool
    elif name not in ("dilate", "erode"):  # these add a kernel entry to an element
        assert held == (not pool.rounds(call.given))


@EACH_POOL
def test_integer_averages_are_float32(name):
    pool, arguments = POOLS[name], POOLS[name].samples()["integers"]
    y = jax.tree.leaves(jax.eval_shape(lambda: pool.run(arguments)))[0]
    averaged = np.float32 if pool.averages(arguments) else np.int32
    assert y.dtype == (bool if pool.marks else averaged)


@EACH_POOL
def test_modes_match_signature(name):
    """With an `autodiff` argument, forward mode needs "jvp" and raises with "vjp". Other functions need no mode."""
    pool, call = POOLS[name], sample(name, "small")

    def tangent(**mode):
        def f(*operands):
            return jax.tree.leaves(pool.run(call.of(operands) | mode))[0]

        xs = tuple(map(jnp.asarray, call.operands()))
        jax.jit(lambda *xs: jax.jvp(f, xs, xs)).lower(*xs)

    if pool.modes:
        tangent(autodiff="jvp")
        with pytest.raises(TypeError, match="custom_vjp"):
            tangent(autodiff="vjp")
    else:
        tangent()


@EACH_POOL
def test_unsupported_ties_raise(name):
    pool, call = POOLS[name], sample(name, "small")
    for rule in ("first", "last", "split"):
        if pool.ties and rule not in pool.ties:
            with pytest.raises(ValueError, match=rf"jaxpool.{name}: `ties` must be"):
                pool.run({**call.given, "ties": rule})


@pytest.mark.parametrize("name", [n if n in QUICK else later(n) for n in POOLS])
def test_twin_matches_oracle_without_ties(name):
    """All elements of x are distinct."""
    pool = POOLS[name]
    images = np.random.default_rng(1).permutation(96).reshape(2, 4, 6, 2) / 9 + 0.1
    call = call_of(pool, pool.given(images.astype(np.float32)))
    y = pool.run(call.given, pool.twin)
    answer = call.answer()
    np.testing.assert_allclose(jax.tree.leaves(y)[0], answer.y, rtol=1e-5)
    if isinstance(y, tuple):
        np.testing.assert_array_equal(y[1], answer.indices)


def test_samples_do_not_need_hypothesis():
    code = (
        "import sys; sys.modules['hypothesis'] = None; from jaxpool.testing import pools; "
        "print(len([p.samples() for p in pools().values()]))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert int(printed) == len(POOLS)
