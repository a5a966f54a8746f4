"""Windowed pools of Flax, Haiku and Equinox, computed by jaxpool's kernels.

The original pool is traced to find the windowed reduction that it binds. It runs under `jax.eval_shape`, so that it
checks its arguments and raises its own messages, and nothing is computed. One op then computes the whole pool without
the transposes of the original. The op includes the division of an average, so 8- and 16-bit floats are added in float32
and rounded once. If no op computes the pool, the original runs under `accelerate`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._accelerate.bind import (
    LeftToLaxError,
    ReductionReplacer,
    install_dispatcher,
    replacing_reductions,
    window_of_lax_reduction,
)
from jaxpool._arguments.arrays import as_weakly_typed
from jaxpool._arguments.errors import ArgumentError, is_nested_deeply
from jaxpool._arguments.sharding import in_sharded
from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes
from jaxpool._ops.select_pool import select_pool
from jaxpool._ops.sum_pool import sum_pool
from jaxpool._shards.windowed import pool_by_type, select_pool_of_shard, sum_pool_of_shard

DivisorRule = Literal["not", "counted", "real"]


@contextlib.contextmanager
def name_missing_extra_in_error(library: str, extra_name: str) -> Iterator[None]:
    """If `library` is missing, raise an error that names the pip extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != extra_name:
            raise
        message = (
            f"jaxpool.compat.{extra_name} needs {library}: pip install 'jaxpool[{extra_name}]'"
        )
        raise ModuleNotFoundError(message, name=extra_name) from None


def call_accelerated(original_function: Callable[..., Any], *args: Any) -> Array:
    """`original_function(*args)` under `accelerate`."""
    install_dispatcher()
    with replacing_reductions(None):
        y: Array = original_function(*args)
    return y


def pool_or_call_accelerated(
    original_pool: Callable[..., Any], x: Any, *args: Any, divisor_rule: DivisorRule = "not"
) -> Array:
    """`original_pool(x, *args)` by one op or under `accelerate`. `divisor_rule` is the divisor of sums in `SumPool`."""
    y = pool_with_one_op(original_pool, x, *args, divisor_rule=divisor_rule)
    return call_accelerated(original_pool, x, *args) if y is None else y


def pool_with_one_op(
    original_pool: Callable[..., Any],
    x: Any,
    *args: Any,
    divisor_rule: DivisorRule = "not",
    channels_moved_last: bool = False,
) -> Array | None:
    """`original_pool(x, *args)` computed by one op; None if no single op computes the whole pool.

    An original pool may add leading axes to x and remove them from the result. With `channels_moved_last`, the original
    moves the first axis to the end and adds a leading axis: pooled axes keep their numbers.
    """
    if not isinstance(x, (jax.Array, np.ndarray)):
        return None
    x = jnp.asarray(x) if isinstance(x, np.ndarray) else x
    reduction = _trace_first_reduction(original_pool, x, *args)
    if reduction is None or (reduction.kind == "sum" and not dtypes.is_float(x.dtype)):
        return None
    axis_offset = 0 if channels_moved_last else reduction.operand_ndim - x.ndim
    dims = [dataclasses.replace(dim, axis=dim.axis - axis_offset) for dim in reduction.window.dims]
    window = Window(tuple(dims))
    # An average over no elements is NaN in the originals, but 0 in `SumPool`.
    has_empty = divisor_rule == "real" and any(dim.first_empty_window() is not None for dim in dims)
    if has_empty or window.pooled_shape(x.shape) != reduction.shape:
        return None
    x = x.astype(reduction.dtype)
    try:
        if reduction.kind == "sum":
            y = pool_by_type(sum_pool, sum_pool_of_shard, window, x, divisor_rule)
        else:
            pools = select_pool, select_pool_of_shard
            y = pool_by_type(*pools, window, x, reduction.kind, "first")
    except ArgumentError:  # shards of unequal sizes
        if in_sharded.value:
            raise
        return None
    return as_weakly_typed(y) if reduction.weak_type else y


@dataclasses.dataclass(frozen=True)
class _TracedReduction:
    """The windowed reduction that a function binds, and the type of the function's result."""

    kind: str  # "max", "min" or "sum"; its initial value is the identity: -inf, inf or 0
    window: Window
    # Rank of the reduced array, which may have more axes than the function's argument.
    operand_ndim: int
    # The type of the function's result.
    shape: tuple[Any, ...]
    dtype: Any
    weak_type: bool


class _ReductionRecorder(ReductionReplacer):
    """Records the reductions that a pool binds, and leaves all of them to lax.

    The record is None for a reduction that our windows do not cover, or that has an explicit initial value.
    """

    def replace_reduction(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        _thread_record.reductions.append(None)
        window = window_of_lax_reduction(kind, aval, params)
        if len(args) == 1:  # `lax.reduce_window_p` has the initial value as a second argument
            _thread_record.reductions[-1] = (kind, window, aval.ndim)
        raise LeftToLaxError("it is recorded only")


_reduction_recorder = _ReductionRecorder()
_thread_record: Any = threading.local()


def _trace_first_reduction(
    function: Callable[..., Any], x: Array, *args: Any
) -> _TracedReduction | None:
    """The first windowed reduction that `function(x, *args)` binds; None if our pools cannot compute this reduction.

    A function is traced once for the same type of x and the same arguments, so its warnings appear once too.
    """
    if is_nested_deeply(args):
        return None
    # 2 and 2.0 are equal keys, but may give different dtypes.
    arg_types = tuple(map(type, jax.tree.leaves(args)))
    if any(issubclass(arg_type, jax.Array) for arg_type in arg_types):
        return None
    settings = jax.config.jax_enable_x64, jax.config.jax_numpy_dtype_promotion  # type: ignore[attr-defined]
    cache_key = (function, x.shape, x.dtype, x.weak_type, args, arg_types, settings)
    try:
        hash(cache_key)
    except TypeError:
        return _trace_with_cache.__wrapped__(*cache_key)
    return _trace_with_cache(*cache_key)


@functools.lru_cache(maxsize=4096)
def _trace_with_cache(
    function: Callable[..., Any],
    x_shape: tuple[Any, ...],
    x_dtype: Any,
    x_weak_type: bool,
    args: tuple[Any, ...],
    *_: Any,
) -> _TracedReduction | None:
    install_dispatcher()
    _thread_record.reductions = []
    x = jax.ShapeDtypeStruct(x_shape, x_dtype, weak_type=x_weak_type)
    with replacing_reductions(_reduction_recorder):
        y = jax.eval_shape(lambda x: function(x, *args), x)
    if not _thread_record.reductions or _thread_record.reductions[0] is None:
        return None
    kind, window, ndim = _thread_record.reductions[0]
    return _TracedReduction(kind, window, ndim, y.shape, y.dtype, y.weak_type)
