"""What PyTorch's functions take: its sizes, shapes and types."""

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

from jaxpool._arguments.arrays import as_array, wrong_dtype
from jaxpool._arguments.errors import ArgumentError, calling
from jaxpool._arguments.sizes import is_int, is_sequence
from jaxpool._geometry.window import Window, make_window
from jaxpool._shards.split import by_window

P = ParamSpec("P")
R = TypeVar("R")
Sizes = int | Sequence[int]
Result = Array | tuple[Array, Array]  # of a pool that can return positions too

FLOATS = tuple(map(np.dtype, (np.float16, jnp.bfloat16, np.float32, np.float64)))
INTS = tuple(map(np.dtype, (np.int8, np.uint8, np.int16, np.int32, np.int64)))
BOOL = np.dtype(np.bool_)
NAMES = {
    "window_shape": "kernel_size",
    "output_shape": "output_size",
    "x": "input",
}  # of ours, PyTorch's
ORDERED = (*FLOATS, *INTS, BOOL)  # what has a larger and a smaller


def tensor(function: str, value: Any, dtypes: Sequence[np.dtype], argument: str = "input") -> Array:
    """`value` as an array of one of `dtypes`, those for which PyTorch has the function."""
    with calling(f"compat.torch.{function}"):
        x = as_array(value, argument)
        if x.dtype not in dtypes:
            rule = f"an array of {', '.join(str(dtype) for dtype in dtypes)}"
            raise wrong_dtype(argument, rule, x)
    return x


@contextlib.contextmanager
def call(function: str, x: Array, **context: Any) -> Iterator[None]:
    """Turns an `ArgumentError` into an exception in the name of `compat.torch.<function>` and in its words."""
    with calling(f"compat.torch.{function}", **{"input.shape": x.shape}, **context):
        try:
            yield
        except ArgumentError as error:
            name = NAMES.get(error.argument, error.argument)
            error.source = name + error.source.removeprefix(error.argument)
            error.argument = name
            raise


def check_shape(x: Array, rank: int, filled: int) -> None:
    """Raises unless x is `(N, C, *spatial)` or `(C, *spatial)`, with elements along the last `filled` axes."""
    if x.ndim not in (rank + 1, rank + 2):
        rule = f"an array of {rank + 1} or {rank + 2} axes, batch, channels and {rank} pooled"
        raise ArgumentError("input", rule, x.ndim, "The batch axis may be left out.", of="ndim")
    if 0 in x.shape[x.ndim - filled :]:
        rule = "an array with elements along all axes but the batch"
        raise ArgumentError("input", rule, x.shape, "Only a batch may be empty.", of="shape")


def spatial(x: Array, rank: int) -> tuple[int, ...]:
    """The pooled axes, the last `rank`."""
    return tuple(range(x.ndim - rank, x.ndim))


def no_windows(x: Array, rank: int, outs: Sequence[int], return_indices: Any) -> Result:
    """What a max pool gives for an output size with a 0 in it: arrays without elements."""
    shape = (*x.shape[: x.ndim - rank], *outs)
    y = jnp.zeros(shape, x.dtype)
    return (y, jnp.zeros(shape, jnp.int32)) if return_indices else y


def sizes(
    argument: str, value: Any, rank: int, *, least: int = 1, short: bool = True
) -> tuple[int, ...]:
    """One int of at least `least` an axis from an int, `rank` ints or, if `short`, one in a tuple."""
    rule = (
        f"an int or {rank} ints of at least {least}" if rank > 1 else f"one int, at least {least}"
    )
    hint = f"Pass a tuple such as {(2,) * rank}."
    entries = tuple(value) if is_sequence(value) else (value,)
    if not all(map(is_int, entries)):
        raise ArgumentError(argument, rule, value, hint, TypeError)
    if len(entries) == 1 and (short or not is_sequence(value)):
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

    With a dilation, a window may lie on padding alone; it gives the least value, as in PyTorch.
    """
    kernel = sizes("kernel_size", kernel_size, rank)
    unset = stride is None or (is_sequence(stride) and not stride)
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
    by_window(x, window)  # raises where shards would not be of one size
    return window


def check_flag(argument: str, value: Any) -> None:
    """Raises unless `value` is True or False."""
    if not isinstance(value, bool):
        raise ArgumentError(argument, "True or False", value, "Pass a bool.", TypeError)


def axis_of(dim: Any, ndim: int, argument: str = "dim") -> int:
    """`dim` as a non-negative axis; an array without axes has axis 0 and axis -1."""
    count = max(ndim, 1)
    rule = f"an int from {-count} to {count - 1}"
    if not is_int(dim):
        raise ArgumentError(argument, rule, dim, "Pass an int.", TypeError)
    if not -count <= operator.index(dim) < count:
        raise ArgumentError(argument, rule, dim, "Name an axis of `input`.")
    return operator.index(dim) % count


def truth(argument: str, value: Any) -> bool:
    """`value` as PyTorch takes it where it leaves it to Python's `if`: an int and None count too."""
    if not isinstance(value, (bool, int, np.bool_, type(None))):
        raise ArgumentError(argument, "True or False", value, "Pass a bool.", TypeError)
    return bool(value)


def also_numpy(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which takes `axis` and `keepdims` for `dim` and `keepdim` too, by name, as PyTorch's does."""
    accepted = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for theirs, name in (("axis", "dim"), ("keepdims", "keepdim")):
            if theirs in kwargs and name in accepted:
                with calling(f"compat.torch.{function.__name__}"):
                    if name in kwargs:
                        rule, hint = f"missing where `{name}` is given", "Pass one of the two."
                        raise ArgumentError(theirs, rule, kwargs[theirs], hint, TypeError)
                kwargs[name] = kwargs.pop(theirs)
        return function(*args, **kwargs)

    return call
