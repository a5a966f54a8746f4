"""Which positions a window that random numbers place may hold."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._ops.fractional_mean import RandomAxis
from jaxpool._ops.random_pool import window_starts

SMALL = [
    (size, width, out)
    for size in range(1, 12)
    for width in range(1, size + 1)
    for out in range(1, size - width + 2)
]
LONG = [
    (4099, 2, 2001),
    (300_007, 2, 4001),
    (2**20 + 3, 3, 1001),
    (2**22 + 5, 3, 5),
    (2**22 + 5, 2, 1009),
    (2**25 + 7, 2, 11),
]


@pytest.mark.parametrize(("size", "width", "out"), [*SMALL[::7], *LONG])
def test_every_window_lies_within_its_reach(size, width, out):
    """Also where float32 rounds the place of a window: back, and on long axes forward."""
    samples = np.append(np.random.default_rng(0).random(2000), [0, 1 - 2**-24]).astype(np.float32)
    start = np.asarray(window_starts(jnp.asarray(samples[:, None]), 1, size, width, out))
    reach = RandomAxis(0, size, width, out).reach()
    assert (start >= reach.min(1)).all()
    assert (start + width - 1 <= reach.max(1)).all()


def test_turned_it_says_which_windows_may_hold_a_position():
    for size, width, out in SMALL:
        dim = RandomAxis(0, size, width, out)
        turned = dim.turned()
        assert len(turned) == size
        for position, windows in enumerate(turned):
            may = np.flatnonzero((dim.reach() == position).any(1))
            np.testing.assert_array_equal(windows[windows < out], may)
