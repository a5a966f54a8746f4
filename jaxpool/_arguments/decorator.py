"""The decorator of public functions, which compiles their eager calls and completes their error messages."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
from jax.sharding import SingleDeviceSharding

from jaxpool._arguments.calls import clearer_error
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.shared_text import fill_shared_texts

# Leading parameters with these names are arrays whose values no function reads in Python.
ARRAY_PARAMETERS = ("x", "xs", "y", "input", "other")
P = ParamSpec("P")
R = TypeVar("R")


class _OtherArguments:
    """The arguments of an eager call after its arrays: static arguments of a jitted function.

    Raises `TypeError` for an array, whose value may matter, and for a float, which may differ in each call.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        self._key = _with_types(args), *((name, _with_types(kwargs[name])) for name in kwargs)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _OtherArguments) and self._key == other._key


def _with_types(value: Any) -> Any:
    """A hashable form of a static argument, which differs for 1 and True."""
    kind = type(value)
    if kind in (tuple, list):
        return kind, tuple(map(_with_types, value))
    if kind not in (int, bool, str, type(None)):
        raise TypeError(kind)
    return kind, value


def _is_eager(x: Any) -> bool:
    """True for an array on one device, and for its tracer in an eager `jax.grad` or `jax.vjp`."""
    x = getattr(x, "primal", x)
    is_concrete = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    return is_concrete and type(x.sharding) is SingleDeviceSharding


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of public functions. Eager calls run a jitted program, as those of `jax.numpy` do.

    Errors name the function, and missing, unknown, surplus and swapped arguments. The docstring is completed with
    shared texts.
    """
    if function.__doc__:
        function.__doc__ = fill_shared_texts(inspect.cleandoc(function.__doc__))
    parameters = inspect.signature(function).parameters.values()
    leading = list(itertools.takewhile(lambda p: p.name in ARRAY_PARAMETERS, parameters))
    num_arrays = None if any(p.kind is p.VAR_POSITIONAL for p in leading) else len(leading)

    def run(others: _OtherArguments, *arrays: Any) -> Any:
        return function(*arrays, *others.args, **others.kwargs)

    run.__name__ = function.__name__
    program = jax.jit(run, static_argnums=0)

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        if arrays := list(itertools.takewhile(_is_eager, args[:num_arrays])):
            # An error is raised again below, where messages show arrays instead of tracers.
            with contextlib.suppress(TypeError, ValueError, ArgumentError):
                result: R = program(_OtherArguments(args[len(arrays) :], kwargs), *arrays)
                return result
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, ArgumentError) as error:
            shown_error = clearer_error(error, function, args, kwargs)
            if shown_error is None:
                raise
            raise shown_error from None

    return wrapper
