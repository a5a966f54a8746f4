"""Small convolutional nets in Flax whose pools can be swapped: `NETS[name](pools)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
from jax import numpy as jnp


@dataclasses.dataclass(frozen=True)
class Pools:
    """The pools of a net, with the arguments of the functions in `jaxpool`."""

    max_pool: Callable[..., jax.Array]
    max_pool_with_argmax: Callable[..., tuple[jax.Array, jax.Array]]
    max_unpool: Callable[..., jax.Array]


class LeNet(nn.Module):
    """Two 5x5 convolutions, each with ReLU and a 2x2 max pool, and three dense layers."""

    pools: Pools
    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for features in (6, 16):
            x = nn.relu(nn.Conv(features, (5, 5))(x))
            x = self.pools.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        for features in (120, 84):
            x = nn.relu(nn.Dense(features)(x))
        return nn.Dense(self.classes)(x)


class VGGLike(nn.Module):
    """The first three blocks of VGG-11 at half width: 3x3 convolutions, then a 2x2 max pool."""

    pools: Pools
    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for block in ((32,), (64,), (128, 128)):
            for features in block:
                x = nn.relu(nn.Conv(features, (3, 3))(x))
            x = self.pools.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(128)(x))
        return nn.Dense(self.classes)(x)


class ResNetStem(nn.Module):
    """The stem of a ResNet: 7x7 stride 2, batch norm, ReLU, 3x3 stride 2 max pool; then a mean."""

    pools: Pools
    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=False)(x))
        x = self.pools.max_pool(x, (3, 3), (2, 2), "SAME")
        return nn.Dense(self.classes)(x.mean((1, 2)))


class Inception(nn.Module):
    """A stem and two Inception modules, each with a 3x3 stride 1 max pool in one of its branches."""

    pools: Pools
    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.Conv(32, (3, 3), (2, 2))(x))
        x = self.pools.max_pool(x, (3, 3), (2, 2), "SAME")
        for width in (32, 48):
            branches = [nn.Conv(width, (1, 1))(x)]
            for reduced, window in ((16, 3), (8, 5)):
                narrow = nn.relu(nn.Conv(reduced, (1, 1))(x))
                branches.append(nn.Conv(width, (window, window))(narrow))
            pooled = self.pools.max_pool(x, (3, 3), (1, 1), "SAME")
            branches.append(nn.Conv(width, (1, 1))(pooled))
            x = nn.relu(jnp.concatenate(branches, axis=-1))
        return nn.Dense(self.classes)(x.mean((1, 2)))


class SpatialPyramid(nn.Module):
    """A stem and the pyramid of YOLO: max pools of 5, 9 and 13 at stride 1, concatenated with x."""

    pools: Pools
    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for features in (16, 32):
            x = nn.relu(nn.Conv(features, (3, 3), (2, 2))(x))
        levels = [x] + [
            self.pools.max_pool(x, (window, window), (1, 1), "SAME") for window in (5, 9, 13)
        ]
        x = nn.relu(nn.Conv(64, (1, 1))(jnp.concatenate(levels, axis=-1)))
        return nn.Dense(self.classes)(x.mean((1, 2)))


class UNet(nn.Module):
    """Two levels down and up. The unpool of a level uses the positions of the pool of that level."""

    pools: Pools
    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        levels = (16, 32)
        left = []
        for features in levels:
            x = nn.relu(nn.Conv(features, (3, 3))(x))
            pooled, positions = self.pools.max_pool_with_argmax(x, (2, 2), (2, 2))
            left.append((x, positions))
            x = pooled
        for features in reversed(levels):
            x = nn.relu(nn.Conv(features, (3, 3))(x))
            skipped, positions = left.pop()
            x = self.pools.max_unpool(x, positions, skipped.shape[1:3])
            x = nn.relu(nn.Conv(features, (3, 3))(jnp.concatenate([x, skipped], axis=-1)))
        return nn.Conv(self.classes, (1, 1))(x)


NETS: dict[str, Callable[..., Any]] = {
    "LeNet": LeNet,
    "VGGLike": VGGLike,
    "ResNetStem": ResNetStem,
    "Inception": Inception,
    "SpatialPyramid": SpatialPyramid,
    "UNet": UNet,
}
