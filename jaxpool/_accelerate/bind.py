"""Where lax's windowed reductions become ours: at `bind` of their primitives, while handing over.

A handover is the value of a user context of jax, so it belongs to one thread, nests, ends with its
block however that is left, and is part of every cache key: what was traced without it is traced
anew with it, and never the reverse.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._accelerate.report import Reduction, caller
from jaxpool._arguments.arrays import weakly_typed
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._geometry.window import Window, make_window
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.reduce_window import handover as _active
from jaxpool._ops.elementwise import Extreme as Larger
from jaxpool._ops.elementwise import sharded_alike
from jaxpool._ops.op import apply
from jaxpool._ops.select_pool import pool_op
from jaxpool._ops.sum_pool import SumPool
from jaxpool._shards.pools import Extreme, Sum
from jaxpool._shards.split import by_window

_KINDS = {
    lax.reduce_window_max_p: "max",
    lax.reduce_window_min_p: "min",
    lax.reduce_window_sum_p: "sum",
}
_REDUCERS = {lax.max_p: "max", lax.min_p: "min", lax.add_p: "sum"}
_GEOMETRY = {"window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation"}

Report = Callable[[Reduction], object]


def _size(value: Any) -> Any:
    """`value` as an int; a symbolic size stays as it is."""
    return int(value) if is_int(value) else value


class Handover:
    """That reductions are handed over, and who is told. By identity: a cache key of its own."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self._told: set[Reduction] = set()

    def tell(self, kind: str, x: Any, params: dict[str, Any], reason: str | None) -> None:
        """Reports one reduction, once."""
        if self._report is None:
            return
        reduction = Reduction(
            kind,
            str(x.dtype),
            tuple(x.shape),
            tuple(map(_size, params["window_dimensions"])),
            tuple(map(_size, params["window_strides"])),
            tuple((_size(low), _size(high)) for low, high in params["padding"]),
            caller(),
            reason,
        )
        if reduction not in self._told:
            self._told.add(reduction)
            self._report(reduction)


_silent = Handover()
_installing = threading.Lock()
_installed: list[Any] = []


def handing_over(handover: Handover | None) -> contextlib.AbstractContextManager[None]:
    """Hands over what is bound inside; None leaves a handover that is active already as it is."""
    return _active(handover or _active.value or _silent)


def install() -> None:
    """Puts the dispatcher in front of the four primitives, once."""
    with _installing:
        for primitive in (*_KINDS, lax.reduce_window_p):
            if primitive not in _installed:
                primitive.bind = _dispatcher(primitive, primitive.bind)
                _installed.append(primitive)


class _LeftError(Exception):
    """Why a reduction is left to lax."""


