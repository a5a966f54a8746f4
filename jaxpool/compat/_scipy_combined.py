"""Functions of `scipy.ndimage` that combine two grey filters: top hats, gradient and Laplacian."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import wrong_dtype_error
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool.compat._scipy_filter import Filter

COMBINED_FILTERS = (
    "white_tophat",
    "black_tophat",
    "morphological_gradient",
    "morphological_laplace",
)


def combine_filters(function_name: str, input: Any, arguments: dict[str, Any]) -> Array:
    """The result of the function `function_name`, which is in `COMBINED_FILTERS`."""

    def input_and_result(filter_name: str, output: Any) -> tuple[Array, Array]:
        call = Filter(
            filter_name, input, function_name=function_name, **(arguments | {"output": output})
        )
        return call.x, call.compute()

    if function_name.endswith("tophat"):
        is_white = function_name == "white_tophat"
        x, y = input_and_result("grey_opening" if is_white else "grey_closing", arguments["output"])
        with name_function_in_errors(f"compat.scipy.{function_name}", **{"input.shape": x.shape}):
            return _subtract(x, y, y.dtype) if is_white else _subtract(y, x, y.dtype)
    x, dilated = input_and_result("grey_dilation", None)
    with name_function_in_errors(f"compat.scipy.{function_name}", **{"input.shape": x.shape}):
        if x.dtype == jnp.bool_:
            rule, hint = ("of integers or floats, as a difference of bools is none", "Convert it.")
            raise wrong_dtype_error("input", rule, x, hint)
    eroded = input_and_result("grey_erosion", None)[1]
    return (
        dilated - eroded if function_name == "morphological_gradient" else dilated + eroded - x - x
    )


def _subtract(x: Array, y: Array, dtype: Any) -> Array:
    """x - y in `dtype`, as NumPy computes it with an output array of that dtype; for bools, x ^ y."""
    if x.dtype == y.dtype == jnp.bool_:
        return x ^ y
    common = jnp.promote_types(x.dtype, y.dtype)
    if not np.can_cast(common, dtype, "same_kind"):
        rule = f"a type to which a difference of {common} is cast without a change of kind"
        raise ArgumentError("output", rule, dtype, "Convert the result.", TypeError)
    return (x.astype(common) - y.astype(common)).astype(dtype)
