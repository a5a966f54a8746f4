"""Oracle of maxima and minima other than pools: along axes, of several arrays, running, and local extrema."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Element, ExtremumFunction, Reducer, Ties

# Along axes


def _make_reduction_in_jnp(function_name: str) -> Callable[..., Any]:
    def jnp_function(x: Any, axis: Any, keepdims: bool, where: Any, initial: Any) -> Any:
        identity = -np.inf if function_name == "max" else np.inf
        init = identity if initial is None else initial
        return getattr(jnp, function_name)(x, axis, keepdims=keepdims, where=where, initial=init)

    return jnp_function


SAMPLE_VALUES = {"axis": (1, (1, 2)), "initial": (0.5,)}


@record("max", twin=_make_reduction_in_jnp("max"), choices=SAMPLE_VALUES)
def maximum_along_axes(
    x: Any, windows: Windows, keepdims: bool, where: Any, initial: Any, ties: Ties
) -> Answer:
    """The largest element along axes, as in `jaxpool.max`. `initial` is operand 1.

    >>> import numpy as np
    >>> from jaxpool.testing import oracle
    >>> answer = oracle.max(np.array([[1.0, 3.0, 3.0]]), axis=1)
    >>> answer.y, answer.cotangent(np.array([2.0]))
    (array([3.]), array([[0., 1., 1.]]))
    """
    answer = parts.extremum_of_windows("max", x, windows, ties, where, keepdims)
    return _compare_with_initial(answer, max, initial)


@record("min", twin=_make_reduction_in_jnp("min"), choices=SAMPLE_VALUES)
def minimum_along_axes(
    x: Any, windows: Windows, keepdims: bool, where: Any, initial: Any, ties: Ties
) -> Answer:
    """The smallest element along axes, as in `jaxpool.min`. `initial` is operand 1."""
    answer = parts.extremum_of_windows("min", x, windows, ties, where, keepdims)
    return _compare_with_initial(answer, min, initial)


def _compare_with_initial(answer: Answer, best_of: ExtremumFunction, initial: Any) -> Answer:
    """The better of each extremum and `initial`, which loses ties against elements."""
    if initial is None:
        return answer
    y, initial_terms = answer.y.copy(), {}
    initial_value = as_exact_numbers(np.asarray(initial, y.dtype))[()]
    outputs_with_elements = {term.output for term in answer.terms}
    for output in np.ndindex(*y.shape):
        values = [as_exact_numbers(y[output])[()], initial_value]
        wins = parts.extremum_reducer(best_of, "first")(values)[1][1]
        if wins or output not in outputs_with_elements:
            y[output] = initial
            initial_terms[output] = Term(output, 1, (), 1.0)
    terms = [term for term in answer.terms if term.output not in initial_terms]
    inputs = (*answer.inputs, ((), y.dtype))
    return Answer(y, inputs, (*terms, *initial_terms.values()))


# Elementwise


def _make_elementwise_in_jnp(binary_function: Callable[..., Any]) -> Callable[..., Any]:
    def jnp_function(**arrays: Any) -> Any:
        del arrays["ties"]
        return functools.reduce(binary_function, arrays.get("xs", arrays.values()))

    return jnp_function


def _elementwise(xs: Any, reducer: Reducer) -> Answer:
    """Broadcast `xs` and apply `reducer` to the elements at each position."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = np.dtype(jnp.result_type(*xs))
    arrays = [round_to_dtype(as_exact_numbers(x), dtype) for x in xs]

    def elements_of_output(output: Position) -> list[Element]:
        return [(i, _unbroadcast_position(output, x.shape)) for i, x in enumerate(arrays)]

    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    answer = parts.apply_reducer(arrays, shape, elements_of_output, lambda output: reducer, dtype)
    inputs = tuple((np.shape(x), np.dtype(jnp.result_type(x))) for x in xs)
    return dataclasses.replace(answer, inputs=inputs)


def _unbroadcast_position(position: Position, shape: tuple[int, ...]) -> Position:
    """The position in an array of `shape` of the element at `position` of the broadcast result."""
    aligned = position[len(position) - len(shape) :]
    return tuple(0 if size == 1 else index for index, size in zip(aligned, shape, strict=True))


def _ignoring_nan(best_of: ExtremumFunction, ties: Ties) -> Reducer:
    """A rule: the best value other than NaN; NaN if all values are NaN."""
    extremum = parts.extremum_reducer(best_of, ties)

    def reducer(values: list[Any]) -> tuple[Any, list[float]]:
        number_indices = [i for i, value in enumerate(values) if value == value]
        if not number_indices:
            return extremum(values)
        value, number_shares = extremum([values[i] for i in number_indices])
        shares = [0.0] * len(values)
        for i, share in zip(number_indices, number_shares, strict=True):
            shares[i] = share
        return value, shares

    return reducer


@record(twin=_make_elementwise_in_jnp(jnp.maximum), operands=("xs",))
def maximum(xs: Any, ties: Ties) -> Answer:
    """The largest of the elements of `xs` at each position, as in `jaxpool.maximum`."""
    return _elementwise(xs, parts.extremum_reducer(max, ties))


@record(twin=_make_elementwise_in_jnp(jnp.minimum), operands=("xs",))
def minimum(xs: Any, ties: Ties) -> Answer:
    """The smallest of the elements of `xs` at each position, as in `jaxpool.minimum`."""
    return _elementwise(xs, parts.extremum_reducer(min, ties))


@record(twin=_make_elementwise_in_jnp(jnp.fmax), operands=("x", "y"))
def fmax(x: Any, y: Any, ties: Ties) -> Answer:
    """The larger element, or the number if the other element is NaN, as in `jaxpool.fmax`."""
    return _elementwise((x, y), _ignoring_nan(max, ties))