def _dispatcher(primitive: Any, bind: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(bind)
    def dispatch(*args: Any, **params: Any) -> Any:
        handover = _active.value
        if handover is None or params.keys() - {"jaxpr", "consts"} != _GEOMETRY:
            return bind(*args, **params)
        try:
            aval = jax.typeof(args[0])
        except TypeError:
            return bind(*args, **params)
        kind = _KINDS.get(primitive) or _reducer(params["jaxpr"])
        reason = None
        try:
            y = _take_over(kind, aval, args, params)
        except _LeftError as left:
            reason = str(left)
        handover.tell(kind, aval, params, reason)
        if reason is not None:
            return bind(*args, **params)
        if primitive is lax.reduce_window_p:
            return [y]
        return weakly_typed(y) if aval.weak_type else y

    return dispatch


def _reducer(jaxpr: Any) -> str:
    """What a general reduction is: the max, min or sum of two numbers, or something else."""
    if len(jaxpr.invars) == 2 and len(jaxpr.eqns) == 1:
        (eqn,) = jaxpr.eqns
        both = set(map(id, eqn.invars)) == set(map(id, jaxpr.invars))
        if both and len(jaxpr.outvars) == 1 and jaxpr.outvars[0] is eqn.outvars[0]:
            return _REDUCERS.get(eqn.primitive, "other")
    return "other"


def _take_over(kind: str, aval: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Array:
    """The reduction by our kernels. Raises `_LeftError` for what they do not cover."""
    if kind == "other":
        raise _LeftError("the reduction is no max, min or sum of two numbers")
    window = _window(aval, params)
    _check_type(kind, aval)
    if kind != "sum" and _default_platform() == "tpu":
        raise _LeftError("on a TPU lax's max and its derivative are one instruction each")
    x = jnp.asarray(args[0])
    pool = _pool(kind, window, x)
    return pool() if len(args) == 1 else _with_init(kind, window, pool, x, args[1])


def _pool(kind: str, window: Window, x: Array) -> Callable[[], Array]:
    """The pool of x: by one op, or where its type says that it is sharded by that of each shard."""
    try:
        split = by_window(x, window)
    except ArgumentError as error:
        raise _LeftError(f"{error.argument} is not {error.rule}") from None
    if kind == "sum":
        if split:
            return functools.partial(split.run, Sum, x)
        return functools.partial(apply, SumPool(window), "jvp", x)
    if split:
        return functools.partial(split.run, Extreme, x, cast(Kind, kind), "first")
    return functools.partial(apply, pool_op(window, cast(Kind, kind), "first"), "jvp", x)


def _default_platform() -> str:
    """The platform that a program is traced for, unless its arrays or `jax.export` say otherwise later."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return getattr(device, "platform", device) or jax.default_backend()


def _window(aval: Any, params: dict[str, Any]) -> Window:
    if any(dilation != 1 for dilation in params["base_dilation"]):
        raise _LeftError("base_dilation is not 1")
    shape, strides, pads = (
        params[name] for name in ("window_dimensions", "window_strides", "padding")
    )
    dilation = params["window_dilation"]
    if any(len(values) != aval.ndim for values in (shape, strides, pads, dilation)):
        raise _LeftError("not one entry for each axis")
    axes = tuple(
        axis
        for axis in range(aval.ndim)
        if shape[axis] != 1 or strides[axis] != 1 or any(pads[axis])
    )
    if not axes:
        raise _LeftError("every window is one element")
    if any(side < 0 for pair in pads for side in pair):
        raise _LeftError("negative padding")

    def of(values: Any) -> tuple[Any, ...]:
        return tuple(values[axis] for axis in axes)

    try:
        window = make_window(
            aval.shape,
            of(shape),
            of(strides),
            of(pads),
            window_dilation=of(dilation),
            axes=axes,
            empty="keep",
        )
    except ArgumentError as error:
        raise _LeftError(f"{error.argument} is not {error.rule}") from None
    if _running(window):
        raise _LeftError("a running reduction: so lax computes cumsum and cummax")
    return window


def _running(window: Window) -> bool:
    """Whether output i is the reduction of all elements up to i, or from i on."""
    if len(window.dims) != 1:
        return False
    (dim,) = window.dims
    plain = dim.window == dim.size and dim.stride == dim.dilation == 1
    return plain and sorted((dim.low, dim.high)) == [0, dim.size - 1]


def _check_type(kind: str, aval: Any) -> None:
    real = jnp.issubdtype(aval.dtype, jnp.floating) or jnp.issubdtype(aval.dtype, jnp.integer)
    if not real and (kind == "sum" or aval.dtype != jnp.bool_):
        raise _LeftError(f"{aval.dtype} has no {kind} here")


def _with_init(kind: str, window: Window, pool: Callable[[], Array], x: Array, init: Any) -> Array:
    """A general reduction, which names the value it starts with: any value, for a max or min."""
    start = jax.typeof(init)
    if start.dtype != x.dtype or start.shape:
        raise _LeftError("the initial value is no scalar of the array's dtype")
    if not isinstance(init, jax.core.Tracer):
        identity = 0 if kind == "sum" else dtypes.losing(x.dtype, cast(Kind, kind))
        if np.asarray(init) == identity:
            return pool()
    if kind == "sum" and window.padded:
        raise _LeftError("the initial value of a padded sum may not be 0")
    y, init = pool(), jnp.asarray(init, x.dtype)
    if kind == "sum":
        return lax.add(y, jnp.broadcast_to(init, y.shape))
    y, init = sharded_alike([y, init])
    joined = Larger(cast(Kind, kind), "first", (y.shape, init.shape), (y.dtype, y.dtype))
    return apply(joined, "jvp", y, init)
