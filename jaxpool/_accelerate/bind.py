"""The dispatcher in front of `bind` of lax's windowed reductions, which calls our pools while a `Handover` is active.

The active `Handover` is the value of a user context of jax. It is local to a thread, nests and ends with its block. It
is part of every cache key, so that traces with and without it are never mixed. `python -m jaxpool run` sets a
module-level `Handover` for the whole process instead, before the first trace. It serves all threads without an active
`Handover`.
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
from jaxpool._arguments.arrays import with_weak_type
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.reduce_window import in_kernel
from jaxpool._ops import elementwise
from jaxpool._ops.apply import apply
from jaxpool._shards.pools import select_pool, sum_pool
from jaxpool._shards.split import by_window

Report = Callable[[LaxReduction], object]


def _size(value: Any) -> Any:
    """`value` as an int, or unchanged if it is a symbolic size."""
    return int(value) if is_int(value) else value


def described(kind: str, x: Any, params: dict[str, Any], reason: str | None) -> LaxReduction:
    """The report of a reduction of an array of type `x`, with the line of the user's program that calls it."""
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
    """Computes reductions by our pools, and reports them. Compares by identity, so each is a cache key of its own."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self._told: set[LaxReduction] = set()

    def take_over(self, kind: str, aval: Any, args: Any, params: dict[str, Any]) -> Array:
        """The reduction, computed by our pools. Raises `LeftError` for a reduction that they do not cover."""
        window = read(kind, aval, params)
        x = jnp.asarray(args[0])
        init = args[1] if len(args) > 1 else None
        starts = init is not None and _starts(kind, x, init, window.padded)
        y = _pool(kind, window, x)
        return _joined(kind, y, jnp.asarray(init, x.dtype)) if starts else y

    def tell(self, kind: str, x: Any, params: dict[str, Any], reason: str | None) -> None:
        """Report a reduction; equal reductions are reported once."""
        if self._report is None:
            return
        reduction = described(kind, x, params, reason)
        if reduction not in self._told:
            self._told.add(reduction)
            self._report(reduction)


_silent = Handover()
# Made at import, because jax does not allow making a context while other threads use it.
_active = jax.make_user_context(None)
_everywhere: Handover | None = None
_installing = threading.Lock()
_installed: list[Any] = []


def switched_off() -> bool:
    """Whether the environment variable JAXPOOL_DISABLE leaves every reduction to lax."""
    return os.environ.get("JAXPOOL_DISABLE", "") not in ("", "0")


def handing_over(handover: Handover | None) -> contextlib.AbstractContextManager[None]:
    """A context that hands over reductions; None keeps the handover that is already active, if any."""
    return _active(handover or _active.value or _everywhere or _silent)


def hand_over_everywhere(handover: Handover) -> None:
    """Hand over reductions process-wide. Must run before the first trace: `handover` is not part of a cache key."""
    global _everywhere
    install()
    _everywhere = handover


def install() -> None:
    """Replace `bind` of the four primitives by the dispatcher, once."""
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
        return with_weak_type(y) if aval.weak_type else y

    return dispatch


def read(kind: str, aval: Any, params: dict[str, Any]) -> Window:
    """The window of a reduction of an array like `aval`. Raises `LeftError` if our pools do not cover it."""
    if kind == "other":
        raise LeftError("the reduction is no max, min or sum of two numbers")
    window = window_of(aval, params)
    check_type(kind, aval)
    return window


def _pool(kind: str, window: Window, x: Array) -> Array:
    """The pool of x by one op, or on the shards of x if its type is sharded."""
    try:
        split = by_window(x, window)
    except ArgumentError as error:
        raise LeftError(f"{error.arg_name} is not {error.requirement}") from None
    if kind == "sum":
        return split.run(sum_pool, x, "not")
    return split.run(select_pool, x, cast(Kind, kind), "first")


def _starts(kind: str, x: Array, init: Any, padded: bool) -> bool:
    """Whether the initial value of a general reduction can change its result. Raises `LeftError` if not supported."""
    start = jax.typeof(init)
    if start.dtype != x.dtype or start.shape:
        raise LeftError("the initial value is no scalar of the array's dtype")
    if not isinstance(init, jax.core.Tracer):
        identity = 0 if kind == "sum" else dtypes.reduction_identity(x.dtype, cast(Kind, kind))
        if np.asarray(init) == identity:
            return False
    if kind == "sum" and padded:
        raise LeftError("the initial value of a padded sum may not be 0")
    return True


def _joined(kind: str, y: Array, init: Array) -> Array:
    """The results y of windows, combined with the initial value."""
    if kind == "sum":
        return lax.add(y, jnp.broadcast_to(init, y.shape))
    y, init = elementwise.sharded_alike([y, init])
    shapes, types = (y.shape, init.shape), (y.dtype, y.dtype)
    return apply(elementwise.Extreme(cast(Kind, kind), "first", shapes, types), "jvp", y, init)
