"""`torch.aminmax`: the minimum and the maximum in one call."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array

from jaxpool._arguments.calls import public
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_tuple_or_list
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import ORDERED_DTYPES
from jaxpool.compat._torch_reduce import reduce_dims


class MinAndMax(NamedTuple):
    """The smallest and the largest elements, like PyTorch's return type."""

    min: Array
    max: Array


@args.accept_numpy_keywords
@public
def aminmax(input: Any, *, dim: int | None = None, keepdim: bool = False) -> MinAndMax:
    """Computes the smallest and the largest element, of all or along an axis, as `torch.aminmax`.

    Gradient: tied elements share the cotangent of each result equally, as in `amax`.

    Args:
      input: array of any shape; floats, integers or bool.
      dim: an axis; None is all axes.
      keepdim: whether reduced axes stay, with size 1.

    Returns:
      A named tuple `(min, max)` of arrays of the dtype of input.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a reduced axis has no element.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch
      >>> torch.aminmax(jnp.array([[1, 3], [2, 0]]), dim=0)
      MinAndMax(min=Array([1, 0], dtype=int32), max=Array([2, 3], dtype=int32))
    """
    x = args.as_array_of_dtypes("aminmax", input, ORDERED_DTYPES)
    with args.name_torch_function_in_errors("aminmax", x):
        if is_tuple_or_list(dim):
            raise ArgumentError("dim", "an axis or None", dim, "Use amin and amax.", TypeError)
    extrema = (reduce_dims("aminmax", kind, x, dim, keepdim) for kind in ("min", "max"))
    return MinAndMax(*extrema)
