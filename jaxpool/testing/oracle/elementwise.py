"""Oracle of the elementwise functions `maximum`, `minimum`, `fmax` and `fmin`."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jaxpool.testing._answer import Answer
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import ExtremumFunction, Reducer, Ties

__all__ = ["fmax", "fmin", "maximum", "minimum"]


def _make_elementwise_in_jnp(binary_function: Callable[..., Any]) -> Callable[..., Any]:
    def jnp_function(**arrays: Any) -> Any:
        del arrays["ties"]
        return functools.reduce(binary_function, arrays.get("xs", arrays.values()))

    return jnp_function


@record(twin=_make_elementwise_in_jnp(jnp.maximum), operands=("xs",))
def maximum(xs: Any, ties: Ties) -> Answer:
    """The largest of the elements of `xs` at each position, as in `jaxpool.maximum`."""
    return parts.apply_reducer_elementwise(xs, parts.extremum_reducer(builtins.max, ties))


@record(twin=_make_elementwise_in_jnp(jnp.minimum), operands=("xs",))
def minimum(xs: Any, ties: Ties) -> Answer:
    """The smallest of the elements of `xs` at each position, as in `jaxpool.minimum`."""
    return parts.apply_reducer_elementwise(xs, parts.extremum_reducer(builtins.min, ties))


def _reducer_ignoring_nan(best_of: ExtremumFunction, ties: Ties) -> Reducer:
    """The best value other than NaN; NaN if all values are NaN."""
    reduce_values = parts.extremum_reducer(best_of, ties)

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        number_indices = [i for i, value in enumerate(values) if value == value]
        candidates = number_indices or list(range(len(values)))
        value, candidate_shares = reduce_values([values[i] for i in candidates])
        shares = [0.0] * len(values)
        for i, share in zip(candidates, candidate_shares, strict=True):
            shares[i] = share
        return value, shares

    return reducer


@record(twin=_make_elementwise_in_jnp(jnp.fmax), operands=("x", "y"))
def fmax(x: Any, y: Any, ties: Ties) -> Answer:
    """The larger element, or the number if the other element is NaN, as in `jaxpool.fmax`."""
    return parts.apply_reducer_elementwise((x, y), _reducer_ignoring_nan(builtins.max, ties))


@record(twin=_make_elementwise_in_jnp(jnp.fmin), operands=("x", "y"))
def fmin(x: Any, y: Any, ties: Ties) -> Answer:
    """The smaller element, or the number if the other element is NaN, as in `jaxpool.fmin`."""
    return parts.apply_reducer_elementwise((x, y), _reducer_ignoring_nan(builtins.min, ties))
