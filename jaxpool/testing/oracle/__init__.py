"""Reference implementation of each public function as readable NumPy loops. Slow, for small arrays.

The attribute with the name of a public function, such as `oracle.max_pool`, is its oracle. An oracle has the arguments
of the public function, without `autodiff`, and returns an `Answer`: the value, and the share of each output's cotangent
that each input element receives. The decorator `@record` adds a function to `jaxpool.testing.pools`. Oracle functions
share neither kernels nor geometry with the library. Their windows come from `jaxpool.testing._windows`.
"""

# ruff: noqa: F401
from typing import Any

from jaxpool.testing._answer import (
    Answer,
    Position,
    Term,
    as_exact_numbers,
    exact_sum,
    is_floating,
    round_to_dtype,
)
from jaxpool.testing._record import RECORDS
from jaxpool.testing.oracle import chance, extrema, morphology, ranks, regions, soft, windowed
from jaxpool.testing.oracle._parts import Reducer, Ties


def __getattr__(name: str) -> Any:
    """Return the oracle of the public function `name`."""
    if name not in RECORDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return RECORDS[name].meaning
