"""Oracle of maxima and minima other than pools: along axes, of several arrays, running, and local extrema."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer, Position, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Element, ExtremumFunction, Kind, Reducer, Ties

# Along axes


def _along_axes_in_jnp(
    kind: Kind, x: Any, axis: Any, keepdims: bool, where: Any, initial: Any
) -> Any:
    identity = -np.inf if kind == "max" else np.inf
    init = identity if initial is None else initial
    return getattr(jnp, kind)(x, axis, keepdims=keepdims, where=where, initial=init)


def _along_axes(
    kind: Kind, x: Any, windows: Windows, keepdims: bool, where: Any, initial: Any, ties: Ties
) -> Answer:
    """The extremum along axes. `initial` is operand 1, and loses ties against elements.

    >>> import numpy as np
    >>> from jaxpool.testing import oracle
    >>> answer = oracle.max(np.array([[1.0, 3.0, 3.0]]), axis=1)
    >>> answer.y, answer.cotangent(np.array([2.0]))
    (array([3.]), array([[0., 1., 1.]]))
    """
    answer = parts.extremum_of_windows(kind, x, windows, ties, where, keepdims)
    if initial is None:
        return answer
    y, initial_terms = answer.y.copy(), {}
    initial_value = as_exact_numbers(np.asarray(initial, y.dtype))[()]
    outputs_with_elements = {term.output for term in answer.terms}
    first_extremum = parts.extremum_reducer(parts.BEST_OF[kind], "first")
    for output in np.ndindex(*y.shape):
        _, shares = first_extremum([as_exact_numbers(y[output])[()], initial_value])
        if shares[1] or output not in outputs_with_elements:
            y[output] = initial
            initial_terms[output] = Term(output, 1, (), 1.0)
    terms = [term for term in answer.terms if term.output not in initial_terms]
    inputs = (*answer.inputs, ((), y.dtype))
    return Answer(y, inputs, (*terms, *initial_terms.values()))


for kind in parts.KINDS:
    record(
        kind,
        twin=partial(_along_axes_in_jnp, kind),
        choices={"axis": (1, (1, 2)), "initial": (0.5,)},
    )(partial(_along_axes, kind))


# Elementwise


def _elementwise_in_jnp(binary_function: Callable[..., Any], **arrays: Any) -> Any:
    del arrays["ties"]
    return functools.reduce(binary_function, arrays.get("xs", arrays.values()))


def _elementwise(
    best_of: ExtremumFunction, ties: Ties, ignores_nan: bool = False, **arguments: Any
) -> Answer:
    """The extremum of the elements of broadcast arrays at each position."""
    xs = arguments.get("xs", list(arguments.values()))
    with jax.numpy_dtype_promotion("standard"):
        dtype = np.dtype(jnp.result_type(*xs))
    arrays = [round_to_dtype(as_exact_numbers(x), dtype) for x in xs]
    reducer = parts.extremum_reducer(best_of, ties)
    reducer = _ignoring_nan(reducer) if ignores_nan else reducer

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


def _ignoring_nan(extremum: Reducer) -> Reducer:
    """A rule: the extremum of the values other than NaN; NaN if all values are NaN."""

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


for name, binary_function, best_of in (
    ("maximum", jnp.maximum, max),
    ("minimum", jnp.minimum, min),
    ("fmax", jnp.fmax, max),
    ("fmin", jnp.fmin, min),
):
    ignores_nan = name.startswith("f")
    record(
        name,
        twin=partial(_elementwise_in_jnp, binary_function),
        operands=("x", "y") if ignores_nan else ("xs",),
    )(partial(_elementwise, best_of, ignores_nan=ignores_nan))


# Running


def _running_extremum_in_jnp(
    kind: Kind, with_index: bool, x: Any, axis: int, reverse: bool, reset: Any
) -> Any:
    """The extremum by parallel prefix: the best of the last 1, 2, 4, ... elements, and the index of this element."""
    is_kept = jnp.greater_equal if kind == "max" else jnp.less_equal  # (earlier, later)
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
        wins = is_valid & is_kept(arrays[0], y)
        y, index = jnp.where(wins, arrays[0], y), jnp.where(wins, arrays[1], index)
        is_start, shift = is_start | (is_valid & arrays[2]), 2 * shift
    return (y, index) if with_index else y


def _running_extremum(
    kind: Kind, x: Any, axis: int, reverse: bool, reset: Any, ties: Ties
) -> Answer:
    """The running extremum and its index along an axis.

    >>> import numpy as np
    >>> from jaxpool.testing import oracle
    >>> oracle.cummax(np.array([1, 3, 2, 3]), ties="last").indices
    array([0, 1, 1, 3], dtype=int32)
    """
    x = np.asarray(x)
    is_start = np.broadcast_to(False if reset is None else reset, x.shape)
    dim, size = axis % x.ndim, x.shape[axis]
    reducer = parts.extremum_reducer(parts.BEST_OF[kind], ties)

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


# A valid `reset` for the sample images: the running extremum restarts at these rows.
RESET_MASK = np.array([False, True, False, True]).reshape(-1, 1, 1)
for kind in parts.KINDS:
    for name, with_index in ((f"cum{kind}", False), (f"cum{kind}_with_argmax", True)):
        record(
            name,
            twin=partial(_running_extremum_in_jnp, kind, with_index),
            usual={"axis": lambda x: -3},
            choices={"axis": (-1, -2), "reset": (RESET_MASK,)},
        )(partial(_running_extremum, kind))


# Local


def _local_extrema_in_jnp(kind: Kind, x: Any, windows: Windows) -> Any:
    pool = jnp_windows.max_of_windows if kind == "max" else jnp_windows.min_of_windows
    return jnp.asarray(x == pool(x, windows))


def _local_extrema(kind: Kind, x: Any, windows: Windows, ties: Any) -> Answer:
    """True for elements that are the extremum of the window around them; `ties` is "first", "last" or "all"."""
    x = np.asarray(x)
    answer = parts.extremum_of_windows(kind, x, windows, "split" if ties == "all" else ties)
    y = np.zeros(x.shape, bool)
    for term in answer.terms:
        y[term.output] |= term.position == term.output
    return Answer(y, ((x.shape, x.dtype),), ())


for kind, name in zip(parts.KINDS, ("local_maxima", "local_minima"), strict=True):
    record(name, twin=partial(_local_extrema_in_jnp, kind), marks=True)(
        partial(_local_extrema, kind)
    )
