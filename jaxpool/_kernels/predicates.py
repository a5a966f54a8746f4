"""Predicates for `jax.lax.cond` that stay scalar under `jax.vmap`."""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp
from jax.custom_batching import custom_vmap


@custom_vmap
def all_of(holds: Array) -> Array:
    """True if all elements are True for all examples of a `vmap`, so that `cond` does not become a select."""
    return jnp.all(holds)


@all_of.def_vmap
def _all_of_batch(size: int, mapped: list[bool], holds: Array) -> tuple[Array, bool]:
    return all_of(holds), False