@record(twin=_make_elementwise_in_jnp(jnp.fmin), operands=("x", "y"))
def fmin(x: Any, y: Any, ties: Ties) -> Answer:
    """The smaller element, or the number if the other element is NaN, as in `jaxpool.fmin`."""
    return _elementwise((x, y), _ignoring_nan(min, ties))


# Running

# A valid `reset` for the sample images: the running extremum restarts at these rows.
RESET_MASK = np.array([False, True, False, True]).reshape(-1, 1, 1)


def _make_running_extremum_in_jnp(
    keep_earlier: Callable[..., Any], *, with_index: bool = False
) -> Callable[..., Any]:
    """The twin, by parallel prefix: the best element of the last 1, 2, 4, ... elements, and the index of this element.

    `keep_earlier(earlier, later)` is True if the best of the earlier half is selected.
    """

    def jnp_function(x: Any, axis: int, reverse: bool, reset: Any) -> Any:
        dim = axis % x.ndim
        is_start = jnp.broadcast_to(False if reset is None else jnp.asarray(reset), x.shape)
        if reverse:  # a backward scan restarts at the element before each True
            is_start = jnp.roll(is_start, -1, dim)
        index = lax.broadcasted_iota(np.int32, x.shape, dim)
        scan_index = x.shape[dim] - 1 - index if reverse else index
        y, shift = x, 1
        while shift < x.shape[dim]:
            arrays = [jnp.roll(a, -shift if reverse else shift, dim) for a in (y, index, is_start)]
            is_valid = (scan_index >= shift) & ~is_start
            wins = is_valid & keep_earlier(arrays[0], y)
            y, index = jnp.where(wins, arrays[0], y), jnp.where(wins, arrays[1], index)
            is_start, shift = is_start | (is_valid & arrays[2]), 2 * shift
        return (y, index) if with_index else y

    return jnp_function


def _running_extremum(
    best_of: ExtremumFunction, x: Any, axis: int, reverse: bool, reset: Any, ties: Ties
) -> Answer:
    x = np.asarray(x)
    is_start = np.broadcast_to(False if reset is None else reset, x.shape)
    dim, size = axis % x.ndim, x.shape[axis]
    reducer = parts.extremum_reducer(best_of, ties)

    def elements_of_output(output: Position) -> list[Element]:
        index = output[dim]
        lane: Any = (*output[:dim], slice(None), *output[dim + 1 :])
        starts = np.flatnonzero(is_start[lane])
        if reverse:  # up to the element before the next start
            window = range(index, min([size, *starts[starts > index].tolist()]))
        else:
            window = range(max([0, *starts[starts <= index].tolist()]), index + 1)
        return parts.window_elements(output, (dim,), [window])

    answer = parts.apply_reducer([x], x.shape, elements_of_output, lambda output: reducer, x.dtype)
    return parts.add_indices(answer, (dim,))


RUNNING_FIELDS: dict[str, Any] = {
    "usual": {"axis": lambda x: -3},
    "choices": {"axis": (-1, -2), "reset": (RESET_MASK,)},
}


@record("cummax", twin=_make_running_extremum_in_jnp(jnp.greater_equal), **RUNNING_FIELDS)
@record(
    "cummax_with_argmax",
    twin=_make_running_extremum_in_jnp(jnp.greater_equal, with_index=True),
    **RUNNING_FIELDS,
)
def running_maximum(**arguments: Any) -> Answer:
    """The running maximum and its index along an axis.

    >>> import numpy as np
    >>> from jaxpool.testing import oracle
    >>> oracle.cummax(np.array([1, 3, 2, 3]), ties="last").indices
    array([0, 1, 1, 3], dtype=int32)
    """
    return _running_extremum(max, **arguments)


@record("cummin", twin=_make_running_extremum_in_jnp(jnp.less_equal), **RUNNING_FIELDS)
@record(
    "cummin_with_argmax",
    twin=_make_running_extremum_in_jnp(jnp.less_equal, with_index=True),
    **RUNNING_FIELDS,
)
def running_minimum(**arguments: Any) -> Answer:
    """The running minimum and its index along an axis."""
    return _running_extremum(min, **arguments)


# Local


def _local_extrema(kind: Literal["max", "min"], x: Any, windows: Windows, ties: Any) -> Answer:
    x = np.asarray(x)
    answer = parts.extremum_of_windows(kind, x, windows, "split" if ties == "all" else ties)
    y = np.zeros(x.shape, bool)
    for term in answer.terms:
        y[term.output] |= term.position == term.output
    return Answer(y, ((x.shape, x.dtype),), ())


def _make_local_extrema_in_jnp(extremum_of_windows: Callable[..., Any]) -> Callable[..., Any]:
    def jnp_function(x: Any, windows: Windows) -> Any:
        return jnp.asarray(x == extremum_of_windows(x, windows))

    return jnp_function


@record(twin=_make_local_extrema_in_jnp(jnp_windows.max_of_windows), marks=True)
def local_maxima(x: Any, windows: Windows, ties: Literal["first", "last", "all"]) -> Answer:
    """True for elements that are the largest of the window around them, as in `jaxpool.local_maxima`."""
    return _local_extrema("max", x, windows, ties)


@record(twin=_make_local_extrema_in_jnp(jnp_windows.min_of_windows), marks=True)
def local_minima(x: Any, windows: Windows, ties: Literal["first", "last", "all"]) -> Answer:
    """True for elements that are the smallest of the window around them, as in `jaxpool.local_minima`."""
    return _local_extrema("min", x, windows, ties)
