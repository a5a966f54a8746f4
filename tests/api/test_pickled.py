"""Functions returned by `accelerate` and `sharded` can be pickled and copied if the wrapped function can."""

import contextlib
import copy
import functools
import pickle

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from jax.sharding import PartitionSpec

import jaxpool

REPORTED = []
X = jnp.asarray([[1.0, 3.0], [2.0, 5.0], [4.0, 0.0], [4.0, 7.0]])


def lax_pool(x):
    """Maxima over pairs of rows, by lax."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (2, 1), "VALID")


@jaxpool.accelerate
def decorated(x):
    return lax_pool(x)


@jaxpool.accelerate
@jax.jit
def jitted(x):
    return lax_pool(x)


@functools.partial(jaxpool.sharded, spec=PartitionSpec("rows"))
def decorated_sharded(x):
    return jaxpool.max_pool(x, (2,), (2,), axes=(0,))


class Model:
    scale = 2.0

    def __call__(self, x):
        return self.scale * lax_pool(x)

    @jaxpool.accelerate
    def method(self, x):
        """A method."""
        return self.scale * lax_pool(x)


def record_reduction(reduction):
    REPORTED.append(reduction)


PAIRS = functools.partial(jaxpool.max_pool, window_shape=(2,), strides=(2,), axes=(0,))
WRAPPED_FUNCTIONS = {
    "accelerate": lambda: jaxpool.accelerate(lax_pool),
    "accelerate an object": lambda: jaxpool.accelerate(Model()),
    "accelerate a bound method": lambda: jaxpool.accelerate(Model().__call__),
    "accelerate with a report": lambda: jaxpool.accelerate(lax_pool, report=print),
    "accelerate twice": lambda: jaxpool.accelerate(jaxpool.accelerate(lax_pool)),
    "a decorated function": lambda: decorated,
    "a decorated jitted function": lambda: jitted,
    "a decorated method": lambda: Model().method,
    "sharded": lambda: jaxpool.sharded(PAIRS, spec=PartitionSpec("rows")),
    "a decorated sharded function": lambda: decorated_sharded,
    "both": lambda: jaxpool.sharded(jaxpool.accelerate(lax_pool), spec=PartitionSpec("rows")),
}
COPY_METHODS = {
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPY_METHODS)
@pytest.mark.parametrize("name", WRAPPED_FUNCTIONS)
def test_copy_gives_equal_values_and_gradients(name, way):
    fn = WRAPPED_FUNCTIONS[name]()
    copied = COPY_METHODS[way](fn)
    mesh = jax.make_mesh((1,), ("rows",), (jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh) if "sharded" in name or name == "both" else contextlib.nullcontext():
        for got, want in zip(jax.vjp(copied, X)[1](X[:2]), jax.vjp(fn, X)[1](X[:2]), strict=True):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(copied(X), fn(X))


@pytest.mark.parametrize("way", COPY_METHODS)
def test_copy_is_accelerated_and_reports(way):
    copied = COPY_METHODS[way](jaxpool.accelerate(lax_pool, report=record_reduction))
    REPORTED.clear()
    copied(X)
    assert [reduction.taken_over for reduction in REPORTED] == [True]


def test_copy_of_jitted_function_has_jit_stages():
    copied = copy.copy(jaxpool.accelerate(jax.jit(lax_pool)))
    assert copied.eval_shape(X).shape == copied.lower(X).out_info.shape == (2, 2)


def test_decorated_function_is_pickled_by_name():
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert pickle.loads(pickle.dumps(decorated_sharded)) is decorated_sharded
    assert decorated.__name__ == "decorated"
    assert Model.method.__doc__ == "A method."


def test_unpicklable_function_raises():
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(jaxpool.accelerate(lambda x: x))
