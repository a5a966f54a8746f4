"""Test tools for pooling functions: records, a NumPy oracle, assertions and hypothesis strategies.

`pools()` returns the record of each public function: valid calls, the expected results (the oracle) and the equivalent
jax.numpy code (the twin). The strategies need hypothesis, which the extra `testing` installs (`pip install
jaxpool[testing]`). All other tools need only jax and NumPy. `import jaxpool` does not import this package.

The oracle shares neither kernels nor window geometry with the library. It computes window positions from the
definitions in `docs/conventions.md` and loops over NumPy arrays. Helpers of the repository's tests are in `tests/`.
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
    from jaxpool.testing._strategies import calls, geometries, pool_cases

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


def __getattr__(name: str) -> Any:
    """Import the strategies on first use, because they need hypothesis."""
    if name not in ("calls", "geometries", "pool_cases"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}._strategies"), name)
