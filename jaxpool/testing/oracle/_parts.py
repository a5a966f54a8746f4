"""Building blocks of the oracle: rules, and functions that apply a rule to each window.

A rule maps the values of one window to the output value and to shares. The share of an element is the derivative of
the output with respect to the element. A windowed pool is a rule and the positions of each window, from
`jaxpool.testing._windows`. `apply_reducer` applies the rule to every window.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

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
from jaxpool.testing._windows import Windows

Ties = Literal["first", "last", "split"]
Kind = Literal["max", "min"]
KINDS: tuple[Kind, ...] = ("max", "min")
Reducer = Callable[[list[Any]], tuple[Any, list[float]]]
Element = tuple[int, Position]  # operand, and position in it
ExtremumFunction = Callable[[list[Any]], Any]
BEST_OF: dict[Kind, ExtremumFunction] = {"max": max, "min": min}


# Rules: from the values of one window, in row-major order, to the output value and the shares


def extremum_reducer(best_of: ExtremumFunction, ties: Ties) -> Reducer:
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
        lower, higher = rank_reducer("lower", ties), rank_reducer("higher", ties)

        def midpoint(values: list[Any]) -> tuple[Any, list[float]]:
            (low, low_shares), (high, high_shares) = lower(values), higher(values)
            pairs = zip(low_shares, high_shares, strict=True)
            return exact_sum([low, high]) / 2, [(a + b) / 2 for a, b in pairs]

        return midpoint

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        count = len(values)
        median_index = {"higher": count // 2, "lower": (count - 1) // 2}
        index = median_index[rank] if isinstance(rank, str) else rank
        if not -count <= index < count:
            return 0, [0.0] * count
        winner = sorted(values, key=lambda v: (v != v, 0 if v != v else v))[index]
        is_winner = [value == winner or (value != value and winner != winner) for value in values]
        return winner, extremum_reducer(max, ties)(is_winner)[1]

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


def extremum_identity(dtype: Any, kind: Kind) -> Any:
    """The lowest value of a dtype for "max", the highest for "min": an infinity if the dtype has one."""
    if dtype == np.bool_:
        return kind == "min"
    info = jnp.finfo(dtype) if is_floating(dtype) else jnp.iinfo(dtype)
    bound = info.min if kind == "max" else info.max
    if not is_floating(dtype):
        return int(bound)
    infinity = float(round_to_dtype(-np.inf if kind == "max" else np.inf, dtype))
    return infinity if math.isinf(infinity) else float(bound)


# Applying a rule


def apply_reducer(
    arrays: Sequence[np.ndarray],
    shape: Sequence[int],
    elements_of_output: Callable[[Position], list[Element]],
    reducer_of_output: Callable[[Position], Reducer],
    dtype: Any,
) -> Answer:
    """Apply `reducer_of_output(output)` to the elements of `arrays` that `elements_of_output(output)` lists."""
    values = [as_exact_numbers(x) for x in arrays]
    y, terms = np.zeros(shape, object), []
    for output in np.ndindex(*shape):
        elements = elements_of_output(output)
        y[output], shares = reducer_of_output(output)([values[i][at] for i, at in elements])
        for (operand, position), share in zip(elements, shares, strict=True):
            if share:
                terms.append(Term(output, operand, position, share))
    inputs = tuple((x.shape, x.dtype) for x in arrays)
    return Answer(round_to_dtype(y, dtype), inputs, tuple(terms))


def window_elements(
    output: Position, axes: Sequence[int], window: Sequence[Sequence[int]]
) -> list[Element]:
    """The elements of an output's window, which has the positions `window[i]` along `axes[i]`."""
    return [(0, merge_positions(output, axes, index)) for index in itertools.product(*window)]


def merge_positions(
    position: Sequence[int], axes: Sequence[int], pooled_position: Sequence[int]
) -> Position:
    """`position`, with `pooled_position` along `axes`."""
    merged = list(position)
    for axis, index in zip(axes, pooled_position, strict=True):
        merged[axis] = index
    return tuple(merged)


def mean_dtype(x: Any) -> Any:
    """The dtype of an average of x."""
    dtype = np.asarray(x).dtype
    if is_floating(dtype):
        return dtype
    return np.dtype("float64" if dtype.itemsize == 8 else "float32")


def apply_reducer_to_windows(
    x: Any,
    windows: Windows,
    reducer_of_output: Callable[[Position], Reducer],
    dtype: Any = None,
    where: Any = None,
) -> Answer:
    """Apply `reducer_of_output(output)` to the elements of each window of x that are True in `where`."""
    x = np.asarray(x)
    mask = np.broadcast_to(True if where is None else where, x.shape)
    positions_along_axes = list(zip(windows.axes, windows.element_positions, strict=True))

    def elements_of_output(output: Position) -> list[Element]:
        window = [positions[output[axis]] for axis, positions in positions_along_axes]
        elements = window_elements(output, windows.axes, window)
        return [element for element in elements if mask[element[1]]]

    shape = windows.output_shape_of(x.shape)
    dtype = x.dtype if dtype is None else dtype
    return apply_reducer([x], shape, elements_of_output, reducer_of_output, dtype)


def extremum_of_windows(
    kind: Kind,
    x: Any,
    windows: Windows,
    ties: Ties,
    where: Any = None,
    keepdims: bool = True,
) -> Answer:
    """The maximum or minimum of each window, with its index. `keepdims=False` removes the pooled axes."""
    reducer = reducer_with_empty_value(
        extremum_reducer(BEST_OF[kind], ties),
        extremum_identity(np.asarray(x).dtype, kind),
    )
    answer = apply_reducer_to_windows(x, windows, lambda output: reducer, where=where)
    answer = add_indices(answer, windows.axes)
    return answer if keepdims else squeeze_answer(answer, windows.axes)


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


def scale_error_by_value(answer: Answer) -> Answer:
    """`answer`, with its absolute values as the scale of its rounding error."""
    return dataclasses.replace(answer, size=np.abs(answer.y.astype(float)))


def squeeze_answer(answer: Answer, axes: Sequence[int]) -> Answer:
    """`answer` with its `axes` of size 1 removed."""
    y = np.squeeze(answer.y, tuple(axes))
    terms = []
    for term in answer.terms:
        output = tuple(index for axis, index in enumerate(term.output) if axis not in axes)
        terms.append(dataclasses.replace(term, output=output))
    indices = None if answer.indices is None else answer.indices.reshape(y.shape)
    return dataclasses.replace(answer, y=y, indices=indices, terms=tuple(terms))


def compose_answers(outer: Answer, inner: Answer) -> Answer:
    """Compose two pools: `outer` is the answer for the input `inner.y`."""
    terms_by_output: dict[Position, list[Term]] = {}
    for term in inner.terms:
        terms_by_output.setdefault(term.output, []).append(term)
    terms = tuple(
        dataclasses.replace(inner_term, output=term.output, share=inner_term.share * term.share)
        for term in outer.terms
        for inner_term in terms_by_output.get(term.position, [])
    )
    return dataclasses.replace(outer, inputs=inner.inputs, terms=terms)
