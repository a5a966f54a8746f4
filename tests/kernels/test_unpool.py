"""Elements put back where a pool found them: densely in windows of their own the same as by a scatter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._kernels.positions import add_at, put_last
from jaxpool._ops.unpool import put
from jaxpool._plan.others import own_windows

CASES = [  # shape of y, axes, sizes
    ((2, 4, 5, 3), (1, 2), (8, 15)),
    ((2, 4, 5, 3), (2, 1), (11, 9)),  # rests
    ((7, 2), (0,), (7,)),
    ((1, 2, 3, 2), (3, 1, 2), (4, 5, 6)),
]


@pytest.mark.parametrize(("shape", "axes", "sizes"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_in_windows_of_their_own_as_by_a_scatter(shape, axes, sizes, dtype):
    own = own_windows(shape, axes, sizes, "cpu", False)
    assert own is not None
    assert own_windows(shape, axes, sizes, "gpu", False) is None
    rng = np.random.default_rng(0)
    y = jnp.asarray(rng.integers(-9, 10, shape), dtype)

    @jax.jit
    def run(y, position):
        return [
            [put(how, "cpu", y, position, axes, sizes, each) for each in (own, None)]
            for how in (put_last, add_at)
        ]

    compiled = run.lower(y, jnp.zeros(shape, np.int32)).compile()
    inside = positions_in_own(own, shape, rng)
    astray = inside.copy()
    astray[(0,) * len(shape)] = np.prod(sizes) - 1  # not in the first window
    anywhere = rng.integers(0, np.prod(sizes), shape).astype(np.int32)  # and some collide
    beyond = np.where(rng.random(shape) < 0.2, np.prod(sizes), inside).astype(np.int32)
    for position in (inside, astray, anywhere, beyond):
        for dense, scattered in compiled(y, position):
            np.testing.assert_array_equal(dense, scattered)
    assert np.count_nonzero(compiled(y, inside)[0][0]) == np.count_nonzero(y)


def positions_in_own(own, shape, rng):
    """One position for each element, in its window."""
    flat = np.zeros(shape, np.int32)
    for dim in own.dims:
        line = np.arange(dim.out).reshape([-1 if a == dim.axis else 1 for a in range(len(shape))])
        flat = flat * dim.size + line * dim.stride + rng.integers(0, dim.window, shape)
    return flat.astype(np.int32)
