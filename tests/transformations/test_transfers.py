"""No program runs and nothing is transferred while a call is traced and lowered: NumPy computes all constants.

Careful training loops set `jax.transfer_guard("disallow")`, which raises for implicit transfers.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._ops.primitives import PLATFORM_OF_JAX_NAME, platform_override
from jaxpool.testing import pools
from tests.support.compilation import FAST_COMPILE

POOLS = pools()
DTYPES = ("float32", "bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "int32")
PLATFORMS = ("cuda", "tpu", "cpu")
COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


@pytest.fixture(scope="module")
def compilations():
    """Return a list that gets an entry for each compilation. Earlier compilations are forgotten."""
    events = []

    def listen(name, duration, **details):
        if name == COMPILE_EVENT:
            events.append(details)

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def on_device(values):
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, values)


def value_and_gradient(pool, given):
    """Return a function of the operands of a call, and the operands on the device."""
    operands = on_device({name: given[name] for name in pool.operands})
    others = {name: value for name, value in given.items() if name not in operands}

    def results(operands):
        def floats(operands):
            leaves = jax.tree.leaves(pool.run({**others, **operands}))
            return sum(y.astype(jnp.float32).sum() for y in leaves)

        return pool.run({**others, **operands}), jax.grad(floats, allow_int=True)(operands)

    return results, operands


def calls(pool, dtypes):
    """Return the sample calls, and calls with other dtypes."""
    images = np.arange(192).reshape(2, 4, 6, 4) % 7
    return [*pool.samples().values(), *(pool.given(images.astype(dtype)) for dtype in dtypes)]


@pytest.mark.parametrize("name", POOLS)
def test_trace_and_lower(name, compilations):
    """Of the value and the gradient. The usual call is lowered for every platform, and runs."""
    pool = POOLS[name]
    (usual, operands), *others = [value_and_gradient(pool, given) for given in calls(pool, DTYPES)]
    compilations.clear()
    with jax.transfer_guard("disallow"):
        for function, arrays in others:
            jax.jit(function).lower(arrays)
        traced = jax.jit(usual).trace(operands)
        for platform in PLATFORMS:
            lowered = traced.lower(lowering_platforms=(platform,))
        assert compilations == []
        lowered.compile(FAST_COMPILE)(operands)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", POOLS)
def test_trace_and_lower_for_large_arrays(name, platform, compilations):
    """The platform is also the default while tracing. On CPU, large arrays are pooled in regions or by tables."""
    images = np.random.default_rng(0).integers(-9, 9, (8, 64, 64, 32)).astype(np.float32)
    function, operands = value_and_gradient(POOLS[name], POOLS[name].given(images))
    compilations.clear()
    with platform_override(PLATFORM_OF_JAX_NAME[platform]), jax.transfer_guard("disallow"):
        jax.jit(function).trace(operands).lower(lowering_platforms=(platform,))
    assert compilations == []


def unusual_calls(pool):
    """Return calls of one image with boxes, and of arrays without elements."""
    given = pool.given(np.arange(192, dtype=np.float32).reshape(2, 4, 6, 4))
    if pool.takes("segment_ids"):
        no_rows = {"x": given["x"][:0], "segment_ids": given["segment_ids"][:0]}
        return [given | no_rows, given | {"num_segments": 0}]
    if pool.takes("boxes"):
        (name,), no_indices = pool.operands, {"batch_indices": None}
        one_image, no_channels = (
            {name: jax.tree.map(take, given[name])}
            for take in (lambda x: x[0], lambda x: x[..., :0])
        )
        boxes = {"boxes": np.zeros((2, 0, 4), np.float32)}
        return [given | one_image | no_indices, given | boxes | no_indices, given | no_channels]
    if pool.name in ("max", "min"):  # of no elements, for which `initial` is required
        return []
    return [pool.given(np.zeros((0, 4, 6, 4), np.float32))]


@pytest.mark.parametrize("name", POOLS)
def test_eager_calls_of_one_image_and_of_no_elements(name):
    for given in map(on_device, unusual_calls(POOLS[name])):
        with jax.transfer_guard("disallow"):
            POOLS[name].run(given)


# Numbers in the sample calls, but also accepted as arrays.
ARRAY_PARAMETERS = {"softmax_pool": "temperature", "logsumexp_pool": "temperature", "gem_pool": "p"}


@pytest.mark.parametrize("name", POOLS)
def test_eager_calls(name):
    """With keywords, masks, boxes and segment ids; under `vmap`. `initial` is an array: jnp.max raises for a number."""
    pool = POOLS[name]
    for given in calls(pool, ("int4", "float8_e8m0fnu")):
        given = on_device(given)
        if "initial" in given:
            given["initial"] = jnp.float32(given["initial"])
        given_calls = [given]
        if name in ARRAY_PARAMETERS:
            given_calls.append(given | {ARRAY_PARAMETERS[name]: jnp.float32(2)})
        operands = {argument: given[argument] for argument in pool.operands}
        pairs = jax.tree.map(lambda x: jnp.stack([x, x]), operands)
        with jax.transfer_guard("disallow"):
            for each in given_calls:
                pool.run(each)
            jax.vmap(lambda operands: pool.run(given | operands))(pairs)  # noqa: B023
