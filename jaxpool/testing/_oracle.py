"""What a pool should give, computed in NumPy by loops written to be read. Slow, for small arrays.

Every op is two choices: which input elements one output element looks at (`_windows` for pools),
and a rule that turns their values into one value and into shares, how much of the output's
cotangent each of them gets. An `Answer` (`_answer.py`) keeps the shares, so that value, cotangent,
tangent and chosen positions all follow from one reading of the definition. A new op is a new way to
list elements, a new rule, or both.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxpool._geometry.window import Axis, Window, make_window
from jaxpool.testing._answer import (
    Answer,
    Position,
    Term,
    exact_sum,
    exact_values,
    is_floating,
    rounded,
)

Ties = Literal["first", "last", "split"]
Rule = Callable[[list[Any]], tuple[Any, list[float]]]

__all__ = [
    "Answer",
    "Position",
    "Rule",
    "Term",
    "Ties",
    "avg_pool",
    "exact_sum",
    "exact_values",
    "is_floating",
    "max_pool",
    "maximum",
    "median_pool",
    "min_pool",
    "minimum",
    "rank_pool",
    "rounded",
    "sum_pool",
]


# Rules: from the values of one window, in row-major order, to its value and the shares


def _choose(best: Callable[[list[Any]], Any], ties: Ties) -> Rule:
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


def _at_rank(rank: int | None, ties: Ties) -> Rule:
    """The value of a rank, None the median, NaN above all; the cotangent as in `_choose` among its equals."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        order = sorted(values, key=lambda value: (value != value, 0 if value != value else value))
        winner = order[len(values) // 2 if rank is None else rank]
        equal = [
            1 if value == winner or (value != value and winner != winner) else 0 for value in values
        ]
        return winner, _choose(max, ties)(equal)[1]

    return rule


def _divide(divisor: float) -> Rule:
    """The sum of the values over `divisor`, every one with the same share."""

    def rule(values: list[Any]) -> tuple[Any, list[float]]:
        return exact_sum(values) / divisor, [1 / divisor] * len(values)

    return rule


def _add(values: list[Any]) -> tuple[Any, list[float]]:
    """The sum of the values."""
    return exact_sum(values), [1.0] * len(values)


# Windowed pools


def _tap_positions(dim: Axis, output: int) -> list[int]:
    """Where the taps of window `output` lie along one axis: off `range(dim.size)` is no element."""
    return [output * dim.stride - dim.low + tap * dim.dilation for tap in range(dim.window)]


def _windows(window: Window) -> Iterator[tuple[Position, list[Position]]]:
    """Each output position and the input positions in its window, along the pooled axes."""
    for output in np.ndindex(*window.output_shape):
        per_axis = []
        for dim, o in zip(window.dims, output, strict=True):
            per_axis.append([at for at in _tap_positions(dim, o) if 0 <= at < dim.size])
        yield output, list(itertools.product(*per_axis))


def _counted(window: Window, output: Position) -> int:
    """Taps of a window in the input or its explicit padding, a ceil overhang left out."""
    count = 1
    for dim, o in zip(window.dims, output, strict=True):
        count *= sum(at < dim.size + dim.high for at in _tap_positions(dim, o))
    return count


def _lanes(shape: Sequence[int], axes: Sequence[int]) -> Iterator[list[int]]:
    """Every position along the axes that are not pooled, 0 along those that are."""
    yield from (
        list(lane) for lane in np.ndindex(*(1 if i in axes else n for i, n in enumerate(shape)))
    )


def _at(lane: list[int], axes: Sequence[int], position: Position) -> Position:
    """`lane` with `position` along the pooled axes."""
    full = list(lane)
    for axis, index in zip(axes, position, strict=True):
        full[axis] = index
    return tuple(full)


def _pool(
    x: Any, window: Window, rule_of: Callable[[Position, int], Rule], dtype: Any = None
) -> Answer:
    """Applies `rule_of(output, number of real elements)` to every window of every lane of `x`."""
    x = np.asarray(x)
    values = exact_values(x)
    y = np.zeros(window.pooled(x.shape), object)
    indices = np.zeros(y.shape, np.int32)
    terms = []
    for lane in _lanes(x.shape, window.axes):
        for output, elements in _windows(window):
            positions = [_at(lane, window.axes, element) for element in elements]
            target = _at(lane, window.axes, output)
            rule = rule_of(output, len(elements))
            y[target], shares = rule([values[position] for position in positions])
            for element, position, share in zip(elements, positions, shares, strict=True):
                if share:
                    terms.append(Term(target, 0, position, share))
                    indices[target] = np.ravel_multi_index(element, window.input_shape)
    dtype = x.dtype if dtype is None else dtype
    return Answer(rounded(y, dtype), ((x.shape, x.dtype),), tuple(terms), indices)


def max_pool(x: Any, *geometry: Any, ties: Ties = "first", **options: Any) -> Answer:
    """The largest element of each window; `geometry` and `options` as in `jaxpool.max_pool`.

    >>> import numpy as np
    >>> answer = max_pool(np.array([[3.0], [1.0], [2.0], [5.0]]), (2,), (2,))
    >>> answer.y.ravel(), answer.indices.ravel()
    (array([3., 5.]), array([0, 3], dtype=int32))
    >>> answer.cotangent(np.array([[10.0], [20.0]])).ravel()
    array([10.,  0.,  0., 20.])
    """
    window = make_window(np.shape(x), *geometry, **options)
    return _indexed(_pool(x, window, lambda output, count: _choose(max, ties)), ties)


def min_pool(x: Any, *geometry: Any, ties: Ties = "first", **options: Any) -> Answer:
    """The smallest element of each window; `geometry` and `options` as in `jaxpool.min_pool`."""
    window = make_window(np.shape(x), *geometry, **options)
    return _indexed(_pool(x, window, lambda output, count: _choose(min, ties)), ties)


def median_pool(x: Any, *geometry: Any, ties: Ties = "first", **options: Any) -> Answer:
    """The median of each window; `geometry` and `options` as in `jaxpool.median_pool`."""
    return rank_pool(x, None, *geometry, ties=ties, **options)


def rank_pool(
    x: Any, rank: int | None, *geometry: Any, ties: Ties = "first", **options: Any
) -> Answer:
    """The element of `rank` of each window, None the median, as in `jaxpool.rank_pool`."""
    window = make_window(np.shape(x), *geometry, **options)
    return _indexed(_pool(x, window, lambda output, count: _at_rank(rank, ties)), ties)


def _indexed(answer: Answer, ties: Ties) -> Answer:
    return dataclasses.replace(answer, indices=None) if ties == "split" else answer


def sum_pool(x: Any, *geometry: Any, **options: Any) -> Answer:
    """The sum of each window; `geometry` and `options` as in `jaxpool.sum_pool`."""
    window = make_window(np.shape(x), *geometry, **options)
    return dataclasses.replace(_pool(x, window, lambda output, count: _add), indices=None)


def avg_pool(
    x: Any,
    window_shape: Any,
    strides: Any = None,
    padding: Any = "VALID",
    count_include_pad: bool = True,
    *,
    divisor: float | None = None,
    **options: Any,
) -> Answer:
    """The mean of each window, arguments as in `jaxpool.avg_pool`; integers give float32."""
    window = make_window(np.shape(x), window_shape, strides, padding, **options)
    dtype = np.asarray(x).dtype

    def rule_of(output: Position, count: int) -> Rule:
        if divisor is not None:
            return _divide(divisor)
        return _divide(_counted(window, output) if count_include_pad else count)

    answer = _pool(x, window, rule_of, dtype if is_floating(dtype) else np.dtype(np.float32))
    return dataclasses.replace(answer, indices=None)


# Elementwise


def _elementwise(xs: Sequence[Any], rule: Rule) -> Answer:
    """Applies `rule` to the elements of `xs`, broadcast together, that share a position."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = np.dtype(jnp.result_type(*xs))
    arrays = [np.asarray(x) for x in xs]
    values = [exact_values(rounded(exact_values(x), dtype)) for x in arrays]
    y = np.zeros(np.broadcast_shapes(*(x.shape for x in arrays)), object)
    terms = []
    for output in np.ndindex(*y.shape):
        own = [_unbroadcast(output, x.shape) for x in arrays]
        y[output], shares = rule([value[at] for value, at in zip(values, own, strict=True)])
        for operand, share in enumerate(shares):
            if share:
                terms.append(Term(output, operand, own[operand], share))
    inputs = tuple(
        (array.shape, np.dtype(jnp.result_type(x))) for array, x in zip(arrays, xs, strict=True)
    )
    return Answer(rounded(y, dtype), inputs, tuple(terms))


def _unbroadcast(position: Position, shape: tuple[int, ...]) -> Position:
    """The element of an array of `shape` that stands at `position` of the broadcast result."""
    own = position[len(position) - len(shape) :]
    return tuple(0 if size == 1 else index for index, size in zip(own, shape, strict=True))


def maximum(*xs: Any, ties: Ties = "split") -> Answer:
    """The largest of the elements of `xs` that share a position, as in `jaxpool.maximum`."""
    return _elementwise(xs, _choose(max, ties))


def minimum(*xs: Any, ties: Ties = "split") -> Answer:
    """The smallest of the elements of `xs` that share a position, as in `jaxpool.minimum`."""
    return _elementwise(xs, _choose(min, ties))
