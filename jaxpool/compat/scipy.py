"""The order and uniform filters and the grey morphology of `scipy.ndimage`, on jax arrays and without SciPy.

Arguments, defaults, borders and origins are SciPy's, and so are the numbers. All functions work under
`jit`, `vmap` and both modes of differentiation; the cotangent of an element that was chosen goes to
the first of equal ones, through the border to the element that stands there.

What differs: `output` is a dtype or None, as arrays do not change; a wrong argument raises
`TypeError` or `ValueError` throughout; NaN ranks above every number, and where a window of nothing
but its size holds one, its minimum too is NaN; integers keep the width they have in jax, and `cval`
becomes one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import Array

from jaxpool._arguments.coefficients import number
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int
from jaxpool._kernels.dtypes import Kind
from jaxpool.compat._scipy_filter import Filter

__all__ = [
    "grey_closing",
    "grey_dilation",
    "grey_erosion",
    "grey_opening",
    "maximum_filter",
    "maximum_filter1d",
    "median_filter",
    "minimum_filter",
    "minimum_filter1d",
    "percentile_filter",
    "rank_filter",
    "uniform_filter",
    "uniform_filter1d",
]

_COMMON = """
    Args:
      input: array of any shape; floats, integers or bool.
      {}output: the dtype of the result, None for that of input.
      mode: how the border continues: "reflect", "nearest", "mirror", "wrap" or "constant"; one an axis
        too where each axis is filtered by itself.
      cval: what lies beyond the border in mode "constant".
      origin: how far the window is moved towards the start, an int {}

    Returns:
      Array of the shape of input.
    """
_SIZE = """size: the window, an int or one an axis.
      footprint: in its place, an array that says which elements of a window take part.
      """
_AXES = """or one an axis.
      axes: the axes to filter along, None for all."""
_STRUCTURE = """structure: numbers for the elements of the window, added or subtracted; it decides the window too.
      """


def _documented(function: Callable[..., Array], name: str, what: str, *words: str) -> Any:
    function.__name__ = function.__qualname__ = name
    text = f"Computes the {what} around each element, as `scipy.ndimage.{name}`.\n"
    function.__doc__ = text + _COMMON.format(*words)
    return function


def _windowed(name: str, rank: int | None, what: str) -> Any:
    def filtered(
        input: Any,
        size: Any = None,
        footprint: Any = None,
        output: Any = None,
        mode: Any = "reflect",
        cval: float = 0.0,
        origin: Any = 0,
        *,
        axes: Any = None,
    ) -> Array:
        found = Filter(name, input, output, mode, cval, axes)
        with found.checking():
            return found.ranked(rank, size, footprint, origin)

    return _documented(filtered, name, f"{what} of the window", _SIZE, _AXES)


def _line(name: str, filtered: Callable[..., Array], what: str) -> Any:
    def along(
        input: Any,
        size: int,
        axis: int = -1,
        output: Any = None,
        mode: str = "reflect",
        cval: float = 0.0,
        origin: int = 0,
    ) -> Array:
        found = Filter(name, input, output, mode, cval, (axis,))
        with found.checking():
            return filtered(found, size, origin)

    words = ("size: the window, an int.\n      axis: the axis.\n      ", ".")
    return _documented(along, name, f"{what} of the window along an axis", *words)


def _grey(name: str, kinds: tuple[Kind, ...], what: str) -> Any:
    def filtered(
        input: Any,
        size: Any = None,
        footprint: Any = None,
        structure: Any = None,
        output: Any = None,
        mode: Any = "reflect",
        cval: float = 0.0,
        origin: Any = 0,
        *,
        axes: Any = None,
    ) -> Array:
        for kind in kinds:
            last = output if kind is kinds[-1] else None
            found = Filter(name, input, last, mode, cval, axes)
            with found.checking():
                input = found.grey(kind, size, footprint, structure, origin)
        return input

    return _documented(filtered, name, what, _SIZE + _STRUCTURE, _AXES)


maximum_filter = _windowed("maximum_filter", -1, "maximum")
minimum_filter = _windowed("minimum_filter", 0, "minimum")
median_filter = _windowed("median_filter", None, "median")
maximum_filter1d = _line("maximum_filter1d", lambda f, n, o: f.ranked(-1, n, None, o), "maximum")
minimum_filter1d = _line("minimum_filter1d", lambda f, n, o: f.ranked(0, n, None, o), "minimum")
uniform_filter1d = _line("uniform_filter1d", lambda f, n, o: f.uniform(n, o), "mean")
grey_dilation = _grey("grey_dilation", ("max",), "maximum of the window, the window turned round,")
grey_erosion = _grey("grey_erosion", ("min",), "minimum of the window")
grey_opening = _grey("grey_opening", ("min", "max"), "dilation of the erosion")
grey_closing = _grey("grey_closing", ("max", "min"), "erosion of the dilation")


def uniform_filter(
    input: Any,
    size: Any = 3,
    output: Any = None,
    mode: Any = "reflect",
    cval: float = 0.0,
    origin: Any = 0,
    *,
    axes: Any = None,
) -> Array:
    """Computes the mean of the window around each element, as `scipy.ndimage.uniform_filter`; see `maximum_filter`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import scipy
      >>> scipy.uniform_filter(jnp.array([0.0, 3.0, 6.0]))
      Array([1., 3., 5.], dtype=float32)
      >>> scipy.median_filter(jnp.array([0, 9, 6, 7]), 3, mode="nearest")
      Array([0, 6, 7, 7], dtype=int32)
    """
    found = Filter("uniform_filter", input, output, mode, cval, axes)
    with found.checking():
        return found.uniform(size, origin)


def rank_filter(
    input: Any,
    rank: int,
    size: Any = None,
    footprint: Any = None,
    output: Any = None,
    mode: Any = "reflect",
    cval: float = 0.0,
    origin: Any = 0,
    *,
    axes: Any = None,
) -> Array:
    """Takes the element of a rank of the window around each element, 0 the smallest and -1 the largest.

    As `scipy.ndimage.rank_filter`; other arguments as of `median_filter`.
    """
    found = Filter("rank_filter", input, output, mode, cval, axes)
    with found.checking():
        count = len(found.window(size, footprint)[1])
        rule, hint = f"an int from {-count} to {count - 1}", "0 is the smallest, -1 the largest."
        if not is_int(rank):
            raise ArgumentError("rank", rule, rank, hint, TypeError)
        if not -count <= rank < count:
            raise ArgumentError("rank", rule, rank, hint)
        return found.ranked(int(rank) % count, size, footprint, origin)


def percentile_filter(
    input: Any,
    percentile: float,
    size: Any = None,
    footprint: Any = None,
    output: Any = None,
    mode: Any = "reflect",
    cval: float = 0.0,
    origin: Any = 0,
    *,
    axes: Any = None,
) -> Array:
    """Takes the element of rank `int(n * percentile / 100)` of the n of the window around each element.

    As `scipy.ndimage.percentile_filter`; -10 is 90, and other arguments are as of `median_filter`.
    """
    found = Filter("percentile_filter", input, output, mode, cval, axes)
    with found.checking():
        count = len(found.window(size, footprint)[1])
        rule, hint = "a number from -100 to 100", "50 is the median, -10 is 90."
        share = number("percentile", percentile, rule, hint, lambda value: -100 <= value <= 100)
        share = share + 100.0 if share < 0 else share
        rank = count - 1 if share == 100 else int(float(count) * share / 100.0)
        return found.ranked(rank, size, footprint, origin)
