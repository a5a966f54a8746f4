"""Oracle of the reductions along axes: `max`, `min` and `maxout`."""

from __future__ import annotations

import builtins
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing._answer import Answer, Position, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import ExtremumFunction, Ties

__all__ = ["max", "maxout", "min"]


def _reduce_extremum(
    x: Any,
    axis: int | Sequence[int] | None,
    best_of: ExtremumFunction,
    keepdims: bool,
    where: Any,
    initial: Any,
    ties: Ties,
) -> Answer:
    """The best element in the `where` mask along the axes. `initial` is operand 1 and loses ties against elements."""
    x = np.asarray(x)
    values = as_exact_numbers(x)
    mask = np.broadcast_to(True if where is None else where, x.shape)
    entries = range(x.ndim) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    axes = tuple(entry % x.ndim for entry in entries)
    reduce_values, reduce_candidates = (
        parts.extremum_reducer(best_of, ties),
        parts.extremum_reducer(best_of, "first"),
    )
    y = np.zeros([1 if i in axes else n for i, n in enumerate(x.shape)], object)
    terms: list[Term] = []
    for output in np.ndindex(*y.shape):
        elements = itertools.product(*[range(x.shape[entry]) for entry in axes])
        positions = [parts.merge_positions(list(output), axes, element) for element in elements]
        positions = [position for position in positions if mask[position]]
        candidates: list[Any] = []
        if positions:
            value, shares = reduce_values([values[position] for position in positions])
            candidates.append(value)
        if initial is not None:
            candidates.append(as_exact_numbers(np.asarray(initial, x.dtype))[()])
        y[output], candidate_shares = reduce_candidates(candidates)
        if positions and candidate_shares[0]:
            terms += [Term(output, 0, p, s) for p, s in zip(positions, shares, strict=True) if s]
        else:
            terms.append(Term(output, 1, (), 1.0))
    inputs: list[tuple[tuple[int, ...], np.dtype]] = [(x.shape, x.dtype)]
    if initial is not None:
        inputs.append(((), x.dtype))
    answer = Answer(round_to_dtype(y, x.dtype), tuple(inputs), tuple(terms))
    return answer if keepdims else parts.squeeze_answer(answer, axes)


def _make_reduction_in_jnp(function_name: str) -> Callable[..., Any]:
    def jnp_function(
        x: Any,
        axis: Any = None,
        *,
        keepdims: bool = False,
        where: Any = None,
        initial: Any = None,
        ties: Any = None,
    ) -> Any:
        identity = -np.inf if function_name == "max" else np.inf
        init = identity if initial is None else initial
        return getattr(jnp, function_name)(x, axis, keepdims=keepdims, where=where, initial=init)

    return jnp_function


SAMPLE_VALUES = {"axis": (1, (1, 2)), "initial": (0.5,)}


@record(twin=_make_reduction_in_jnp("max"), choices=SAMPLE_VALUES)
def max(
    x: Any,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    where: Any = None,
    initial: Any = None,
    ties: Ties = "split",
) -> Answer:
    """The largest element along axes, arguments as in `jaxpool.max`.

    >>> import numpy as np
    >>> answer = max(np.array([[1.0, 3.0, 3.0]]), axis=1)
    >>> answer.y, answer.cotangent(np.array([2.0]))
    (array([3.]), array([[0., 1., 1.]]))
    """
    return _reduce_extremum(x, axis, builtins.max, keepdims, where, initial, ties)


@record(twin=_make_reduction_in_jnp("min"), choices=SAMPLE_VALUES)
def min(
    x: Any,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    where: Any = None,
    initial: Any = None,
    ties: Ties = "split",
) -> Answer:
    """The smallest element along axes, arguments as in `jaxpool.min`."""
    return _reduce_extremum(x, axis, builtins.min, keepdims, where, initial, ties)


def _maxout_in_jnp(x: Any, groups: int, *, axis: int = -1, ties: Any = None) -> Any:
    dim = axis % x.ndim
    size = x.shape[dim] // groups
    return x.reshape(*x.shape[:dim], groups, size, *x.shape[dim + 1 :]).max(dim + 1)


@record(twin=_maxout_in_jnp)
def maxout(x: Any, groups: int, *, axis: int = -1, ties: Ties = "split") -> Answer:
    """The maximum of each group of consecutive elements, as in `jaxpool.maxout`."""
    x = np.asarray(x)
    dim = axis % x.ndim
    size = x.shape[dim] // groups
    grouped_x = x.reshape(*x.shape[:dim], groups, size, *x.shape[dim + 1 :])
    answer = max(grouped_x, dim + 1, ties=ties)

    def flat_position(position: Position) -> Position:
        return (*position[:dim], position[dim] * size + position[dim + 1], *position[dim + 2 :])

    terms = tuple(
        dataclasses.replace(term, position=flat_position(term.position)) for term in answer.terms
    )
    return dataclasses.replace(answer, inputs=((x.shape, x.dtype),), terms=terms)
