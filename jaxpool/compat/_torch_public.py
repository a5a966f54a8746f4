"""Create functions of PyTorch that differ in one argument from one implementation and one docstring template.

`make_pool` creates the 1d, 2d and 3d functions of a pool, and `make_extremum` the maximum and minimum of a pair.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from jaxpool._arguments.decorator import public
from jaxpool._kernels.dtypes import Kind

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

_SPATIAL_AXIS_NAMES = {1: "L", 2: "HW", 3: "DHW"}


def _docstring_placeholders(function_name: str, num_spatial_dims: int) -> dict[str, str]:
    """The values of the placeholders in a docstring template, for `num_spatial_dims` pooled axes."""
    axis_names = _SPATIAL_AXIS_NAMES[num_spatial_dims]

    def shape_text(*size_names: str) -> str:
        return f"`(N, C, {', '.join(size_names)})` or `(C, {', '.join(size_names)})`"

    leading_ones = ", ".join(["1"] * (num_spatial_dims - 1))
    return {
        "name": function_name,
        "nd": f"{num_spatial_dims}d",
        "shape": shape_text(*axis_names),
        "pooled": shape_text(*(f"{axis}_out" for axis in axis_names)),
        "targets": shape_text("*output_size"),
        "flat": " * ".join(axis_names),
        "sizes": "an int, or one per axis"
        if num_spatial_dims > 1
        else "an int, alone or in a tuple",
        # For docstring examples: a window of two elements, a shape with one long axis, input and output shapes.
        "window": f"({leading_ones}, 2)" if num_spatial_dims > 1 else "2",
        "row": f"(1, {leading_ones}, -1)" if num_spatial_dims > 1 else "(1, -1)",
        "large": str((1, *(8,) * num_spatial_dims)),
        "small": str((1, *(3,) * num_spatial_dims)),
    }


_EXTREMUM_PLACEHOLDERS = {  # `tied` is an element of docstring examples, next to 2
    "max": {"largest": "largest", "larger": "larger", "maximum": "maximum", "tied": 3},
    "min": {"largest": "smallest", "larger": "smaller", "maximum": "minimum", "tied": 1},
}


def make_pool(
    num_spatial_dims: int, pool_of_num_dims: Callable[Concatenate[int, P], R], doc_template: str
) -> Callable[P, R]:
    """The public function that calls `pool_of_num_dims(num_spatial_dims, ...)`.

    The first line of the template must contain the PyTorch name of the pool, such as
    `torch.nn.functional.max_pool{nd}`.
    """
    name = re.findall(r"functional\.(\w+)", doc_template)[0] + f"{num_spatial_dims}d"
    docstring = doc_template.format(**_docstring_placeholders(name, num_spatial_dims))
    return _make_public_function(name, pool_of_num_dims, num_spatial_dims, docstring)


def make_extremum(
    name: str, extremum_of_kind: Callable[Concatenate[Kind, P], R], doc_template: str
) -> Callable[P, R]:
    """The public function `name` that calls `extremum_of_kind(kind, ...)`, with the kind that is part of `name`."""
    kind: Kind = "max" if "max" in name else "min"
    docstring = doc_template.format(name=name, **_EXTREMUM_PLACEHOLDERS[kind])
    return _make_public_function(name, extremum_of_kind, kind, docstring)


def _make_public_function(
    name: str, implementation: Callable[Concatenate[A, P], R], first_argument: A, docstring: str
) -> Callable[P, R]:
    """The public function `name`, which calls `implementation` with `first_argument` and its own arguments."""
    function: Any = functools.update_wrapper(
        functools.partial(implementation, first_argument), implementation
    )
    function.__name__ = function.__qualname__ = name
    function.__doc__ = docstring
    signature = inspect.signature(implementation)
    function.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    public_function: Callable[P, R] = public(function)
    return public_function
