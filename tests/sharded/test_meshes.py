"""A mesh whose devices differ from those of the array raises."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxpool
from tests.sharded.cases import on_eight_devices


@on_eight_devices
def test_a_mesh_of_other_devices_is_refused():
    every, one = (Mesh(np.array(jax.devices()[:n]), ("rows",)) for n in (2, 1))
    x = jax.device_put(jnp.ones((1, 8, 4, 1)), NamedSharding(every, P(None, "rows")))
    with pytest.raises(ValueError, match="`mesh` must be of the 2 devices of x; got mesh="):
        jaxpool.sharded(jaxpool.max_pool, mesh=one, spec=P(None, "rows"))(x, (2, 2), (2, 2))
    y = jaxpool.sharded(jaxpool.max_pool, mesh=every, spec=P(None, "rows"))(x, (2, 2), (2, 2))
    np.testing.assert_array_equal(y, np.ones((1, 4, 2, 1)))
