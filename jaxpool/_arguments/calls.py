"""Calls that do not match a signature: an argument left out, or one under the name another library gives it."""

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
    """`function`, with its name in errors about its arguments: missing, unknown, surplus or swapped ones too.

    Arguments are looked at only after the call has raised, in Python's check of the signature or in `function`.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trail = error.__traceback__
            if trail is not None and trail.tb_next is None:  # raised by the call, not inside
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
        if name in MAIN_ARRAYS and is_array(value):
            context[f"{name}.shape"] = value.shape
        elif name in SIZES:
            context[name] = value
    return context


class Wrapper:
    """A callable that stands for `fn`, with its name, signature, documentation and attributes.

    It becomes a method where it is an attribute of a class, as a function does. It is pickled and copied as the
    call `make(fn)` that made it; where it replaces `fn` in its module, as a decorator does, by its name.
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
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else self._made_by


def refused(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> str:
    """Why a call of `function` cannot be made, in its name; empty if it can."""
    reason = _reason(function, args, kwargs)
    return reason and f"jaxpool.{_name(function)}: {reason}"


def _name(function: Callable[..., Any]) -> str:
    """As a user writes it after `jaxpool.`: with its public module, if that is not the package itself."""
    room, *inside = function.__module__.split(".")[1:]
    if room == "compat":  # `compat.torch.max_pool2d` is defined in `compat/_torch_max_pool.py`
        room += "." + inside[0].removeprefix("_").partition("_")[0]
    return function.__name__ if room.startswith("_") else f"{room}.{function.__name__}"


def _reason(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> str:
    """What is wrong with a call of `function`; empty if it can be made."""
    known = inspect.signature(function).parameters
    positional = [p.name for p in known.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    applied = ""  # of a function that takes one and gives one, called as if it were what it gives
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
    """Which two arguments of a call that was refused have changed places; empty if none have."""
    signature = inspect.signature(function)
    given = signature.bind(*args, **kwargs).arguments
    names = [name for name in signature.parameters if name in given]
    for first, second in itertools.pairwise(names):
        if second in _order(first, given[first], given[second]):
            order = ", ".join(
                p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
            )
            return (
                f"jaxpool.{_name(function)}: `{first}` must come before `{second}`; "
                f"got them the other way round. The order is {order}."
            )
    return ""


def _order(name: str, value: Any, other: Any) -> tuple[str, ...]:
    """The arguments with which `name` has changed places, if `other`, given for the next one, is one of them."""
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
