"""Tools to hold a pool to this library's conventions: records, an oracle in NumPy, a check and strategies.

`pools()` has the record of each public function: right calls, its meaning (the oracle), a twin in plain jax.numpy.
Strategies need hypothesis, which the extra `testing` brings (`pip install jaxpool[testing]`); all else needs jax and
NumPy alone, and `import jaxpool` leaves it alone.

The oracle shares no code with the kernels, nor with their geometry: it finds the positions of each window from the
definitions in `docs/conventions.md`, and computes with loops over NumPy arrays. Helpers of this repository's own tests
are in `tests/`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxpool.testing import oracle
from jaxpool.testing._answer import Answer
from jaxpool.testing._case import Call, Geometry, PoolCase
from jaxpool.testing._check import assert_close, assert_pool_matches
from jaxpool.testing._record import Pool, pools
from jaxpool.testing._values import draw_values

if TYPE_CHECKING:
    from jaxpool.testing._drawn import calls
    from jaxpool.testing._strategies import geometries, pool_cases

__all__ = [
    "Answer",
    "Call",
    "Geometry",
    "Pool",
    "PoolCase",
    "assert_close",
    "assert_pool_matches",
    "calls",
    "draw_values",
    "geometries",
    "oracle",
    "pool_cases",
    "pools",
]
_STRATEGIES = {"calls": "_drawn", "geometries": "_strategies", "pool_cases": "_strategies"}


def __getattr__(name: str) -> Any:
    """The strategies, for which hypothesis is imported."""
    if name not in _STRATEGIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_STRATEGIES[name]}")
    globals()[name] = getattr(module, name)
    return globals()[name]
