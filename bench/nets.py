"""Small convolutional nets in Flax whose pools can be swapped: `NETS[name](pools)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
from jax import lax
from jax import numpy as jnp

from bench.plain_ways import argmax_of_patches, unpooled


@dataclasses.dataclass(frozen=True)
class Pools:
    """The pools of a net, with the arguments of the functions in `jaxpool`."""

    max_pool: Callable[..., jax.Array]
    max_pool_with_argmax: Callable[..., tuple[jax.Array, jax.Array]]
    max_unpool: Callable[..., jax.Array]


def max_pool_with_argmax(
    x: jax.Array, window: tuple[int, int], strides: tuple[int, int]
) -> tuple[jax.Array, jax.Array]:
    """Flax for the maxima, and an argmax over disjoint 2x2 patches for their positions."""
    assert window == strides == (2, 2)
    return nn.max_pool(x, window, strides), argmax_of_patches(lax.stop_gradient(x))[1]


def max_unpool(x: jax.Array, positions: jax.Array, spatial_shape: tuple[int, int]) -> jax.Array:
    """A scatter. Disjoint patches have unique positions, so it may assume them."""
    return unpooled(x, positions, *spatial_shape, unique=True)


# As a user without jaxpool would write them.
LAX_POOLS = Pools(nn.max_pool, max_pool_with_argmax, max_unpool)


class Blocks(nn.Module):
    """Blocks of convolutions with ReLU, each with a 2x2 max pool, and dense layers."""

    pools: Pools
    blocks: tuple[tuple[int, ...], ...]
    window: int
    dense: tuple[int, ...]
    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks:
            for features in block:
                x = nn.relu(nn.Conv(features, (self.window,) * 2)(x))
            x = self.pools.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        for features in self.dense:
            x = nn.relu(nn.Dense(features)(x))
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
    "LeNet": lambda pools: Blocks(pools, ((6,), (16,)), 5, (120, 84)),
    # The first three blocks of VGG-11 at half width.
    "VGGLike": lambda pools: Blocks(pools, ((32,), (64,), (128, 128)), 3, (128,)),
    "ResNetStem": ResNetStem,
    "Inception": Inception,
    "SpatialPyramid": SpatialPyramid,
    "UNet": UNet,
}
