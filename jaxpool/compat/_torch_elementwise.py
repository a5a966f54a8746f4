"""The elementwise maxima and minima of `torch`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._api import elementwise
from jaxpool._arguments.errors import ArgumentError
from jaxpool._kernels.dtypes import Kind
from jaxpool.compat import _torch_args as args
from jaxpool.compat._torch_args import FLOAT_DTYPES, INT_DTYPES, ORDERED_DTYPES
from jaxpool.compat._torch_public import make_extremum


def _dtype_category(dtype: np.dtype) -> int:
    return 2 if dtype in FLOAT_DTYPES else int(dtype in INT_DTYPES)


def _common_dtype(input: Array, other: Array) -> Any:
    """The dtype of the result. An array without axes counts only if its kind (bool < integer < float) is higher.

    The rule is PyTorch's, and does not depend on `jax_numpy_dtype_promotion`.
    """
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.promote_types(input.dtype, other.dtype)
    if (input.ndim == 0) == (other.ndim == 0):
        return dtype
    array, scalar = (input, other) if input.ndim else (other, input)
    return dtype if _dtype_category(scalar.dtype) > _dtype_category(array.dtype) else array.dtype


def promote_to_common_dtype(function_name: str, input: Any, other: Any) -> tuple[Array, Array]:
    """Both arguments of a function, checked and cast to their common dtype."""
    x = args.as_array_of_dtypes(function_name, input, ORDERED_DTYPES)
    y = args.as_array_of_dtypes(function_name, other, ORDERED_DTYPES, "other")
    with args.name_torch_function_in_errors(function_name, x):
        try:
            jnp.broadcast_shapes(x.shape, y.shape)
        except ValueError:
            rule = "of a shape that broadcasts with that of `input`"
            hint = "Reshape it first."
            raise ArgumentError("other", rule, y.shape, hint, attribute="shape") from None
    dtype = _common_dtype(x, y)
    return x.astype(dtype), y.astype(dtype)


_OPERANDS_DOC = """\
Args:
  input: array; floats, integers or bool.
  other: an array of these dtypes, which broadcasts with `input`.

Returns:
  Array of the broadcast shape and PyTorch's common dtype. For that dtype, an array without axes counts only if its
  kind is higher, such as a float with an integer array.

Raises:
  TypeError: an argument is not an array.
  ValueError: the shapes do not broadcast.
"""
_MAXIMUM_DOC = f"""\
Computes the elementwise {{maximum}} of two arrays, as `torch.{{name}}`.

Gradient: to the {{larger}} element; tied elements get half each. If only one element is NaN, it gets the
whole cotangent; in PyTorch, both get it.

{_OPERANDS_DOC}
Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import torch
  >>> torch.{{name}}(jnp.array([{{tied}}, 2]), jnp.array(2))
  Array([{{tied}}, 2], dtype=int32)
"""
_FMAX_DOC = f"""\
Computes the elementwise {{maximum}} of two arrays, preferring numbers to NaN, as `torch.{{name}}`.

Gradient: to the selected element; of tied elements, also two NaNs, the element of `input`.

{_OPERANDS_DOC}
Example:
  >>> import jax.numpy as jnp
  >>> from jaxpool.compat import torch
  >>> torch.{{name}}(jnp.array([jnp.nan, 2.0]), jnp.array([5.0, {{tied}}.0]))
  Array([5., {{tied}}.], dtype=float32)
"""


def _maximum(kind: Kind, input: Any, other: Any) -> Array:
    function = elementwise.maximum if kind == "max" else elementwise.minimum
    return function(*promote_to_common_dtype(f"{kind}imum", input, other), autodiff="jvp")


def _fmax(kind: Kind, input: Any, other: Any) -> Array:
    function = elementwise.fmax if kind == "max" else elementwise.fmin
    operands = promote_to_common_dtype(f"f{kind}", input, other)
    return function(*operands, ties="first", autodiff="jvp")


maximum = make_extremum("maximum", _maximum, _MAXIMUM_DOC)
minimum = make_extremum("minimum", _maximum, _MAXIMUM_DOC)
fmax = make_extremum("fmax", _fmax, _FMAX_DOC)
fmin = make_extremum("fmin", _fmax, _FMAX_DOC)
