"""Empty arrays: no examples, no channels, or neither."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxpool.testing import pools

POOLS = {
    name: pool
    for name, pool in pools().items()
    if not pool.takes("boxes") and not pool.takes("segment_ids")
}
NEITHER = (0, 4, 6, 0)


@pytest.mark.parametrize("shape", [(0, 4, 6, 4), (2, 4, 6, 0), NEITHER], ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_value_and_gradient(name, shape):
    pool = POOLS[name]
    more = {"initial": 0.5} | ({"axis": 1} if pool.takes("groups") else {})
    arguments = pool.given(np.zeros(shape, np.float32), **more)
    operands = {each: jax.tree.map(jnp.asarray, arguments[each]) for each in pool.operands}

    def first_result(operands, function=None):
        return jax.tree.leaves(pool.run(arguments | operands, function))[0]

    want = jax.eval_shape(lambda: first_result(operands, pool.twin))
    if pool.marks:
        assert first_result(operands).shape == want.shape
        return
    y, pullback = jax.vjp(first_result, operands)
    assert y.shape == want.shape
    gradient = pullback(jnp.ones_like(y))[0]
    assert jax.tree.map(jnp.shape, gradient) == jax.tree.map(jnp.shape, operands)
