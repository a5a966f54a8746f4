"""Building blocks of the oracle: rules, and functions that apply a rule to each window.

A rule maps the values of one window to the output value and to shares. The share of an element is the derivative of
the output with respect to the element. A windowed pool is a rule and the positions of each window, from
`jaxpool.testing._windows`. `apply_reducer` applies the rule to every window.
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
Reducer = Callable[[list[Any]], tuple[Any, list[float]]]
ExtremumFunction = Callable[[list[Any]], Any]


# Rules: from the values of one window, in row-major order, to the output value and the shares


def extremum_reducer(best_of: Callable[[list[Any]], Any], ties: Ties) -> Reducer:
    """A rule: the best value, or NaN if the window has a NaN. `ties` selects which of the tied elements get shares."""

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        nan_indices = [i for i, value in enumerate(values) if value != value]
        winner = math.nan if nan_indices else best_of(values)
        tied_indices = nan_indices or [i for i, value in enumerate(values) if value == winner]
        shares = [0.0] * len(values)
        if ties == "split":
            for i in tied_indices:
                shares[i] = 1 / len(tied_indices)
        else:
            shares[tied_indices[0] if ties == "first" else tied_indices[-1]] = 1.0
        return winner, shares

    if ties not in ("first", "last", "split"):
        raise ValueError(f"ties must be 'first', 'last' or 'split'; got {ties!r}")
    return reducer


def rank_reducer(rank: int | str, ties: Ties) -> Reducer:
    """A rule: the value at `rank`, or the "lower", "higher" or "midpoint" median of the window. NaN ranks last.

    `ties` selects among equal elements as in `extremum_reducer`. If the window has too few values, the result is 0.
    """
    if rank == "midpoint":
        return _mean_of_reducers(rank_reducer("lower", ties), rank_reducer("higher", ties))

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        count = len(values)
        median_index = {"higher": count // 2, "lower": (count - 1) // 2}
        index = median_index[rank] if isinstance(rank, str) else rank
        if not -count <= index < count:
            return 0, [0.0] * count
        sorted_values = sorted(
            values, key=lambda value: (value != value, 0 if value != value else value)
        )
        winner = sorted_values[index]
        is_winner = [
            1 if value == winner or (value != value and winner != winner) else 0 for value in values
        ]
        return winner, extremum_reducer(max, ties)(is_winner)[1]

    return reducer


def _mean_of_reducers(first_reducer: Reducer, second_reducer: Reducer) -> Reducer:
    """The mean of the values and of the shares of two rules."""

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        results = [reduce_values(values) for reduce_values in (first_reducer, second_reducer)]
        shares = [(a + b) / 2 for a, b in zip(results[0][1], results[1][1], strict=True)]
        return exact_sum([value for value, _ in results]) / 2, shares

    return reducer


def divided_sum_reducer(divisor: float) -> Reducer:
    """The sum of the values over `divisor`, with equal shares."""

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        return exact_sum(values) / divisor, [1 / divisor] * len(values)

    return reducer


def sum_reducer(values: list[Any]) -> tuple[Any, list[float]]:
    """The sum of the values."""
    return exact_sum(values), [1.0] * len(values)


def mean_reducer(values: list[Any]) -> tuple[Any, list[float]]:
    """The average of the values; 0 if there are no values."""
    return divided_sum_reducer(len(values))(values) if values else (0.0, [])


def reducer_with_empty_value(reducer: Reducer, empty_value: Any) -> Reducer:
    """`reducer`, or the value `empty_value` if there are no values."""
    return lambda values: reducer(values) if values else (empty_value, [])


def extremum_reducer_of_dtype(kind: Literal["max", "min"], ties: Ties, dtype: Any) -> Reducer:
    """The maximum or minimum of the values, or `extremum_identity` if there are no values."""
    best_of = builtins.max if kind == "max" else builtins.min
    return reducer_with_empty_value(extremum_reducer(best_of, ties), extremum_identity(dtype, kind))


def extremum_identity(dtype: Any, kind: Literal["max", "min"]) -> Any:
    """The lowest value of a dtype for "max", the highest for "min": an infinity if the dtype has one."""
    if dtype == np.bool_:
        return kind == "min"
    info = jnp.finfo(dtype) if is_floating(dtype) else jnp.iinfo(dtype)
    bound = info.min if kind == "max" else info.max
    if not is_floating(dtype):
        return int(bound)
    infinity = float(round_to_dtype(-np.inf if kind == "max" else np.inf, dtype))
    return infinity if math.isinf(infinity) else float(bound)


def scaled_exponentials(values: list[Any], temperature: float) -> tuple[float, list[float], float]:
    """The maximum of the values, `exp((value - maximum) / t)` of each value, and the sum of these exponentials."""
    maximum = max(map(float, values))
    powers = [math.exp((float(value) - maximum) / temperature) for value in values]
    return maximum, powers, math.fsum(powers)


def logsumexp_reducer(temperature: float) -> Reducer:
    """`temperature * log(sum of exp(value / temperature))`; the shares are the softmax weights."""

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        maximum, powers, total = scaled_exponentials(values, temperature)
        return maximum + temperature * math.log(total), [power / total for power in powers]

    return reducer


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
    position = list(unpooled_position)
    for axis, index in zip(pooled_axes, pooled_position, strict=True):
        position[axis] = index
    return tuple(position)


def mean_dtype(x: Any) -> Any:
    """The dtype of an average of x."""
    dtype = np.asarray(x).dtype
    return (
        dtype if is_floating(dtype) else np.dtype("float64" if dtype.itemsize == 8 else "float32")
    )


def apply_reducer(
    x: Any,
    axes: Sequence[int],
    output_sizes: Sequence[int],
    window_positions_of_lane: Callable[[list[int]], WindowPositions],
    reducer_of_output: Callable[[Position], Reducer],
    dtype: Any = None,
    where: Any = None,
) -> Answer:
    """Apply `reducer_of_output(output)` to the elements of every window that are True in `where`.

    A lane is the part of x at one position along the axes that are not pooled. `window_positions_of_lane(lane)` returns
    the positions of the `output_sizes[i]` windows along each axis `axes[i]`.
    """
    x = np.asarray(x)
    values = as_exact_numbers(x)
    mask = np.broadcast_to(True if where is None else where, x.shape)
    shape = merge_positions(list(x.shape), axes, tuple(output_sizes))
    y, terms = np.zeros(shape, object), []
    for lane in unpooled_positions(x.shape, axes):
        window_positions = window_positions_of_lane(lane)
        for output in np.ndindex(*output_sizes):
            window = [positions[o] for positions, o in zip(window_positions, output, strict=True)]
            elements = [merge_positions(lane, axes, index) for index in itertools.product(*window)]
            elements = [position for position in elements if mask[position]]
            target = merge_positions(lane, axes, output)
            y[target], shares = reducer_of_output(target)([values[p] for p in elements])
            for position, share in zip(elements, shares, strict=True):
                if share:
                    terms.append(Term(target, 0, position, share))
    dtype = x.dtype if dtype is None else dtype
    return Answer(round_to_dtype(y, dtype), ((x.shape, x.dtype),), tuple(terms))


def apply_reducer_to_windows(
    x: Any,
    windows: Windows,
    reducer_of_output: Callable[[Position], Reducer],
    dtype: Any = None,
    where: Any = None,
) -> Answer:
    """Apply `reducer_of_output(output)` to the elements of each window of x that are True in `where`."""
    taps = windows.element_positions
    return apply_reducer(
        x, windows.axes, windows.output_shape, lambda lane: taps, reducer_of_output, dtype, where
    )


def extremum_of_windows(
    kind: Literal["max", "min"], x: Any, windows: Windows, ties: Ties, where: Any = None
) -> Answer:
    """The maximum or minimum of each window, with its index."""
    reducer = extremum_reducer_of_dtype(kind, ties, np.asarray(x).dtype)
    answer = apply_reducer_to_windows(x, windows, lambda output: reducer, where=where)
    return add_indices(answer, windows.axes)


def add_indices(answer: Answer, axes: Sequence[int]) -> Answer:
    """`answer` with the flat index, over the pooled axes, of the first element of each window with a share.

    The index of a window without such an element is the number of elements.
    """
    ((shape, _),) = answer.inputs
    sizes = [shape[axis] for axis in axes]
    indices = np.full(answer.y.shape, math.prod(sizes), np.int32)
    for term in reversed(answer.terms):
        pooled_position = tuple(term.position[axis] for axis in axes)
        indices[term.output] = np.ravel_multi_index(pooled_position, sizes)
    return dataclasses.replace(answer, indices=indices)


def mean_of_windows(x: Any, windows: Windows, where: Any = None) -> Answer:
    """The average of each window; 0 for a window without elements."""
    return apply_reducer_to_windows(x, windows, lambda output: mean_reducer, mean_dtype(x), where)


def scale_error_by_value(answer: Answer) -> Answer:
    """`answer`, with its absolute values as the scale of its rounding error."""
    return dataclasses.replace(answer, size=np.abs(answer.y.astype(float)))


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
    terms_by_output: dict[Position, list[Term]] = {}
    for term in inner_term.terms:
        terms_by_output.setdefault(term.output, []).append(term)
    terms = tuple(
        dataclasses.replace(inner_term, output=term.output, share=inner_term.share * term.share)
        for term in outer.terms
        for inner_term in terms_by_output.get(term.position, [])
    )
    return dataclasses.replace(outer, inputs=inner_term.inputs, terms=terms)


# Elementwise


def apply_reducer_elementwise(xs: Sequence[Any], reducer: Reducer) -> Answer:
    """Broadcast `xs` and apply `reducer` to the elements at each position."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = np.dtype(jnp.result_type(*xs))
    arrays = [np.asarray(x) for x in xs]
    values = [as_exact_numbers(round_to_dtype(as_exact_numbers(x), dtype)) for x in arrays]
    y = np.zeros(np.broadcast_shapes(*(x.shape for x in arrays)), object)
    terms = []
    for output in np.ndindex(*y.shape):
        positions = [unbroadcast_position(output, x.shape) for x in arrays]
        y[output], shares = reducer([value[p] for value, p in zip(values, positions, strict=True)])
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
