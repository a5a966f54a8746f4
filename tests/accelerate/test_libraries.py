"""`accelerate` on models of the layer libraries: equal losses, gradients and state."""

import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool import accelerate
from tests.support.accelerated import is_replaced

os.environ.setdefault("KERAS_BACKEND", "jax")

RATE = 0.05
IMAGES = jnp.asarray(np.random.default_rng(0).normal(size=(8, 9, 9, 3)), jnp.float32)
LABELS = jnp.arange(8) % 3


def library(name):
    """Import a library or skip the test. Warnings of the import are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def cross_entropy(logits):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), LABELS[:, None], 1).mean()


def assert_trees_close(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for got, want in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def check_model(loss, params, kinds):
    """Compare `loss(params)` with and without `accelerate`: value, every gradient leaf, and the report."""
    step = jax.jit(jax.value_and_grad(loss))
    assert_trees_close(accelerate(step)(params), step(params))
    entries = []
    jax.eval_shape(accelerate(step, report=entries.append), params)
    assert [(entry.kind, entry.taken_over) for entry in entries] == [(kind, True) for kind in kinds]
    assert is_replaced(jax.value_and_grad(jax.jit(accelerate(loss))), params)


def test_flax_linen():
    nn = library("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.max_pool(nn.remat(nn.Conv)(4, (3, 3))(x), (3, 3), (2, 2), "SAME")
            x = nn.avg_pool(x, (2, 2), (1, 1), "SAME", count_include_pad=False)
            x = nn.pooling.pool(x, jnp.inf, jax.lax.min, (2, 2), (2, 2), "VALID")
            return nn.Dense(3)(x.reshape(x.shape[0], -1))

    model = Net()
    params = jax.jit(model.init)(jax.random.key(0), IMAGES)

    def loss(params, apply=model.apply):
        return cross_entropy(apply(params, IMAGES))

    check_model(loss, params, ["max", "sum", "sum", "min"])
    assert is_replaced(lambda params: loss(params, accelerate(model.apply)), params)
    for module in (model, model.bind(params)):
        with pytest.raises(TypeError, match=r"model\.apply for Flax Linen"):
            accelerate(module)


def test_flax_nnx():
    nnx, optax = library("flax.nnx"), library("optax")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Conv(3, 4, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(4, rngs=rngs)
            self.drop = nnx.Dropout(0.1, rngs=rngs)
            self.last = nnx.Linear(16, 3, rngs=rngs)

        def __call__(self, x):
            x = nnx.max_pool(self.norm(self.first(x)), (3, 3), (2, 2), "SAME")
            x = nnx.avg_pool(self.drop(x), (2, 2), (2, 2))
            return self.last(x.reshape(x.shape[0], -1))

    def train_step(model, optimizer, x):
        loss, grads = nnx.value_and_grad(lambda model: cross_entropy(model(x)))(model)
        optimizer.update(model, grads)
        return loss, grads

    def run(step):
        model = Net(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.sgd(RATE), wrt=nnx.Param)
        results = [step(model, optimizer, IMAGES) for _ in range(2)]
        # The state that a step changes, except random keys.
        state = nnx.state(model, nnx.Not(nnx.RngState))
        keys = jax.tree.map(jax.random.key_data, nnx.state(model, nnx.RngKey))
        return results, state, keys, nnx.state(model, nnx.RngCount)

    jitted = nnx.jit(train_step)
    expected = run(jitted)
    for accelerated in (
        lambda report: accelerate(jitted, report=report),
        lambda report: nnx.jit(accelerate(train_step, report=report)),
    ):
        entries = []
        assert_trees_close(run(accelerated(entries.append)), expected)
        assert [(each.kind, each.taken_over) for each in entries] == [("max", True), ("sum", True)]
    with pytest.raises(TypeError, match="Pass a train step or a loss that takes it"):
        accelerate(Net(nnx.Rngs(0)))


def test_haiku():
    hk = library("haiku")

    def net(x):
        x = hk.MaxPool((3, 3, 1), (2, 2, 1), "SAME")(hk.Conv2D(4, 3)(x))
        x = hk.avg_pool(x, (2, 2, 1), (2, 2, 1), "SAME")
        return hk.Linear(3)(hk.Flatten()(hk.avg_pool(x, (2, 2, 1), 1, "VALID")))

    model, inner = (hk.without_apply_rng(hk.transform(each)) for each in (net, accelerate(net)))
    params = jax.jit(model.init)(jax.random.key(0), IMAGES)

    def loss(params, apply=model.apply):
        return cross_entropy(apply(params, IMAGES))

    check_model(loss, params, ["max", "sum", "sum", "sum"])
    for apply in (accelerate(model.apply), inner.apply):
        assert is_replaced(jax.grad(lambda params, apply=apply: loss(params, apply)), params)
    with pytest.raises(TypeError, match=r"Pass accelerate\(model\.apply\)\."):
        accelerate(model)


def test_equinox():
    eqx = library("equinox")

    class Net(eqx.Module):
        first: eqx.nn.Conv2d
        pools: list
        last: eqx.nn.Linear

        def __init__(self, key):
            one, two = jax.random.split(key)
            self.first = eqx.nn.Conv2d(3, 4, 3, key=one)
            self.pools = [
                eqx.nn.MaxPool2d(3, 2, padding=1, use_ceil=True),
                eqx.nn.Pool(jnp.inf, jax.lax.min, 2, (2, 2), 1),
                eqx.nn.AvgPool2d(2, 1),
                eqx.nn.AdaptiveMaxPool2d((2, 2)),
            ]
            self.last = eqx.nn.Linear(16, 3, key=two)

        def __call__(self, x):
            x = self.first(x)
            for pool in self.pools:
                x = pool(x)
            return self.last(x.ravel())

    images = jnp.moveaxis(IMAGES, -1, 1)
    model = Net(jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(model):
        return cross_entropy(jax.vmap(model)(images))

    check_model(lambda params: loss(eqx.combine(params, static)), params, ["max", "min", "sum"])
    for form in (
        lambda report: accelerate(eqx.filter_jit(eqx.filter_value_and_grad(loss)), report=report),
        lambda report: eqx.filter_jit(eqx.filter_value_and_grad(accelerate(loss, report=report))),
    ):
        entries = []
        eqx.filter_eval_shape(form(entries.append), model)
        assert [entry.kind for entry in entries] == ["max", "min", "sum"]
    with pytest.raises(TypeError, match="It is a model or a layer"):
        accelerate(model)
    pool = eqx.nn.MaxPool2d(2, 2)  # a layer without parameters is accepted
    assert_trees_close(accelerate(pool)(images[0]), pool(images[0]))


@pytest.mark.filterwarnings("ignore")  # Keras warns
def test_keras():
    keras = library("keras")
    if keras.backend.backend() != "jax":
        pytest.skip("Keras runs on another backend")
    layers = keras.layers
    images, labels = np.asarray(IMAGES), np.asarray(LABELS)

    def build():
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                layers.Input((9, 9, 3)),
                layers.Conv2D(4, 3),
                layers.BatchNormalization(),
                layers.MaxPooling2D(3, 2, "same"),
                layers.AveragePooling2D(2, 1, "same"),
                layers.Dropout(0.1, seed=0),
                layers.Flatten(),
                layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(RATE), loss)
        return model

    def fitted(wrap):
        model, kwargs = build(), {"batch_size": 4, "shuffle": False, "verbose": 0}
        model.fit(images, labels, **kwargs)  # compiles the model before it is accelerated
        history = wrap(model.fit)(images, labels, epochs=2, **kwargs)
        return history.history["loss"], model.get_weights()

    entries = []
    expected = fitted(lambda fit: fit)
    assert_trees_close(fitted(lambda fit: accelerate(fit, report=entries.append)), expected)
    assert {entry.kind for entry in entries} == {"max", "sum"}
    assert all(entry.taken_over for entry in entries)
    for layer in (build(), layers.MaxPooling2D()):
        with pytest.raises(TypeError, match=r"or model\.fit for Keras"):
            accelerate(layer)
