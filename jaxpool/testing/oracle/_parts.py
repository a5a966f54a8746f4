"""What the loops are made of: rules, and windows that a rule is applied to.

Every op is two choices: which input elements one output element looks at, and a rule that turns their values into one
value and into shares, how much of the output's cotangent each of them gets. A pool over windows is a list of positions
for each output along each pooled axis, and a rule; `pool` does the rest. `jaxpool.testing._windows` has the positions.
"""

from __future__ import annotations

import builtins
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool.testing._answer import (
    Answer,
    Position,
    Term,
    exact_sum,
    exact_values,
    is_floating,
    rounded,
)
from jaxpool.testing._windows import Lists, Windows

Ties = Literal["first", "last", "split"]
Rule = Callable[[list[Any]], tuple[Any, list[float]]]
Best = Callable[[list[Any]], Any]


# Rules: from the values of one window, in row-major order, to its value and the shares


def choose(best: Callable[[list[Any]], Any], ties: Ties) -> Rule:
    """The best value, NaN above all; the cotangent goes to the `ties` choice among the tied."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        nans = [i for i, value in enumerate(values) if value != value]
        winner = math.nan if nans else best(values)
        tied = nans or [i for i, value in enumerate(values) if value == winner]
        shares = [0.0] * len(values)
        if ties == "split":
            for i in tied:
                shares[i] = 1 / len(tied)
        else:
            shares[tied[0] if ties == "first" else tied[-1]] = 1.0
        return winner, shares

    if ties not in ("first", "last", "split"):
        raise ValueError(f"ties must be 'first', 'last' or 'split'; got {ties!r}")
    return rule


def at_rank(rank: int | str, ties: Ties) -> Rule:
    """The value of a rank or of a median, NaN above all; the cotangent as in `choose` among its equals.

    A median is the "higher" or the "lower" of the two in the middle, or "midpoint". Of too few values it is 0.
    """
    if rank == "midpoint":
        return _midpoint(at_rank("lower", ties), at_rank("higher", ties))

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        count = len(values)
        middle = {"higher": count // 2, "lower": (count - 1) // 2}
        place = middle[rank] if isinstance(rank, str) else rank
        if not -count <= place < count:
            return 0, [0.0] * count
        order = sorted(values, key=lambda value: (value != value, 0 if value != value else value))
        winner = order[place]
        equal = [
            1 if value == winner or (value != value and winner != winner) else 0 for value in values
        ]
        return winner, choose(max, ties)(equal)[1]

    return rule


def _midpoint(first: Rule, second: Rule) -> Rule:
    """The mean of the values of two rules, each with half of its shares."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        pair = [each(values) for each in (first, second)]
        shares = [(a + b) / 2 for a, b in zip(pair[0][1], pair[1][1], strict=True)]
        return exact_sum([value for value, _ in pair]) / 2, shares

    return rule


def divide(divisor: float) -> Rule:
    """The sum of the values over `divisor`, every one with the same share."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        return exact_sum(values) / divisor, [1 / divisor] * len(values)

    return rule


def add(values: list[Any]) -> tuple[Any, list[float]]:
    """The sum of the values."""
    return exact_sum(values), [1.0] * len(values)


def mean(values: list[Any]) -> tuple[Any, list[float]]:
    """The average of the values; 0 of none."""
    return divide(len(values))(values) if values else (0.0, [])


def unless_empty(rule: Rule, empty: Any) -> Rule:
    """The rule; of no values `empty`."""
    return lambda values: rule(values) if values else (empty, [])


def extreme_or_worst(kind: Literal["max", "min"], ties: Ties, dtype: Any) -> Rule:
    """The extreme of the values; of none the one that loses to all others."""
    best = builtins.max if kind == "max" else builtins.min
    return unless_empty(choose(best, ties), worst(dtype, kind))


def worst(dtype: Any, kind: Literal["max", "min"]) -> Any:
    """The value that loses to all others of a type: its infinity, if it has one."""
    if dtype == np.bool_:
        return kind == "min"
    info = jnp.finfo(dtype) if is_floating(dtype) else jnp.iinfo(dtype)
    bound = info.min if kind == "max" else info.max
    if not is_floating(dtype):
        return int(bound)
    infinite = float(rounded(-np.inf if kind == "max" else np.inf, dtype))
    return infinite if math.isinf(infinite) else float(bound)


def exponentials(values: list[Any], t: float) -> tuple[float, list[float], float]:
    """The largest value, the exponentials of what each is below it over t, and their sum."""
    largest = max(map(float, values))
    powers = [math.exp((float(value) - largest) / t) for value in values]
    return largest, powers, math.fsum(powers)


def log_of_sum(t: float) -> Rule:
    """The logarithm of the sum of exponentials, t times, each with its share in that sum."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        largest, powers, total = exponentials(values, t)
        return largest + t * math.log(total), [power / total for power in powers]

    return rule


# Windows


def lanes(shape: Sequence[int], axes: Sequence[int]) -> Iterator[list[int]]:
    """Every position along the axes that are not pooled, 0 along those that are."""
    yield from (
        list(lane) for lane in np.ndindex(*(1 if i in axes else n for i, n in enumerate(shape)))
    )


def at(lane: list[int], axes: Sequence[int], position: Position) -> Position:
    """`lane` with `position` along the pooled axes."""
    full = list(lane)
    for axis, index in zip(axes, position, strict=True):
        full[axis] = index
    return tuple(full)


