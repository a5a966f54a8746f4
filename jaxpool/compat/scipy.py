"""The order and uniform filters and the grey morphology of `scipy.ndimage`, on jax arrays and without SciPy.

Arguments, defaults, borders, origins and values are SciPy's. All functions work under `jit`, `vmap` and both modes of
differentiation. The first of tied elements gets the cotangent. If it is beyond the border, the cotangent goes to the
array element that it repeats.

Differences from SciPy: `output` is a dtype or None, because jax arrays are immutable. Wrong arguments raise `TypeError`
or `ValueError`. NaN ranks above every number, but the minimum of a window without footprint zeros is NaN too. Integers
keep the width they have in jax. `cval` is cast to their dtype, which must represent it, and so must a narrower integer
`output`. A mean of more than 46340 int32 or uint16, or more than 65535 int16 or uint32 along an axis raises. A rank
filter uses its footprint for arrays of one axis too.

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

from jax import Array

from jaxpool.compat._scipy_filter import Filter
from jaxpool.compat._scipy_made import MADE, made

_ARGUMENTS = {
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
_DEFAULTS = {"output": None, "mode": "reflect", "cval": 0.0, "origin": 0, "axes": None, "axis": -1}


def _filter(name: str, what: str, shown: str, *own: str, **defaults: Any) -> Any:
    """The function `name` of `scipy.ndimage`.

    `shown` has the arguments and the result of the docstring example. `own` are the arguments between `input` and the
    arguments that all filters share.
    """
    line = "axis" in own
    names = ("input", *own, "output", "mode", "cval", "origin", *(() if line else ("axes",)))
    defaults = {**_DEFAULTS, **defaults}
    parameters = [
        inspect.Parameter(
            each,
            inspect.Parameter.KEYWORD_ONLY
            if each == "axes"
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=defaults.get(each, inspect.Parameter.empty),
        )
        for each in names
    ]
    signature = inspect.Signature(parameters)

    def filtered(*args: Any, **kwargs: Any) -> Array:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        if name in MADE:
            return made(name, values.pop("input"), values)
        return Filter(name, called=name, **values).result()

    listed = "\n".join(f"  {each}: {_ARGUMENTS[each]}" for each in names)
    listed = listed.replace(", or one per axis", "") if line else listed
    arguments, numbers = shown.split(" -> ")
    mean = name.startswith("uniform")
    gradient = (
        "spread evenly over the window"
        if mean
        else "to the element chosen, the first of equal ones"
    )
    gradient = f"of each filter {gradient}" if name in MADE else gradient
    filtered.__name__ = filtered.__qualname__ = name
    filtered.__signature__ = signature  # type: ignore[attr-defined]
    filtered.__doc__ = f"""Computes the {what} around each element, as `scipy.ndimage.{name}`.

Gradient: {gradient}, through the border to the elements that stand there. Forward and reverse mode.

Args:
{listed}

Returns:
  Array: Array of the shape of input.

Raises:
  TypeError: an argument is of the wrong kind.
  ValueError: an argument has a wrong value.

Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import scipy
  >>> scipy.{name}(jnp.array([4, 1, 7, 2, 8]), {arguments})
  Array({numbers}, dtype=int32)
"""
    return filtered


_WINDOW = {"size": None, "footprint": None, "structure": None}
_PLAIN, _GREY = ("size", "footprint"), ("size", "footprint", "structure")
maximum_filter = _filter(
    "maximum_filter", "maximum of the window", "3 -> [4, 7, 7, 8, 8]", *_PLAIN, **_WINDOW
)
minimum_filter = _filter(
    "minimum_filter", "minimum of the window", "3 -> [1, 1, 1, 2, 2]", *_PLAIN, **_WINDOW
)
median_filter = _filter(
    "median_filter", "median of the window", "3 -> [4, 4, 2, 7, 8]", *_PLAIN, **_WINDOW
)
rank_filter = _filter(
    "rank_filter",
    "element of a rank of the window",
    "-2, 3 -> [4, 4, 2, 7, 8]",
    "rank",
    *_PLAIN,
    **_WINDOW,
)
percentile_filter = _filter(
    "percentile_filter",
    "element at a percentile of the window",
    "80, 3 -> [4, 7, 7, 8, 8]",
    "percentile",
    *_PLAIN,
    **_WINDOW,
)
uniform_filter = _filter(
    "uniform_filter", "mean of the window", "3 -> [3, 4, 3, 5, 6]", "size", size=3
)
maximum_filter1d = _filter(
    "maximum_filter1d", "maximum of the window", "3 -> [4, 7, 7, 8, 8]", "size", "axis"
)
minimum_filter1d = _filter(
    "minimum_filter1d", "minimum of the window", "3 -> [1, 1, 1, 2, 2]", "size", "axis"
)
uniform_filter1d = _filter(
    "uniform_filter1d", "mean of the window", "3 -> [3, 4, 3, 5, 6]", "size", "axis"
)
grey_dilation = _filter(
    "grey_dilation", "maximum of the turned window", "2 -> [4, 7, 7, 8, 8]", *_GREY, **_WINDOW
)
grey_erosion = _filter(
    "grey_erosion", "minimum of the window", "2 -> [4, 1, 1, 2, 2]", *_GREY, **_WINDOW
)
grey_opening = _filter(
    "grey_opening", "dilation of the erosion", "2 -> [4, 1, 2, 2, 2]", *_GREY, **_WINDOW
)
grey_closing = _filter(
    "grey_closing", "erosion of the dilation", "2 -> [4, 4, 7, 7, 8]", *_GREY, **_WINDOW
)
white_tophat = _filter(
    "white_tophat", "input less its opening", "2 -> [0, 0, 5, 0, 6]", *_GREY, **_WINDOW
)
black_tophat = _filter(
    "black_tophat", "closing of the input less it", "2 -> [0, 3, 0, 5, 0]", *_GREY, **_WINDOW
)
morphological_gradient = _filter(
    "morphological_gradient", "dilation less the erosion", "2 -> [0, 6, 6, 6, 6]", *_GREY, **_WINDOW
)
morphological_laplace = _filter(
    "morphological_laplace",
    "dilation and the erosion less twice the input",
    "2 -> [ 0,  6, -6,  6, -6]",
    *_GREY,
    **_WINDOW,
)
