"""Oracle of the reductions along axes: `max`, `min` and `maxout`."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpool.testing._answer import Answer, Term, as_exact_numbers, round_to_dtype
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties

__all__ = ["max", "maxout", "min"]


def _make_reduction_in_jnp(function_name: str) -> Callable[..., Any]:
    def jnp_function(x: Any, axis: Any, keepdims: bool, where: Any, initial: Any) -> Any:
        identity = -np.inf if function_name == "max" else np.inf
        init = identity if initial is None else initial
        return getattr(jnp, function_name)(x, axis, keepdims=keepdims, where=where, initial=init)

    return jnp_function


SAMPLE_VALUES = {"axis": (1, (1, 2)), "initial": (0.5,)}


@record(twin=_make_reduction_in_jnp("max"), choices=SAMPLE_VALUES)
def max(x: Any, windows: Windows, keepdims: bool, where: Any, initial: Any, ties: Ties) -> Answer:
    """The largest element along axes, as in `jaxpool.max`. `initial` is operand 1.

    >>> import numpy as np
    >>> answer = max(np.array([[1.0, 3.0, 3.0]]), axis=1)
    >>> answer.y, answer.cotangent(np.array([2.0]))
    (array([3.]), array([[0., 1., 1.]]))
    """
    answer = parts.extremum_of_windows("max", x, windows, ties, where)
    answer = _compare_with_initial(answer, builtins.max, initial)
    return answer if keepdims else parts.squeeze_answer(answer, windows.axes)


@record(twin=_make_reduction_in_jnp("min"), choices=SAMPLE_VALUES)
def min(x: Any, windows: Windows, keepdims: bool, where: Any, initial: Any, ties: Ties) -> Answer:
    """The smallest element along axes, as in `jaxpool.min`. `initial` is operand 1."""
    answer = parts.extremum_of_windows("min", x, windows, ties, where)
    answer = _compare_with_initial(answer, builtins.min, initial)
    return answer if keepdims else parts.squeeze_answer(answer, windows.axes)


def _compare_with_initial(answer: Answer, best_of: parts.ExtremumFunction, initial: Any) -> Answer:
    """The better of each extremum and `initial`, which loses ties against elements."""
    if initial is None:
        return answer
    dtype = answer.y.dtype
    values = as_exact_numbers(answer.y)
    initial_value = as_exact_numbers(np.asarray(initial, dtype))[()]
    outputs_with_elements = {term.output for term in answer.terms}
    initial_terms = {}
    for output in np.ndindex(*values.shape):
        _, shares = parts.extremum_reducer(best_of, "first")([values[output], initial_value])
        if shares[1] or output not in outputs_with_elements:
            values[output] = initial_value
            initial_terms[output] = Term(output, 1, (), 1.0)
    terms = [term for term in answer.terms if term.output not in initial_terms]
    terms += initial_terms.values()
    inputs = (*answer.inputs, ((), dtype))
    return Answer(round_to_dtype(values, dtype), inputs, tuple(terms))


def _maxout_in_jnp(x: Any, groups: int, axis: int) -> Any:
    dim = axis % x.ndim
    size = x.shape[dim] // groups
    return x.reshape(*x.shape[:dim], groups, size, *x.shape[dim + 1 :]).max(dim + 1)


@record(twin=_maxout_in_jnp)
def maxout(x: Any, windows: Windows, ties: Ties) -> Answer:
    """The maximum of each group of consecutive elements, as in `jaxpool.maxout`."""
    return parts.extremum_of_windows("max", x, windows, ties)