def float_dtype(x: Any) -> Any:
    """The type of an average of x."""
    dtype = np.asarray(x).dtype
    return (
        dtype if is_floating(dtype) else np.dtype("float64" if dtype.itemsize == 8 else "float32")
    )


def pool(
    x: Any,
    axes: Sequence[int],
    outputs: Sequence[int],
    lists_of: Callable[[list[int]], Lists],
    rule_of: Callable[[Position], Rule],
    dtype: Any = None,
    where: Any = None,
) -> Answer:
    """Apply `rule_of(output)` to every window of every lane of x, or to its elements that are True in `where`.

    `lists_of(lane)` holds the positions of each of the `outputs[i]` windows along each of `axes[i]`. `indices` of the
    answer are those of the first element in each window that has a share.
    """
    x = np.asarray(x)
    values = exact_values(x)
    mask = np.broadcast_to(True if where is None else where, x.shape)
    sizes = [x.shape[axis] for axis in axes]
    shape = at(list(x.shape), axes, tuple(outputs))
    y, indices, terms = np.zeros(shape, object), np.zeros(shape, np.int32), []
    for lane in lanes(x.shape, axes):
        lists = lists_of(lane)
        for output in np.ndindex(*outputs):
            window = [own[o] for own, o in zip(lists, output, strict=True)]
            pairs = [(each, at(lane, axes, each)) for each in itertools.product(*window)]
            pairs = [(each, position) for each, position in pairs if mask[position]]
            target = at(lane, axes, output)
            y[target], shares = rule_of(target)([values[position] for _, position in pairs])
            chosen = [(*pair, s) for pair, s in zip(pairs, shares, strict=True) if s]
            terms += [Term(target, 0, position, share) for _, position, share in chosen]
            if chosen:
                indices[target] = np.ravel_multi_index(chosen[0][0], sizes)
    dtype = x.dtype if dtype is None else dtype
    return Answer(rounded(y, dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def windowed(
    x: Any,
    windows: Windows,
    rule_of: Callable[[Position], Rule],
    dtype: Any = None,
    where: Any = None,
) -> Answer:
    """Apply `rule_of(output)` to windows that are the same in every lane."""
    lists = windows.elements
    return pool(x, windows.axes, windows.output_shape, lambda lane: lists, rule_of, dtype, where)


def extremum(
    kind: Literal["max", "min"], x: Any, windows: Windows, ties: Ties, where: Any = None
) -> Answer:
    """The maximum or minimum of each window, with the index of the first element that shares the cotangent."""
    rule = extreme_or_worst(kind, ties, np.asarray(x).dtype)
    return windowed(x, windows, lambda output: rule, where=where)


def chosen(answer: Answer, ties: Ties) -> Answer:
    """The answer, without indices if tied elements share the cotangent."""
    return dataclasses.replace(answer, indices=None) if ties == "split" else answer


def summed(answer: Answer, size: Any = None) -> Answer:
    """An answer of sums, which chooses no element."""
    return dataclasses.replace(answer, indices=None, size=size)


def squeezed(answer: Answer, axes: Sequence[int]) -> Answer:
    """An answer without axes of size 1."""

    def short(position: Position) -> Position:
        return tuple(index for i, index in enumerate(position) if i not in axes)

    def cut(array: np.ndarray | None) -> Any:
        return None if array is None else np.squeeze(array, tuple(axes))

    terms = tuple(dataclasses.replace(term, output=short(term.output)) for term in answer.terms)
    arrays = {"y": cut(answer.y), "indices": cut(answer.indices), "size": cut(answer.size)}
    return dataclasses.replace(answer, terms=terms, **arrays)


def after(second: Answer, first: Answer) -> Answer:
    """Two pools one after the other: `second` is the answer of the values of `first`."""
    behind: dict[Position, list[Term]] = {}
    for term in first.terms:
        behind.setdefault(term.output, []).append(term)
    terms = tuple(
        dataclasses.replace(own, output=term.output, share=own.share * term.share)
        for term in second.terms
        for own in behind.get(term.position, [])
    )
    return dataclasses.replace(second, inputs=first.inputs, terms=terms)


# Elementwise


def elementwise(xs: Sequence[Any], rule: Rule) -> Answer:
    """Applies `rule` to the elements of `xs`, broadcast together, that share a position."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = np.dtype(jnp.result_type(*xs))
    arrays = [np.asarray(x) for x in xs]
    values = [exact_values(rounded(exact_values(x), dtype)) for x in arrays]
    y = np.zeros(np.broadcast_shapes(*(x.shape for x in arrays)), object)
    terms = []
    for output in np.ndindex(*y.shape):
        own = [unbroadcast(output, x.shape) for x in arrays]
        y[output], shares = rule([value[at] for value, at in zip(values, own, strict=True)])
        for operand, share in enumerate(shares):
            if share:
                terms.append(Term(output, operand, own[operand], share))
    inputs = tuple(
        (array.shape, np.dtype(jnp.result_type(x))) for array, x in zip(arrays, xs, strict=True)
    )
    return Answer(rounded(y, dtype), inputs, tuple(terms))


def unbroadcast(position: Position, shape: tuple[int, ...]) -> Position:
    """The element of an array of `shape` that stands at `position` of the broadcast result."""
    own = position[len(position) - len(shape) :]
    return tuple(0 if size == 1 else index for index, size in zip(own, shape, strict=True))
