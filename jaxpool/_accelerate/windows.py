"""The kind and `Window` of the primitives of `lax.reduce_window`, from their parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window, make_window

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


class LeftToLaxError(Exception):
    """Raised with the reason why a reduction is left to lax."""


def check_known_parameters(primitive: Any, params: dict[str, Any]) -> None:
    """Raise unless the parameters of `primitive` are those of `KNOWN_PARAMETERS`."""
    for names, problem in (
        (params.keys() - KNOWN_PARAMETERS[primitive], "has a parameter that is not known here"),
        (KNOWN_PARAMETERS[primitive] - params.keys(), "lacks a parameter that is read here"),
    ):
        if names:
            raise LeftToLaxError(f"lax's {primitive} {problem}: {', '.join(sorted(names))}")


def reduction_kind(primitive: Any, params: dict[str, Any]) -> str:
    """The kind of reduction: "max", "min", "sum" or "other"."""
    return KIND_OF_PRIMITIVE[primitive] or _kind_of_reducer_jaxpr(params.get("jaxpr"))


def _kind_of_reducer_jaxpr(jaxpr: Any) -> str:
    if jaxpr is not None and len(jaxpr.invars) == 2 and len(jaxpr.eqns) == 1:
        (eqn,) = jaxpr.eqns
        reads_inputs = set(map(id, eqn.invars)) == set(map(id, jaxpr.invars))
        if reads_inputs and len(jaxpr.outvars) == 1 and jaxpr.outvars[0] is eqn.outvars[0]:
            return _KIND_OF_BINARY_PRIMITIVE.get(eqn.primitive, "other")
    return "other"


def window_of_lax_reduction(kind: str, aval: Any, params: dict[str, Any]) -> Window:
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
    *pooled, dilation = [tuple(values[axis] for axis in axes) for values in sizes]
    with left_to_lax_if_invalid():
        window = make_window(
            aval.shape, *pooled, window_dilation=dilation, axes=axes, empty_windows="allow"
        )
    if _is_running_reduction(window):
        raise LeftToLaxError("a running reduction: so lax computes cumsum and cummax")
    is_real = jnp.issubdtype(aval.dtype, jnp.floating) or jnp.issubdtype(aval.dtype, jnp.integer)
    if not is_real and (kind == "sum" or aval.dtype != jnp.bool_):
        raise LeftToLaxError(f"{aval.dtype} has no {kind} here")
    return window


@contextlib.contextmanager
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
