"""The order and uniform filters and the grey morphology of `scipy.ndimage`, on jax arrays and without SciPy.

Arguments, defaults, borders, origins and values are SciPy's. All functions work under `jit`, `vmap` and both modes of
differentiation. The first of tied elements gets the cotangent. If the selected element is beyond the border, the
cotangent goes to the array element that the border repeats.

Differences from SciPy: `output` is a dtype or None, because jax arrays are immutable. Wrong arguments raise `TypeError`
or `ValueError`. NaN ranks above every number, but the minimum of a window without footprint zeros is NaN too. Integers
keep the width they have in jax. For integers, the dtype of input and a narrower integer `output` must be able to
represent `cval`. A mean of more than 46340 int32 or uint16, or more than 65535 int16 or uint32 along an axis raises. A
rank filter uses its footprint for arrays of one axis too.

Sums of integers with a structure wrap around in the dtype of input, as in SciPy. The sum at the first element of a
window does not wrap before the comparison, except for 32 and 64 bits, where C leaves the result undefined. Bools are
treated as bytes: sums wrap around, and every byte other than 0 becomes True. A float `output` raises if input is
integer and the structure is float. `morphological_gradient` and `morphological_laplace` ignore `output`, as in SciPy.

Windows of `median_filter`, `rank_filter` and `percentile_filter`, structures, and footprints with zeros follow `axes`
in ascending order, for any order of `axes`.

Example:
    >>> import jax.numpy as jnp
    >>> from jaxpool.compat import scipy
    >>> scipy.median_filter(jnp.array([0, 9, 6, 7]), 3, mode="nearest")
    Array([0, 6, 7, 7], dtype=int32)
    >>> scipy.uniform_filter(jnp.array([0.0, 3.0, 6.0]))
    Array([1., 3., 5.], dtype=float32)
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import wrong_dtype_error
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool.compat._scipy_filter import Filter

_ARGUMENT_DOCS = {
    "input": "array of any shape; floats, integers or bool.",
    "rank": "0 is the smallest element, -1 the largest.",
    "percentile": "from 0 to 100; -10 is 90.",
    "size": "of the window, an int, or one per axis.",
    "footprint": "in its place, an array that says which elements of a window take part.",
    "structure": "numbers to add to the elements of a window, or subtract; its shape is the window's.",
    "axis": "the axis to filter along.",
    "output": "the dtype of the result, None for that of input.",
    "mode": 'how the border continues: "reflect", "nearest", "mirror", "wrap" or "constant", or one per axis.',
    "cval": 'what lies beyond the border in mode "constant".',
    "origin": "how far the window is moved towards the start, an int, or one per axis.",
    "axes": "the axes to filter along, None for all.",
}
_DEFAULT_VALUES = {
    "size": None,
    "footprint": None,
    "structure": None,
    "axis": -1,
    "output": None,
    "mode": "reflect",
    "cval": 0.0,
    "origin": 0,
    "axes": None,
}

_DIFFERENCES = ("morphological_gradient", "morphological_laplace")
_COMBINED_FILTERS = ("white_tophat", "black_tophat", *_DIFFERENCES)


def _make_filter_function(
    name: str, result_phrase: str, example: str, window_arguments: str, **default_values: Any
) -> Any:
    """The function `name` of `scipy.ndimage`.

    `example` has the arguments and the result of the docstring example. `window_arguments` are the names after `input`
    and before the arguments that all filters share. `default_values` are added to `_DEFAULT_VALUES`.
    """
    is_1d = "axis" in window_arguments
    shared_arguments = ("output", "mode", "cval", "origin", *(() if is_1d else ("axes",)))
    arg_names = ("input", *window_arguments.split(), *shared_arguments)
    default_values = {**_DEFAULT_VALUES, **default_values}
    parameters = [
        inspect.Parameter(
            arg_name,
            inspect.Parameter.KEYWORD_ONLY
            if arg_name == "axes"
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=default_values.get(arg_name, inspect.Parameter.empty),
        )
        for arg_name in arg_names
    ]
    signature = inspect.Signature(parameters)

    def filter_function(*args: Any, **kwargs: Any) -> Array:
        bound_args = signature.bind(*args, **kwargs)
        bound_args.apply_defaults()
        values = dict(bound_args.arguments)
        if name in _COMBINED_FILTERS:
            return _combine_filters(name, values.pop("input"), values)
        return Filter(name, function_name=name, **values).compute()

    args_text = "\n".join(f"  {arg_name}: {_ARGUMENT_DOCS[arg_name]}" for arg_name in arg_names)
    args_text = args_text.replace(", or one per axis", "") if is_1d else args_text
    call_text, result_text = example.split(" -> ")
    gradient_text = "to the element chosen, the first of equal ones"
    if name.startswith("uniform"):
        gradient_text = "spread evenly over the window"
    elif name in _COMBINED_FILTERS:
        gradient_text = f"of each filter {gradient_text}"
    filter_function.__name__ = filter_function.__qualname__ = name
    filter_function.__signature__ = signature  # type: ignore[attr-defined]
    filter_function.__doc__ = f"""Computes the {result_phrase} around each element, as `scipy.ndimage.{name}`.

