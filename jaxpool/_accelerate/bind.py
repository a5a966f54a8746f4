"""The dispatcher that replaces `bind` of lax's windowed reductions, and calls our pools under a `ReductionReplacer`.

The active replacer is the value of a user context of jax, which is local to a thread and a `with` block, and part of
jax's cache keys. `python -m jaxpool run` sets a process-wide replacer before the first trace.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.extend import core
from jax.typing import ArrayLike

from jaxpool._accelerate.report import LaxReduction, format_caller_line
from jaxpool._arguments.arrays import as_weakly_typed
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import MeshAxes, context_axes, in_sharded
from jaxpool._arguments.sizes import Size, is_int
from jaxpool._geometry.window import Window, make_window
from jaxpool._kernels import dtypes
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.reduce_window import in_kernel
from jaxpool._ops.elementwise import apply_extremum
from jaxpool._ops.select_pool import select_pool
from jaxpool._ops.sum_pool import sum_pool
from jaxpool._shards.windowed import pool_by_type, select_pool_of_shard, sum_pool_of_shard

ReportCallback = Callable[[LaxReduction], object]
Params = dict[str, Any]  # the parameters of a primitive

KIND_OF_PRIMITIVE = {
    lax.reduce_window_max_p: "max",
    lax.reduce_window_min_p: "min",
    lax.reduce_window_sum_p: "sum",
    lax.reduce_window_p: None,  # general; `_kind_of_reducer_jaxpr` reads its jaxpr
}
GEOMETRY_PARAMETERS = frozenset(
    {"window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation"}
)
# The known parameters. A reduction with any other parameter is left to lax: the parameter may change the result.
KNOWN_PARAMETERS = {
    primitive: GEOMETRY_PARAMETERS if kind else GEOMETRY_PARAMETERS | {"jaxpr", "consts"}
    for primitive, kind in KIND_OF_PRIMITIVE.items()
}
_KIND_OF_BINARY_PRIMITIVE = {lax.max_p: "max", lax.min_p: "min", lax.add_p: "sum"}


def describe_reduction(
    kind: str, x: jax.core.ShapedArray, params: Params, reason: str | None
) -> LaxReduction:
    """The report of a reduction of an array of type `x`, with the line of the user's program that calls it."""

    def ints_or_symbolic_sizes(values: Sequence[Size]) -> tuple[Size, ...]:
        return tuple(int(value) if is_int(value) else value for value in values)

    window_shape = ints_or_symbolic_sizes(params.get("window_dimensions", ()))
    strides = ints_or_symbolic_sizes(params.get("window_strides", ()))
    padding = tuple(map(ints_or_symbolic_sizes, params.get("padding", ())))
    array_type = str(x.dtype), tuple(x.shape)
    return LaxReduction(
        kind, *array_type, window_shape, strides, padding, format_caller_line(), reason
    )


class ReductionReplacer:
    """Computes reductions by our pools, and reports them. Each replacer is a cache key of its own, by identity."""

    def __init__(self, report: ReportCallback | None = None) -> None:
        self._report = report
        self._reported_reductions: set[LaxReduction] = set()

    def replace_reduction(
        self, kind: str, aval: jax.core.ShapedArray, args: Sequence[ArrayLike], params: Params
    ) -> Array:
        """The reduction, computed by our pools. Raises `LeftToLaxError` for a reduction that our pools do not cover."""
        try:
            return self._pool(kind, aval, args, params)
        except LeftToLaxError:
            _check_windows_in_shard(aval, params)
            raise

    def _pool(
        self, kind: str, aval: jax.core.ShapedArray, args: Sequence[ArrayLike], params: Params
    ) -> Array:
        window = window_of_lax_reduction(kind, aval, params)
        x = jnp.asarray(args[0])
        inits = [i for i in args[1:] if _init_changes_result(kind, x, i, window.is_padded)]
        with contextlib.nullcontext() if in_sharded.value else left_to_lax_if_invalid():
            if kind == "sum":
                y = pool_by_type(sum_pool, sum_pool_of_shard, window, x, "not")
            else:
                pools = select_pool, select_pool_of_shard
                y = pool_by_type(*pools, window, x, kind, "first")
        for init in inits:
            y = _combine_with_init(kind, y, jnp.asarray(init, x.dtype))
        return y

    def report_reduction(
        self, kind: str, x: jax.core.ShapedArray, params: Params, reason: str | None
    ) -> None:
        """Report a reduction; equal reductions are reported once."""
        if self._report is None:
            return
        reduction = describe_reduction(kind, x, params, reason)
        if reduction not in self._reported_reductions:
            self._reported_reductions.add(reduction)
            self._report(reduction)

    def report_if_none(self) -> None:
        """Report that there was no reduction, if nothing has been reported yet."""
        if self._report is not None and not self._reported_reductions:
            self._reported_reductions.add(no_reduction := LaxReduction.none())
            self._report(no_reduction)


