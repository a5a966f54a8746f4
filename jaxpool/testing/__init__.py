"""Tools to hold a pool to this library's conventions: strategies, a NumPy oracle and a check.

They need the `testing` extra (`pip install jaxpool[testing]`); `import jaxpool` leaves them alone.

The oracle shares the geometry of windows with the library and computes with loops over NumPy arrays, so
that what it says does not depend on how a kernel computes. Helpers of this repository's own tests are in
`tests/`.
"""

from jaxpool.testing import _oracle as oracle
from jaxpool.testing._answer import Answer
from jaxpool.testing._check import assert_close, assert_pool_matches
from jaxpool.testing._strategies import Geometry, PoolCase, draw_values, geometries, pool_cases

__all__ = [
    "Answer",
    "Geometry",
    "PoolCase",
    "assert_close",
    "assert_pool_matches",
    "draw_values",
    "geometries",
    "oracle",
    "pool_cases",
]
