"""Cotangents of segment maxima and minima: a scatter to the selected rows, or a gather by each row."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from jaxpool._kernels.segments import Segments
from jaxpool._ops.segments import SegmentSelect
from jaxpool._plan import tuning


@pytest.mark.parametrize(("ties", "kind"), [("first", "max"), ("last", "min")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scatter_equals_gather(monkeypatch, ties, kind, dtype):
    """Includes rows in no segment, an empty segment, NaN, ties and a `where` mask."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.choice([0.0, 1, 2, np.nan], (40, 3), p=[0.4, 0.3, 0.2, 0.1]), dtype)
    others = [-(2**31), -1, 4, 2**31 - 1]
    ids = jnp.asarray(rng.choice([0, 0, 1, 1, 3, 3, *others], 40), jnp.int32)  # none in 2
    mask = jnp.asarray(rng.random((40, 1)) < 0.8)
    dy = jnp.asarray(rng.standard_normal((4, 3)), dtype)
    op = SegmentSelect(kind, ties, Segments(4, is_sorted=False))

    def dx(least):
        rows = dataclasses.replace(tuning.CPU, min_scattered_rows=least)
        monkeypatch.setitem(tuning.TUNING, "cpu", rows)
        program = jax.jit(
            lambda x, ids, mask, dy: op.transpose("cpu", op.primal("cpu", x, ids, mask)[1], dy)[0]
        )
        return program.lower(x, ids, mask, dy).as_text(), program(x, ids, mask, dy)

    (scattered, sent), (looked_up, found) = dx(10), dx(11)
    counts = [text.count('"stablehlo.scatter"') for text in (scattered, looked_up)]
    assert counts[0] == counts[1] + 1
    np.testing.assert_array_equal(sent, found)
    wide = np.asarray(dy, np.float32)[[0, 1, 3]]
    np.testing.assert_allclose(np.asarray(sent, np.float32).sum(0), wide.sum(0), rtol=1e-6)
