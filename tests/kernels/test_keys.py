"""16-bit floats as integers: every bit pattern there and back, and who wins."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._kernels.cpu.keys import integer_keys

EVERY = np.arange(2**16, dtype=np.uint16)
NUMBERS = [-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan]


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_keys(dtype, kind):
    keys = integer_keys(dtype, kind, "first")
    x = jnp.asarray(EVERY.view(dtype))
    there = np.asarray(keys.to(x))
    back, number = np.asarray(keys.back(there)), ~np.isnan(EVERY.view(dtype).astype(np.float32))
    np.testing.assert_array_equal(back.view(np.uint16)[number], EVERY[number])
    assert np.isnan(back[~number].astype(np.float32)).all()
    order = np.argsort(there[number], kind="stable")
    assert (np.diff(EVERY.view(dtype).astype(np.float32)[number][order]) >= 0).all()
    for ties, (best, challenger) in itertools.product(
        ("first", "last", "last_nan"), itertools.product(NUMBERS, repeat=2)
    ):
        takes = integer_keys(dtype, kind, ties).takes
        keyed = keys.to(jnp.array([challenger, best], dtype))
        better = challenger > best if kind == "max" else challenger < best
        wins = better or (ties == "last" and challenger == best)
        if np.isnan(challenger):
            wins = not np.isnan(best) or ties != "first"
        assert bool(takes(keyed[:1], keyed[1:])[0]) == wins, (ties, best, challenger)
