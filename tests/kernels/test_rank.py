"""Bit masks of the taps with the element of a rank, in several words."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._geometry.window import make_window
from jaxpool._kernels.rank import first_or_last_tied_tap


@pytest.mark.parametrize("last", [False, True])
def test_first_or_last_tied_tap_of_several_words(last):
    """Windows of 70 taps have words of 32, 32 and 6 bits. Each column is one window."""
    window, chance = make_window((1, 70, 1), (70,)), np.random.default_rng(0)
    taps = [np.sort(chance.choice(70, n, replace=False)) for n in (1, 2, 3, 5, 70) * 4]
    bits = np.zeros((70, len(taps)), np.uint32)
    for column, held in enumerate(taps):
        bits[held, column] = 1
    words = [
        (bits[first:end] << np.arange(end - first, dtype=np.uint32)[:, None]).sum(0).astype(dtype)
        for first, end, dtype in ((0, 32, np.uint32), (32, 64, np.uint32), (64, 70, np.uint8))
    ]
    found = first_or_last_tied_tap(tuple(map(jnp.asarray, words)), window, last)
    np.testing.assert_array_equal(found, [held[-1 if last else 0] for held in taps])
