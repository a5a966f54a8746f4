"""Dtypes of accumulators and indices, identities of maximum and minimum, comparison of elements, and predicates.

NaN wins over every number, NaNs tie with each other, and -0 ties with +0.
"""

import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike

DType = Any
Kind = Literal["max", "min"]


def is_float(dtype: DType) -> bool:
    """True for floating-point dtypes, including the 8-bit floats."""
    return jnp.issubdtype(dtype, jnp.floating)


def is_16_bit_float(dtype: DType) -> bool:
    """True for 16-bit floating-point dtypes."""
    return is_float(dtype) and jnp.dtype(dtype).itemsize == 2


def bitcast_half_to_uint16(x: Array) -> Array:
    """Bitcast 16-bit floats to uint16, because XLA for CPU would move them as float32; other arrays are unchanged."""
    return lax.bitcast_convert_type(x, np.uint16) if is_16_bit_float(x.dtype) else x


def bitcast_uint16_to_half(x: Array, dtype: DType) -> Array:
    """Invert `bitcast_half_to_uint16` for arrays of `dtype`."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


def accumulator_dtype(dtype: DType) -> DType:
    """Dtype in which sums of `dtype` are accumulated: float32 for 8- and 16-bit floats, otherwise `dtype`."""
    is_low_precision = is_float(dtype) and jnp.dtype(dtype).itemsize < 4
    return jnp.dtype(jnp.float32) if is_low_precision else jnp.dtype(dtype)


def mean_dtype(dtype: DType) -> DType:
    """Dtype of a mean: `dtype` for floats, float64 for 64-bit integers, otherwise float32, as in `jnp.mean`."""
    if is_float(dtype):
        return jnp.dtype(dtype)
    return jnp.dtype(np.float64 if jnp.dtype(dtype) in (np.int64, np.uint64) else np.float32)


def as_float(x: Array) -> Array:
    """Convert integers and bools to the dtype of their mean; return floats unchanged."""
    return x if is_float(x.dtype) else x.astype(mean_dtype(x.dtype))


def cast(x: Array, dtype: DType) -> Array:
    """Cast x to `dtype`. If x has this dtype already, x is returned unchanged, including a weak type."""
    return x if x.dtype == dtype else x.astype(dtype)


def full(shape: Sequence[int], value: Any, dtype: DType) -> Array:
    """As `jnp.full`, but transfers the value explicitly: `jax.transfer_guard("disallow")` permits eager calls."""
    return lax.broadcast(jax.device_put(np.asarray(value, dtype)), shape)


def full_like(x: Array, value: Any, dtype: DType | None = None) -> Array:
    """As `lax.full_like` of a NumPy or Python number, but half as much Python to trace without a mesh."""
    if not jax.typeof(x).sharding.mesh.empty:
        return lax.full_like(x, value, dtype)
    return lax.broadcast(np.asarray(value, x.dtype if dtype is None else dtype), x.shape)


def scalar_like(x: Array, value: Any) -> np.ndarray:
    """`value` as a scalar of the dtype of x. Functions of `jax.lax` broadcast it in less Python than `full_like`."""
    return np.asarray(value, x.dtype)


def where(condition: Array, x: ArrayLike, y: ArrayLike) -> Array:
    """Select x where `condition` is True, else y, like `jnp.where`. Equal shapes take less Python to trace."""
    like = next(each for each in (x, y) if isinstance(each, Array))
    x, y = (each if isinstance(each, Array) else full_like(like, each) for each in (x, y))
    select = lax.select if x.shape == y.shape == condition.shape else jnp.where
    return select(condition, x, y)


def is_inf(x: Array) -> Array:
    """Mask of infinite elements, like `jnp.isinf` of a floating-point array, with less Python to trace."""
    return lax.eq(lax.abs(x), scalar_like(x, np.inf))


def widen_to_8_bits(x: Array) -> Array:
    """Widen 2-bit and 4-bit integers to 8 bits, because XLA lacks some operations on narrower integers."""
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return x
    byte_dtype = np.uint8 if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else np.int8
    return x.astype(byte_dtype) if jnp.iinfo(x.dtype).bits < jnp.iinfo(byte_dtype).bits else x


def index_dtype(num_values: int) -> DType:
    """Narrowest unsigned integer dtype that has at least `num_values` values."""
    dtypes = (np.uint8, np.uint16, np.uint32)
    return jnp.dtype(next(dtype for dtype in dtypes if num_values <= np.iinfo(dtype).max + 1))


def float_constant(value: float | Sequence[float], dtype: DType) -> np.ndarray:
    """`value` as a NumPy array of a float `dtype`, without a warning if it becomes 0 or infinite."""
    with np.errstate(all="ignore"):
        return np.asarray(value, np.float64).astype(dtype)


def reduction_identity(dtype: DType, kind: Kind) -> np.ndarray:
    """Identity of a maximum or minimum, used as padding: an infinity, or a bound of a dtype without infinities."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return np.asarray(kind == "min")
    bound = "min" if kind == "max" else "max"
    if not is_float(dtype):
        return np.asarray(getattr(jnp.iinfo(dtype), bound), dtype)
    value = float_constant(-np.inf if kind == "max" else np.inf, dtype)
    is_infinite = np.isinf(value.astype(np.float32))  # several float8 dtypes have no infinity
    return value if is_infinite else np.asarray(getattr(jnp.finfo(dtype), bound), dtype)


