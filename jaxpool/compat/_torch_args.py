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
from jaxpool._shards.split import sharded_windows

P = ParamSpec("P")
R = TypeVar("R")
IntOrInts = int | Sequence[int]
ValuesOrValuesAndIndices = Array | tuple[Array, Array]  # of a pool with `return_indices`

FLOAT_DTYPES = tuple(map(np.dtype, (np.float16, jnp.bfloat16, np.float32, np.float64)))
INT_DTYPES = tuple(map(np.dtype, (np.int8, np.uint8, np.int16, np.int32, np.int64)))
BOOL_DTYPE = np.dtype(np.bool_)
# PyTorch's names of jaxpool's arguments.
TORCH_ARGUMENT_NAMES = {"window_shape": "kernel_size", "output_shape": "output_size", "x": "input"}
ORDERED_DTYPES = (*FLOAT_DTYPES, *INT_DTYPES, BOOL_DTYPE)  # dtypes with an order


def as_array_of_dtypes(
    function_name: str, value: Any, accepted_dtypes: Sequence[np.dtype], arg_name: str = "input"
) -> Array:
    """`value` as an array; raises unless its dtype is in `accepted_dtypes`, which PyTorch supports for the function."""
    with name_function_in_errors(f"compat.torch.{function_name}"):
        x = as_array(value, arg_name)
        if x.dtype not in accepted_dtypes:
            rule = f"an array of {', '.join(str(dtype) for dtype in accepted_dtypes)}"
            raise wrong_dtype_error(arg_name, rule, x)
    return x


@contextlib.contextmanager
def name_torch_function_in_errors(
    function_name: str, x: Array, **shown_arguments: Any
) -> Iterator[None]:
    """Re-raise an `ArgumentError` in the name of `compat.torch.<function>` with PyTorch's argument names."""
    with name_function_in_errors(
        f"compat.torch.{function_name}", **{"input.shape": x.shape}, **shown_arguments
    ):
        try:
            yield
        except ArgumentError as error:
            error.arg_name = TORCH_ARGUMENT_NAMES.get(error.arg_name, error.arg_name)
            raise


def check_shape(x: Array, num_spatial_dims: int, num_nonempty_axes: int) -> None:
    """Raise unless x is `(N, C, *spatial)` or `(C, *spatial)` and its last `num_nonempty_axes` axes are not empty."""
    if x.ndim not in (num_spatial_dims + 1, num_spatial_dims + 2):
        ndims = f"{num_spatial_dims + 1} or {num_spatial_dims + 2}"
        rule = f"an array of {ndims} axes, batch, channels and {num_spatial_dims} pooled"
        hint = "The batch axis may be left out."
        raise ArgumentError("input", rule, x.ndim, hint, attribute="ndim")
    if 0 in x.shape[x.ndim - num_nonempty_axes :]:
        rule = "an array with elements along all axes but the batch"
        raise ArgumentError("input", rule, x.shape, "Only a batch may be empty.", attribute="shape")


def spatial_axes(x: Array, num_spatial_dims: int) -> tuple[int, ...]:
    """The pooled axes, the last `num_spatial_dims`."""
    return tuple(range(x.ndim - num_spatial_dims, x.ndim))


def empty_pool_result(
    x: Array, num_spatial_dims: int, output_size: Sequence[int], return_indices: Any
) -> ValuesOrValuesAndIndices:
    """The empty result of a max pool whose output size contains 0."""
    shape = (*x.shape[: x.ndim - num_spatial_dims], *output_size)
    y = jnp.zeros(shape, x.dtype)
    return (y, jnp.zeros(shape, jnp.int32)) if return_indices else y


