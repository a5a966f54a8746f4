"""Windowed pools of Flax, Haiku and Equinox, computed by jaxpool's kernels.

`_traced_reduction.py` traces the original pool to find the windowed reduction that it binds. One op then computes the
whole pool without the transposes of the original. The op includes the division of an average, so 8- and 16-bit floats
are added in float32 and rounded once. If no op computes the pool, the original runs under `accelerate`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._accelerate.bind import install_dispatcher, replacing_reductions
from jaxpool._arguments.arrays import as_weakly_typed
from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Kind
from jaxpool._ops.select_pool import pool_op
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.windowed import apply_by_type
from jaxpool.compat._traced_reduction import trace_first_reduction

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
    reduction = trace_first_reduction(original_pool, x, *args)
    if reduction is None or (reduction.kind == "sum" and not dtypes.is_float(x.dtype)):
        return None
    axis_offset = 0 if channels_moved_last else reduction.operand_ndim - x.ndim
    dims = [dataclasses.replace(dim, axis=dim.axis - axis_offset) for dim in reduction.window.dims]
    window = Window(tuple(dims))
    # An average over no elements is NaN in the originals, but 0 in `SumPool`.
    has_empty = divisor_rule == "real" and any(dim.first_empty_window() is not None for dim in dims)
    if has_empty or window.pooled_shape(x.shape) != reduction.shape:
        return None
    kind = reduction.kind
    op = (
        SumPool(window, divisor_rule)
        if kind == "sum"
        else pool_op(window, cast(Kind, kind), "first")
    )
    try:
        y = apply_by_type(op, x.astype(reduction.dtype))
    except ArgumentError:  # shards of unequal sizes
        return None
    return as_weakly_typed(y) if reduction.weak_type else y