Ties = Literal["first", "last", "split"]
# "last_nan": the first of tied numbers wins, but the last NaN wins
TieOrder = Literal["first", "last", "last_nan"]
Candidate = tuple[Array, ...]  # a value in the comparison dtype, optionally with a flat tap


def to_comparison_dtype(x: Array) -> Array:
    """Convert narrow floats to float32 and bool to uint8, exactly. `from_comparison_dtype` is the inverse."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    if x.dtype == jnp.bfloat16:
        # The bits of a bfloat16 are the upper half of a float32. XLA vectorises the shift but not the cast.
        bits = lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) << np.uint32(16)
        return lax.bitcast_convert_type(bits, jnp.float32)
    if x.dtype == jnp.float8_e8m0fnu:
        # XLA may flush the least float8_e8m0fnu to 0, as it is subnormal in float32. Its bits sort like its values.
        bits = lax.bitcast_convert_type(x, jnp.uint8)
        return jnp.where(bits == np.uint8(255), np.float32(np.nan), bits.astype(jnp.float32))
    return cast(x, accumulator_dtype(x.dtype))


def from_comparison_dtype(y: Array, dtype: DType) -> Array:
    """Invert `to_comparison_dtype` for values that `dtype` represents exactly."""
    if dtype == jnp.bfloat16:
        bits = (lax.bitcast_convert_type(y, jnp.uint32) >> np.uint32(16)).astype(jnp.uint16)
        return lax.bitcast_convert_type(bits, jnp.bfloat16)
    if dtype == jnp.float8_e8m0fnu:
        bits = jnp.where(lax.ne(y, y), np.float32(255), y).astype(jnp.uint8)
        return lax.bitcast_convert_type(bits, jnp.float8_e8m0fnu)
    return cast(y, dtype)


def constant_in_comparison_dtype(value: np.ndarray) -> np.ndarray:
    """`to_comparison_dtype` of a NumPy constant other than NaN, by NumPy: JAX would run programs while tracing."""
    if value.dtype == np.bool_:
        return value.astype(np.uint8)
    if value.dtype == jnp.float8_e8m0fnu:
        return value.view(np.uint8).astype(np.float32)
    return value.astype(accumulator_dtype(value.dtype))


def comparison_dtype_identity(dtype: DType, kind: Kind) -> np.ndarray:
    """Identity of a maximum or minimum of `dtype`, as a NumPy constant in the comparison dtype."""
    return constant_in_comparison_dtype(reduction_identity(dtype, kind))


def challenger_wins(challenger: Array, current_best: Array, kind: Kind, ties: TieOrder) -> Array:
    """Mask of elements of `challenger` that win over `current_best`, whose elements come earlier in the window."""
    loses, loses_or_ties = (lax.lt, lax.le) if kind == "max" else (lax.gt, lax.ge)
    if not is_float(current_best.dtype):
        loses = loses if ties == "last" else loses_or_ties
        return lax.bitwise_not(loses(challenger, current_best))
    if ties == "last_nan":
        beats = lax.gt if kind == "max" else lax.lt
        return lax.bitwise_or(beats(challenger, current_best), lax.ne(challenger, challenger))
    if ties == "first":
        is_number = lax.eq(current_best, current_best)
        return lax.bitwise_and(lax.bitwise_not(loses_or_ties(challenger, current_best)), is_number)
    keeps_nan = lax.bitwise_and(lax.ne(current_best, current_best), lax.eq(challenger, challenger))
    return lax.bitwise_not(lax.bitwise_or(loses(challenger, current_best), keeps_nan))


def select_best_candidate(
    candidates: Sequence[Candidate],
    kind: Kind,
    ties: TieOrder,
    dtype: DType,
    *,
    finds_nan_alone: bool,
) -> Candidate:
    """The winner among the candidates, which are elements of `dtype`. NaN wins over numbers.

    `challenger_wins` takes two comparisons per candidate. With `finds_nan_alone`, one chain of selects compares numbers
    and another chain looks for NaN, with one comparison per candidate each.
    """
    beats, wins_or_ties = (lax.gt, lax.ge) if kind == "max" else (lax.lt, lax.le)
    compare = wins_or_ties if ties == "last" else beats

    def better_candidate(current_best: Candidate, challenger: Candidate) -> Candidate:
        keys = challenger[0], current_best[0]
        wins = compare(*keys) if finds_nan_alone else challenger_wins(*keys, kind, ties)
        return tuple(lax.select(wins, t, b) for t, b in zip(challenger, current_best, strict=True))

    key, *tap = functools.reduce(better_candidate, candidates)
    if finds_nan_alone:
        nan_masks = [lax.ne(candidate[0], candidate[0]) for candidate in candidates]
        has_nan = functools.reduce(lax.bitwise_or, nan_masks)
        key = _set_nan(key, has_nan, dtype)
        pairs = [*zip(nan_masks, candidates, strict=True)]
        # Later selects override earlier selects, so the winning NaN is selected last.
        for is_nan, (_, *nan_tap) in reversed(pairs) if ties == "first" else pairs:
            tap = [lax.select(is_nan, *each) for each in zip(nan_tap, tap, strict=True)]
    return key, *tap


def _set_nan(key: Array, mask: Array, dtype: DType) -> Array:
    """Comparison keys of elements of `dtype`, replaced by NaN where `mask` is True."""
    if dtype != jnp.bfloat16:
        return lax.select(mask, full_like(key, np.nan), key)
    # With AVX2, a select just before `from_comparison_dtype` takes twice as long as setting the bits of NaN.
    nan_bits = jnp.where(mask, np.uint32(0x7FC00000), np.uint32(0))
    return lax.bitcast_convert_type(lax.bitcast_convert_type(key, jnp.uint32) | nan_bits, key.dtype)


def is_tied_with(a: Array, b: Array) -> Array:
    """Mask of elements of a that tie with the element of b at the same index."""
    if not is_float(a.dtype):
        return lax.eq(a, b)
    return lax.bitwise_or(lax.eq(a, b), lax.bitwise_and(lax.ne(a, a), lax.ne(b, b)))


@custom_vmap
def all_true_across_vmap(mask: Array) -> Array:
    """True if `mask` is True everywhere, in all examples of a `vmap`, so that `cond` does not become a select."""
    return jnp.all(mask)


@all_true_across_vmap.def_vmap
def _all_true_vmap_rule(axis_size: int, in_batched: list[bool], mask: Array) -> tuple[Array, bool]:
    return all_true_across_vmap(mask), False
