"""Predicates for `jax.lax.cond` that stay scalar under `jax.vmap`."""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp
from jax.custom_batching import custom_vmap


@custom_vmap
def all_true_across_vmap(mask: Array) -> Array:
    """True if `mask` is True everywhere, in all examples of a `vmap`, so that `cond` does not become a select."""
    return jnp.all(mask)


@all_true_across_vmap.def_vmap
def _all_true_vmap_rule(axis_size: int, in_batched: list[bool], mask: Array) -> tuple[Array, bool]:
    return all_true_across_vmap(mask), False