_default_replacer = ReductionReplacer()
# Created at import, because jax does not allow creating a context while other threads use jax.
_active_replacer = jax.make_user_context(None)
_process_wide_replacer: ReductionReplacer | None = None
_install_lock = threading.Lock()
_dispatching_primitives: set[core.Primitive] = set()


def is_disabled_by_environment() -> bool:
    """Whether the environment variable JAXPOOL_DISABLE leaves every reduction to lax."""
    return os.environ.get("JAXPOOL_DISABLE", "") not in ("", "0")


@contextmanager
def replacing_reductions(replacer: ReductionReplacer | None) -> Iterator[None]:
    """A context manager under which `replacer` computes reductions; None keeps the active replacer, if any."""
    active_replacer = _active_replacer.value or _process_wide_replacer or _default_replacer
    with _active_replacer(replacer or active_replacer):
        yield
    if replacer is not None:
        replacer.report_if_none()


def replace_process_wide(replacer: ReductionReplacer) -> None:
    """Replace reductions process-wide. Must run before the first trace: `replacer` is in no cache key."""
    global _process_wide_replacer
    install_dispatcher()
    _process_wide_replacer = replacer


def install_dispatcher() -> None:
    """Replace `bind` of the four primitives by the dispatcher, once."""
    with _install_lock:
        for primitive in KIND_OF_PRIMITIVE.keys() - _dispatching_primitives:
            primitive.bind = _make_dispatcher(primitive, primitive.bind)
            _dispatching_primitives.add(primitive)


def _make_dispatcher(
    primitive: core.Primitive, lax_bind: Callable[..., object]
) -> Callable[..., object]:
    @functools.wraps(lax_bind)
    def dispatch(*args: ArrayLike, **params: Any) -> object:
        replacer = _active_replacer.value or _process_wide_replacer
        if replacer is None or in_kernel.value:
            return lax_bind(*args, **params)
        try:
            aval = jax.typeof(args[0])
        except TypeError:
            return lax_bind(*args, **params)
        kind, reason = reduction_kind(primitive, params), None
        try:
            check_known_parameters(primitive, params)
            y = replacer.replace_reduction(kind, aval, args, params)
        except LeftToLaxError as left:
            reason = str(left)
        replacer.report_reduction(kind, aval, params, reason)
        if reason is not None:
            return lax_bind(*args, **params)
        if primitive is lax.reduce_window_p:
            return [y]
        return as_weakly_typed(y) if aval.weak_type else y

    return dispatch


def _init_changes_result(kind: str, x: Array, init: ArrayLike, has_padding: bool) -> bool:
    """Whether the initial value can change the result. Raises `LeftToLaxError` for an unsupported value."""
    init_type = jax.typeof(init)
    if init_type.dtype != x.dtype or init_type.shape:
        raise LeftToLaxError("the initial value is no scalar of the array's dtype")
    if not isinstance(init, jax.core.Tracer):
        identity = 0 if kind == "sum" else dtypes.reduction_identity(x.dtype, cast(Kind, kind))
        if np.asarray(init) == identity:
            return False
    if kind == "sum" and has_padding:
        raise LeftToLaxError("the initial value of a padded sum may not be 0")
    return True


def _combine_with_init(kind: str, y: Array, init: Array) -> Array:
    """The results y of windows, combined with the initial value."""
    if kind == "sum":
        return lax.add(y, jnp.broadcast_to(init, y.shape))
    return apply_extremum(cast(Kind, kind), "first", [y, init])


class LeftToLaxError(Exception):
    """Raised with the reason why a reduction is left to lax."""


def check_known_parameters(primitive: core.Primitive, params: Params) -> None:
    """Raise unless the parameters of `primitive` are those of `KNOWN_PARAMETERS`."""
    for names, problem in (
        (params.keys() - KNOWN_PARAMETERS[primitive], "has a parameter that is not known here"),
        (KNOWN_PARAMETERS[primitive] - params.keys(), "lacks a parameter that is read here"),
    ):
        if names:
            raise LeftToLaxError(f"lax's {primitive} {problem}: {', '.join(sorted(names))}")


