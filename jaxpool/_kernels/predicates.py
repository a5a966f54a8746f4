"""Predicates of branches."""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp
from jax.custom_batching import custom_vmap


@custom_vmap
def all_of(holds: Array) -> Array:
    """Whether all elements are True, over all examples of a `vmap`, so that a branch on it stays a branch."""
    return jnp.all(holds)


@all_of.def_vmap
def _all_of_batch(size: int, mapped: list[bool], holds: Array) -> tuple[Array, bool]:
    return all_of(holds), False
