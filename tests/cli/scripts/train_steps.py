"""Train a small convolutional network on images of noise: train_steps.py LIBRARY STEPS SIZE."""

import os
import sys
import time

import numpy as np


def flax_step(images, labels):
    import optax
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Conv(3, 16, (3, 3), rngs=rngs)
            self.second = nnx.Conv(16, 16, (3, 3), rngs=rngs)
            self.head = nnx.Linear(16, 10, rngs=rngs)

        def __call__(self, x):
            x = nnx.max_pool(nnx.relu(self.first(x)), (3, 3), (2, 2), "SAME")
            x = nnx.max_pool(nnx.relu(self.second(x)), (3, 3), (2, 2), "SAME")
            x = nnx.avg_pool(x, (2, 2), (2, 2))
            return self.head(x.mean((1, 2)))

    net = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.sgd(0.05), wrt=nnx.Param)

    @nnx.jit
    def step(net, optimizer):
        def loss_of(net):
            return optax.softmax_cross_entropy_with_integer_labels(net(images), labels).mean()

        loss, gradients = nnx.value_and_grad(loss_of)(net)
        optimizer.update(net, gradients)
        return loss

    return lambda: step(net, optimizer)


def equinox_step(images, labels):
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), 3)
    layers = [
        eqx.nn.Conv2d(3, 16, 3, padding=1, key=keys[0]),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.MaxPool2d(3, 2, padding=1),
        eqx.nn.Conv2d(16, 16, 3, padding=1, key=keys[1]),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.AvgPool2d(2, 2),
        eqx.nn.Lambda(lambda x: x.mean((1, 2))),
        eqx.nn.Linear(16, 10, key=keys[2]),
    ]
    net = eqx.nn.Sequential(layers)
    images = images.transpose(0, 3, 1, 2)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss_and_gradients(net):
        chosen = jnp.take_along_axis(jax.nn.log_softmax(jax.vmap(net)(images)), labels[:, None], 1)
        return -chosen.mean()

    def step():
        nonlocal net
        loss, gradients = loss_and_gradients(net)
        net = eqx.apply_updates(net, jax.tree.map(lambda g: -0.05 * g, gradients))
        return loss

    return step


def keras_step(images, labels):
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    keras.utils.set_random_seed(0)
    layers = [
        keras.Input(images.shape[1:]),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(3, 2, "same"),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.AveragePooling2D(2),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(10, activation="softmax"),
    ]
    net = keras.Sequential(layers)
    net.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
    return lambda: net.train_on_batch(images, labels)


def main(library, steps, size):
    random = np.random.default_rng(0)
    images = random.normal(size=(16, size, size, 3)).astype("float32")
    labels = random.integers(0, 10, 16)
    step = {"flax": flax_step, "equinox": equinox_step, "keras": keras_step}[library](
        images, labels
    )
    for number in range(steps):
        if number == 1:  # the first step compiles
            start = time.perf_counter()
        print(f"{float(step()):.5f}")
    if steps > 1:
        print(f"{(time.perf_counter() - start) / (steps - 1) * 1e3:.1f} ms", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
