"""Checks of arguments that are no arrays: bools, strings, window shapes, strides, axes and padding. Without JAX."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from jaxpool._arguments.errors import ArgumentError


def check_bool(arg_name: str, value: object) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ArgumentError(arg_name, "True or False", value, "Pass a bool.", TypeError)


def check_choice(arg_name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        rule = " or ".join([", ".join(map(repr, choices[:-1])), repr(choices[-1])])
        error_type = ValueError if isinstance(value, str) else TypeError
        hint = wrong_case_hint(value, choices) or f"Leave it out for {choices[0]!r}."
        raise ArgumentError(arg_name, rule, value, hint, error_type)


def wrong_case_hint(value: object, choices: tuple[str, ...]) -> str:
    """A hint if `value` differs from one of `choices` only in upper or lower case; "" otherwise."""
    matches = [word for word in choices if isinstance(value, str) and word.lower() == value.lower()]
    return f"Case matters: pass {matches[0]!r}." if matches else ""


Padding = str | int | Sequence[int] | Sequence[tuple[int, int]]
IntOrInts = int | Sequence[int] | np.ndarray
Axes = tuple[int, ...] | None
Size = Any  # an int, or a symbolic size of `jax.export`, which has no public type
Shape = Sequence[Size]
PADDING_MODES = ("VALID", "SAME", "SAME_LOWER")


def is_int(value: Any) -> TypeGuard[int]:
    """Whether `value` counts as an int. NumPy integers count as ints, bools do not."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def checked_int(
    arg_name: str, value: object, rule: str, hint: str, valid_range: range, non_int_hint: str = ""
) -> int:
    """`value` as an int. Raises unless `value` is an int in `valid_range`."""
    if not is_int(value):
        raise ArgumentError(arg_name, rule, value, non_int_hint or hint, TypeError)
    if operator.index(value) not in valid_range:
        raise ArgumentError(arg_name, rule, value, hint)
    return operator.index(value)


def is_tuple_or_list(value: object) -> TypeGuard[tuple | list]:
    """Whether `value` is a tuple or a list, the two sequence types that size arguments may have."""
    return isinstance(value, (tuple, list))


