"""Checks of exponents, temperatures and similar coefficients: numbers, or arrays that broadcast to the output."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import converted, wrong_dtype
from jaxpool._arguments.errors import ArgumentError

Holds = Callable[[float], bool]


def is_number(value: Any) -> bool:
    """Whether `value` is a real number of Python or NumPy, but not a bool or an int that overflows a float."""
    if isinstance(value, int) and abs(value) >= 2**1023:
        return False
    numbers = (int, float, np.integer, np.floating)
    return isinstance(value, numbers) and not isinstance(value, bool)


def number(argument: str, value: Any, rule: str, hint: str, holds: Holds) -> float:
    """`value` as a float. Raises unless it is a number for which `holds` is True; a bool is not a number."""
    if not is_number(value):
        raise ArgumentError(argument, rule, value, hint, TypeError)
    if math.isnan(value) or not holds(float(value)):
        raise ArgumentError(argument, rule, value, hint)
    return float(value)


def coefficient(
    argument: str, value: Any, rule: str, holds: Holds, shape: tuple[Any, ...]
) -> float | Array:
    """`value` as a float for which `holds` is True, or as an array of the rank of the output's `shape`.

    The elements of an array are not checked, because they may be traced.
    """
    if not isinstance(value, (jax.Array, np.ndarray)):
        hint = f"Pass a number, or an array that broadcasts against the output, {shape}."
        return number(argument, value, rule, hint, holds)
    array = converted(argument, value)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.floating, jnp.integer)):
        raise wrong_dtype(argument, "of floats or integers", array)
    full = (1,) * (len(shape) - array.ndim) + array.shape
    if len(full) != len(shape) or any(
        size not in (1, whole) for size, whole in zip(full, shape, strict=True)
    ):
        hint = "An array of shape (C,) is one number per channel where channels come last."
        shown = f"of a shape that broadcasts against the output, {shape}"
        raise ArgumentError(argument, shown, array.shape, hint, of="shape")
    return array.reshape(full)