def reduction_kind(primitive: core.Primitive, params: Params) -> str:
    """The kind of reduction: "max", "min", "sum" or "other"."""
    return KIND_OF_PRIMITIVE[primitive] or _kind_of_reducer_jaxpr(params.get("jaxpr"))


def _kind_of_reducer_jaxpr(jaxpr: core.Jaxpr | None) -> str:
    if jaxpr is not None and len(jaxpr.invars) == 2 and len(jaxpr.eqns) == 1:
        (eqn,) = jaxpr.eqns
        reads_inputs = set(map(id, eqn.invars)) == set(map(id, jaxpr.invars))
        if reads_inputs and len(jaxpr.outvars) == 1 and jaxpr.outvars[0] is eqn.outvars[0]:
            return _KIND_OF_BINARY_PRIMITIVE.get(eqn.primitive, "other")
    return "other"


def window_of_lax_reduction(kind: str, aval: jax.core.ShapedArray, params: Params) -> Window:
    """The window of a reduction of an array like `aval`. Raises `LeftToLaxError` if our pools do not cover it."""
    if kind == "other":
        raise LeftToLaxError("the reduction is no max, min or sum of two numbers")
    if any(dilation != 1 for dilation in params["base_dilation"]):
        raise LeftToLaxError("base_dilation is not 1")
    names = ("window_dimensions", "window_strides", "padding", "window_dilation")
    sizes = [params[name] for name in names]
    window_shape, strides, pads, _ = sizes
    if any(len(values) != aval.ndim for values in sizes):
        raise LeftToLaxError("not one entry for each axis")
    if any(isinstance(size, Array) for size in (*window_shape, *strides)):
        raise LeftToLaxError("a size is an array, which lax refuses")
    axes = tuple(
        axis
        for axis in range(aval.ndim)
        if window_shape[axis] != 1 or strides[axis] != 1 or any(pads[axis])
    )
    if not axes:
        raise LeftToLaxError("every window is one element")
    if any(side < 0 for pair in pads for side in pair):
        raise LeftToLaxError("negative padding")
    window_shape, strides, pads, dilation = (tuple(values[i] for i in axes) for values in sizes)
    geometry = window_shape, strides, pads, dilation, False, axes
    with left_to_lax_if_invalid():
        window = make_window(aval.shape, *geometry, empty_windows="allow")
    if _is_running_reduction(window):
        raise LeftToLaxError("a running reduction: so lax computes cumsum and cummax")
    is_real = jnp.issubdtype(aval.dtype, jnp.floating) or jnp.issubdtype(aval.dtype, jnp.integer)
    if not is_real and (kind == "sum" or aval.dtype != jnp.bool_):
        raise LeftToLaxError(f"{aval.dtype} has no {kind} here")
    return window


def _check_windows_in_shard(aval: jax.core.ShapedArray, params: Params) -> None:
    """Raise if windows extend along an axis that a `shard_map` shards: lax would pool each shard on its own."""
    mesh_axes: MeshAxes = context_axes.value or ()
    if aval.ndim == 1 < len(mesh_axes):  # a cumulative sum in a kernel, lowered in an eager call
        return
    names = ("window_dimensions", "window_strides", "base_dilation")
    entries = zip(params["padding"], *[params[name] for name in names], strict=False)
    is_pooled = [any(pads) or any(size != 1 for size in sizes) for pads, *sizes in entries]
    # Axes are matched from the last, because Flax and Equinox add or merge leading axes.
    for (axis, axis_names), pooled in zip(
        reversed([*enumerate(mesh_axes)]), reversed(is_pooled), strict=False
    ):
        count = lax.axis_size(axis_names) if axis_names else 1
        if pooled and count > 1:
            rule = f"whole along axis {axis}, not in {count} shards"
            hint = "Call jax.lax.all_gather before it, or a pool of jaxpool."
            raise ArgumentError("x", rule, aval.shape, hint, attribute="shape")


@contextmanager
def left_to_lax_if_invalid() -> Iterator[None]:
    """Convert an `ArgumentError` to a `LeftToLaxError`."""
    try:
        yield
    except ArgumentError as error:
        raise LeftToLaxError(f"{error.arg_name} is not {error.rule}") from None


def _is_running_reduction(window: Window) -> bool:
    """Whether every output i is the reduction of all elements up to i, or of all elements from i on."""
    if len(window.dims) != 1:
        return False
    (dim,) = window.dims
    spans_axis = dim.window == dim.size and dim.stride == dim.dilation == 1
    return spans_axis and sorted((dim.low, dim.high)) == [0, dim.size - 1]
