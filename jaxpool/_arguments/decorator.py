"""The decorator of public functions, which compiles their eager calls and completes their error messages."""

from __future__ import annotations

import contextlib
import dataclasses
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

# Leading parameters with these names are traced in eager calls. Functions check the values of other arrays, such as
# `indices`, `segment_ids`, `boxes` and `kernel`, so calls with them are not compiled.
TRACED_PARAMETERS = ("x", "xs", "y", "input", "other")
STATIC_TYPES = (int, bool, str, type(None))
# A number that may differ in each call. A static argument would compile a program for each value.
UNCOMPILED_PARAMETER = "initial"
P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class _StaticArguments:
    """The static arguments of an eager call. The key differs for 1 and True, which are equal."""

    args: tuple[Any, ...] = dataclasses.field(compare=False)
    kwargs: dict[str, Any] = dataclasses.field(compare=False)
    key: str = dataclasses.field(repr=False)


def _static_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _StaticArguments | None:
    """The arguments after the arrays; None with an argument that is not static, such as an array or a float."""
    is_static = all(map(_is_static, (*args, *kwargs.values())))
    if not is_static or UNCOMPILED_PARAMETER in kwargs:
        return None
    return _StaticArguments(args, kwargs, repr((args, kwargs)))


def _is_static(value: Any) -> bool:
    is_sequence = type(value) in (tuple, list)
    return all(map(_is_static, value)) if is_sequence else type(value) in STATIC_TYPES


def _is_concrete_on_one_device(x: Any) -> bool:
    """True for an array that no mesh shards, also while `jax.grad` or `jax.vjp` differentiates an eager call."""
    x = x.to_concrete_value() if isinstance(x, jax.core.Tracer) else x
    return isinstance(x, jax.Array) and type(x.sharding) is SingleDeviceSharding


def _num_traced_parameters(function: Callable[..., Any]) -> int | None:
    """The number of leading parameters that are traced in eager calls; None for `*xs`, all positional arguments."""
    parameters = inspect.signature(function).parameters.values()
    traced = list(itertools.takewhile(lambda p: p.name in TRACED_PARAMETERS, parameters))
    return None if any(p.kind is p.VAR_POSITIONAL for p in traced) else len(traced)


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of public functions. Eager calls run a jitted program, as those of `jax.numpy` do.

    Errors name the function, and missing, unknown, surplus and swapped arguments. The docstring is completed with
    shared texts.
    """
    if function.__doc__:
        function.__doc__ = fill_shared_texts(inspect.cleandoc(function.__doc__))
    num_traced = _num_traced_parameters(function)

    def call_function(static: _StaticArguments, *arrays: Any) -> Any:
        return function(*arrays, *static.args, **static.kwargs)

    call_function.__name__ = function.__name__
    jitted = jax.jit(call_function, static_argnums=0)

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        arrays = args[:num_traced]
        static = None
        if arrays and all(map(_is_concrete_on_one_device, arrays)):
            static = _static_arguments(args[len(arrays) :], kwargs)
        if static:
            # The plain call below raises an error again, with a message that shows arrays instead of tracers.
            with contextlib.suppress(TypeError, ValueError, ArgumentError):
                result: R = jitted(static, *arrays)
                return result
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, ArgumentError) as error:
            shown_error = clearer_error(error, function, args, kwargs)
            if shown_error is None:
                raise
            raise shown_error from None

    return wrapper
