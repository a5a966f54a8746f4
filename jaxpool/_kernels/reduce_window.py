"""Window reductions by `lax.reduce_window`, and the transpose of window sums.

TPUs have hardware for `reduce_window`, and GPUs read the array only once. Plans for CPU avoid `reduce_window` where XLA
would not vectorise the instruction.
"""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import Array, lax

from jaxpool._geometry.window import Axis
from jaxpool._kernels import dtypes, slices
from jaxpool._kernels.dtypes import Kind
from jaxpool._kernels.slices import Ints

Pairs = Sequence[tuple[int, int]]  # low and high padding of each axis

# True while a kernel binds a reduction of lax, which `accelerate` must not replace. The user context is created on
# import, because jax asks programs not to create user contexts while other threads use jax.
in_kernel = jax.make_user_context(False)


def reduce_window_extremum(x: Array, kind: Kind, dims: Sequence[Axis]) -> Array:
    """Maximum or minimum of each window. If zeros of both signs tie, the sign of the result is arbitrary."""
    join = lax.max if kind == "max" else lax.min
    if dtypes.is_16_bit_float(x.dtype):
        return _bind_reduce_window(x, dtypes.reduction_identity(x.dtype, kind), join, dims)
    key, identity = dtypes.to_comparison_dtype(x), dtypes.comparison_dtype_identity(x.dtype, kind)
    return dtypes.from_comparison_dtype(_bind_reduce_window(key, identity, join, dims), x.dtype)


def extrema_per_axis_group(x: Array, kind: Kind, groups: Sequence[Sequence[Axis]]) -> list[Array]:
    """Return [x, ...], where each entry pools the entry before over one of `groups` of axes, the last group first."""
    results = [x]
    for group in reversed(groups):
        results.append(reduce_window_extremum(results[-1], kind, group))
    return results


def reduce_window_sum(x: Array, dims: Sequence[Axis]) -> Array:
    """Sum over each window, in the dtype of x."""
    return _bind_reduce_window(x, np.zeros((), x.dtype), lax.add, dims)


def reduce_window_sum_transpose(dy: Array, dims: Sequence[Axis]) -> Array:
    """Transpose of `reduce_window_sum`, by `jax.linear_transpose`: a window sum of dy dilated with zeros."""
    x = slices.zeros_like_with_sizes(dy, [dim.axis for dim in dims], [dim.size for dim in dims])
    with in_kernel(True):  # the transpose binds a new `reduce_window`
        return jax.linear_transpose(lambda x: reduce_window_sum(x, dims), x)(dy)[0]


def window_parameters(dims: Sequence[Axis], ndim: int) -> tuple[Ints, Ints, Pairs, Ints]:
    """Window sizes, strides, padding and dilation of all axes, as XLA's windowed instructions take them."""
    sizes, strides, dilation = ([1] * ndim for _ in range(3))
    padding = [(0, 0)] * ndim
    for dim in dims:
        axis, padding[dim.axis] = dim.axis, (dim.low, max(dim.used_high, 0))
        sizes[axis], strides[axis], dilation[axis] = dim.window, dim.stride, dim.dilation
    return tuple(sizes), tuple(strides), tuple(padding), tuple(dilation)


def _bind_reduce_window(
    x: Array, identity: np.ndarray, binary_op: Callable[[Array, Array], Array], dims: Sequence[Axis]
) -> Array:
    sizes, strides, padding, dilation = window_parameters(dims, x.ndim)
    with in_kernel(True):
        return lax.reduce_window(
            x, identity[()], binary_op, sizes, strides, padding, window_dilation=dilation
        )