def array_to_list(value: Any) -> Any:
    """Convert a NumPy array to a list of Python numbers; return any other `value` unchanged."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def checked_tuple(arg_name: str, value: object, rule: str, hint: str) -> Sequence[Any]:
    """`value`, a tuple, a list or a NumPy array, as a tuple or list. Raises for other types and if it is empty."""
    value = array_to_list(value)
    if not is_tuple_or_list(value) or not value:
        error_type = ValueError if is_tuple_or_list(value) else TypeError
        raise ArgumentError(arg_name, rule, value, hint, error_type)
    return value


def _full_rank_sizes_hint(
    values: Sequence[object], num_axes: int, neutral_values: Sequence[object]
) -> str:
    """A hint if `values` has an entry for every axis of the array, as in lax and Haiku; "" otherwise."""
    is_full_rank = len(values) == num_axes + 2
    if not is_full_rank or values[0] not in neutral_values or values[-1] not in neutral_values:
        return ""
    return f"Sizes stand for pooled axes alone: pass {tuple(values[1:-1])}."


def ints_per_axis(
    arg_name: str, value: object, num_axes: int, *, min_value: int = 1, mention_int: bool = True
) -> tuple[int, ...]:
    """`value` as `num_axes` ints of at least `min_value`; a single int is repeated.

    `mention_int` is True if error messages offer a single int.
    """
    ints_text = "1 int" if num_axes == 1 else f"{num_axes} ints"
    or_int_text = "an int or " if mention_int else ""
    rule = f"{or_int_text}{ints_text} of at least {min_value}, one per pooled axis"
    hint = f"Pass a tuple such as {(2,) * num_axes}."
    original_value, value = value, array_to_list(value)
    if is_int(value):
        values = (operator.index(value),) * num_axes
    elif not is_tuple_or_list(value) or not all(is_int(entry) for entry in value):
        if isinstance(value, str) and value.upper() in PADDING_MODES:
            hint = f"Pass padding={value.upper()!r} by name."
        raise ArgumentError(arg_name, rule, original_value, hint, TypeError)
    else:
        values = tuple(operator.index(entry) for entry in value)
    _check_fits_int64(arg_name, values, original_value)
    if len(values) != num_axes or any(entry < min_value for entry in values):
        hint = _full_rank_sizes_hint(values, num_axes, (1,)) or hint
        raise ArgumentError(arg_name, rule, original_value, hint)
    return values


def _fits_int64(value: object) -> bool:
    """Whether `value` counts as an int, and hints can show it: they cannot if it has thousands of digits."""
    return is_int(value) and -(2**63) <= operator.index(value) < 2**63


def _check_fits_int64(arg_name: str, values: Sequence[int], original_value: object) -> None:
    """Raise unless int64 can hold each of `values`."""
    if not all(map(_fits_int64, values)):
        hint = "Pass a size that an array can have."
        raise ArgumentError(arg_name, "below 2**63 in magnitude", original_value, hint)


def _full_rank_window_hint(window_shape: Sequence[int], ndim: int) -> str:
    """A hint if `window_shape` has a size for every axis, as in lax and Haiku, perhaps with a batch axis; else ""."""
    num_extra_axes = len(window_shape) - ndim
    has_sizes = all(map(_fits_int64, window_shape))
    if num_extra_axes not in (0, 1) or not has_sizes or 1 not in window_shape:
        return ""
    if num_extra_axes and window_shape[0] != 1:
        return ""
    pooled_axes = tuple(
        axis - num_extra_axes for axis, size in enumerate(window_shape) if size != 1
    )
    if not pooled_axes:
        return ""
    sizes = tuple(window_shape[axis + num_extra_axes] for axis in pooled_axes)
    has_default_axes = pooled_axes == tuple(range(ndim - 1 - len(pooled_axes), ndim - 1))
    suggestion = f"{sizes}" if has_default_axes else f"{sizes} with axes={pooled_axes}"
    return (
        f"Windows list pooled axes alone: pass {suggestion}, and strides and padding alike. "
        "jaxpool.compat.haiku takes windows of full rank."
    )


def example_axes(ndim: int, num_axes: int | None = None) -> tuple[int, ...]:
    """Example axes for an array of rank `ndim`: the `num_axes` axes before the last, or all but the first and last."""
    if num_axes is None:
        return tuple(range(1, ndim - 1)) or (0,)
    first_axis = max(ndim - 1 - num_axes, 0)
    return tuple(range(first_axis, first_axis + num_axes))


def normalise_axes(
    axes: object, ndim: int, num_axes: int | None, array_name: str = "x", window_shape: Any = ()
) -> tuple[int, ...]:
    """`axes` as distinct non-negative axes of `array_name`, of rank `ndim`; `window_shape` is for error hints."""
    if axes is None:
        return _default_axes(ndim, num_axes, array_name, window_shape)
    rule = (
        f"distinct ints from {-ndim} to {ndim - 1}" if ndim else "left out, for an x without axes"
    )
    original_axes, axes = axes, array_to_list(axes)
    if not is_tuple_or_list(axes) or not all(map(is_int, axes)):
        hint = f"Pass a tuple such as {example_axes(ndim, num_axes)}." if ndim else "Leave it out."
        raise ArgumentError("axes", rule, original_axes, hint, TypeError)
    int_axes = [operator.index(axis) for axis in axes]
    normalised_axes = tuple(axis % ndim for axis in int_axes if -ndim <= axis < ndim)
    if not axes or len(set(normalised_axes)) != len(axes):
        hint = f"Name each pooled axis of {array_name} once."
        raise ArgumentError("axes", rule, original_axes, hint)
    if num_axes is not None and len(axes) != num_axes:
        rule = f"{num_axes} axes, one for each entry of the shape"
        raise ArgumentError("axes", rule, axes, "Make the lengths agree.")
    return normalised_axes


def _default_axes(
    ndim: int, num_axes: int | None, array_name: str, window_shape: Any
) -> tuple[int, ...]:
    """The `num_axes` axes before the last axis of an array of rank `ndim`."""
    if num_axes is None:
        hint = f"Pass axes={example_axes(ndim)}, say." if ndim else "Pass an array with axes."
        rule = "given when `window_shape` is an int"
        raise ArgumentError("axes", rule, None, hint, TypeError)
    if ndim < num_axes + 1:
        hint = _full_rank_window_hint(window_shape, ndim) or (
            "Pass axes=... to pool an array without a channel axis, "
            f"or add the axis with {array_name}[..., None]."
        )
        rule = f"an array of at least {num_axes + 1} axes, {num_axes} pooled and channels"
        raise ArgumentError(array_name, rule, ndim, hint, attribute="ndim")
    return example_axes(ndim, num_axes)


def normalise_axis(axis: object, ndim: int, array_name: str = "x", non_int_hint: str = "") -> int:
    """`axis` as a non-negative axis of the argument `array_name`, which has rank `ndim`."""
    if not ndim:
        hint = f"Add one with {array_name}[None]."
        rule = "an array of at least one axis"
        raise ArgumentError(array_name, rule, (), hint, attribute="shape")
    rule, hint = f"an int from {-ndim} to {ndim - 1}", f"Name an axis of {array_name}."
    return checked_int("axis", axis, rule, hint, range(-ndim, ndim), non_int_hint) % ndim


def check_fits_uint32_indices(arg_name: str, sizes: Sequence[int]) -> None:
    """Raise if axes with `sizes` have 2**32 or more elements, too many for uint32 indices and counts."""
    if math.prod(sizes) >= 2**32:
        rule = "of fewer than 2**32 elements along the reduced axes, which uint32 indices can name"
        raise ArgumentError(arg_name, rule, tuple(sizes), "Reshape it and reduce twice.")


def fits_int32(num_positions: float) -> bool:
    """Whether int32 indices can address `num_positions` positions."""
    return num_positions < 2**31


def check_fits_int32_indices(arg_name: str, sizes: Sequence[int]) -> None:
    """Raise unless int32 can hold the flat index of every position of axes with `sizes`."""
    if not all(map(is_int, sizes)):
        rule, hint = ("of known sizes along the pooled axes", "Batch and channels may be symbolic.")
        raise ArgumentError(arg_name, rule, tuple(sizes), hint)
    if not fits_int32(math.prod(sizes)):
        rule = "of fewer than 2**31 positions along the pooled axes, which int32 indices can name"
        raise ArgumentError(arg_name, rule, tuple(sizes), "Pool parts of the array.")


def padding_pairs(padding: object, num_axes: int) -> tuple[tuple[int, int], ...] | str:
    """`padding` as a mode such as "SAME", or as one (low, high) pair per pooled axis."""
    rule = "'VALID', 'SAME', 'SAME_LOWER', a non-negative int, or one int or (low, high) pair per pooled axis"
    hint = f"Pass 'SAME' or pairs such as {((1, 1),) * num_axes}."
    original_padding, padding = padding, array_to_list(padding)
    if isinstance(padding, str):
        if padding not in PADDING_MODES:
            hint = wrong_case_hint(padding, PADDING_MODES) or hint
            raise ArgumentError("padding", rule, padding, hint)
        return padding
    entries = (padding,) * num_axes if is_int(padding) else padding
    if not is_tuple_or_list(entries):
        raise ArgumentError("padding", rule, original_padding, hint, TypeError)
    sides = [(entry, entry) if is_int(entry) else entry for entry in entries]
    is_mixed = any(map(is_int, entries)) and not all(map(is_int, entries))
    if is_mixed or not all(
        is_tuple_or_list(pair) and len(pair) == 2 and all(map(is_int, pair)) for pair in sides
    ):
        raise ArgumentError("padding", rule, original_padding, hint, TypeError)
    pairs = tuple((operator.index(low), operator.index(high)) for low, high in sides)
    _check_fits_int64("padding", [side for pair in pairs for side in pair], original_padding)
    if len(pairs) != num_axes or any(side < 0 for pair in pairs for side in pair):
        hint = _full_rank_sizes_hint(entries, num_axes, (0, (0, 0), [0, 0])) or hint
        is_one_pair = num_axes == 1 and len(entries) == 2
        if is_one_pair and all(is_int(side) and operator.index(side) >= 0 for side in entries):
            hint = f"Pass {(tuple(entries),)} for low and high padding of one axis."
        raise ArgumentError("padding", rule, original_padding, hint)
    return pairs


def static_sizes(
    shape: Shape, axes: Sequence[int], *, min_size: int = 1, arg_name: str = "x"
) -> tuple[int, ...]:
    """The sizes of the pooled `axes`. Raises if a size is symbolic or less than `min_size`, which is 0 or 1."""
    for axis in axes:
        if not is_int(shape[axis]):
            rule = f"of known size along pooled axis {axis}"
            hint = "Batch and channel axes may be symbolic, pooled axes not."
            raise ArgumentError(arg_name, rule, shape[axis], hint, attribute=f"shape[{axis}]")
        if shape[axis] < min_size:
            rule = f"of at least one element along pooled axis {axis}"
            hint = "Batch and channel axes may be empty, pooled axes not."
            raise ArgumentError(arg_name, rule, 0, hint, attribute=f"shape[{axis}]")
    return tuple(operator.index(shape[axis]) for axis in axes)
