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

FOUND = []
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


def note(reduction):
    FOUND.append(reduction)


PAIRS = functools.partial(jaxpool.max_pool, window_shape=(2,), strides=(2,), axes=(0,))
MADE = {
    "accelerate": lambda: jaxpool.accelerate(lax_pool),
    "accelerate a partial": lambda: jaxpool.accelerate(functools.partial(lax_pool)),
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
WAYS = {
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def total(made):
    return lambda x: (made(x) ** 2).sum()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MADE)
def test_the_copy_gives_the_same_numbers(name, way):
    made = MADE[name]()
    again = WAYS[way](made)
    mesh = jax.make_mesh((1,), ("rows",), (jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh) if "sharded" in name or name == "both" else contextlib.nullcontext():
        np.testing.assert_array_equal(made(X), again(X))
        np.testing.assert_array_equal(jax.grad(total(made))(X), jax.grad(total(again))(X))


@pytest.mark.parametrize("way", WAYS)
def test_the_copy_is_accelerated_and_reports(way):
    again = WAYS[way](jaxpool.accelerate(lax_pool, report=note))
    FOUND.clear()
    again(X)
    assert [reduction.taken_over for reduction in FOUND] == [True]


def test_a_jitted_function_keeps_its_stages():
    again = copy.copy(jaxpool.accelerate(jax.jit(lax_pool)))
    assert again.eval_shape(X).shape == again.lower(X).out_info.shape == (2, 2)


def test_a_decorated_function_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert pickle.loads(pickle.dumps(decorated_sharded)) is decorated_sharded
    assert decorated.__name__ == "decorated"
    assert Model.method.__doc__ == "A method."


def test_what_cannot_be_pickled_says_so():
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(jaxpool.accelerate(lambda x: x))
