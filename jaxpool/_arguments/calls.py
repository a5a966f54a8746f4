"""Error messages for calls that do not match a signature: missing, unknown, surplus or swapped arguments."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from jaxpool._arguments.arrays import is_array, is_key
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_sequence
from jaxpool._arguments.words import WITHOUT_FUNCTION, advice

ARRAYS = (jax.Array, np.ndarray)
# Errors show the shapes of these arguments, and the values of those.
MAIN_ARRAYS = ("x", "y", "input", "boxes", "kernel")
SIZES = ("window_shape", "output_shape", "spatial_shape", "levels")
FLOATS = ("float", "bfloat")
P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of public functions that improves error messages about their arguments.

    It adds the name of the function and explains missing, unknown, surplus and swapped arguments. Arguments are
    inspected only after the call has raised.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trail = error.__traceback__
            if trail is not None and trail.tb_next is None:  # raised by the call itself
                reason = refused(function, args, kwargs)
            else:
                reason = _swapped(function, args, kwargs)
            if reason:
                raise TypeError(reason) from None
            raise
        except ValueError:
            reason = _swapped(function, args, kwargs)
            if reason:
                raise TypeError(reason) from None
            raise
        except ArgumentError as error:
            reason = _swapped(function, args, kwargs)
            if reason:
                raise TypeError(reason) from None
            arguments = inspect.signature(function).bind(*args, **kwargs).arguments
            raise error.of_call(_name(function), _context(arguments)) from None

    return call


def _context(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes of the main arrays of a call, and the sizes it asks for."""
    context = {}
    for name, value in arguments.items():
        if name in MAIN_ARRAYS and isinstance(value, (*ARRAYS, np.generic)):
            context[f"{name}.shape"] = value.shape
        elif name in SIZES:
            context[name] = value
    return context


class Wrapper:
    """A callable that replaces `fn`, with its name, signature, documentation and attributes.

    As an attribute of a class it becomes a method, like a function. If it replaces `fn` in its module, as a decorator
    does, it is pickled and copied by name; otherwise by the call `make(fn)`.
    """

    def __init__(self, fn: Callable[..., Any], make: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)
        self._made_by = make, (fn,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        name = getattr(self, "__qualname__", "")
        target: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            target = getattr(target, part, None)
        return name if target is self else self._made_by


def refused(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> str:
    """The message for an invalid call of `function`, with its name; empty for a valid call."""
    reason = _reason(function, args, kwargs)
    return reason and f"jaxpool.{_name(function)}: {reason}"


def _name(function: Callable[..., Any]) -> str:
    """The name after `jaxpool.`, which includes the public module if the function is not in the package itself."""
    room, *inside = function.__module__.split(".")[1:]
    if room == "compat":  # `compat.torch.max_pool2d` is defined in `compat/_torch_max_pool.py`
        room += "." + inside[0].removeprefix("_").partition("_")[0]
    return function.__name__ if room.startswith("_") else f"{room}.{function.__name__}"


def _reason(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> str:
    """The reason why a call of `function` is invalid; empty for a valid call."""
    known = inspect.signature(function).parameters
    positional = [p.name for p in known.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    # A hint for a transformation that is called like the function that it returns.
    applied = ""
    if positional in (["fn"], ["pool"]) and args and callable(args[0]):
        applied = f"What it returns takes them: {_name(function)}({positional[0]})(...)."
    for name in kwargs:
        if name not in known:
            hint = advice(_name(function), name, known, applied)
            return f"there is no argument `{name}`. {hint}"
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
        hint = f"Pass {named} by name." if named else "" if applied else order
        if not positional:
            hint = WITHOUT_FUNCTION.get(_name(function), hint) if callable(args[0]) else hint
            return f"no argument goes by its place; got {len(args)}. {hint}"
        rule = f"at most {len(positional)} arguments go by their place"
        return " ".join(filter(None, (f"{rule}; got {len(args)}.", applied, hint)))
    return ""


def _swapped(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> str:
    """The message for a call that raised because two arguments are swapped; empty if none are."""
    signature = inspect.signature(function)
    passed = signature.bind(*args, **kwargs).arguments
    names = [name for name in signature.parameters if name in passed]
    for first, second in itertools.pairwise(names):
        if second in _order(first, passed[first], passed[second]):
            order = ", ".join(
                p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
            )
            return (
                f"jaxpool.{_name(function)}: `{first}` must come before `{second}`; "
                f"got them the other way round. The order is {order}."
            )
    return ""


def _order(name: str, value: Any, other: Any) -> tuple[str, ...]:
    """The arguments that may be swapped with `name`, judging by its `value` and the next argument, `other`."""
    if name == "x" and not is_array(value) and is_array(other) and getattr(other, "ndim", 0) > 1:
        return "window_shape", "output_shape", "k", "p", "rank", "key"
    if name == "indices" and not is_array(value) and is_sequence(value) and is_array(other):
        return ("spatial_shape",)
    if name == "key" and is_key(other) and not is_key(value):
        return ("x",)
    if name in ("p", "rank") and is_sequence(value) and not is_sequence(other):
        return ("window_shape",)
    if name == "x" and isinstance(value, ARRAYS) and isinstance(other, ARRAYS):
        if value.dtype.name.startswith(("int", "uint")) and other.dtype.name.startswith(FLOATS):
            return ("segment_ids",)
        if value.ndim == 2 and value.shape[-1] == 4 and other.ndim > 2 and other.shape[-1] != 4:
            return ("boxes",)
    return ()
