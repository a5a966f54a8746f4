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


@dataclasses.dataclass(frozen=True)
class Case(forms.DrawnWindow):
    """Sums of `dtype`, scaled before rounding by a factor that is exact in float32."""

    dtype: np.dtype
    scale: float

    def plans(self, rng, *, transposed):
        plans = forms.sum_plans(self.window, self.shape, self.dtype, transposed=transposed)
        # Plans that differ only in their barrier have the same passes.
        return forms.distinct_plans(
            plans, lambda plan: dataclasses.replace(plan, barrier="barrier"), rng
        )

    def epilogue(self):
        if self.scale == 1:
            return Epilogue(self.dtype)
        return Epilogue(self.dtype, lambda y: y * jnp.asarray(self.scale, y.dtype))


def draw_case(seed):
    rng = np.random.default_rng(seed)
    window = forms.draw_window(rng)
    dtype = np.dtype(DTYPES[rng.integers(len(DTYPES))])
    scale = float(rng.choice([1, 0.375])) if oracle.is_floating(dtype) else 1
    return Case(window.shape, window.window, window.windows, dtype, scale), rng


def oracle_results(case, x, dy):
    """Return the exact sums over windows and the exact cotangents, scaled and rounded once."""
    exact = _parts.apply_reducer_to_windows(
        x, case.windows, lambda output: _parts.sum_reducer, np.dtype(np.float64)
    )
    both = exact.y, exact.exact_cotangents(dy)[0]
    return [oracle.round_to_dtype(case.scale * sums, case.dtype) for sums in both]


@pytest.mark.parametrize("seed", forms.seeds(34))
def test_variants_equal_portable(seed):
    case, rng = draw_case(seed)
    sums, spreads = (case.plans(rng, transposed=transposed) for transposed in (False, True))

    def run(x, dy):
        return (
            [window_sum(x, plan, case.epilogue()) for plan in sums.values()],
            [window_sum_transpose(dy, plan, case.epilogue()) for plan in spreads.values()],
        )

    compiled = jax.jit(run)
    for special in (False, True) if oracle.is_floating(case.dtype) else (False,):
        x = forms.draw_integers(rng, case.shape, case.dtype, special)
        dy = forms.draw_integers(rng, case.window.pooled_shape(case.shape), case.dtype, special)
        results = jax.device_get(compiled(x, dy))
        for names, found, want in zip(
            (sums, spreads), results, oracle_results(case, x, dy), strict=True
        ):
            got, expected = (
                oracle.as_exact_numbers(each).astype(float) for each in (found[0], want)
            )
            np.testing.assert_array_equal(got, expected, str(case))
            for name, other in zip(names, found, strict=True):
                forms.assert_same_bits([other], [found[0]], f"{name}: {case}")
