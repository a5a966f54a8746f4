"""Building blocks of the oracle: rules, and functions that apply a rule to each window.

A rule maps the values of one window to the output value and to shares. The share of an element is the derivative of
the output with respect to the element. A windowed pool is a rule and the positions of each window, from
`jaxpool.testing._windows`. `apply_rule` applies the rule to every window.
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
    as_exact_numbers,
    exact_sum,
    is_floating,
    round_to_dtype,
)
from jaxpool.testing._windows import WindowPositions, Windows

Ties = Literal["first", "last", "split"]
Rule = Callable[[list[Any]], tuple[Any, list[float]]]
ExtremumFunction = Callable[[list[Any]], Any]


# Rules: from the values of one window, in row-major order, to the output value and the shares


def extremum_rule(best: Callable[[list[Any]], Any], ties: Ties) -> Rule:
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


def rank_rule(rank: int | str, ties: Ties) -> Rule:
    """The value at a rank, or a median: "lower", "higher" or "midpoint" of the two middle values. NaN ranks last.

    `ties` selects among equal elements as in `extremum_rule`. If the window has too few values, the result is 0.
    """
    if rank == "midpoint":
        return _mean_of_rules(rank_rule("lower", ties), rank_rule("higher", ties))

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        count = len(values)
        middle = {"higher": count // 2, "lower": (count - 1) // 2}
        index = middle[rank] if isinstance(rank, str) else rank
        if not -count <= index < count:
            return 0, [0.0] * count
        sorted_values = sorted(
            values, key=lambda value: (value != value, 0 if value != value else value)
        )
        winner = sorted_values[index]
        equal = [
            1 if value == winner or (value != value and winner != winner) else 0 for value in values
        ]
        return winner, extremum_rule(max, ties)(equal)[1]

    return rule


def _mean_of_rules(first_rule: Rule, second_rule: Rule) -> Rule:
    """The mean of the values and of the shares of two rules."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        pair = [each(values) for each in (first_rule, second_rule)]
        shares = [(a + b) / 2 for a, b in zip(pair[0][1], pair[1][1], strict=True)]
        return exact_sum([value for value, _ in pair]) / 2, shares

    return rule


def divided_sum_rule(divisor: float) -> Rule:
    """The sum of the values over `divisor`, with equal shares."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        return exact_sum(values) / divisor, [1 / divisor] * len(values)

    return rule


def sum_rule(values: list[Any]) -> tuple[Any, list[float]]:
    """The sum of the values."""
    return exact_sum(values), [1.0] * len(values)


def mean_rule(values: list[Any]) -> tuple[Any, list[float]]:
    """The average of the values; 0 if there are no values."""
    return divided_sum_rule(len(values))(values) if values else (0.0, [])


def rule_with_empty_value(rule: Rule, default: Any) -> Rule:
    """`rule`, or the value `default` if there are no values."""
    return lambda values: rule(values) if values else (default, [])


def extremum_rule_of_dtype(kind: Literal["max", "min"], ties: Ties, dtype: Any) -> Rule:
    """The maximum or minimum of the values, or `extremum_identity` if there are no values."""
    best = builtins.max if kind == "max" else builtins.min
    return rule_with_empty_value(extremum_rule(best, ties), extremum_identity(dtype, kind))


def extremum_identity(dtype: Any, kind: Literal["max", "min"]) -> Any:
    """The lowest value of a dtype for "max", the highest for "min": an infinity if the dtype has one."""
    if dtype == np.bool_:
        return kind == "min"
    info = jnp.finfo(dtype) if is_floating(dtype) else jnp.iinfo(dtype)
    bound = info.min if kind == "max" else info.max
    if not is_floating(dtype):
        return int(bound)
    infinite = float(round_to_dtype(-np.inf if kind == "max" else np.inf, dtype))
    return infinite if math.isinf(infinite) else float(bound)


def scaled_exponentials(values: list[Any], temperature: float) -> tuple[float, list[float], float]:
    """The maximum of the values, `exp((value - maximum) / t)` of each value, and the sum of these exponentials."""
    largest = max(map(float, values))
    powers = [math.exp((float(value) - largest) / temperature) for value in values]
    return largest, powers, math.fsum(powers)


def logsumexp_rule(temperature: float) -> Rule:
    """`temperature * log(sum of exp(value / temperature))`; the shares are the softmax weights."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        largest, powers, total = scaled_exponentials(values, temperature)
        return largest + temperature * math.log(total), [power / total for power in powers]

    return rule


# Windows


def unpooled_positions(shape: Sequence[int], pooled_axes: Sequence[int]) -> Iterator[list[int]]:
    """Every position along the axes that are not pooled, with 0 along the pooled axes."""
    yield from (
        list(lane)
        for lane in np.ndindex(*(1 if i in pooled_axes else n for i, n in enumerate(shape)))
    )


def merge_positions(
    unpooled_position: list[int], pooled_axes: Sequence[int], pooled_position: Position
) -> Position:
    """`unpooled_position`, with `pooled_position` along the pooled axes."""
    full = list(unpooled_position)
    for axis, index in zip(pooled_axes, pooled_position, strict=True):
        full[axis] = index
    return tuple(full)


def mean_dtype(x: Any) -> Any:
    """The dtype of an average of x."""
    dtype = np.asarray(x).dtype
    return (
        dtype if is_floating(dtype) else np.dtype("float64" if dtype.itemsize == 8 else "float32")
    )


