"""Windows reduced by one instruction of XLA, and the transpose of their sums by another.

A TPU has hardware for it, a GPU reads the array once. Where XLA for CPU would not vectorise it, no plan asks
for it.

    stride 2, window 3      dy      a   b   c
    its transpose           dy      a . b . c          a zero for each position between two windows
                            dx     [a .]b . c          sums of neighbours, stride 1
                                    a[. b]. c
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis
from jaxpool._kernels import slices
from jaxpool._kernels.compare import decode, decoded_losing, encode
from jaxpool._kernels.dtypes import Kind, losing
from jaxpool._kernels.handover import handover


def window_extreme(x: Array, kind: Kind, dims: Sequence[Axis]) -> Array:
    """The largest or smallest element of each window. Of zeros of both signs it may be either."""
    join = lax.max if kind == "max" else lax.min
    if x.dtype in (jnp.bfloat16, jnp.float16):
        return _reduced(x, losing(x.dtype, kind), join, dims)
    return encode(_reduced(decode(x), decoded_losing(x.dtype, kind), join, dims), x.dtype)


def window_total(x: Array, dims: Sequence[Axis]) -> Array:
    """The sum over each window, in the type of x."""
    return _reduced(x, np.zeros((), x.dtype), lax.add, dims)


def window_total_transposed(dy: Array, dims: Sequence[Axis]) -> Array:
    """The transpose of `window_total`."""
    sums, crop = [], []
    for dim in dims:
        low = dim.span - 1 - dim.low
        high = dim.size + dim.low - (dim.out - 1) * dim.stride - 1
        after = dim.size - min(low, 0) - min(high, 0)
        sums.append(dataclasses.replace(dim, stride=1, low=max(low, 0), out=after))
        crop.append((min(low, 0), min(high, 0), 0))
    apart = {dim.axis: dim.stride for dim in dims}
    dx = _reduced(dy, np.zeros((), dy.dtype), lax.add, sums, apart)
    return slices.pad(dx, [dim.axis for dim in dims], crop, 0)


def _reduced(
    x: Array,
    fill: Any,
    join: Callable[..., Any],
    dims: Sequence[Axis],
    apart: Mapping[int, int] | None = None,
) -> Array:
    """Windows joined; elements of x stand `apart` positions from each other, with `fill` in between."""
    sizes, strides, dilation, base = ([1] * x.ndim for _ in range(4))
    padding = [(0, 0)] * x.ndim
    for dim in dims:
        base[dim.axis] = (apart or {}).get(dim.axis, 1)
        sizes[dim.axis], strides[dim.axis], dilation[dim.axis] = (
            dim.window,
            dim.stride,
            dim.dilation,
        )
        size = (x.shape[dim.axis] - 1) * base[dim.axis] + 1
        padding[dim.axis] = dim.low, max(dim.needed - dim.low - size, 0)
    with handover(None):  # it is lax's own that is wanted, under `accelerate` too
        return lax.reduce_window(
            x,
            fill[()],
            join,
            sizes,
            strides,
            padding,
            base_dilation=base,
            window_dilation=dilation,
        )
