"""The kind and `Window` of lax's windowed reductions, from the parameters of their primitives.

`LeftToLaxError` carries the reason why a reduction stays with lax.
"""

from __future__ import annotations

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


def check_supported_dtype(kind: str, aval: Any) -> None:
    """Raise unless our pools compute a `kind` of arrays of this type."""
    is_real = jnp.issubdtype(aval.dtype, jnp.floating) or jnp.issubdtype(aval.dtype, jnp.integer)
    if not is_real and (kind == "sum" or aval.dtype != jnp.bool_):
        raise LeftToLaxError(f"{aval.dtype} has no {kind} here")


def window_from_lax_params(aval: Any, params: dict[str, Any]) -> Window:
    """The window of a reduction of an array like `aval`, from its parameters. `LeftToLaxError` if unsupported."""
    if any(dilation != 1 for dilation in params["base_dilation"]):
        raise LeftToLaxError("base_dilation is not 1")
    window_shape, strides, pads, dilation = (
        params[name]
        for name in ("window_dimensions", "window_strides", "padding", "window_dilation")
    )
    if any(len(values) != aval.ndim for values in (window_shape, strides, pads, dilation)):
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

    def values_of_pooled_axes(values: Any) -> tuple[Any, ...]:
        return tuple(values[axis] for axis in axes)

    try:
        window = make_window(
            aval.shape,
            values_of_pooled_axes(window_shape),
            values_of_pooled_axes(strides),
            values_of_pooled_axes(pads),
            window_dilation=values_of_pooled_axes(dilation),
            axes=axes,
            empty_windows="allow",
        )
    except ArgumentError as error:
        raise LeftToLaxError(f"{error.arg_name} is not {error.rule}") from None
    if _is_running_reduction(window):
        raise LeftToLaxError("a running reduction: so lax computes cumsum and cummax")
    return window


def _is_running_reduction(window: Window) -> bool:
    """Whether every output i is the reduction of all elements up to i, or of all elements from i on."""
    if len(window.dims) != 1:
        return False
    (dim,) = window.dims
    spans_axis = dim.window == dim.size and dim.stride == dim.dilation == 1
    return spans_axis and sorted((dim.low, dim.high)) == [0, dim.size - 1]
