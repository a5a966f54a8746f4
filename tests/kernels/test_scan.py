"""Scans that reduce first, which only GPUs use, equal the scans of CPUs."""

import jax
import numpy as np
import pytest

from jaxpool._ops.cumulative import RunningExtremum
from tests.support.compilation import FAST_COMPILE


@pytest.mark.parametrize("has_reset", [False, True])
@pytest.mark.parametrize(("reverse", "axis"), [(False, 0), (True, 0), (True, 1)])
@pytest.mark.parametrize("ties", ["first", "last"])
def test_ties_zeros_and_nan(ties, reverse, axis, has_reset):
    """Values, indices and derivatives along an axis of few values, with one block, several, and blocks of totals."""
    rng = np.random.default_rng(5)
    choices = [[3.0], [0.0, -0.0], [-np.inf, -1.0, 0.0], [1.0] * 9 + [np.nan], list(range(5))]
    op = RunningExtremum("max", ties, axis, reverse)

    def run(platform, x, dy, reset):
        mask = [reset] if has_reset else []
        y, index = op.primal(platform, x, *mask)
        return y, index, op.linear(platform, index, dy), op.transpose(platform, index, dy)[0]

    compiled = jax.jit(run, static_argnums=0, compiler_options=FAST_COMPILE)
    for size in (2, 9, 150):
        x = np.stack([rng.choice(each, size) for each in choices * 3], 1 - axis).astype(np.float32)
        dy = rng.choice(np.array([1, 2, -3, np.nan, np.inf], np.float32), x.shape)
        reset = rng.random(x.shape) < 0.2
        for got, want in zip(*(compiled(p, x, dy, reset) for p in ("gpu", "cpu")), strict=True):
            np.testing.assert_array_equal(got, want)
