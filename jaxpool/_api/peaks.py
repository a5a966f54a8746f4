"""Local maxima and minima: the elements that their own windows choose."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxpool._api.windowed import checked
from jaxpool._arguments.calls import public
from jaxpool._arguments.choices import choice
from jaxpool._arguments.sizes import Ints
from jaxpool._kernels.dtypes import Kind
from jaxpool._shards.peaks import MARKED, Marked, Peaks, peaks


def _peaks(kind: Kind, x: Any, window_shape: Any, axes: Any, ties: Any) -> Array:
    x, window, split = checked(x, window_shape, padding="SAME", axes=axes)
    choice("ties", ties, MARKED)
    if split:
        found: Array = split.run(Peaks, x, kind, ties)
        return found
    return peaks(x, window, kind, ties)


@public
def local_maxima(
    x: Any, window_shape: Ints, *, axes: tuple[int, ...] | None = None, ties: Marked = "first"
) -> Array:
    """Marks each element that is the largest of the window around it: the peaks of a heatmap.

    `y[b, i, j, c] = (x[b, i, j, c] is the element that max_pool chooses of the window around it)`, with B batch, H
    W spatial and C channels; any number of pooled axes works alike. Windows have stride 1 and the padding "SAME":
    of an even size they reach one element further towards the end.

    Gradient: none, the result is boolean. NaN is larger than every number, and -inf an ordinary value: where
    a window holds nothing else, one of its elements is the largest. Padding is never chosen.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers and bool.
      window_shape: one positive int per pooled axis; an int for all of `axes`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      ties: which elements that equal the largest of their own window are marked: each that is the "first" or the
        "last" of the equal ones in that window, in row-major order of `axes`; or "all". Equal neighbours have
        different windows, so several of them can be marked.

    Returns:
      Array of bools of the shape of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> heat = jnp.array([0.1, 0.7, 0.7, 0.2, 0.3, 0.1])
      >>> jaxpool.local_maxima(heat, 3, axes=(0,))
      Array([False,  True, False, False,  True, False], dtype=bool)
      >>> jaxpool.local_maxima(heat, 3, axes=(0,), ties="all")
      Array([False,  True,  True, False,  True, False], dtype=bool)

    References:
      Zhou et al., Objects as Points, arXiv:1904.07850, where a peak is an element that a 3x3 max pool leaves as it is:
      `ties="all"`.
    """
    return _peaks("max", x, window_shape, axes, ties)


@public
def local_minima(
    x: Any, window_shape: Ints, *, axes: tuple[int, ...] | None = None, ties: Marked = "first"
) -> Array:
    """Marks each element that is the smallest of the window around it.

    `y[b, i, j, c] = (x[b, i, j, c] is the element that min_pool chooses of the window around it)`, letters and windows
    as in `local_maxima`.

    Gradient: none, the result is boolean. NaN is smaller than every number.

    Args:
      x: array of shape `(..., *spatial, C)`, or any shape with `axes` given; floats, integers and bool.
      window_shape: one positive int per pooled axis; an int for all of `axes`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last one.
      ties: which elements that equal the smallest of their own window are marked: each that is the "first" or the
        "last" of the equal ones in that window, in row-major order of `axes`; or "all".

    Returns:
      Array of bools of the shape of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax.numpy as jnp
      >>> import jaxpool
      >>> jaxpool.local_minima(jnp.array([3, 1, 2, 0, 4]), 3, axes=(0,))
      Array([False,  True, False,  True, False], dtype=bool)

    References:
      `local_maxima`.
    """
    return _peaks("min", x, window_shape, axes, ties)
