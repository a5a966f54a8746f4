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
        least, most, others = -np.inf, np.inf, [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0]
    elif dtype == np.bool_:
        least, most, others = False, True, [False, True]
    else:
        info = jnp.iinfo(dtype)
        least, most = int(info.min), int(info.max)
        others = [least, least + 1, 0, 1, most - 1, most]
    if values == "special":
        return _cast_to_representable(rng.choice(np.array(others, object), shape), dtype)
    extremum = most if greatest else least
    mostly = rng.random(shape) < 0.8
    return _cast_to_representable(
        np.where(mostly, extremum, rng.choice(np.array(others, object), shape)), dtype
    )


def _cast_to_representable(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`values` cast to `dtype`: ints wrap around, floats are rounded or made representable, bool is the parity."""
    if dtype == np.bool_:
        return (values.astype(np.int64) % 2).astype(np.bool_)
    if is_floating(dtype):
        info = jnp.finfo(dtype)
        wide = values.astype(np.float64)
        if float(info.min) >= 0:  # float8_e8m0fnu has only positive powers of two
            wide = np.exp2(np.clip(np.nan_to_num(wide, nan=0.0), -4, 4))
        elif np.isnan(np.asarray(np.inf, dtype).astype(np.float64)):  # a dtype without infinity
            wide = np.where(np.isinf(wide), np.copysign(float(info.max), wide), wide)
        with np.errstate(all="ignore"):
            return wide.astype(dtype)
    return round_to_dtype(values, dtype)
