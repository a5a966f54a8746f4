"""Cotangents divided among tied elements: all variants by bits and by values, compared with the oracle."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._kernels.dtypes import reduction_identity
from jaxpool._kernels.select import select_value
from jaxpool._kernels.split_ties import (
    mean_of_tied_elements,
    mean_of_tied_elements_transpose,
    mean_of_tied_taps,
    mean_of_tied_taps_transpose,
    tie_bits_of_input,
)
from jaxpool.testing import draw_values
from jaxpool.testing.oracle import _parts
from tests.support import forms

DTYPES = [np.float32, jnp.bfloat16]
COMMON_MULTIPLE = 2**3 * 3**2 * 5 * 7  # divisible by up to ten tied elements


@pytest.mark.parametrize("seed", forms.seeds(8))
def test_variants_match_oracle(seed):
    rng = np.random.default_rng(seed)
    drawn = forms.draw_window(rng)
    window, dtype, kind = drawn.window, np.dtype(DTYPES[seed % 2]), ("max", "min")[seed // 2 % 2]
    (plan, *_) = forms.max_plans(window, drawn.shape, dtype).values()
    tied = forms.distinct_plans(forms.tie_plans(window, drawn.shape, dtype))
    best = max if kind == "max" else min

    def run(x, dy, v):
        y = select_value(x, kind, "first", plan)
        words = tie_bits_of_input(x, y, window, reduction_identity(dtype, kind))
        routed = [mean_of_tied_taps_transpose(dy, words, each) for each in tied.values()]
        return (
            [*routed, mean_of_tied_elements_transpose(dy, x, y, window, kind)],
            [mean_of_tied_taps(v, words, window), mean_of_tied_elements(v, x, window, kind)],
        )

    compiled = jax.jit(run)
    rule = _parts.reducer_with_empty_value(_parts.extremum_reducer(best, "split"), 0.0)

    for values in ("ties", "special", "lowest"):
        x = draw_values(rng, drawn.shape, dtype, values, greatest=kind == "min")
        answer = _parts.apply_reducer_to_windows(x, drawn.windows, lambda output: rule)
        dy = (COMMON_MULTIPLE * rng.integers(-3, 4, answer.y.shape)).astype(dtype)
        v = (COMMON_MULTIPLE * rng.integers(-3, 4, drawn.shape)).astype(dtype)
        routed, picked = jax.device_get(compiled(x, dy, v))
        names = [*tied, "by values"]
        for name, got in zip(names, routed, strict=True):
            assert_close(got, answer.cotangent(dy), f"{name}: {drawn}, {values}")
        for got in picked:
            assert_close(got, dataclasses.replace(answer, y=dy).tangent(v), f"{drawn}, {values}")


def assert_close(got, want, says):
    tolerance = float(jnp.finfo(want.dtype).eps)
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=COMMON_MULTIPLE * 1e-6, err_msg=says)