def apply_rule(
    x: Any,
    axes: Sequence[int],
    output_sizes: Sequence[int],
    window_positions_of_lane: Callable[[list[int]], WindowPositions],
    rule_of_output: Callable[[Position], Rule],
    dtype: Any = None,
    where: Any = None,
) -> Answer:
    """Apply `rule_of_output(output)` to the elements of every window that are True in `where`.

    A lane is the part of x at one position along the axes that are not pooled. `window_positions_of_lane(lane)` returns
    the positions of the `output_sizes[i]` windows along each axis `axes[i]`. `indices` of the answer holds the first
    element of each window with a nonzero share.
    """
    x = np.asarray(x)
    values = as_exact_numbers(x)
    mask = np.broadcast_to(True if where is None else where, x.shape)
    sizes = [x.shape[axis] for axis in axes]
    shape = merge_positions(list(x.shape), axes, tuple(output_sizes))
    y, indices, terms = np.zeros(shape, object), np.zeros(shape, np.int32), []
    for lane in unpooled_positions(x.shape, axes):
        lists = window_positions_of_lane(lane)
        for output in np.ndindex(*output_sizes):
            window = [along[o] for along, o in zip(lists, output, strict=True)]
            pairs = [
                (each, merge_positions(lane, axes, each)) for each in itertools.product(*window)
            ]
            pairs = [(each, position) for each, position in pairs if mask[position]]
            target = merge_positions(lane, axes, output)
            y[target], shares = rule_of_output(target)([values[position] for _, position in pairs])
            chosen = [(*pair, s) for pair, s in zip(pairs, shares, strict=True) if s]
            terms += [Term(target, 0, position, share) for _, position, share in chosen]
            if chosen:
                indices[target] = np.ravel_multi_index(chosen[0][0], sizes)
    dtype = x.dtype if dtype is None else dtype
    return Answer(round_to_dtype(y, dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def apply_rule_to_windows(
    x: Any,
    windows: Windows,
    rule_of_output: Callable[[Position], Rule],
    dtype: Any = None,
    where: Any = None,
) -> Answer:
    """Apply `rule_of_output(output)` to the same windows in every lane."""
    lists = windows.element_positions
    return apply_rule(
        x, windows.axes, windows.output_shape, lambda lane: lists, rule_of_output, dtype, where
    )


def extremum_of_windows(
    kind: Literal["max", "min"], x: Any, windows: Windows, ties: Ties, where: Any = None
) -> Answer:
    """The maximum or minimum of each window, with the index of the first element that receives the cotangent."""
    rule = extremum_rule_of_dtype(kind, ties, np.asarray(x).dtype)
    return apply_rule_to_windows(x, windows, lambda output: rule, where=where)


def without_indices_if_split(answer: Answer, ties: Ties) -> Answer:
    """`answer`, without indices if tied elements share the cotangent."""
    return dataclasses.replace(answer, indices=None) if ties == "split" else answer


def without_indices(answer: Answer, error_scale: Any = None) -> Answer:
    """`answer` without indices, with `error_scale` as the scale of its rounding error."""
    return dataclasses.replace(answer, indices=None, size=error_scale)


def squeeze_answer(answer: Answer, axes: Sequence[int]) -> Answer:
    """`answer` with its `axes` of size 1 removed."""

    def remove_axes(position: Position) -> Position:
        return tuple(index for i, index in enumerate(position) if i not in axes)

    def squeeze_array(array: np.ndarray | None) -> Any:
        return None if array is None else np.squeeze(array, tuple(axes))

    terms = tuple(
        dataclasses.replace(term, output=remove_axes(term.output)) for term in answer.terms
    )
    arrays = {
        "y": squeeze_array(answer.y),
        "indices": squeeze_array(answer.indices),
        "size": squeeze_array(answer.size),
    }
    return dataclasses.replace(answer, terms=terms, **arrays)


def compose_answers(outer: Answer, inner_term: Answer) -> Answer:
    """Compose two pools: `outer` is the answer for the input `inner_term.y`."""
    by_output: dict[Position, list[Term]] = {}
    for term in inner_term.terms:
        by_output.setdefault(term.output, []).append(term)
    terms = tuple(
        dataclasses.replace(inner_term, output=term.output, share=inner_term.share * term.share)
        for term in outer.terms
        for inner_term in by_output.get(term.position, [])
    )
    return dataclasses.replace(outer, inputs=inner_term.inputs, terms=terms)


# Elementwise


def apply_rule_elementwise(xs: Sequence[Any], rule: Rule) -> Answer:
    """Broadcast `xs` and apply `rule` to the elements at each position."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = np.dtype(jnp.result_type(*xs))
    arrays = [np.asarray(x) for x in xs]
    values = [as_exact_numbers(round_to_dtype(as_exact_numbers(x), dtype)) for x in arrays]
    y = np.zeros(np.broadcast_shapes(*(x.shape for x in arrays)), object)
    terms = []
    for output in np.ndindex(*y.shape):
        positions = [unbroadcast_position(output, x.shape) for x in arrays]
        y[output], shares = rule([value[at] for value, at in zip(values, positions, strict=True)])
        for operand, share in enumerate(shares):
            if share:
                terms.append(Term(output, operand, positions[operand], share))
    inputs = tuple(
        (array.shape, np.dtype(jnp.result_type(x))) for array, x in zip(arrays, xs, strict=True)
    )
    return Answer(round_to_dtype(y, dtype), inputs, tuple(terms))


def unbroadcast_position(position: Position, shape: tuple[int, ...]) -> Position:
    """The position in an array of `shape` of the element at `position` of the broadcast result."""
    aligned = position[len(position) - len(shape) :]
    return tuple(0 if size == 1 else index for index, size in zip(aligned, shape, strict=True))
