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
import numpy as np
from jax import Array
from jax import numpy as jnp
from jax.sharding import SingleDeviceSharding

from jaxpool._arguments.arrays import as_array, unwrap_array
from jaxpool._arguments.calls import clearer_error
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.shared_text import fill_shared_texts

# In eager calls, leading parameters with these names, and a `where` mask, are arguments of the jitted program. Calls
# with any other array, such as `indices`, `segment_ids`, `boxes` or `kernel`, are not compiled, because functions check
# their values.
TRACED_PARAMETERS = ("x", "xs", "y", "input", "other")
TRACED_KEYWORDS = (*TRACED_PARAMETERS, "where")
STATIC_TYPES = (int, bool, str, type(None))
# Limits of nested sequences in the key of an eager call. Padding has depth 2, and NumPy's arrays have at most 64 axes.
MAX_STATIC_DEPTH, MAX_STATIC_LENGTH = 3, 64
# This number may differ in each call. Calls with it are not compiled, because each value would compile another program.
NEVER_STATIC_PARAMETER = "initial"
P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class _StaticArguments:
    """Hashable static arguments of an eager call. The key shows types, because `1 == True` in Python."""

    args: tuple[Any, ...] = dataclasses.field(compare=False)
    kwargs: dict[str, Any] = dataclasses.field(compare=False)
    key: str = dataclasses.field(repr=False)


def _static_arguments(
    args: tuple[object, ...], kwargs: dict[str, object]
) -> _StaticArguments | None:
    """Return the arguments after the arrays, or None if one of them cannot be static, such as an array or a float."""
    is_static = all(map(_is_static, (*args, *kwargs.values())))
    if not is_static or NEVER_STATIC_PARAMETER in kwargs:
        return None
    return _StaticArguments(args, kwargs, repr((args, kwargs)))


def _is_static(value: Any, max_depth: int = MAX_STATIC_DEPTH) -> bool:
    if type(value) in STATIC_TYPES:
        return True
    if type(value) not in (tuple, list) or len(value) > MAX_STATIC_LENGTH or max_depth == 0:
        return False
    return all(map(_is_static, value, itertools.repeat(max_depth - 1)))


def _is_concrete_on_one_device(x: object) -> bool:
    """True for an array with concrete values on one device, and for its tracer in an eager `jax.grad` or `jax.vjp`."""
    x = x.to_concrete_value() if isinstance(x, jax.core.Tracer) else x
    return isinstance(x, jax.Array) and type(x.sharding) is SingleDeviceSharding


def _num_traced_parameters(function: Callable[..., object]) -> int | None:
    """The number of leading parameters that are traced in eager calls; None for `*xs`: all arguments."""
    parameters = inspect.signature(function).parameters.values()
    traced = list(itertools.takewhile(lambda p: p.name in TRACED_PARAMETERS, parameters))
    return None if any(p.kind is p.VAR_POSITIONAL for p in traced) else len(traced)


@jax.custom_jvp
@jax.jit
def _round_to_e8m0fnu(y: Array) -> Array:
    """y as float8_e8m0fnu; values beyond its range become its least or greatest value.

    Its least value is subnormal in float32, and XLA may flush it to 0.
    """
    info = jnp.finfo(jnp.float8_e8m0fnu)
    rounded = jnp.where(y < jnp.finfo(y.dtype).tiny, info.min, y.astype(info.dtype))
    return jnp.where(y > np.float32(info.max), info.max, rounded)


@_round_to_e8m0fnu.defjvp
def _round_to_e8m0fnu_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return _round_to_e8m0fnu(*primals), tangents[0].astype(jnp.float8_e8m0fnu)


def compute_e8m0fnu_in_float32(function: Callable[P, R]) -> Callable[P, R]:
    """`function` that casts x of float8_e8m0fnu to float32, and its float32 results to float8_e8m0fnu.

    This dtype has no sign and no zero, which padding, masked elements and missing cotangents need. Elementwise
    functions and `max_unpool` need neither, and keep the dtype.
    """
    parameters = list(inspect.signature(function).parameters)
    images = [name for name in parameters if name in (*TRACED_PARAMETERS, "features")]
    if images not in (["x"], ["features"]):
        return function
    (name,), index = images, parameters.index(images[0])

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call: Callable[..., Any] = function
        x = args[index] if len(args) > index else kwargs.get(name)
        xs = x if name == "features" and isinstance(x, tuple | list) else (x,)
        dtypes = [getattr(unwrap_array(each), "dtype", None) for each in xs]
        if not dtypes or any(dtype != jnp.float8_e8m0fnu for dtype in dtypes):
            return call(*args, **kwargs)
        wide_xs = [as_array(each).astype(np.float32) for each in xs]
        wide_x = wide_xs if xs is x else wide_xs[0]
        args = tuple(wide_x if value is x else value for value in args)
        kwargs = {key: wide_x if value is x else value for key, value in kwargs.items()}
        results = call(*args, **kwargs)
        return jax.tree.map(lambda y: _round_to_e8m0fnu(y) if y.dtype == np.float32 else y, results)

    return wrapper


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of public functions. Eager calls run a cached jitted program if possible, as those of `jax.numpy` do.

    Errors name the function, and missing, unknown, surplus and swapped arguments. The docstring is completed with
    shared texts.
    """
    if function.__doc__:
        function.__doc__ = fill_shared_texts(inspect.cleandoc(function.__doc__))
    function = compute_e8m0fnu_in_float32(function)
    num_traced = _num_traced_parameters(function)

    def call_with_static_arguments(
        static: _StaticArguments, arrays: tuple[Any, ...], named_arrays: dict[str, Any]
    ) -> Any:
        return function(*arrays, *static.args, **static.kwargs, **named_arrays)

    call_with_static_arguments.__name__ = function.__name__
    jitted = jax.jit(call_with_static_arguments, static_argnums=0)

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        arrays = args[:num_traced]
        named_arrays = {k: kwargs[k] for k in TRACED_KEYWORDS if kwargs.get(k) is not None}
        all_arrays = (*arrays, *named_arrays.values())
        if all_arrays and all(map(_is_concrete_on_one_device, all_arrays)):
            static_kwargs = {k: v for k, v in kwargs.items() if k not in named_arrays}
            # The call below raises the same error, with a message that shows arrays instead of tracers. `repr` in
            # `_static_arguments` raises for an int with more digits than Python converts.
            with contextlib.suppress(TypeError, ValueError, ArgumentError):
                if static := _static_arguments(args[len(arrays) :], static_kwargs):
                    result: R = jitted(static, arrays, named_arrays)
                    return result
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, ArgumentError) as error:
            shown_error = clearer_error(error, function, args, kwargs)
            if shown_error is None:
                raise
            raise shown_error from None

    return wrapper
