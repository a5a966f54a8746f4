"""What the tests of the drop-ins share: ours beside its original on drawn arguments, value and cotangent."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.compilation import HASTY

VALUES = ("normal", "ties", "ties", "special")  # of each drawn call; "special" for the value alone

# How many drawn calls a test tries: few geometries, each with all VALUES, as compilations dominate.
drawn_calls = pytest.mark.parametrize(
    "calls", [pytest.param(32, id="quick"), pytest.param(320, id="many", marks=pytest.mark.slow)]
)


def geometries(calls):
    """One random generator for each geometry that `calls` drawn calls take."""
    return (np.random.default_rng(seed) for seed in range(calls // len(VALUES)))


def ints(rng, count, low, high):
    """`count` ints from `low` to `high`, both counted, as a tuple."""
    return tuple(int(n) for n in rng.integers(low, high + 1, count))


def drawn_array(rng, shape, kind, dtype=np.float32):
    """Normal numbers, small integers that often tie, or those with NaN and infinities among them."""
    if kind == "normal" and jnp.issubdtype(dtype, jnp.floating):
        x = rng.standard_normal(shape)
    elif kind == "special" and jnp.issubdtype(dtype, jnp.floating):
        x = rng.choice([-np.inf, -2.0, 0.0, 1.0, 1.0, 3.0, np.inf, np.nan], shape)
    else:
        x = rng.integers(0 if dtype == np.uint8 else -3, 4, shape)
    return jnp.asarray(np.asarray(x).astype(dtype))  # converted by NumPy: nothing to compile


def epsilon(dtype):
    """That of a float; 0 for integers."""
    return float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.floating) else 0


def value_and_cotangent(fn):
    """`fn` with what its gradient sends back; None for integers."""

    def run(x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return fn(x), None
        y, pullback = jax.vjp(fn, x)
        dy = 1 + 0.5 * jnp.sin(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
        return y, pullback(dy.astype(y.dtype))[0]

    return run


@dataclasses.dataclass
class Call:
    """One geometry to try: both functions with all arguments but the array, which has `shape`."""

    ours: Callable
    theirs: Callable
    shape: tuple
    says: str
    exact: bool = False
    dtype: Any = np.float32

    def run(self, x):
        return [value_and_cotangent(fn)(x) for fn in (self.ours, self.theirs)]

    def check(self, kind, results):
        (y, dx), (want_y, want_dx) = results
        eps = max(map(epsilon, (self.dtype, want_y.dtype)))  # an average of integers is a float
        same(y, want_y, 0 if self.exact else 8 * eps, f"value of {self.says} on {kind}")
        if dx is not None and kind != "special":
            same(dx, want_dx, 16 * eps, f"cotangent of {self.says} on {kind}")


def compare(calls, values=VALUES):
    """Asserts that both functions of each call give the same value and cotangent, on each of `values`.

    Eight calls make one program: that compiles faster than eight programs.
    """
    rng = np.random.default_rng(0)
    calls = list(calls)
    assert calls
    for first in range(0, len(calls), 8):
        some = calls[first : first + 8]
        run = jax.jit(
            lambda xs, some=some: [call.run(x) for call, x in zip(some, xs, strict=True)],
            compiler_options=HASTY,
        )
        for kind in values:
            xs = [drawn_array(rng, call.shape, kind, call.dtype) for call in some]
            for call, results in zip(some, run(xs), strict=True):
                call.check(kind, results)


def same(got, want, tolerance, says):
    """Asserts that two arrays agree in shape, dtype and, to `tolerance`, in their elements."""
    assert got.shape == want.shape, says
    assert got.dtype == want.dtype, f"{says}: {got.dtype} for {want.dtype}"
    got, want = (np.asarray(a) for a in (got, want))
    got, want = (a.astype(np.float32) if a.dtype.kind == "V" else a for a in (got, want))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=says)


def both_raise(ours, theirs, *args, **kwargs):
    """Asserts that the original refuses these arguments, and so do we."""
    with pytest.raises(Exception):  # noqa: B017, PT011
        theirs(*args, **kwargs)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        ours(*args, **kwargs)


def refused_alike(ours, theirs, *args, **kwargs):
    """Asserts that the original refuses these arguments, and we in the same words."""
    with pytest.raises(Exception) as wanted:  # noqa: PT011
        theirs(*args, **kwargs)
    with pytest.raises(type(wanted.value)) as got:
        ours(*args, **kwargs)
    assert str(got.value) == str(wanted.value)
