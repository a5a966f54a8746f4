"""Calls that do not match a signature: an argument left out, or one under the name another library gives it."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from jaxpool._arguments.arrays import is_array, is_key

P = ParamSpec("P")
R = TypeVar("R")

# What other libraries call it: PyTorch, Keras and TensorFlow, ONNX, Haiku, NumPy.
ELSEWHERE = {
    "window_shape": ("kernel_size", "pool_size", "ksize", "kernel_shape", "window_dimensions"),
    "strides": ("stride", "window_strides"),
    "padding": ("pads", "pad"),
    "window_dilation": ("dilation", "dilations", "dilation_rate"),
    "output_shape": ("output_size", "target_shape"),
    "divisor": ("divisor_override",),
    "p": ("norm_type",),
    "axes": ("axis", "dim", "channel_axis", "data_format"),
    "axis": ("axes", "dim"),
    "keepdims": ("keepdim",),
    "x": ("input", "inputs", "value", "operand"),
    "key": ("rng", "rng_key"),
}


def public(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, whose calls with a missing, an unknown or a surplus argument are refused in our voice.

    Nothing is looked at unless Python itself refuses the call, before the first line of `function`.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trail = error.__traceback__
            if trail is not None and trail.tb_next is None:  # raised by the call, not inside
                reason = refused(function, args, kwargs)
                if reason:
                    raise TypeError(reason) from None
            raise

    return call


def refused(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> str:
    """Why a call of `function` cannot be made, in its name; empty if it can."""
    reason = _reason(function, args, kwargs)
    return reason and f"jaxpool.{_name(function)}: {reason}"


def _name(function: Callable[..., Any]) -> str:
    """As a user writes it after `jaxpool.`: with its public module, if that is not the package itself."""
    room = function.__module__.split(".")[1]
    return function.__name__ if room.startswith("_") else f"{room}.{function.__name__}"


def _reason(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> str:
    """What is wrong with a call of `function`; empty if it can be made."""
    known = inspect.signature(function).parameters
    for name in kwargs:
        if name not in known:
            close = [ours for ours, theirs in ELSEWHERE.items() if name in theirs and ours in known]
            close += difflib.get_close_matches(name, known, 1, 0.7)
            hint = f"Did you mean `{close[0]}`?" if close else f"It takes {', '.join(known)}."
            return f"there is no argument `{name}`. {hint}"
    positional = [p.name for p in known.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = [
        p.name for p in known.values() if p.default is p.empty and p.kind is not p.VAR_POSITIONAL
    ]
    order = f"The order is {', '.join(positional)}."
    twice = [name for name in positional[: len(args)] if name in kwargs]
    if twice:
        return f"`{twice[0]}` must be given once; got it by its place and by its name. {order}"
    missing = [name for name in needed if name not in (*positional[: len(args)], *kwargs)]
    if missing:
        if positional[0] == "key" and args and is_array(args[0]) and not is_key(args[0]):
            return (
                f"`key` must be given, a PRNG key, before `x`; got an array in its place. {order}"
            )
        return f"`{missing[0]}` must be given; it is missing. {order}"
    if len(args) > len(positional):
        named = ", ".join(p.name for p in known.values() if p.kind is p.KEYWORD_ONLY)
        hint = f"Pass {named} by name." if named else order
        return f"at most {len(positional)} arguments go by their place; got {len(args)}. {hint}"
    return ""
