"""Checks of exponents, temperatures and similar coefficients: numbers, or arrays that broadcast to the output."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import as_jax_array, wrong_dtype_error
from jaxpool._arguments.errors import ArgumentError

FloatPredicate = Callable[[float], bool]


def is_number(value: Any) -> bool:
    """Whether `value` is a real Python or NumPy number; bools and ints that overflow a float are excluded."""
    if isinstance(value, int) and abs(value) >= 2**1023:
        return False
    number_types = (int, float, np.integer, np.floating)
    return isinstance(value, number_types) and not isinstance(value, bool)


def checked_float(
    arg_name: str, value: Any, rule: str, hint: str, is_valid: FloatPredicate
) -> float:
    """`value` as a float. Raises unless `value` is a number for which `is_valid` is True; a bool is not a number."""
    if not is_number(value):
        raise ArgumentError(arg_name, rule, value, hint, TypeError)
    if math.isnan(value) or not is_valid(float(value)):
        raise ArgumentError(arg_name, rule, value, hint)
    return float(value)


def as_coefficient(
    arg_name: str, value: Any, rule: str, is_valid: FloatPredicate, output_shape: tuple[Any, ...]
) -> float | Array:
    """`value` as a float for which `is_valid` is True, or as an array with the rank of `output_shape`.

    The elements of an array are not checked, because they may be traced.
    """
    if not isinstance(value, (jax.Array, np.ndarray)):
        hint = f"Pass a number, or an array that broadcasts against the output, {output_shape}."
        return checked_float(arg_name, value, rule, hint, is_valid)
    array = as_jax_array(arg_name, value)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.floating, jnp.integer)):
        raise wrong_dtype_error(arg_name, "of floats or integers", array)
    padded_shape = (1,) * (len(output_shape) - array.ndim) + array.shape
    if len(padded_shape) != len(output_shape) or any(
        size not in (1, output_size)
        for size, output_size in zip(padded_shape, output_shape, strict=True)
    ):
        hint = "An array of shape (C,) is one number per channel where channels come last."
        shape_requirement = f"of a shape that broadcasts against the output, {output_shape}"
        raise ArgumentError(arg_name, shape_requirement, array.shape, hint, attribute="shape")
    return array.reshape(padded_shape)