def ints_per_spatial_dim(
    arg_name: str,
    value: Any,
    num_spatial_dims: int,
    *,
    min_value: int = 1,
    accept_one_entry: bool = True,
) -> tuple[int, ...]:
    """One int of at least `min_value` per axis, from an int or from `num_spatial_dims` ints.

    With `accept_one_entry`, a tuple of one int counts for all axes.
    """
    rule = (
        f"an int or {num_spatial_dims} ints of at least {min_value}"
        if num_spatial_dims > 1
        else f"one int, at least {min_value}"
    )
    hint = f"Pass a tuple such as {(2,) * num_spatial_dims}."
    entries = tuple(value) if is_tuple_or_list(value) else (value,)
    if not all(map(is_int, entries)):
        raise ArgumentError(arg_name, rule, value, hint, TypeError)
    if len(entries) == 1 and (accept_one_entry or not is_tuple_or_list(value)):
        entries = entries * num_spatial_dims
    entries = tuple(map(operator.index, entries))
    if len(entries) != num_spatial_dims or any(entry < min_value for entry in entries):
        raise ArgumentError(arg_name, rule, value, hint)
    if any(abs(entry) >= 2**63 for entry in entries):
        raise ArgumentError(arg_name, "below 2**63", value, "Pass a size that an array can have.")
    return entries


def make_torch_window(
    x: Array,
    num_spatial_dims: int,
    kernel_size: Any,
    stride: Any,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
) -> Window:
    """The windows of a pool over the last `num_spatial_dims` axes of x.

    With a dilation, a window may contain only padding. The maximum of such a window is the lowest value, as in PyTorch.
    """
    window_sizes = ints_per_spatial_dim("kernel_size", kernel_size, num_spatial_dims)
    is_unset = stride is None or (is_tuple_or_list(stride) and not stride)
    strides = window_sizes if is_unset else ints_per_spatial_dim("stride", stride, num_spatial_dims)
    pads = ints_per_spatial_dim("padding", padding, num_spatial_dims, min_value=0)
    if any(pad > width // 2 for pad, width in zip(pads, window_sizes, strict=True)):
        raise ArgumentError("padding", "at most half the window", padding, "Use jaxpool.max_pool.")
    window = make_window(
        x.shape,
        window_sizes,
        strides,
        pads,
        window_dilation=ints_per_spatial_dim("dilation", dilation, num_spatial_dims),
        ceil_mode=ceil_mode,
        axes=spatial_axes(x, num_spatial_dims),
        empty_windows="allow",
    )
    sharded_windows(x, window)  # raises if shards would have unequal sizes
    return window


def normalise_dim(dim: Any, ndim: int, arg_name: str = "dim") -> int:
    """`dim` as a non-negative axis; a scalar accepts the axes 0 and -1."""
    num_axes = max(ndim, 1)
    rule = f"an int from {-num_axes} to {num_axes - 1}"
    if not is_int(dim):
        raise ArgumentError(arg_name, rule, dim, "Pass an int.", TypeError)
    if not -num_axes <= operator.index(dim) < num_axes:
        raise ArgumentError(arg_name, rule, dim, "Name an axis of `input`.")
    return operator.index(dim) % num_axes


def as_bool(arg_name: str, value: Any) -> bool:
    """`value` as a bool, for arguments that PyTorch only uses in an `if`: ints and None are valid too."""
    if not isinstance(value, (bool, int, np.bool_, type(None))):
        raise ArgumentError(arg_name, "True or False", value, "Pass a bool.", TypeError)
    return bool(value)


def accept_numpy_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """`function` with the keywords `axis` and `keepdims` as aliases of `dim` and `keepdim`, as in PyTorch."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for alias, torch_name in (("axis", "dim"), ("keepdims", "keepdim")):
            if alias in kwargs and torch_name in parameters:
                with name_function_in_errors(f"compat.torch.{function.__name__}"):
                    if torch_name in kwargs:
                        rule = f"missing where `{torch_name}` is given"
                        hint = "Pass one of the two."
                        raise ArgumentError(alias, rule, kwargs[alias], hint, TypeError)
                kwargs[torch_name] = kwargs.pop(alias)
        return function(*args, **kwargs)

    return wrapper
