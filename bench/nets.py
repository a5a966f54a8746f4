"""Small convolutional nets in Flax whose pools can be swapped: `Net(pools, NETS[name])`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import flax.linen as nn
import jax
from jax import lax
from jax import numpy as jnp

from bench.plain_ways import image_positions, side_by_side, unpooled

# `jaxpool`, or an object with its `max_pool`, `max_pool_with_argmax` and `max_unpool`.
Pools = Any


def max_pool_with_argmax(
    x: jax.Array, window: tuple[int, int], strides: tuple[int, int]
) -> tuple[jax.Array, jax.Array]:
    """Flax for the maxima, and an argmax over disjoint 2x2 patches for their positions."""
    assert window == strides == (2, 2)
    b, h, w, c = x.shape
    patches = side_by_side(lax.stop_gradient(x)).transpose(0, 1, 3, 2, 4, 5)
    tap = jnp.argmax(patches.reshape(b, h // 2, w // 2, 4, c), axis=3)
    return nn.max_pool(x, window, strides), image_positions(tap, 2, 2, w)


def max_unpool(x: jax.Array, positions: jax.Array, spatial_shape: tuple[int, int]) -> jax.Array:
    """A scatter. Disjoint patches have unique positions, so it may assume them."""
    return unpooled(x, positions, spatial_shape, unique=True)


# As a user without jaxpool would write them.
LAX_POOLS = SimpleNamespace(
    max_pool=nn.max_pool, max_pool_with_argmax=max_pool_with_argmax, max_unpool=max_unpool
)


class Net(nn.Module):
    """A function of images and pools that returns features, and a dense layer for ten classes."""

    pools: Pools
    features: Callable[[jax.Array, Pools], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(10)(self.features(x, self.pools))


def lenet(x: jax.Array, pools: Pools) -> jax.Array:
    """Two convolutions with ReLU, each with a 2x2 max pool, and dense layers."""
    for features in (6, 16):
        x = nn.relu(nn.Conv(features, (5, 5))(x))
        x = pools.max_pool(x, (2, 2), (2, 2))
    x = x.reshape(x.shape[0], -1)
    for features in (120, 84):
        x = nn.relu(nn.Dense(features)(x))
    return x


def resnet_stem(x: jax.Array, pools: Pools) -> jax.Array:
    """The stem of a ResNet: 7x7 stride 2, batch norm, ReLU, 3x3 stride 2 max pool; then a mean."""
    x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
    x = nn.relu(nn.BatchNorm(use_running_average=False)(x))
    return pools.max_pool(x, (3, 3), (2, 2), "SAME").mean((1, 2))


def inception(x: jax.Array, pools: Pools) -> jax.Array:
    """A stem and two Inception modules, each with a 3x3 stride 1 max pool in one of its branches."""
    x = nn.relu(nn.Conv(32, (3, 3), (2, 2))(x))
    x = pools.max_pool(x, (3, 3), (2, 2), "SAME")
    for width in (32, 48):
        branches = [nn.Conv(width, (1, 1))(x)]
        for reduced, window in ((16, 3), (8, 5)):
            narrow = nn.relu(nn.Conv(reduced, (1, 1))(x))
            branches.append(nn.Conv(width, (window, window))(narrow))
        pooled = pools.max_pool(x, (3, 3), (1, 1), "SAME")
        branches.append(nn.Conv(width, (1, 1))(pooled))
        x = nn.relu(jnp.concatenate(branches, axis=-1))
    return x.mean((1, 2))


def spatial_pyramid(x: jax.Array, pools: Pools) -> jax.Array:
    """A stem and the pyramid of YOLO: max pools of 5, 9 and 13 at stride 1, concatenated with x."""
    for features in (16, 32):
        x = nn.relu(nn.Conv(features, (3, 3), (2, 2))(x))
    levels = [pools.max_pool(x, (window, window), (1, 1), "SAME") for window in (5, 9, 13)]
    x = nn.relu(nn.Conv(64, (1, 1))(jnp.concatenate([x, *levels], axis=-1)))
    return x.mean((1, 2))


def unet(x: jax.Array, pools: Pools) -> jax.Array:
    """Two levels down and up. The unpool of a level uses the positions of the pool of that level."""
    left = []
    for features in (16, 32):
        x = nn.relu(nn.Conv(features, (3, 3))(x))
        pooled, positions = pools.max_pool_with_argmax(x, (2, 2), (2, 2))
        left.append((x, positions))
        x = pooled
    for features in (32, 16):
        x = nn.relu(nn.Conv(features, (3, 3))(x))
        skipped, positions = left.pop()
        x = pools.max_unpool(x, positions, skipped.shape[1:3])
        x = nn.relu(nn.Conv(features, (3, 3))(jnp.concatenate([x, skipped], axis=-1)))
    return x


NETS: dict[str, Callable[[jax.Array, Pools], jax.Array]] = {
    "LeNet": lenet,
    "ResNetStem": resnet_stem,
    "Inception": inception,
    "SpatialPyramid": spatial_pyramid,
    "UNet": unet,
}
