"""A small convolutional network in Keras on its jax backend, trained on images of noise."""

import os
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np

steps, size = int(sys.argv[1]), int(sys.argv[2])
keras.utils.set_random_seed(0)
net = keras.Sequential(
    [
        keras.Input((size, size, 3)),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(3, 2, "same"),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.AveragePooling2D(2),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
net.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
random = np.random.default_rng(0)
images = random.normal(size=(16, size, size, 3)).astype("float32")
labels = random.integers(0, 10, 16)
for number in range(steps):
    if number == 1:  # the first step compiles
        start = time.perf_counter()
    print(f"{float(net.train_on_batch(images, labels)):.5f}")
if steps > 1:
    print(f"{(time.perf_counter() - start) / (steps - 1) * 1e3:.1f} ms", file=sys.stderr)