Gradient: {gradient_text}, through the border to the elements that stand there. Forward and reverse mode.

Args:
{args_text}

Returns:
  Array: Array of the shape of input.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value.

Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import scipy
  >>> scipy.{name}(jnp.array([4, 1, 7, 2, 8]), {call_text})
  Array({result_text}, dtype=int32)
"""
    return filter_function


def _combine_filters(function_name: str, input: Any, arguments: dict[str, Any]) -> Array:
    """The result of the function `function_name`, which is in `_COMBINED_FILTERS`."""

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


def _order_filter(name: str, result_phrase: str, example: str, rank_argument: str = "") -> Any:
    window_arguments = f"{rank_argument} size footprint"
    return _make_filter_function(name, result_phrase, example, window_arguments)


def _filter_1d(name: str, result_phrase: str, example: str) -> Any:
    no_default = inspect.Parameter.empty
    return _make_filter_function(name, result_phrase, example, "size axis", size=no_default)


def _grey_filter(name: str, result_phrase: str, example: str) -> Any:
    return _make_filter_function(name, result_phrase, example, "size footprint structure")


maximum_filter = _order_filter("maximum_filter", "maximum of the window", "3 -> [4, 7, 7, 8, 8]")
minimum_filter = _order_filter("minimum_filter", "minimum of the window", "3 -> [1, 1, 1, 2, 2]")
median_filter = _order_filter("median_filter", "median of the window", "3 -> [4, 4, 2, 7, 8]")
rank_filter = _order_filter(
    "rank_filter", "element of a rank of the window", "-2, 3 -> [4, 4, 2, 7, 8]", "rank"
)
percentile_filter = _order_filter(
    "percentile_filter",
    "element at a percentile of the window",
    "80, 3 -> [4, 7, 7, 8, 8]",
    "percentile",
)
uniform_filter = _make_filter_function(
    "uniform_filter", "mean of the window", "3 -> [3, 4, 3, 5, 6]", "size", size=3
)
maximum_filter1d = _filter_1d("maximum_filter1d", "maximum of the window", "3 -> [4, 7, 7, 8, 8]")
minimum_filter1d = _filter_1d("minimum_filter1d", "minimum of the window", "3 -> [1, 1, 1, 2, 2]")
uniform_filter1d = _filter_1d("uniform_filter1d", "mean of the window", "3 -> [3, 4, 3, 5, 6]")
grey_dilation = _grey_filter(
    "grey_dilation", "maximum of the reflected window", "2 -> [4, 7, 7, 8, 8]"
)
grey_erosion = _grey_filter("grey_erosion", "minimum of the window", "2 -> [4, 1, 1, 2, 2]")
grey_opening = _grey_filter("grey_opening", "dilation of the erosion", "2 -> [4, 1, 2, 2, 2]")
grey_closing = _grey_filter("grey_closing", "erosion of the dilation", "2 -> [4, 4, 7, 7, 8]")
white_tophat = _grey_filter("white_tophat", "input less its opening", "2 -> [0, 0, 5, 0, 6]")
black_tophat = _grey_filter("black_tophat", "closing of the input less it", "2 -> [0, 3, 0, 5, 0]")
morphological_gradient = _grey_filter(
    "morphological_gradient", "dilation less the erosion", "2 -> [0, 6, 6, 6, 6]"
)
morphological_laplace = _grey_filter(
    "morphological_laplace",
    "dilation and the erosion less twice the input",
    "2 -> [ 0,  6, -6,  6, -6]",
)
