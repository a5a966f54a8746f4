"""Building blocks of the oracle: rules, and functions that apply a rule to each window.

A rule maps the values of one window to the output value and to shares. The share of an element is the derivative of
the output with respect to the element. A windowed pool is a rule and the positions of each window, from
`jaxpool.testing._windows`. `pool` applies the rule to every window.
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


# Rules: from the values of one window, in row-major order, to the output value and the shares


def choose(best: Callable[[list[Any]], Any], ties: Ties) -> Rule:
    """The best value, or NaN if the window contains one. `ties` selects which of the tied elements get shares."""

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
    """The value at a rank, or a median: "lower", "higher" or "midpoint" of the two middle values. NaN ranks last.

    `ties` selects among equal elements as in `choose`. If the window has too few values, the result is 0.
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
    """The mean of the values and of the shares of two rules."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        pair = [each(values) for each in (first, second)]
        shares = [(a + b) / 2 for a, b in zip(pair[0][1], pair[1][1], strict=True)]
        return exact_sum([value for value, _ in pair]) / 2, shares

    return rule


def divide(divisor: float) -> Rule:
    """The sum of the values over `divisor`, with equal shares."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        return exact_sum(values) / divisor, [1 / divisor] * len(values)

    return rule


def add(values: list[Any]) -> tuple[Any, list[float]]:
    """The sum of the values."""
    return exact_sum(values), [1.0] * len(values)


def mean(values: list[Any]) -> tuple[Any, list[float]]:
    """The average of the values; 0 if there are no values."""
    return divide(len(values))(values) if values else (0.0, [])


def unless_empty(rule: Rule, empty: Any) -> Rule:
    """`rule`, or the value `empty` if there are no values."""
    return lambda values: rule(values) if values else (empty, [])


def extreme_or_worst(kind: Literal["max", "min"], ties: Ties, dtype: Any) -> Rule:
    """The maximum or minimum of the values, or `worst` if there are no values."""
    best = builtins.max if kind == "max" else builtins.min
    return unless_empty(choose(best, ties), worst(dtype, kind))


def worst(dtype: Any, kind: Literal["max", "min"]) -> Any:
    """The lowest value of a dtype for "max", the highest for "min": an infinity if the dtype has one."""
    if dtype == np.bool_:
        return kind == "min"
    info = jnp.finfo(dtype) if is_floating(dtype) else jnp.iinfo(dtype)
    bound = info.min if kind == "max" else info.max
    if not is_floating(dtype):
        return int(bound)
    infinite = float(rounded(-np.inf if kind == "max" else np.inf, dtype))
    return infinite if math.isinf(infinite) else float(bound)


def exponentials(values: list[Any], t: float) -> tuple[float, list[float], float]:
    """The maximum of the values, `exp((value - maximum) / t)` of each value, and the sum of these exponentials."""
    largest = max(map(float, values))
    powers = [math.exp((float(value) - largest) / t) for value in values]
    return largest, powers, math.fsum(powers)


def log_of_sum(t: float) -> Rule:
    """`t * log(sum of exp(value / t))`; the shares are the softmax weights."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        largest, powers, total = exponentials(values, t)
        return largest + t * math.log(total), [power / total for power in powers]

    return rule


# Windows


def lanes(shape: Sequence[int], axes: Sequence[int]) -> Iterator[list[int]]:
    """Every position along the axes that are not pooled, with 0 along the pooled axes."""
    yield from (
        list(lane) for lane in np.ndindex(*(1 if i in axes else n for i, n in enumerate(shape)))
    )


def at(lane: list[int], axes: Sequence[int], position: Position) -> Position:
    """`lane`, with `position` along the pooled axes."""
    full = list(lane)
    for axis, index in zip(axes, position, strict=True):
        full[axis] = index
    return tuple(full)


def float_dtype(x: Any) -> Any:
    """The dtype of an average of x."""
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
    """Apply `rule_of(output)` to the elements of every window that are True in `where`.

    A lane is the part of x at one position along the axes that are not pooled. `lists_of(lane)` returns the positions
    of the `outputs[i]` windows along each axis `axes[i]`. `indices` of the answer holds the first element of each
    window with a nonzero share.
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
            window = [along[o] for along, o in zip(lists, output, strict=True)]
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
    """Apply `rule_of(output)` to the same windows in every lane."""
    lists = windows.elements
    return pool(x, windows.axes, windows.output_shape, lambda lane: lists, rule_of, dtype, where)


def extremum(
    kind: Literal["max", "min"], x: Any, windows: Windows, ties: Ties, where: Any = None
) -> Answer:
    """The maximum or minimum of each window, with the index of the first element that receives the cotangent."""
    rule = extreme_or_worst(kind, ties, np.asarray(x).dtype)
    return windowed(x, windows, lambda output: rule, where=where)


def chosen(answer: Answer, ties: Ties) -> Answer:
    """`answer`, without indices if tied elements share the cotangent."""
    return dataclasses.replace(answer, indices=None) if ties == "split" else answer


def summed(answer: Answer, size: Any = None) -> Answer:
    """`answer` without indices, with `size` as the scale of its rounding error."""
    return dataclasses.replace(answer, indices=None, size=size)


def squeezed(answer: Answer, axes: Sequence[int]) -> Answer:
    """`answer` with its `axes` of size 1 removed."""

    def short(position: Position) -> Position:
        return tuple(index for i, index in enumerate(position) if i not in axes)

    def cut(array: np.ndarray | None) -> Any:
        return None if array is None else np.squeeze(array, tuple(axes))

    terms = tuple(dataclasses.replace(term, output=short(term.output)) for term in answer.terms)
    arrays = {"y": cut(answer.y), "indices": cut(answer.indices), "size": cut(answer.size)}
    return dataclasses.replace(answer, terms=terms, **arrays)


def after(second: Answer, first: Answer) -> Answer:
    """Compose two pools: `second` is the answer for the input `first.y`."""
    by_output: dict[Position, list[Term]] = {}
    for term in first.terms:
        by_output.setdefault(term.output, []).append(term)
    terms = tuple(
        dataclasses.replace(inner, output=term.output, share=inner.share * term.share)
        for term in second.terms
        for inner in by_output.get(term.position, [])
    )
    return dataclasses.replace(second, inputs=first.inputs, terms=terms)


# Elementwise


def elementwise(xs: Sequence[Any], rule: Rule) -> Answer:
    """Broadcast `xs` and apply `rule` to the elements at each position."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = np.dtype(jnp.result_type(*xs))
    arrays = [np.asarray(x) for x in xs]
    values = [exact_values(rounded(exact_values(x), dtype)) for x in arrays]
    y = np.zeros(np.broadcast_shapes(*(x.shape for x in arrays)), object)
    terms = []
    for output in np.ndindex(*y.shape):
        positions = [unbroadcast(output, x.shape) for x in arrays]
        y[output], shares = rule([value[at] for value, at in zip(values, positions, strict=True)])
        for operand, share in enumerate(shares):
            if share:
                terms.append(Term(output, operand, positions[operand], share))
    inputs = tuple(
        (array.shape, np.dtype(jnp.result_type(x))) for array, x in zip(arrays, xs, strict=True)
    )
    return Answer(rounded(y, dtype), inputs, tuple(terms))


def unbroadcast(position: Position, shape: tuple[int, ...]) -> Position:
    """The position in an array of `shape` of the element at `position` of the broadcast result."""
    aligned = position[len(position) - len(shape) :]
    return tuple(0 if size == 1 else index for index, size in zip(aligned, shape, strict=True))
