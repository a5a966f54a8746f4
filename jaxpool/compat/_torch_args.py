"""Checks and conversions of the arguments of PyTorch's functions: dtypes, shapes, sizes and axes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import as_array, wrong_dtype_error
from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool._arguments.sizes import is_int, is_tuple_or_list
from jaxpool._geometry.window import Window, make_window
from jaxpool._shards.split import by_window

P = ParamSpec("P")
R = TypeVar("R")
Sizes = int | Sequence[int]
Result = Array | tuple[Array, Array]  # of a pool with `return_indices`

FLOATS = tuple(map(np.dtype, (np.float16, jnp.bfloat16, np.float32, np.float64)))
INTS = tuple(map(np.dtype, (np.int8, np.uint8, np.int16, np.int32, np.int64)))
BOOL = np.dtype(np.bool_)
# PyTorch's names of jaxpool's arguments.
NAMES = {"window_shape": "kernel_size", "output_shape": "output_size", "x": "input"}
ORDERED = (*FLOATS, *INTS, BOOL)  # dtypes with an order


def tensor(function: str, value: Any, dtypes: Sequence[np.dtype], argument: str = "input") -> Array:
    """`value` as an array; raises unless its dtype is in `dtypes`, which PyTorch supports for the function."""
    with name_function_in_errors(f"compat.torch.{function}"):
        x = as_array(value, argument)
        if x.dtype not in dtypes:
            rule = f"an array of {', '.join(str(dtype) for dtype in dtypes)}"
            raise wrong_dtype_error(argument, rule, x)
    return x


@contextlib.contextmanager
def call(function: str, x: Array, **context: Any) -> Iterator[None]:
    """Re-raise an `ArgumentError` in the name of `compat.torch.<function>` with PyTorch's argument names."""
    with name_function_in_errors(f"compat.torch.{function}", **{"input.shape": x.shape}, **context):
        try:
            yield
        except ArgumentError as error:
            name = NAMES.get(error.arg_name, error.arg_name)
            error.shown_name = name + error.shown_name.removeprefix(error.arg_name)
            error.arg_name = name
            raise


def check_shape(x: Array, rank: int, filled: int) -> None:
    """Raise unless x is `(N, C, *spatial)` or `(C, *spatial)` and its last `filled` axes are not empty."""
    if x.ndim not in (rank + 1, rank + 2):
        rule = f"an array of {rank + 1} or {rank + 2} axes, batch, channels and {rank} pooled"
        raise ArgumentError(
            "input", rule, x.ndim, "The batch axis may be left out.", attribute="ndim"
        )
    if 0 in x.shape[x.ndim - filled :]:
        rule = "an array with elements along all axes but the batch"
        raise ArgumentError("input", rule, x.shape, "Only a batch may be empty.", attribute="shape")


def spatial(x: Array, rank: int) -> tuple[int, ...]:
    """The pooled axes, the last `rank`."""
    return tuple(range(x.ndim - rank, x.ndim))


def no_windows(x: Array, rank: int, outs: Sequence[int], return_indices: Any) -> Result:
    """The empty result of a max pool whose output size contains 0."""
    shape = (*x.shape[: x.ndim - rank], *outs)
    y = jnp.zeros(shape, x.dtype)
    return (y, jnp.zeros(shape, jnp.int32)) if return_indices else y


def sizes(
    argument: str, value: Any, rank: int, *, least: int = 1, short: bool = True
) -> tuple[int, ...]:
    """One int of at least `least` per axis, from an int, from `rank` ints or, if `short`, from a tuple of one int."""
    rule = (
        f"an int or {rank} ints of at least {least}" if rank > 1 else f"one int, at least {least}"
    )
    hint = f"Pass a tuple such as {(2,) * rank}."
    entries = tuple(value) if is_tuple_or_list(value) else (value,)
    if not all(map(is_int, entries)):
        raise ArgumentError(argument, rule, value, hint, TypeError)
    if len(entries) == 1 and (short or not is_tuple_or_list(value)):
        entries = entries * rank
    entries = tuple(map(operator.index, entries))
    if len(entries) != rank or any(entry < least for entry in entries):
        raise ArgumentError(argument, rule, value, hint)
    if any(abs(entry) >= 2**63 for entry in entries):
        raise ArgumentError(argument, "below 2**63", value, "Pass a size that an array can have.")
    return entries


def windows(
    x: Array,
    rank: int,
    kernel_size: Any,
    stride: Any,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
) -> Window:
    """The windows of a pool over the last `rank` axes of x.

    With a dilation, a window may contain only padding. Its maximum is the lowest value, as in PyTorch.
    """
    kernel = sizes("kernel_size", kernel_size, rank)
    unset = stride is None or (is_tuple_or_list(stride) and not stride)
    strides = kernel if unset else sizes("stride", stride, rank)
    pads = sizes("padding", padding, rank, least=0)
    if any(pad > width // 2 for pad, width in zip(pads, kernel, strict=True)):
        raise ArgumentError("padding", "at most half the window", padding, "Use jaxpool.max_pool.")
    window = make_window(
        x.shape,
        kernel,
        strides,
        pads,
        window_dilation=sizes("dilation", dilation, rank),
        ceil_mode=ceil_mode,
        axes=spatial(x, rank),
        empty="allow",
    )
    by_window(x, window)  # raises if shards would have unequal sizes
    return window


def check_flag(argument: str, value: Any) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ArgumentError(argument, "True or False", value, "Pass a bool.", TypeError)


def axis_of(dim: Any, ndim: int, argument: str = "dim") -> int:
    """`dim` as a non-negative axis; a scalar accepts the axes 0 and -1."""
    count = max(ndim, 1)
    rule = f"an int from {-count} to {count - 1}"
    if not is_int(dim):
        raise ArgumentError(argument, rule, dim, "Pass an int.", TypeError)
    if not -count <= operator.index(dim) < count:
        raise ArgumentError(argument, rule, dim, "Name an axis of `input`.")
    return operator.index(dim) % count


def truth(argument: str, value: Any) -> bool:
    """`value` as a bool, for arguments that PyTorch only uses in an `if`: ints and None are valid too."""
    if not isinstance(value, (bool, int, np.bool_, type(None))):
        raise ArgumentError(argument, "True or False", value, "Pass a bool.", TypeError)
    return bool(value)


def also_numpy(function: Callable[P, R]) -> Callable[P, R]:
    """`function` with the keywords `axis` and `keepdims` as aliases of `dim` and `keepdim`, as in PyTorch."""
    accepted = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for alias, name in (("axis", "dim"), ("keepdims", "keepdim")):
            if alias in kwargs and name in accepted:
                with name_function_in_errors(f"compat.torch.{function.__name__}"):
                    if name in kwargs:
                        rule, hint = f"missing where `{name}` is given", "Pass one of the two."
                        raise ArgumentError(alias, rule, kwargs[alias], hint, TypeError)
                kwargs[name] = kwargs.pop(alias)
        return function(*args, **kwargs)

    return call
