"""Possible starts of the windows of fractional pools."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._ops.fractional import FractionalAxis

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


@pytest.mark.parametrize(("size", "width", "out"), [*SMALL[::20], *LONG])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_starts_are_possible_starts(size, width, out, dtype):
    """Includes windows that rounding moves back or, on long axes, forward."""
    if dtype != "float32" and size > 5000:  # more positions than float16 represents
        return
    samples = np.append(np.random.default_rng(0).random(2000), [0, 1 - 2**-24])
    samples = jnp.asarray(samples[:, None], dtype)
    dim = FractionalAxis(1, size, width, out, dtype)
    start = np.asarray(dim.starts(samples[samples < 1][:, None]))
    assert (np.stack(dim.possible_starts()) == start[:, None]).any(1).all()


def test_possible_windows_of_each_position():
    for size, width, out in SMALL:
        dim = FractionalAxis(0, size, width, out)
        places = np.stack(dim.possible_starts())
        turned = np.stack(dim.possible_windows(), 1)
        assert len(turned) == size - width + 1
        for place, windows in enumerate(turned):
            may = np.flatnonzero((places == place).any(0))
            assert set(may) <= set(windows.tolist())
            assert len(set(windows)) == len(windows)
