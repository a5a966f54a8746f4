"""Oracle of `local_maxima` and `local_minima`: elements selected by the window around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxpool.testing import _jnp_windows as jnp_windows
from jaxpool.testing._answer import Answer
from jaxpool.testing._record import record
from jaxpool.testing._windows import Windows
from jaxpool.testing.oracle import _parts as parts

__all__ = ["local_maxima", "local_minima"]


def _local_extrema(best_of: parts.ExtremumFunction, x: Any, windows: Windows, ties: Any) -> Answer:
    x = np.asarray(x)
    reducer = parts.extremum_reducer(best_of, "split" if ties == "all" else ties)
    answer = parts.apply_reducer_to_windows(x, windows, lambda output: reducer)
    y = np.zeros(x.shape, bool)
    for term in answer.terms:
        y[term.output] |= term.position == term.output
    return Answer(y, ((x.shape, x.dtype),), ())


def _make_local_extrema_in_jnp(reduce_taps: Callable[..., Any]) -> Callable[..., Any]:
    def jnp_function(x: Any, windows: Windows) -> Any:
        return jnp.asarray(x == reduce_taps(*jnp_windows.gather(x, windows)))

    return jnp_function


@record(twin=_make_local_extrema_in_jnp(jnp_windows.max_over_taps), marks=True)
def local_maxima(x: Any, windows: Windows, ties: Literal["first", "last", "all"]) -> Answer:
    """True for elements that are the largest of the window around them, as in `jaxpool.local_maxima`."""
    return _local_extrema(max, x, windows, ties)


@record(twin=_make_local_extrema_in_jnp(jnp_windows.min_over_taps), marks=True)
def local_minima(x: Any, windows: Windows, ties: Literal["first", "last", "all"]) -> Answer:
    """True for elements that are the smallest of the window around them, as in `jaxpool.local_minima`."""
    return _local_extrema(min, x, windows, ties)
