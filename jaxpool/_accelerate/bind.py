"""Where lax's windowed reductions become ours: at `bind` of their primitives, while handing over.

A handover is the value of a user context of jax, so it belongs to one thread, nests, ends with its
block however that is left, and is part of every cache key: what was traced without it is traced
anew with it, and never the reverse. `python -m jaxpool run` hands over in a whole process instead,
from before its first trace on: a handover of the module, which holds for threads that have none of their own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._accelerate.report import LaxReduction, caller
from jaxpool._accelerate.windows import (
    KINDS,
    LeftError,
    check_parameters,
    check_type,
    kind_of,
    window_of,
)
from jaxpool._arguments.arrays import weakly_typed
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.reduce_window import in_kernel
from jaxpool._ops import elementwise
from jaxpool._ops.apply import apply
from jaxpool._ops.select_pool import pool_op
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards import pools
from jaxpool._shards.split import by_window

Report = Callable[[LaxReduction], object]


def _size(value: Any) -> Any:
    """`value` as an int; a symbolic size stays as it is."""
    return int(value) if is_int(value) else value


def described(kind: str, x: Any, params: dict[str, Any], reason: str | None) -> LaxReduction:
    """A reduction of an array of the type `x` as reports show it, with the line of the user's that asked for it."""
    return LaxReduction(
        kind,
        str(x.dtype),
        tuple(x.shape),
        tuple(map(_size, params.get("window_dimensions", ()))),
        tuple(map(_size, params.get("window_strides", ()))),
        tuple((_size(low), _size(high)) for low, high in params.get("padding", ())),
        caller(),
        reason,
    )


class Handover:
    """That reductions are handed over, and who is told. By identity: a cache key of its own."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self._told: set[LaxReduction] = set()

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        """The reduction by our kernels. Raises `LeftError` for what they do not cover."""
        window = read(kind, aval, params)
        x = jnp.asarray(args[0])
        init = args[1] if len(args) > 1 else None
        starts = init is not None and _starts(kind, x, init, window.padded)
        y = _pool(kind, window, x)
        return _joined(kind, y, jnp.asarray(init, x.dtype)) if starts else y

    def tell(self, kind: str, x: Any, params: dict[str, Any], reason: str | None) -> None:
        """Reports one reduction, once."""
        if self._report is None:
            return
        reduction = described(kind, x, params, reason)
        if reduction not in self._told:
            self._told.add(reduction)
            self._report(reduction)


_silent = Handover()
# Made with the module: jax asks that contexts are not made while other threads use it.
_active = jax.make_user_context(None)
_everywhere: Handover | None = None
_installing = threading.Lock()
_installed: list[Any] = []


def switched_off() -> bool:
    """Whether JAXPOOL_DISABLE asks in the environment that every reduction is left to lax."""
    return os.environ.get("JAXPOOL_DISABLE", "") not in ("", "0")


def handing_over(handover: Handover | None) -> contextlib.AbstractContextManager[None]:
    """Hands over what is bound inside; None leaves a handover that is active already as it is."""
    return _active(handover or _active.value or _everywhere or _silent)


def hand_over_everywhere(handover: Handover) -> None:
    """Hands over from here on, in every thread: before anything is traced, for it is in no cache key."""
    global _everywhere
    install()
    _everywhere = handover


def install() -> None:
    """Puts the dispatcher in front of the four primitives, once."""
    with _installing:
        for primitive in KINDS:
            if primitive not in _installed:
                primitive.bind = _dispatcher(primitive, primitive.bind)
                _installed.append(primitive)


def _dispatcher(primitive: Any, bind: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bind)
    def dispatch(*args: Any, **params: Any) -> Any:
        handover = _active.value or _everywhere
        if handover is None or in_kernel.value:
            return bind(*args, **params)
        try:
            aval = jax.typeof(args[0])
        except TypeError:
            return bind(*args, **params)
        kind, reason = kind_of(primitive, params), None
        try:
            check_parameters(primitive, params)
            y = handover.take_over(kind, aval, args, params)
        except LeftError as left:
            reason = str(left)
        handover.tell(kind, aval, params, reason)
        if reason is not None:
            return bind(*args, **params)
        if primitive is lax.reduce_window_p:
            return [y]
        return weakly_typed(y) if aval.weak_type else y

    return dispatch


def read(kind: str, aval: Any, params: dict[str, Any]) -> Window:
    """The window of a reduction of an array of this type. Raises `LeftError` for what our kernels do not cover."""
    if kind == "other":
        raise LeftError("the reduction is no max, min or sum of two numbers")
    window = window_of(aval, params)
    check_type(kind, aval)
    return window


def _pool(kind: str, window: Window, x: Array) -> Array:
    """The pool of x: by one op, or where its type says that it is sharded by that of each shard."""
    try:
        split = by_window(x, window)
    except ArgumentError as error:
        raise LeftError(f"{error.argument} is not {error.rule}") from None
    y: Array
    if split:
        pool = (pools.Sum,) if kind == "sum" else (pools.Select, cast(Kind, kind), "first")
        y = split.run(pool[0], x, *pool[1:])
        return y
    op = SumPool(window) if kind == "sum" else pool_op(window, cast(Kind, kind), "first")
    y = apply(op, "jvp", x)
    return y


def _starts(kind: str, x: Array, init: Any, padded: bool) -> bool:
    """Whether the value that a general reduction starts with can change its result; any may for a max or min."""
    start = jax.typeof(init)
    if start.dtype != x.dtype or start.shape:
        raise LeftError("the initial value is no scalar of the array's dtype")
    if not isinstance(init, jax.core.Tracer):
        identity = 0 if kind == "sum" else dtypes.losing(x.dtype, cast(Kind, kind))
        if np.asarray(init) == identity:
            return False
    if kind == "sum" and padded:
        raise LeftError("the initial value of a padded sum may not be 0")
    return True


def _joined(kind: str, y: Array, init: Array) -> Array:
    """The results of windows and the value that each of them starts with."""
    if kind == "sum":
        return lax.add(y, jnp.broadcast_to(init, y.shape))
    y, init = elementwise.sharded_alike([y, init])
    shapes, types = (y.shape, init.shape), (y.dtype, y.dtype)
    return apply(elementwise.Extreme(cast(Kind, kind), "first", shapes, types), "jvp", y, init)
