"""Windows reduced by one instruction of XLA, and the transpose of their sums, which is another.

A TPU has hardware for it, a GPU reads the array once. Where XLA for CPU would not vectorise it, no plan asks
for it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis
from jaxpool._kernels import slices
from jaxpool._kernels.compare import decode, decoded_losing, encode
from jaxpool._kernels.dtypes import Kind, losing

# Whether a reduction of lax is bound by a kernel, whose own it then is: `accelerate` takes over those of programs.
# A user context of jax, made with the module: jax asks that contexts are not made while other threads use it.
in_kernel = jax.make_user_context(False)


def window_extreme(x: Array, kind: Kind, dims: Sequence[Axis]) -> Array:
    """The largest or smallest element of each window. Of zeros of both signs it may be either."""
    join = lax.max if kind == "max" else lax.min
    if x.dtype in (jnp.bfloat16, jnp.float16):
        return _reduced(x, losing(x.dtype, kind), join, dims)
    return encode(_reduced(decode(x), decoded_losing(x.dtype, kind), join, dims), x.dtype)


def group_extremes(x: Array, kind: Kind, groups: Sequence[Sequence[Axis]]) -> list[Array]:
    """x, that reduced by the last group of axes, by the one before too, and so on to all of them."""
    found = [x]
    for group in reversed(groups):
        found.append(window_extreme(found[-1], kind, group))
    return found


def window_total(x: Array, dims: Sequence[Axis]) -> Array:
    """The sum over each window, in the type of x."""
    return _reduced(x, np.zeros((), x.dtype), lax.add, dims)


def window_total_transposed(dy: Array, dims: Sequence[Axis]) -> Array:
    """The transpose of `window_total`: jax's is a sum of neighbours of dy with zeros in between."""
    x = slices.zeros_like(dy, [dim.axis for dim in dims], [dim.size for dim in dims])
    with in_kernel(True):  # transposed, the sum is bound anew
        return jax.linear_transpose(lambda x: window_total(x, dims), x)(dy)[0]


def _reduced(x: Array, fill: Any, join: Callable[..., Any], dims: Sequence[Axis]) -> Array:
    sizes, strides, dilation = ([1] * x.ndim for _ in range(3))
    padding = [(0, 0)] * x.ndim
    for dim in dims:
        axis, padding[dim.axis] = dim.axis, (dim.low, max(dim.tail, 0))
        sizes[axis], strides[axis], dilation[axis] = dim.window, dim.stride, dim.dilation
    with in_kernel(True):
        return lax.reduce_window(
            x, fill[()], join, sizes, strides, padding, window_dilation=dilation
        )
