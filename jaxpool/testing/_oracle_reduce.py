"""What reductions, running extremes and `fmax` should give, in NumPy loops; see `_oracle`."""

from __future__ import annotations

import builtins
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxpool.testing import _oracle
from jaxpool.testing._answer import Answer, Position, Term, exact_values, rounded
from jaxpool.testing._oracle import Rule, Ties

Best = Callable[[list[Any]], Any]


def _reduce(
    x: Any,
    axis: int | Sequence[int] | None,
    best: Best,
    keepdims: bool,
    where: Any,
    initial: Any,
    ties: Ties,
) -> Answer:
    """The best of what counts along the axes. With `initial`, which is operand 1, a tie is not its own."""
    x = np.asarray(x)
    values = exact_values(x)
    counts = np.broadcast_to(True if where is None else where, x.shape)
    given = range(x.ndim) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
    axes = tuple(entry % x.ndim for entry in given)
    choose, against = _oracle._choose(best, ties), _oracle._choose(best, "first")
    y = np.zeros([1 if i in axes else n for i, n in enumerate(x.shape)], object)
    terms: list[Term] = []
    for output in np.ndindex(*y.shape):
        elements = itertools.product(*[range(x.shape[entry]) for entry in axes])
        positions = [_oracle._at(list(output), axes, element) for element in elements]
        positions = [position for position in positions if counts[position]]
        candidates: list[Any] = []
        if positions:
            value, shares = choose([values[position] for position in positions])
            candidates.append(value)
        if initial is not None:
            candidates.append(exact_values(np.asarray(initial, x.dtype))[()])
        y[output], winner = against(candidates)
        if positions and winner[0]:
            terms += [Term(output, 0, p, s) for p, s in zip(positions, shares, strict=True) if s]
        else:
            terms.append(Term(output, 1, (), 1.0))
    inputs: list[tuple[tuple[int, ...], np.dtype]] = [(x.shape, x.dtype)]
    if initial is not None:
        inputs.append(((), x.dtype))
    answer = Answer(rounded(y, x.dtype), tuple(inputs), tuple(terms))
    return answer if keepdims else _squeezed(answer, axes)


def _squeezed(answer: Answer, axes: Sequence[int]) -> Answer:
    def short(position: Position) -> Position:
        return tuple(index for i, index in enumerate(position) if i not in axes)

    terms = tuple(dataclasses.replace(term, output=short(term.output)) for term in answer.terms)
    return dataclasses.replace(answer, y=np.squeeze(answer.y, tuple(axes)), terms=terms)


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
    return _reduce(x, axis, builtins.max, keepdims, where, initial, ties)


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
    return _reduce(x, axis, builtins.min, keepdims, where, initial, ties)


def maxout(x: Any, groups: int, *, axis: int = -1, ties: Ties = "split") -> Answer:
    """The maximum of each group of neighbours, as in `jaxpool.maxout`."""
    x = np.asarray(x)
    at = axis % x.ndim
    size = x.shape[at] // groups
    grouped = x.reshape(*x.shape[:at], groups, size, *x.shape[at + 1 :])
    answer = max(grouped, at + 1, ties=ties)

    def flat(position: Position) -> Position:
        return (*position[:at], position[at] * size + position[at + 1], *position[at + 2 :])

    terms = tuple(dataclasses.replace(term, position=flat(term.position)) for term in answer.terms)
    return dataclasses.replace(answer, inputs=((x.shape, x.dtype),), terms=terms)


def _cumulative(x: Any, axis: int, reverse: bool, rule: Rule) -> Answer:
    x = np.asarray(x)
    values = exact_values(x)
    at, size = axis % x.ndim, x.shape[axis]
    y = np.zeros(x.shape, object)
    indices = np.zeros(x.shape, np.int32)
    terms = []
    for output in np.ndindex(*x.shape):
        here = range(output[at], size) if reverse else range(output[at] + 1)
        positions = [(*output[:at], index, *output[at + 1 :]) for index in here]
        y[output], shares = rule([values[position] for position in positions])
        chosen = positions[shares.index(1.0)]
        indices[output] = chosen[at]
        terms.append(Term(output, 0, chosen, 1.0))
    return Answer(rounded(y, x.dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def cummax(x: Any, axis: int = -1, *, reverse: bool = False, ties: Ties = "first") -> Answer:
    """The running maximum and where it stands along the axis, as in `jaxpool.cummax`.

    >>> import numpy as np
    >>> cummax(np.array([1, 3, 2, 3]), ties="last").indices
    array([0, 1, 1, 3], dtype=int32)
    """
    return _cumulative(x, axis, reverse, _oracle._choose(builtins.max, ties))


def cummin(x: Any, axis: int = -1, *, reverse: bool = False, ties: Ties = "first") -> Answer:
    """The running minimum and where it stands along the axis, as in `jaxpool.cummin`."""
    return _cumulative(x, axis, reverse, _oracle._choose(builtins.min, ties))


def _numbers_first(best: Best, ties: Ties) -> Rule:
    """The best of the numbers, of the NaNs if there are only those."""
    choose = _oracle._choose(best, ties)

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        numbers = [i for i, value in enumerate(values) if value == value]
        kept = numbers or list(range(len(values)))
        value, some = choose([values[i] for i in kept])
        shares = [0.0] * len(values)
        for i, share in zip(kept, some, strict=True):
            shares[i] = share
        return value, shares

    return rule


def fmax(*xs: Any, ties: Ties = "split") -> Answer:
    """The larger element, a NaN losing to a number, as in `jaxpool.fmax`."""
    return _oracle._elementwise(xs, _numbers_first(builtins.max, ties))


def fmin(*xs: Any, ties: Ties = "split") -> Answer:
    """The smaller element, a NaN losing to a number, as in `jaxpool.fmin`."""
    return _oracle._elementwise(xs, _numbers_first(builtins.min, ties))
