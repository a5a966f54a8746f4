"""Every public function of an array whose type says how it is sharded is traced, or refused in words of our own.

`test_explicit.py` compares what they give with what one device gives.
"""

import jax
import pytest
from jax.sharding import AbstractMesh, NamedSharding

from tests.sharded.every import FUNCTIONS, LAYOUTS, of_array, refused, spec_of

QUICK = ("channels", "two")


@pytest.mark.parametrize(
    "layout",
    [
        *QUICK,
        *[pytest.param(each, marks=pytest.mark.slow) for each in LAYOUTS if each not in QUICK],
    ],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_traced(name, layout):
    f, x = of_array(name)
    spec, types = spec_of(layout, x.ndim)
    mesh = AbstractMesh((2, 2), ("a", "b"), axis_types=types)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
    with jax.sharding.use_abstract_mesh(mesh):
        refused(lambda: jax.jit(f).trace(like))
