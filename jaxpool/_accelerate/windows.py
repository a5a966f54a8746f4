"""The kind and `Window` of lax's windowed reductions, from the parameters of their primitives.

`LeftError` carries the reason why a reduction stays with lax.
"""

from __future__ import annotations

from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.errors import ArgumentError
from jaxpool._geometry.window import Window, make_window

KINDS = {
    lax.reduce_window_max_p: "max",
    lax.reduce_window_min_p: "min",
    lax.reduce_window_sum_p: "sum",
    lax.reduce_window_p: None,  # general; `_reducer` reads its jaxpr
}
GEOMETRY = frozenset(
    {"window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation"}
)
# The known parameters. A parameter that a later jax adds may change the result, so it leaves the reduction to lax.
PARAMETERS = {
    primitive: GEOMETRY if kind else GEOMETRY | {"jaxpr", "consts"}
    for primitive, kind in KINDS.items()
}
_REDUCERS = {lax.max_p: "max", lax.min_p: "min", lax.add_p: "sum"}


class LeftError(Exception):
    """Raised with the reason why a reduction is left to lax."""


def check_parameters(primitive: Any, params: dict[str, Any]) -> None:
    """Raise unless the parameters of `primitive` are those of `PARAMETERS`."""
    for names, rule in (
        (params.keys() - PARAMETERS[primitive], "has a parameter that is not known here"),
        (PARAMETERS[primitive] - params.keys(), "lacks a parameter that is read here"),
    ):
        if names:
            raise LeftError(f"lax's {primitive} {rule}: {', '.join(sorted(names))}")


def kind_of(primitive: Any, params: dict[str, Any]) -> str:
    """The kind of reduction: "max", "min", "sum" or "other"."""
    return KINDS[primitive] or _reducer(params.get("jaxpr"))


def _reducer(jaxpr: Any) -> str:
    if jaxpr is not None and len(jaxpr.invars) == 2 and len(jaxpr.eqns) == 1:
        (eqn,) = jaxpr.eqns
        both = set(map(id, eqn.invars)) == set(map(id, jaxpr.invars))
        if both and len(jaxpr.outvars) == 1 and jaxpr.outvars[0] is eqn.outvars[0]:
            return _REDUCERS.get(eqn.primitive, "other")
    return "other"


def check_type(kind: str, aval: Any) -> None:
    """Raise unless our pools compute a `kind` of arrays of this type."""
    real = jnp.issubdtype(aval.dtype, jnp.floating) or jnp.issubdtype(aval.dtype, jnp.integer)
    if not real and (kind == "sum" or aval.dtype != jnp.bool_):
        raise LeftError(f"{aval.dtype} has no {kind} here")


def window_of(aval: Any, params: dict[str, Any]) -> Window:
    """The window of a reduction of an array with the shape of `aval`, from its parameters. Raises `LeftError`."""
    if any(dilation != 1 for dilation in params["base_dilation"]):
        raise LeftError("base_dilation is not 1")
    shape, strides, pads, dilation = (
        params[name]
        for name in ("window_dimensions", "window_strides", "padding", "window_dilation")
    )
    if any(len(values) != aval.ndim for values in (shape, strides, pads, dilation)):
        raise LeftError("not one entry for each axis")
    if any(isinstance(size, Array) for size in (*shape, *strides)):
        raise LeftError("a size is an array, which lax refuses")
    axes = tuple(
        axis
        for axis in range(aval.ndim)
        if shape[axis] != 1 or strides[axis] != 1 or any(pads[axis])
    )
    if not axes:
        raise LeftError("every window is one element")
    if any(side < 0 for pair in pads for side in pair):
        raise LeftError("negative padding")

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
            empty_windows="allow",
        )
    except ArgumentError as error:
        raise LeftError(f"{error.arg_name} is not {error.requirement}") from None
    if _running(window):
        raise LeftError("a running reduction: so lax computes cumsum and cummax")
    return window


def _running(window: Window) -> bool:
    """Whether every output i is the reduction of all elements up to i, or of all elements from i on."""
    if len(window.dims) != 1:
        return False
    (dim,) = window.dims
    plain = dim.window == dim.size and dim.stride == dim.dilation == 1
    return plain and sorted((dim.low, dim.high)) == [0, dim.size - 1]
