"""Random input arrays for tests: many ties, a normal distribution, special values, or mostly the dtype's minimum."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxpool.testing._answer import is_floating, round_to_dtype

ValueKind = Literal["ties", "normal", "special", "lowest"]


def draw_values(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: Any,
    values: ValueKind,
    *,
    greatest: bool = False,
) -> np.ndarray:
    """An array of `dtype` filled with `values` (see `pool_cases`) from a seeded generator.

    Example:
        >>> import numpy as np
        >>> draw_values(np.random.default_rng(0), (4,), np.float32, "ties")
        array([ 2.,  1.,  0., -1.], dtype=float32)
    """
    dtype = np.dtype(dtype)
    if values == "normal" and is_floating(dtype):
        return _cast_to_representable(rng.standard_normal(shape) * 2, dtype)
    if values in ("ties", "normal"):
        return _cast_to_representable(
            rng.integers(-2 if values == "ties" else -100, 3 if values == "ties" else 101, shape),
            dtype,
        )
    if is_floating(dtype):
        low, high, choices = -np.inf, np.inf, [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0]
    elif dtype == np.bool_:
        low, high, choices = False, True, [False, True]
    else:
        info = jnp.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        choices = [low, low + 1, 0, 1, high - 1, high]
    if values == "special":
        return _cast_to_representable(rng.choice(np.array(choices, object), shape), dtype)
    extremum = high if greatest else low
    is_extremum = rng.random(shape) < 0.8
    return _cast_to_representable(
        np.where(is_extremum, extremum, rng.choice(np.array(choices, object), shape)), dtype
    )


def _cast_to_representable(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`values` cast to `dtype`: ints wrap around, floats are rounded or made representable, bool is the parity."""
    if dtype == np.bool_:
        return (values.astype(np.int64) % 2).astype(np.bool_)
    if is_floating(dtype):
        info = jnp.finfo(dtype)
        floats = values.astype(np.float64)
        if float(info.min) >= 0:  # float8_e8m0fnu has only positive powers of two
            floats = np.exp2(np.clip(np.nan_to_num(floats, nan=0.0), -4, 4))
        elif np.isnan(np.asarray(np.inf, dtype).astype(np.float64)):  # a dtype without infinity
            floats = np.where(np.isinf(floats), np.copysign(float(info.max), floats), floats)
        with np.errstate(all="ignore"):
            return floats.astype(dtype)
    return round_to_dtype(values, dtype)
