"""Checks and normal forms of sizes: windows, strides, axes and padding."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpool._arguments.choices import case_matters
from jaxpool._arguments.errors import ArgumentError

Padding = str | int | Sequence[int] | Sequence[tuple[int, int]]
Ints = int | Sequence[int] | np.ndarray
PADDINGS = ("VALID", "SAME", "SAME_LOWER")


def is_int(value: Any) -> bool:
    """Whether `value` counts as an int: NumPy's integers do, a bool does not."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def is_sequence(value: Any) -> bool:
    """Whether `value` is a tuple or a list, the two sequence types that sizes may have."""
    return isinstance(value, (tuple, list))


def listed(value: Any) -> Any:
    """`value`, or a list of Python numbers if it is a NumPy array."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _pooled_alone(values: Sequence[Any], rank: int, unit: Sequence[Any]) -> str:
    """A hint if `values` has an entry for every axis, as in lax and Haiku; empty otherwise."""
    if len(values) != rank + 2 or values[0] not in unit or values[-1] not in unit:
        return ""
    return f"Sizes stand for pooled axes alone: pass {tuple(values[1:-1])}."


def per_axis(
    argument: str, value: Any, rank: int, *, least: int = 1, or_int: bool = True
) -> tuple[int, ...]:
    """`value` as a tuple of `rank` ints of at least `least`, one per pooled axis. An int is repeated.

    Pass `or_int=False` if the caller does not accept an int; error messages then do not offer it.
    """
    ints = "1 int" if rank == 1 else f"{rank} ints"
    either = "an int or " if or_int else ""
    rule = f"{either}{ints} of at least {least}, one per pooled axis"
    hint = f"Pass a tuple such as {(2,) * rank}."
    passed, value = value, listed(value)
    if is_int(value):
        values = (operator.index(value),) * rank
    elif not is_sequence(value) or not all(is_int(entry) for entry in value):
        if isinstance(value, str) and value.upper() in PADDINGS:
            hint = f"Pass padding={value.upper()!r} by name."
        raise ArgumentError(argument, rule, passed, hint, TypeError)
    else:
        values = tuple(operator.index(entry) for entry in value)
    if len(values) != rank or any(entry < least for entry in values):
        hint = _pooled_alone(values, rank, (1,)) or hint
        raise ArgumentError(argument, rule, passed, hint)
    _check_bounded(argument, values, passed)
    return values


def _check_bounded(argument: str, values: Sequence[int], given: Any) -> None:
    """Raise for ints that are too large for the size of an array."""
    if any(value >= 2**63 for value in values):
        raise ArgumentError(argument, "below 2**63", given, "Pass a size that an array can have.")


def _full_rank(window_shape: Sequence[Any], ndim: int) -> str:
    """A hint if `window_shape` has a size for every axis, as in lax and Haiku; empty otherwise.

    A window with one more size, a leading 1, includes a batch axis that the array does not have.
    """
    batch = len(window_shape) - ndim
    if batch not in (0, 1) or not all(map(is_int, window_shape)) or 1 not in window_shape:
        return ""
    if batch and window_shape[0] != 1:
        return ""
    pooled = tuple(axis - batch for axis, size in enumerate(window_shape) if size != 1)
    if not pooled:
        return ""
    sizes = tuple(window_shape[axis + batch] for axis in pooled)
    last = pooled == tuple(range(ndim - 1 - len(pooled), ndim - 1))
    wanted = f"{sizes}" if last else f"{sizes} with axes={pooled}"
    return (
        f"Windows list pooled axes alone: pass {wanted}, and strides and padding alike. "
        "jaxpool.compat.haiku takes windows of full rank."
    )


def example_axes(ndim: int, count: int | None = None) -> tuple[int, ...]:
    """Example axes for an array of rank `ndim`: the `count` axes before the last, or all but the first and last."""
    if count is None:
        return tuple(range(1, ndim - 1)) or (0,)
    first = max(ndim - 1 - count, 0)
    return tuple(range(first, first + count))


def normalise_axes(
    axes: Any, ndim: int, count: int | None, array: str = "x", window: Any = ()
) -> tuple[int, ...]:
    """`axes` as distinct non-negative axes of an array of rank `ndim`. None selects the `count` axes before the last.

    `array` is the name of the array argument, and `window` the window shape, for hints in error messages.
    """
    if axes is None:
        if count is None:
            example = (
                f"Pass axes={example_axes(ndim)}, say." if ndim else "Pass an array with axes."
            )
            rule = "given when `window_shape` is an int"
            raise ArgumentError("axes", rule, None, example, TypeError)
        if ndim < count + 1:
            hint = _full_rank(window, ndim) or (
                "Pass axes=... to pool an array without a channel axis, "
                f"or add the axis with {array}[..., None]."
            )
            raise ArgumentError(
                array,
                f"an array of at least {count + 1} axes, {count} pooled and channels",
                ndim,
                hint,
                of="ndim",
            )
        return tuple(range(ndim - 1 - count, ndim - 1))
    rule = (
        f"distinct ints from {-ndim} to {ndim - 1}" if ndim else "left out, for an x without axes"
    )
    passed, axes = axes, listed(axes)
    if not is_sequence(axes) or not all(is_int(axis) for axis in axes):
        example = f"Pass a tuple such as {example_axes(ndim, count)}." if ndim else "Leave it out."
        raise ArgumentError("axes", rule, passed, example, TypeError)
    whole = tuple(operator.index(axis) for axis in axes)
    inside = all(-ndim <= axis < ndim for axis in whole)
    normal = tuple(axis % ndim for axis in whole) if inside else ()
    if not normal or len(set(normal)) != len(normal):
        raise ArgumentError("axes", rule, passed, f"Name each pooled axis of {array} once.")
    if count is not None and len(normal) != count:
        raise ArgumentError(
            "axes",
            f"{count} axes, one for each entry of the shape",
            axes,
            "Make the lengths agree.",
        )
    return normal


def one_axis(axis: Any, ndim: int, array: str = "x", several: str = "") -> int:
    """`axis` as a non-negative axis of the argument `array`, which has rank `ndim`.

    `several` is a hint for callers that pass no int, such as a tuple of axes.
    """
    if not ndim:
        hint = f"Add one with {array}[None]."
        raise ArgumentError(array, "an array of at least one axis", (), hint, of="shape")
    rule = f"an int from {-ndim} to {ndim - 1}"
    if not is_int(axis) or not -ndim <= operator.index(axis) < ndim:
        kind, hint = (ValueError, "") if is_int(axis) else (TypeError, several)
        raise ArgumentError("axis", rule, axis, hint or f"Name an axis of {array}.", kind)
    return operator.index(axis) % ndim


def check_reducible(argument: str, sizes: Sequence[int]) -> None:
    """Raise if axes of `sizes` have 2**32 elements or more, which uint32 indices and counts cannot hold."""
    if math.prod(sizes) >= 2**32:
        rule = "of fewer than 2**32 elements along the reduced axes, which uint32 indices can name"
        raise ArgumentError(argument, rule, tuple(sizes), "Reshape it and reduce twice.")


def fits_int32(positions: float) -> bool:
    """Whether int32 indices can hold as many positions."""
    return positions < 2**31


def check_countable(argument: str, sizes: Sequence[int]) -> None:
    """Raise unless int32 indices can hold every position of axes of `sizes`."""
    if not all(map(is_int, sizes)):
        rule, hint = "of known sizes along the pooled axes", "Batch and channels may be symbolic."
        raise ArgumentError(argument, rule, tuple(sizes), hint)
    if not fits_int32(math.prod(sizes)):
        rule = "of fewer than 2**31 positions along the pooled axes, which int32 indices can name"
        raise ArgumentError(argument, rule, tuple(sizes), "Pool parts of the array.")


def padding_pairs(padding: Any, rank: int) -> tuple[tuple[int, int], ...] | str:
    """`padding` as a name or as one (low, high) pair per axis."""
    rule = "'VALID', 'SAME', 'SAME_LOWER', a non-negative int, or one int or (low, high) pair per pooled axis"
    hint = f"Pass 'SAME' or pairs such as {((1, 1),) * rank}."
    passed, padding = padding, listed(padding)
    if isinstance(padding, str):
        if padding not in PADDINGS:
            hint = case_matters(padding, PADDINGS) or hint
            raise ArgumentError("padding", rule, padding, hint)
        return padding
    if is_int(padding):
        entries: tuple[Any, ...] = (padding,) * rank
    elif is_sequence(padding):
        entries = tuple(padding)
    else:
        raise ArgumentError("padding", rule, passed, hint, TypeError)
    if entries and all(is_int(entry) for entry in entries):
        pairs = tuple((operator.index(entry), operator.index(entry)) for entry in entries)
    elif all(
        is_sequence(entry) and len(entry) == 2 and all(is_int(side) for side in entry)
        for entry in entries
    ):
        pairs = tuple((operator.index(low), operator.index(high)) for low, high in entries)
    else:
        raise ArgumentError("padding", rule, passed, hint, TypeError)
    if len(pairs) != rank or any(side < 0 for pair in pairs for side in pair):
        hint = _pooled_alone(entries, rank, (0, (0, 0), [0, 0])) or hint
        if rank == 1 and len(entries) == 2 and all(is_int(side) and side >= 0 for side in entries):
            hint = f"Pass {(tuple(entries),)} for low and high padding of one axis."
        raise ArgumentError("padding", rule, passed, hint)
    _check_bounded("padding", [side for pair in pairs for side in pair], passed)
    return pairs


def known_sizes(
    shape: Sequence[Any], axes: Sequence[int], *, least: int = 1, argument: str = "x"
) -> tuple[int, ...]:
    """The sizes of the pooled `axes`. Raises if a size is symbolic or less than `least`, which is 0 or 1."""
    for axis in axes:
        if not is_int(shape[axis]):
            rule = f"of known size along pooled axis {axis}"
            hint = "Batch and channel axes may be symbolic, pooled axes not."
            raise ArgumentError(argument, rule, shape[axis], hint, of=f"shape[{axis}]")
        if shape[axis] < least:
            rule = f"of at least one element along pooled axis {axis}"
            hint = "Batch and channel axes may be empty, pooled axes not."
            raise ArgumentError(argument, rule, 0, hint, of=f"shape[{axis}]")
    return tuple(operator.index(shape[axis]) for axis in axes)
