"""What the largest and the smallest of several arrays should be, element by element."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jaxpool.testing._answer import Answer
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Best, Rule, Ties

__all__ = ["fmax", "fmin", "maximum", "minimum"]


def _twin(of_two: Callable[..., Any]) -> Callable[..., Any]:
    def twin(*xs: Any, ties: Any = None, **named: Any) -> Any:
        return functools.reduce(of_two, (*xs, *named.values()))

    return twin


@record(twin=_twin(jnp.maximum), operands=("xs",))
def maximum(*xs: Any, ties: Ties = "split") -> Answer:
    """The largest of the elements of `xs` that share a position, as in `jaxpool.maximum`."""
    return parts.elementwise(xs, parts.choose(builtins.max, ties))


@record(twin=_twin(jnp.minimum), operands=("xs",))
def minimum(*xs: Any, ties: Ties = "split") -> Answer:
    """The smallest of the elements of `xs` that share a position, as in `jaxpool.minimum`."""
    return parts.elementwise(xs, parts.choose(builtins.min, ties))


def _numbers_first(best: Best, ties: Ties) -> Rule:
    """The best of the numbers, of the NaNs if there are only those."""
    choose = parts.choose(best, ties)

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        numbers = [i for i, value in enumerate(values) if value == value]
        kept = numbers or list(range(len(values)))
        value, some = choose([values[i] for i in kept])
        shares = [0.0] * len(values)
        for i, share in zip(kept, some, strict=True):
            shares[i] = share
        return value, shares

    return rule


@record(twin=_twin(jnp.fmax), operands=("x", "y"))
def fmax(x: Any, y: Any, *, ties: Ties = "split") -> Answer:
    """The larger element, a NaN losing to a number, as in `jaxpool.fmax`."""
    return parts.elementwise((x, y), _numbers_first(builtins.max, ties))


@record(twin=_twin(jnp.fmin), operands=("x", "y"))
def fmin(x: Any, y: Any, *, ties: Ties = "split") -> Answer:
    """The smaller element, a NaN losing to a number, as in `jaxpool.fmin`."""
    return parts.elementwise((x, y), _numbers_first(builtins.min, ties))
