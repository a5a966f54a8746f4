"""The windowed pools of libraries that are written in jax: what they take, say and give, by our kernels.

A pool is asked what it reduces (`_accelerate/asked.py`), and one op computes that: also the division of an average, so
that 8- and 16-bit floats are added in float32 and rounded once, and without the transposes that an original may need.
What our kernels do not compute so is the original itself under `accelerate`.
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
from jaxpool._arguments.arrays import weakly_typed
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
    """Says what to install where `library`, whose pools `compat.<name>` runs, is missing."""
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
    """`original(x, *args)`, the sums of whose windows it divides by what `divide` says."""
    y = pool_at_once(original, x, *args, divide=divide)
    return accelerated(original, x, *args) if y is None else y


def pool_at_once(
    original: Callable[..., Any], x: Any, *args: Any, divide: Divide = "not", moved: bool = False
) -> Array | None:
    """`pool` by one op; None where that is not all that `original` computes.

    An original may put axes before those of x, and takes them away again. One that has `moved` the first axis to
    the end numbers the pooled axes as x does.
    """
    if not isinstance(x, (jax.Array, np.ndarray)):
        return None
    x = jnp.asarray(x) if isinstance(x, np.ndarray) else x
    found = asked(original, x, *args)
    if found is None or (found.kind == "sum" and not dtypes.is_float(x.dtype)):
        return None
    before = 0 if moved else found.ndim - x.ndim
    dims = [dataclasses.replace(dim, axis=dim.axis - before) for dim in found.window.dims]
    window = Window(tuple(dims))
    # An average over no elements is NaN in the originals, and 0 of ours.
    empty = divide == "real" and any(dim.first_empty() is not None for dim in dims)
    if empty or window.pooled(x.shape) != found.shape:
        return None
    kind = found.kind
    op = SumPool(window, divide) if kind == "sum" else pool_op(window, cast(Kind, kind), "first")
    try:
        y = windowed(op, x.astype(found.dtype))
    except ArgumentError:  # shards of several sizes
        return None
    return weakly_typed(y) if found.weak_type else y
