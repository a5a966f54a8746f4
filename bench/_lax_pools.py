"""Pools for `bench.nets` from Flax and jax.numpy, as a user without jaxpool would write them."""

from __future__ import annotations

import flax.linen as nn
import jax
from jax import lax
from jax import numpy as jnp

from bench.nets import Pools


def max_pool_with_argmax(
    x: jax.Array, window: tuple[int, int], strides: tuple[int, int]
) -> tuple[jax.Array, jax.Array]:
    """`reduce_window` for the maxima, and an argmax over disjoint patches for their positions."""
    assert window == strides, "patches side by side"
    batch, height, width, channels = x.shape
    down, right = window
    patches = lax.stop_gradient(x).reshape(
        batch, height // down, down, width // right, right, channels
    )
    patches = patches.transpose(0, 1, 3, 2, 4, 5).reshape(
        batch, height // down, width // right, down * right, channels
    )
    chosen = jnp.argmax(patches, axis=3)
    rows = down * jnp.arange(height // down)[:, None, None] + chosen // right
    columns = right * jnp.arange(width // right)[:, None] + chosen % right
    return nn.max_pool(x, window, strides), rows * width + columns


def max_unpool(x: jax.Array, positions: jax.Array, spatial_shape: tuple[int, int]) -> jax.Array:
    """A scatter into zeros. Disjoint patches have unique positions, so the scatter may assume it."""
    batch, _, _, channels = x.shape
    height, width = spatial_shape
    zeros = jnp.zeros((batch, height * width, channels), x.dtype)
    places = (
        jnp.arange(batch)[:, None, None],
        positions.reshape(batch, -1, channels),
        jnp.arange(channels),
    )
    filled = zeros.at[places].set(x.reshape(batch, -1, channels), unique_indices=True)
    return filled.reshape(batch, height, width, channels)


LAX_POOLS = Pools(nn.max_pool, max_pool_with_argmax, max_unpool)
