"""Windows reduced by one instruction of XLA, and the transpose of their sums by another.

A TPU has hardware for it, a GPU reads the array once. Where XLA for CPU would not vectorise it, no plan asks
for it.

    stride 2, window 3      dy      a   b   c
    its transpose           dy      a . b . c          a zero for each position between two windows
                            dx     [a .]b . c          sums of neighbours, stride 1
                                    a[. b]. c
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis
from jaxpool._kernels import slices
from jaxpool._kernels.compare import decode, decoded_losing, encode
from jaxpool._kernels.dtypes import Kind, losing


def window_extreme(x: Array, kind: Kind, dims: Sequence[Axis]) -> Array:
    """The largest or smallest element of each window. Of zeros of both signs it may be either."""
    join = lax.max if kind == "max" else lax.min
    if x.dtype in (jnp.bfloat16, jnp.float16):
        return _reduced(x, losing(x.dtype, kind), join, dims)
    return encode(_reduced(decode(x), decoded_losing(x.dtype, kind), join, dims), x.dtype)


def window_total(x: Array, dims: Sequence[Axis]) -> Array:
    """The sum over each window, in the type of x."""
    return _reduced(x, np.zeros((), x.dtype), lax.add, dims)


def _reduced(x: Array, fill: Any, join: Callable[..., Any], dims: Sequence[Axis]) -> Array:
    sizes, strides, dilation, padding = _full(x.ndim)
    for dim in dims:
        sizes[dim.axis], strides[dim.axis], dilation[dim.axis] = (
            dim.window,
            dim.stride,
            dim.dilation,
        )
        padding[dim.axis] = dim.low, max(dim.tail, 0)
    return lax.reduce_window(x, fill[()], join, sizes, strides, padding, window_dilation=dilation)


def window_total_transposed(dy: Array, dims: Sequence[Axis]) -> Array:
    """The transpose of `window_total`."""
    sizes, apart, dilation, padding = _full(dy.ndim)
    crop = []
    for dim in dims:
        sizes[dim.axis], apart[dim.axis], dilation[dim.axis] = dim.window, dim.stride, dim.dilation
        low = dim.span - 1 - dim.low
        high = dim.size + dim.low - (dim.out - 1) * dim.stride - 1
        padding[dim.axis] = max(low, 0), max(high, 0)
        crop.append((min(low, 0), min(high, 0), 0))
    zero = np.zeros((), dy.dtype)[()]
    dx = lax.reduce_window(
        dy,
        zero,
        lax.add,
        sizes,
        [1] * dy.ndim,
        padding,
        base_dilation=apart,
        window_dilation=dilation,
    )
    return slices.pad(dx, [dim.axis for dim in dims], crop, 0)


def _full(ndim: int) -> tuple[list[int], list[int], list[int], list[tuple[int, int]]]:
    """Sizes, strides, dilation and padding of windows of one element."""
    return [1] * ndim, [1] * ndim, [1] * ndim, [(0, 0)] * ndim
