"""Windowed pools of Flax, Haiku and Equinox, computed by jaxpool's kernels.

`_accelerate/asked.py` traces the original pool to find the windowed reduction that it binds. One op then computes the
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

from jaxpool._accelerate.asked import asked
from jaxpool._accelerate.bind import handing_over, install
from jaxpool._arguments.arrays import with_weak_type
from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Kind
from jaxpool._ops.select_pool import pool_op
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.pools import windowed

Divide = Literal["not", "counted", "real"]


@contextlib.contextmanager
def extra(library: str, name: str) -> Iterator[None]:
    """Name the extra to install if `library`, which `compat.<name>` imports, is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != name:
            raise
        message = f"jaxpool.compat.{name} needs {library}: pip install 'jaxpool[{name}]'"
        raise ModuleNotFoundError(message, name=name) from None


def accelerated(original: Callable[..., Any], *args: Any) -> Array:
    """`original(*args)` under `accelerate`."""
    install()
    with handing_over(None):
        y: Array = original(*args)
    return y


def pool(original: Callable[..., Any], x: Any, *args: Any, divide: Divide = "not") -> Array:
    """`original(x, *args)` by one op or under `accelerate`; `divide` is the divisor of window sums, as in `SumPool`."""
    y = pool_at_once(original, x, *args, divide=divide)
    return accelerated(original, x, *args) if y is None else y


def pool_at_once(
    original: Callable[..., Any], x: Any, *args: Any, divide: Divide = "not", moved: bool = False
) -> Array | None:
    """`pool` by one op, or None if one op does not compute all of `original`.

    An original may add leading axes to x and remove them from the result. With `moved`, the original moves the first
    axis to the end and adds one leading axis, so the pooled axes keep the numbers that they have in x.
    """
    if not isinstance(x, (jax.Array, np.ndarray)):
        return None
    x = jnp.asarray(x) if isinstance(x, np.ndarray) else x
    reduction = asked(original, x, *args)
    if reduction is None or (reduction.kind == "sum" and not dtypes.is_float(x.dtype)):
        return None
    leading = 0 if moved else reduction.ndim - x.ndim
    dims = [dataclasses.replace(dim, axis=dim.axis - leading) for dim in reduction.window.dims]
    window = Window(tuple(dims))
    # An average over no elements is NaN in the originals, but 0 in `SumPool`.
    empty = divide == "real" and any(dim.first_empty() is not None for dim in dims)
    if empty or window.pooled(x.shape) != reduction.shape:
        return None
    kind = reduction.kind
    op = SumPool(window, divide) if kind == "sum" else pool_op(window, cast(Kind, kind), "first")
    try:
        y = windowed(op, x.astype(reduction.dtype))
    except ArgumentError:  # shards of unequal sizes
        return None
    return with_weak_type(y) if reduction.weak_type else y
