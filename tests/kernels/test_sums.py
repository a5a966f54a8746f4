"""Sums over windows and their transpose: all variants equal the portable variant, which equals the oracle.

The summands are integers, so that sums are exact in any order, rounded once, and comparable bit by bit.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpool._kernels.sums import Epilogue, window_sum, window_sum_transpose
from jaxpool.testing import oracle
from jaxpool.testing.oracle import _parts
from tests.support import forms

DTYPES = [np.float32] * 4 + [jnp.bfloat16] * 3 + [np.float16] * 2
DTYPES += [jnp.float8_e4m3fn, jnp.float8_e5m2, np.int8, np.uint16, np.int32]


@pytest.mark.parametrize("seed", forms.seeds(34))
def test_variants_equal_portable(seed):
    """Sums are scaled before rounding by a factor that is exact in float32."""
    rng = np.random.default_rng(seed)
    drawn = forms.draw_window(rng)
    dtype = np.dtype(DTYPES[rng.integers(len(DTYPES))])
    is_float = oracle.is_floating(dtype)
    scale = float(rng.choice([1, 0.375])) if is_float else 1
    end = (
        Epilogue(dtype, lambda y: y * jnp.asarray(scale, y.dtype))
        if scale != 1
        else Epilogue(dtype)
    )
    # Plans that differ only in their barrier have the same passes.
    sums, spreads = (
        forms.distinct_plans(
            forms.sum_plans(drawn.window, drawn.shape, dtype, transposed=transposed),
            lambda plan: dataclasses.replace(plan, barrier="barrier"),
            rng,
        )
        for transposed in (False, True)
    )

    @jax.jit
    def run(x, dy):
        return (
            [window_sum(x, plan, end) for plan in sums.values()],
            [window_sum_transpose(dy, plan, end) for plan in spreads.values()],
        )

    for special in (False, True) if is_float else (False,):
        x = forms.draw_integers(rng, drawn.shape, dtype, special)
        dy = forms.draw_integers(rng, drawn.window.pooled_shape(drawn.shape), dtype, special)
        exact = _parts.apply_reducer_to_windows(
            x, drawn.windows, lambda output: _parts.sum_reducer, np.dtype(np.float64)
        )
        wanted = exact.y, exact.exact_cotangents(dy)[0]
        results = jax.device_get(run(x, dy))
        for names, found, want in zip((sums, spreads), results, wanted, strict=True):
            says = f"{drawn} {dtype} {scale}"
            got, expected = (
                oracle.as_exact_numbers(each).astype(float)
                for each in (found[0], oracle.round_to_dtype(scale * want, dtype))
            )
            np.testing.assert_array_equal(got, expected, says)
            for name, other in zip(names, found, strict=True):
                forms.assert_same_bits([other], [found[0]], f"{name}: {says}")
