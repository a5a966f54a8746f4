"""Shared by the tests of `jaxpool.compat`: compare value and cotangent of a drop-in with its original."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.compilation import FAST_COMPILE

VALUES = ("normal", "ties", "ties", "special")  # of each random call; "special" for the value alone

# Number of random calls of a test: few geometries, each with all VALUES, because compilation dominates the time.
drawn_calls = pytest.mark.parametrize(
    "calls", [pytest.param(32, id="quick"), pytest.param(320, id="many", marks=pytest.mark.slow)]
)


def geometries(calls):
    """Yield one random generator per geometry of `calls` random calls."""
    return (np.random.default_rng(seed) for seed in range(calls // len(VALUES)))


def ints(rng, count, low, high):
    """Return a tuple of `count` random ints from `low` to `high`, both inclusive."""
    return tuple(int(n) for n in rng.integers(low, high + 1, count))


def random_dtype(rng, *more):
    """Return float32 half of the time, or another dtype."""
    dtypes = (np.float32, np.float32, np.float32, np.int32, jnp.bfloat16, *more)
    return dtypes[rng.integers(len(dtypes))]


def draw_array(rng, shape, kind, dtype=np.float32):
    """Return normal numbers or small integers with ties. "lowest" has many -inf, "special" NaN and infinities."""
    if kind == "normal" and jnp.issubdtype(dtype, jnp.floating):
        x = rng.standard_normal(shape)
    elif kind == "special" and jnp.issubdtype(dtype, jnp.floating):
        x = rng.choice([-np.inf, -2.0, 0.0, 1.0, 1.0, 3.0, np.inf, np.nan], shape)
    else:
        x = rng.integers(0 if dtype == np.uint8 else -3, 4, shape)
        if kind == "lowest" and jnp.issubdtype(dtype, jnp.floating):
            x = np.where(rng.random(shape) < 0.7, -np.inf, x)
    return jnp.asarray(np.asarray(x).astype(dtype))  # NumPy's conversion needs no compilation


def epsilon(dtype):
    """Return the machine epsilon of a float dtype, 0 for integers."""
    return float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.floating) else 0


def value_and_cotangent(fn):
    """Return `fn` with the cotangent of its array, which is None for integers."""

    def run(x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return fn(x), None
        y, pullback = jax.vjp(fn, x)
        dy = 1 + 0.5 * jnp.sin(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape)
        return y, pullback(dy.astype(y.dtype))[0]

    return run


@dataclasses.dataclass
class Call:
    """One geometry: both functions as functions of an array of `shape` alone."""

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
        # an average of integers is a float
        eps = max(map(epsilon, (self.dtype, want_y.dtype)))
        assert_arrays_match(
            y, want_y, 0 if self.exact else 8 * eps, f"value of {self.says} on {kind}"
        )
        if dx is not None and kind != "special":
            assert_arrays_match(dx, want_dx, 16 * eps, f"cotangent of {self.says} on {kind}")


def compare(calls, values=VALUES):
    """Assert that both functions of each call give the same value and cotangent, on each of `values`.

    Eight calls share one program, which compiles faster than eight programs.
    """
    rng = np.random.default_rng(0)
    calls = list(calls)
    assert calls
    for first in range(0, len(calls), 8):
        some = calls[first : first + 8]
        run = jax.jit(
            lambda xs, some=some: [call.run(x) for call, x in zip(some, xs, strict=True)],
            compiler_options=FAST_COMPILE,
        )
        for kind in values:
            xs = [draw_array(rng, call.shape, kind, call.dtype) for call in some]
            for call, results in zip(some, run(xs), strict=True):
                call.check(kind, results)


def assert_arrays_match(got, want, tolerance, says):
    """Assert that two arrays have the same shape and dtype, and elements equal within `tolerance`."""
    assert got.shape == want.shape, says
    assert got.dtype == want.dtype, f"{says}: {got.dtype} for {want.dtype}"
    got, want = (np.asarray(a) for a in (got, want))
    got, want = (a.astype(np.float32) if a.dtype.kind == "V" else a for a in (got, want))
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=says)


def assert_same_error(ours, theirs, *args, **kwargs):
    """Assert that the drop-in raises an error of the same type and message as the original."""
    with pytest.raises(Exception) as wanted:  # noqa: PT011
        theirs(*args, **kwargs)
    with pytest.raises(type(wanted.value)) as got:
        ours(*args, **kwargs)
    assert str(got.value) == str(wanted.value)


def torch_function(name):
    """Return the function of PyTorch that a drop-in of this name replaces."""
    torch = pytest.importorskip("torch")
    return getattr(torch.nn.functional if "pool" in name else torch, name)


def to_torch(value):
    """Convert an array to a tensor. Other values stay."""
    torch = pytest.importorskip("torch")
    if not isinstance(value, (np.ndarray, jax.Array)):
        return value
    if value.dtype == jnp.bfloat16:
        return torch.from_numpy(np.array(value, np.float32)).bfloat16()
    return torch.from_numpy(np.array(value))
