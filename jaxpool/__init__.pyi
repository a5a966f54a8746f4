"""Signatures and docstrings of the public functions, for editors and type checkers.

Written by `python -m tests.docs.written`. The comment above a function names the file that defines it.
"""

from collections.abc import Callable
from collections.abc import Sequence
from jax import Array
from jax.sharding import AbstractMesh
from jax.sharding import Mesh
from jax.sharding import PartitionSpec
from jaxpool._accelerate.accelerate import F
from jaxpool._accelerate.bind import ReportCallback
from jaxpool._api.peaks import PeakTies
from jaxpool._api.plan_of import Plans
from jaxpool._api.rank import MedianMethod
from jaxpool._api.reduce import AxisArgument
from jaxpool._api.sharded import P
from jaxpool._api.sharded import R
from jaxpool._arguments.arrays import ArrayArgument
from jaxpool._arguments.arrays import MaskArgument
from jaxpool._arguments.arrays import PyTree
from jaxpool._arguments.sizes import Axes
from jaxpool._arguments.sizes import IntOrInts
from jaxpool._arguments.sizes import Padding
from jaxpool._geometry.adaptive import OutputSizes
from jaxpool._kernels.dtypes import Ties
from jaxpool._ops.apply import Autodiff
from jaxpool._ops.cumulative import FirstOrLast
from typing import Literal
from typing import overload
import contextlib
from jaxpool import compat as compat, testing as testing

__version__: str
__all__ = [
    "accelerate",
    "accelerated",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "adaptive_max_pool_with_argmax",
    "avg_pool",
    "blur_pool",
    "cummax",
    "cummax_with_argmax",
    "cummin",
    "cummin_with_argmax",
    "dilate",
    "erode",
    "fmax",
    "fmin",
    "fractional_avg_pool",
    "fractional_max_pool",
    "gem_pool",
    "global_avg_pool",
    "global_max_pool",
    "k_max_pool",
    "keep_memory",
    "local_maxima",
    "local_minima",
    "logsumexp_pool",
    "lp_pool",
    "max",
    "max_blur_pool",
    "max_pool",
    "max_pool_with_argmax",
    "max_unpool",
    "maximum",
    "maxout",
    "median_pool",
    "min",
    "min_pool",
    "minimum",
    "multilevel_roi_align",
    "plan_of",
    "rank_pool",
    "roi_align",
    "roi_max_pool",
    "segment_logsumexp",
    "segment_max",
    "segment_max_with_argmax",
    "segment_mean",
    "segment_min",
    "segment_softmax",
    "segment_sum",
    "sharded",
    "softmax_pool",
    "spatial_pyramid_pool",
    "stochastic_pool",
    "sum_pool",
]

# jaxpool/_accelerate/accelerate.py
@overload
def accelerate(fn: F, *, report: ReportCallback | None = None) -> F:
    """`fn` with its windowed max, min and sum, and their derivatives, computed by jaxpool.

    Works on a forward pass or a whole train step of any library. The function may contain `grad`, `jit`, `scan`,
    `while_loop`, `cond`, `checkpoint`, `vmap`, `shard_map` and functions with custom derivatives. The result composes
    with them too: `jax.jit(accelerate(f))`, `accelerate(jax.jit(f))`, `jax.grad(accelerate(f))`. Names, signature,
    donation and static arguments stay. Reductions that cannot be replaced run as before. A function jitted before is
    traced once more when it is called from here.

    Gradient: the gradient of `max_pool` or `min_pool` with `ties="first"`, or of `sum_pool`. Forward and reverse mode,
    any order. It equals the gradient of lax if that is correct, bit for bit if windows are disjoint.

    Args:
      fn: a train step, a loss, `model.apply` (Flax Linen, Haiku) or `model.fit` (Keras), jitted or not. State that it
        changes in place is changed in place. Objects that hold parameters raise: as functions they would hide the
        parameters from `jax.grad`. With `report` alone, the result is a decorator: `@jaxpool.accelerate(report=print)`.
      report: called once with each reduction, when it is traced, such as `print` or `reports.append`. A reduction has
        `kind`, `shape`, `where`, `taken_over`, and the `reason` if it stays with lax. A first call without any
        reduction is reported with the kind "none". With `report`, functions that were jitted before are traced
        again for this call of `accelerate`.

    Returns:
      A function with the arguments and results of fn, and with its `lower`, `trace` and `eval_shape` if fn is jitted.
      It can be pickled and copied if fn and `report` can.

    Raises:
      TypeError: fn is a model, a class, a generator or coroutine function, or a compiled program.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jax import lax
      >>> import jaxpool
      >>> def loss(x):
      ...     return lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID").sum()
      >>> x = jnp.array([1.0, jnp.nan, 5.0, 2.0])
      >>> jax.grad(jaxpool.accelerate(loss))(x)
      Array([0., 1., 1., 0.], dtype=float32)
      >>> reports = []
      >>> jaxpool.accelerate(loss, report=reports.append)(x)
      Array(nan, dtype=float32)
      >>> [(reduction.kind, reduction.taken_over) for reduction in reports]
      [('max', True)]

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """
@overload
def accelerate(*, report: ReportCallback) -> Callable[[F], F]:
    """`fn` with its windowed max, min and sum, and their derivatives, computed by jaxpool.

    Works on a forward pass or a whole train step of any library. The function may contain `grad`, `jit`, `scan`,
    `while_loop`, `cond`, `checkpoint`, `vmap`, `shard_map` and functions with custom derivatives. The result composes
    with them too: `jax.jit(accelerate(f))`, `accelerate(jax.jit(f))`, `jax.grad(accelerate(f))`. Names, signature,
    donation and static arguments stay. Reductions that cannot be replaced run as before. A function jitted before is
    traced once more when it is called from here.

    Gradient: the gradient of `max_pool` or `min_pool` with `ties="first"`, or of `sum_pool`. Forward and reverse mode,
    any order. It equals the gradient of lax if that is correct, bit for bit if windows are disjoint.

    Args:
      fn: a train step, a loss, `model.apply` (Flax Linen, Haiku) or `model.fit` (Keras), jitted or not. State that it
        changes in place is changed in place. Objects that hold parameters raise: as functions they would hide the
        parameters from `jax.grad`. With `report` alone, the result is a decorator: `@jaxpool.accelerate(report=print)`.
      report: called once with each reduction, when it is traced, such as `print` or `reports.append`. A reduction has
        `kind`, `shape`, `where`, `taken_over`, and the `reason` if it stays with lax. A first call without any
        reduction is reported with the kind "none". With `report`, functions that were jitted before are traced
        again for this call of `accelerate`.

    Returns:
      A function with the arguments and results of fn, and with its `lower`, `trace` and `eval_shape` if fn is jitted.
      It can be pickled and copied if fn and `report` can.

    Raises:
      TypeError: fn is a model, a class, a generator or coroutine function, or a compiled program.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jax import lax
      >>> import jaxpool
      >>> def loss(x):
      ...     return lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID").sum()
      >>> x = jnp.array([1.0, jnp.nan, 5.0, 2.0])
      >>> jax.grad(jaxpool.accelerate(loss))(x)
      Array([0., 1., 1., 0.], dtype=float32)
      >>> reports = []
      >>> jaxpool.accelerate(loss, report=reports.append)(x)
      Array(nan, dtype=float32)
      >>> [(reduction.kind, reduction.taken_over) for reduction in reports]
      [('max', True)]

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """

# jaxpool/_accelerate/accelerate.py
def accelerated(*, report: ReportCallback | None = None) -> contextlib.AbstractContextManager[None]:
    """A context manager under which jaxpool computes windowed max, min and sum, and their derivatives.

    It is `accelerate` for everything that runs or is traced in a block of code, such as the cells of a notebook, in
    this thread. A function jitted before is traced once more when it is called from the block. A pullback made in the
    block uses jaxpool also after the block. For a whole program with all its threads use `python -m jaxpool run`.

    Gradient: see `accelerate`.

    Args:
      report: called once with each reduction, when it is traced. See `accelerate`.

    Returns:
      A context manager for one block. With JAXPOOL_DISABLE=1 in the environment, neither it nor `accelerate` changes
      anything.

    Raises:
      TypeError: `report` cannot be called.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jax import lax
      >>> import jaxpool
      >>> def loss(x):
      ...     return lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID").sum()
      >>> with jaxpool.accelerated(report=lambda reduction: print(reduction.kind, reduction.taken_over)):
      ...     jax.grad(loss)(jnp.array([1.0, jnp.nan, 5.0, 2.0]))
      max True
      Array([0., 1., 1., 0.], dtype=float32)

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """

# jaxpool/_api/adaptive.py
def adaptive_avg_pool(
    x: ArrayArgument, output_shape: OutputSizes, *, axes: Axes = None, autodiff: Autodiff = "vjp"
) -> Array:
    """Computes the average of each window, for `output_shape` windows per axis.

    `y[b, i, j, c] = mean of x[b, h, w, c]` over the windows of `adaptive_max_pool`. If N divides H and M divides W,
    with the letters used there, this is `avg_pool` with windows and strides of `(H / N, W / M)`.

    Gradient: every element of a window gets an equal part of its cotangent, and overlapping windows add up.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool. Pooled axes have a known size of at least 1.
      output_shape: the number of windows along each pooled axis, as in `adaptive_max_pool`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last axis.
      autodiff: "vjp", or "jvp" for forward mode and `jax.linear_transpose` too.

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x, or of
      `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.arange(10.0)[:, None]
      >>> jaxpool.adaptive_avg_pool(x, (4,)).ravel()
      Array([1., 3., 6., 8.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.adaptive_avg_pool(x, (2,)).sum())(x[:4]).ravel()
      Array([0.5, 0.5, 0.5, 0.5], dtype=float32)

    References:
      `torch.nn.functional.adaptive_avg_pool2d` has the same windows; `equinox.nn.AdaptiveAvgPool2d` has other windows
      if N does not divide H.
    """

# jaxpool/_api/adaptive.py
def adaptive_max_pool(
    x: ArrayArgument,
    output_shape: OutputSizes,
    *,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the largest element of each window, for `output_shape` windows per axis.

    `y[b, i, j, c] = max of x[b, h, w, c]` over `floor(i * H / N) <= h < ceil((i + 1) * H / N)` and `floor(j * W / M) <=
    w < ceil((j + 1) * W / M)`, with B batch, H W spatial, C channels, and N M the `output_shape`. Any number of axes
    can be pooled. Windows cover the input; neighbours may overlap, by one position if there are no more windows than
    positions. If N divides H and M divides W, this is `max_pool` with windows and strides of `(H / N, W / M)`.

    Gradient: as in `max_pool`, to the selected element. NaN is larger than every number; -inf is an ordinary value.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool (max is "or").
        Pooled axes have a known size of at least 1; batch and channel axes may have size 0.
      output_shape: the number of windows along each pooled axis, a positive int of at most the size of the axis plus
        2**20. None keeps the size of an axis. A single int needs `axes`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last, in row-major order of `axes`.
      ties: which of equal elements gets the cotangent: the "first", the "last", or all of them,
        equal parts ("split").
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 2.0, 5.0, 4.0])[:, None]
      >>> jaxpool.adaptive_max_pool(x, (3,)).ravel()
      Array([3., 5., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.adaptive_max_pool(x, (3,)).sum())(x).ravel()
      Array([0., 1., 0., 2., 0.], dtype=float32)

    References:
      `torch.nn.functional.adaptive_max_pool2d` has the same windows, but selects the last NaN of a window.
    """

# jaxpool/_api/adaptive.py
def adaptive_max_pool_with_argmax(
    x: ArrayArgument,
    output_shape: OutputSizes,
    *,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the largest element of each window and its position, for `output_shape` windows per axis.

    y is the result of `adaptive_max_pool`, and `indices[b, i, j, c] = h * W + w` for the selected element
    `x[b, h, w, c]`, with B batch, H W spatial, C channels. `max_unpool` takes these indices.

    Gradient: y has the gradient of `adaptive_max_pool`; the integers `indices` have no gradient. In a window with a
    NaN, `ties` selects a NaN and its index.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool. The pooled axes have fewer than 2**31 positions.
      output_shape: the number of windows along each pooled axis, as in `adaptive_max_pool`.
      axes: the pooled axes, as in `adaptive_max_pool`. Indices are row-major in the order of `axes`.
      ties: as in `max_pool_with_argmax`: the "first", the "last" or "split", for the cotangent and the index.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      y, the result of `adaptive_max_pool`, and `indices`, an int32 array of the same shape.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1, 3, 2], [7, 5, 6]])
      >>> y, indices = jaxpool.adaptive_max_pool_with_argmax(x, (1, 2), axes=(0, 1))
      >>> y, indices
      (Array([[7, 6]], dtype=int32), Array([[3, 5]], dtype=int32))

    References:
      `torch.nn.functional.adaptive_max_pool2d` with `return_indices=True`.
    """

# jaxpool/_api/avg_pool.py
def avg_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    count_include_pad: bool = True,
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    divisor: float | None = None,
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the average of each window.

    `y[b, i, j, c] = 1 / n * sum over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, with the letters of
    `max_pool`. Padding counts as 0. n is the size of the window, the number of its real elements, or `divisor`.

    Gradient: every real element of a window gets `dy / n`, and overlapping windows add up.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      count_include_pad: True divides by the size of the window, which includes padding but not the positions that
        `ceil_mode` adds. False divides by the number of real elements that `where` includes.
      where: the elements to include, as in `max_pool`. With `count_include_pad=False` y is their mean, 0 without any.
      divisor: a number other than 0 to divide by, instead of a count.
      autodiff: "vjp", or "jvp" for forward mode and `jax.linear_transpose` too.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 2.0, 6.0])[:, None]
      >>> jaxpool.avg_pool(x, (2,), (2,)).ravel()
      Array([2., 4.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.avg_pool(x, (2,), (1,)).sum())(x).ravel()
      Array([0.5, 1. , 1. , 0.5], dtype=float32)
      >>> mask = jnp.array([True, True, True, False])[:, None]
      >>> jaxpool.avg_pool(x, (2,), (2,), count_include_pad=False, where=mask).ravel()
      Array([2., 2.], dtype=float32)

    References:
      `count_include_pad` of `torch.nn.functional.avg_pool2d` and of `flax.linen.avg_pool`.
    """

# jaxpool/_api/blur.py
def blur_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "SAME",
    *,
    axes: Axes = None,
) -> Array:
    """Computes the average of each window with binomial weights, with x reflected at its border.

    `y[b, i, j, c] = sum over (u, v) of w[u] * w[v] * x[b, i * s - p + u, j * s - p + v, c]` with
    `w[u] = C(k - 1, u) / 2^(k - 1)`. k is the size of the window along the axis, C(n, m) a binomial coefficient;
    other letters are as in `max_pool`. In the padding x is mirrored at its outermost element: 2 1 | 0 1 2. The sizes
    of a window along all axes add up to at most 1024.

    Gradient: each element gets the cotangents of its windows with the weights of the forward pass, also for its
    reflections. Forward and reverse mode, to any order.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.blur_pool(jnp.array([0.0, 4.0, 0.0, 8.0])[:, None], (3,)).ravel()
      Array([2., 2., 3., 4.], dtype=float32)

    References:
      Zhang, Making Convolutional Networks Shift-Invariant Again, arXiv:1904.11486, with `padding=(k - 1) // 2`;
      "SAME" adds an odd position at the end.
    """

# jaxpool/_api/cumulative.py
def cummax(
    x: ArrayArgument,
    axis: int = -1,
    *,
    reverse: bool = False,
    reset: MaskArgument = None,
    ties: FirstOrLast = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the running maximum along an axis.

    `y[..., i] = max over j <= i of x[..., j]`, or `j >= i` in reverse; with `reset` only over j in the episode of i.

    Gradient: each element gets the sum of the cotangents of all outputs that selected the element. NaN is larger than
    every number: from the first NaN on, the output is NaN and a NaN gets the cotangent.

    Args:
      x: array of at least one axis; floats, integers or bool (max is "or", min is "and").
      axis: the axis to run along, of known size below 2**31; a negative axis counts from the end.
      reverse: whether to run from the end to the start.
      reset: boolean array that broadcasts to x: True at the first element of each episode, also in reverse. The run starts
        anew in each episode. None is a single episode.
      ties: which of equal elements gets the cotangent, and the index if it is returned: the "first" or the "last" in the
        order of the axis, also in reverse.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape and dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 2.0, 3.0, 4.0])
      >>> jaxpool.cummax(x)
      Array([1., 3., 3., 3., 4.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.cummax(x).sum())(x)
      Array([1., 3., 0., 0., 1.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.cummax(x, ties="last").sum())(x)
      Array([1., 2., 0., 1., 1.], dtype=float32)
      >>> jaxpool.cummax(x, reset=jnp.array([False, False, True, False, False]))
      Array([1., 3., 2., 3., 4.], dtype=float32)

    References:
      `jax.lax.cummax` splits ties by the shape of its scan; `torch.cummax` selects the last.
    """

# jaxpool/_api/cumulative.py
def cummax_with_argmax(
    x: ArrayArgument,
    axis: int = -1,
    *,
    reverse: bool = False,
    reset: MaskArgument = None,
    ties: FirstOrLast = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the running maximum along an axis and its position.

    `y[..., i] = x[..., indices[..., i]]`, the largest of the `x[..., j]` with `j <= i`, or `j >= i` in reverse; with
    `reset` only over j in the episode of i.

    Gradient: y has the gradient of `cummax`; the integers `indices` have no gradient. From the first NaN of an
    episode on, the index is the index of a NaN.

    Args:
      x: array of at least one axis; floats, integers or bool (max is "or", min is "and").
      axis: the axis to run along, of known size below 2**31; a negative axis counts from the end.
      reverse: whether to run from the end to the start.
      reset: boolean array that broadcasts to x: True at the first element of each episode, also in reverse. The run starts
        anew in each episode. None is a single episode.
      ties: which of equal elements gets the cotangent, and the index if it is returned: the "first" or the "last" in the
        order of the axis, also in reverse.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      y, an array of the shape and dtype of x, and `indices`, an int32 array of the same shape: positions along the axis.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.cummax_with_argmax(jnp.array([1, 3, 2, 3]), ties="last")
      (Array([1, 3, 3, 3], dtype=int32), Array([0, 1, 1, 3], dtype=int32))

    References:
      `torch.cummax`, which returns the index of the last of equal elements.
    """

# jaxpool/_api/cumulative.py
def cummin(
    x: ArrayArgument,
    axis: int = -1,
    *,
    reverse: bool = False,
    reset: MaskArgument = None,
    ties: FirstOrLast = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the running minimum along an axis.

    `y[..., i] = min over j <= i of x[..., j]`, or over `j >= i` in reverse.

    Gradient: as in `cummax`, to the selected element. NaN is smaller than every number.

    Args:
      x: array of at least one axis; floats, integers or bool (max is "or", min is "and").
      axis: the axis to run along, of known size below 2**31; a negative axis counts from the end.
      reverse: whether to run from the end to the start.
      reset: boolean array that broadcasts to x: True at the first element of each episode, also in reverse. The run starts
        anew in each episode. None is a single episode.
      ties: which of equal elements gets the cotangent, and the index if it is returned: the "first" or the "last" in the
        order of the axis, also in reverse.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape and dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.cummin(jnp.array([[4, 3, 5], [1, 2, 0]]), reverse=True)
      Array([[3, 3, 5],
             [0, 0, 0]], dtype=int32)

    References:
      `jax.lax.cummin`, `torch.cummin`.
    """

# jaxpool/_api/cumulative.py
def cummin_with_argmax(
    x: ArrayArgument,
    axis: int = -1,
    *,
    reverse: bool = False,
    reset: MaskArgument = None,
    ties: FirstOrLast = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the running minimum along an axis and its position.

    `y[..., i] = x[..., indices[..., i]]`, the smallest of the `x[..., j]` with `j <= i`, or `j >= i` in reverse; with
    `reset` only over j in the episode of i.

    Gradient: y has the gradient of `cummin`; the integers `indices` have no gradient.

    Args:
      x: array of at least one axis; floats, integers or bool (max is "or", min is "and").
      axis: the axis to run along, of known size below 2**31; a negative axis counts from the end.
      reverse: whether to run from the end to the start.
      reset: boolean array that broadcasts to x: True at the first element of each episode, also in reverse. The run starts
        anew in each episode. None is a single episode.
      ties: which of equal elements gets the cotangent, and the index if it is returned: the "first" or the "last" in the
        order of the axis, also in reverse.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      y, an array of the shape and dtype of x, and `indices`, an int32 array of the same shape: positions along the axis.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> starts = jnp.array([True, False, False, True, False])
      >>> jaxpool.cummin_with_argmax(jnp.array([4, 3, 5, 7, 6]), reset=starts)
      (Array([4, 3, 3, 7, 6], dtype=int32), Array([0, 1, 1, 3, 4], dtype=int32))

    References:
      `torch.cummin`.
    """

# jaxpool/_api/morphology.py
def dilate(
    x: ArrayArgument,
    kernel: ArrayArgument,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the grey dilation: the maximum over each window of its elements plus the kernel.

    `y[b, i, j, c] = max over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c] + kernel[u, v, c]`, with the
    letters of `max_pool`. A kernel entry of -inf excludes its element. Padding is -inf, so +inf and NaN
    give NaN there.

    Gradient: the cotangent of each output goes to the element and to the kernel entry whose sum was selected.
    Cotangents of overlapping windows add up. NaN is larger than every number, and padding is never selected.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, not bool.
      kernel: array of shape `window_shape`, or `(*window_shape, C)` with an entry for each channel; floats
        if x has floats, integers if x has integers. Without `axes`, a kernel of `x.ndim - 1` axes has an entry for each
        channel, as for x with one batch axis.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis. The last of the other axes is the channel axis.
      window_dilation: distance between neighbouring window elements; None is 1.
      ties: which of equal elements gets the cotangent: the "first", the "last", or all of them,
        equal parts ("split").
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, kernel = jnp.array([[[1.0], [5.0], [2.0], [0.0]]]), jnp.array([0.0, 1.0])
      >>> jaxpool.dilate(x, kernel).ravel()
      Array([6., 5., 2.], dtype=float32)
      >>> jax.grad(lambda k: jaxpool.dilate(x, k).sum())(kernel)
      Array([2., 1.], dtype=float32)

    References:
      `tf.nn.dilation2d`.
    """

# jaxpool/_api/morphology.py
def erode(
    x: ArrayArgument,
    kernel: ArrayArgument,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the grey erosion: the minimum over each window of its elements minus the kernel.

    `y[b, i, j, c] = min over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c] - kernel[u, v, c]`, with the
    letters of `max_pool`. Infinite entries are as in `dilate`; padding is +inf.

    Gradient: as in `dilate`, to the selected element and, negated, to the kernel entry. NaN is the smallest.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, not bool.
      kernel: array of shape `window_shape`, or `(*window_shape, C)` with an entry for each channel; floats
        if x has floats, integers if x has integers. Without `axes`, a kernel of `x.ndim - 1` axes has an entry for each
        channel, as for x with one batch axis.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis. The last of the other axes is the channel axis.
      window_dilation: distance between neighbouring window elements; None is 1.
      ties: which of equal elements gets the cotangent: the "first", the "last", or all of them,
        equal parts ("split").
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.erode(jnp.array([[[1], [5], [2], [0]]]), jnp.array([0, 1])).ravel()
      Array([ 1,  1, -1], dtype=int32)

    References:
      `tf.nn.erosion2d`, which reverses the kernel.
    """

# jaxpool/_api/elementwise.py
def fmax(
    x: ArrayArgument, y: ArrayArgument, *, ties: Ties = "split", autodiff: Autodiff = "vjp"
) -> Array:
    """Computes the elementwise maximum of two arrays, ignoring NaN.

    `z[i] = max(x[i], y[i])`; the arrays broadcast. The result is NaN only where both are NaN.

    Gradient: as in `maximum`. Next to a NaN the number gets the cotangent; two NaNs tie.

    Args:
      x: JAX or NumPy array, or Python number; floats, integers or bool.
      y: as x; the shapes must broadcast.
      ties: which of two equal elements gets the cotangent: both, half each ("split"), x ("first") or y ("last").
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the broadcast shape and of dtype `jnp.result_type(x, y)`, weakly typed if `jnp.maximum` is.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: the shapes do not broadcast, or `ties` or `autodiff` has a wrong value.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, y = jnp.array([1.0, jnp.nan, 2.0]), jnp.array([3.0, 4.0, 2.0])
      >>> jaxpool.fmax(x, y)
      Array([3., 4., 2.], dtype=float32)
      >>> jax.grad(lambda x, y: jaxpool.fmax(x, y).sum(), argnums=(0, 1))(x, y)
      (Array([0. , 0. , 0.5], dtype=float32), Array([1. , 1. , 0.5], dtype=float32))

    References:
      In a tie `torch.fmax` gives the cotangent to x, and `jax.numpy.fmax` to y.
    """

# jaxpool/_api/elementwise.py
def fmin(
    x: ArrayArgument, y: ArrayArgument, *, ties: Ties = "split", autodiff: Autodiff = "vjp"
) -> Array:
    """Computes the elementwise minimum of two arrays, ignoring NaN.

    `z[i] = min(x[i], y[i])`; the arrays broadcast. The result is NaN only where both are NaN.

    Gradient: as in `fmax`, to the smaller element.

    Args:
      x: JAX or NumPy array, or Python number; floats, integers or bool.
      y: as x; the shapes must broadcast.
      ties: which of two equal elements gets the cotangent: both, half each ("split"), x ("first") or y ("last").
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the broadcast shape and of dtype `jnp.result_type(x, y)`, weakly typed if `jnp.maximum` is.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: the shapes do not broadcast, or `ties` or `autodiff` has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.fmin(jnp.array([1.0, jnp.nan]), 3.0)
      Array([1., 3.], dtype=float32)

    References:
      `torch.fmin`, `jax.numpy.fmin`.
    """

# jaxpool/_api/random.py
def fractional_avg_pool(
    key: ArrayArgument,
    x: ArrayArgument,
    window_shape: IntOrInts,
    output_shape: tuple[int, ...],
    *,
    axes: Axes = None,
) -> Array:
    """Computes the average of windows at pseudo-random distances.

    `y[b, i, j, c] = mean over (u, v) of x[b, start(i) + u, start(j) + v, c]`, with the windows that
    `fractional_max_pool` has for the same key.

    Gradient: every element of a window gets an equal part of its cotangent, and overlapping windows add up. Forward
    and reverse mode, to any order.

    Args:
      key: a PRNG key such as `jax.random.key(0)`. The same key gives the same windows.
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats, integers or bool. Windows differ between
        the entries of axes that are not pooled.
      window_shape: one positive int per pooled axis, or one int for all of them.
      output_shape: a tuple with the number of windows along each pooled axis, positive ints of at most `size - window + 1`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last axis.

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.arange(10.0)[:, None]
      >>> jaxpool.fractional_avg_pool(jax.random.key(0), x, (2,), (6,)).ravel()
      Array([0.5, 2.5, 3.5, 5.5, 6.5, 8.5], dtype=float32)

    References:
      Graham, Fractional Max-Pooling, arXiv:1412.6071. In `tf.nn.fractional_avg_pool` windows differ in length, and
      all channels share them.
    """

# jaxpool/_api/random.py
def fractional_max_pool(
    key: ArrayArgument,
    x: ArrayArgument,
    window_shape: IntOrInts,
    output_shape: tuple[int, ...],
    *,
    axes: Axes = None,
) -> Array:
    """Computes the largest element of windows at pseudo-random distances.

    `y[b, i, j, c] = max over (u, v) of x[b, start(i) + u, start(j) + v, c]` with
    `start(i) = int((i + r) * a) - int(r * a)`, `a = (L - k) / (n - 1)` and, for the last window,
    `start(n - 1) = L - k`. L is the size of the axis, k the size of a window, n the number of windows, B batch, C
    channels. r is uniform in [0, 1), drawn for each axis, batch entry and channel. Windows may overlap, and leave
    gaps if k < a.

    Gradient: as in `max_pool`, to the first of the largest elements in row-major order. NaN is larger than every
    number, and -inf is an ordinary value. Forward and reverse mode, to any order.

    Args:
      key: a PRNG key such as `jax.random.key(0)`. The same key gives the same windows.
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats, integers or bool. Windows differ between
        the entries of axes that are not pooled.
      window_shape: one positive int per pooled axis, or one int for all of them.
      output_shape: a tuple with the number of windows along each pooled axis, positive ints of at most `size - window + 1`.
      axes: the pooled axes; None is the `len(output_shape)` axes before the last axis.

    Returns:
      Array of the shape of x, except that pooled axes have the sizes `output_shape`; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.arange(10)[:, None]
      >>> jaxpool.fractional_max_pool(jax.random.key(0), x, (2,), (6,)).ravel()
      Array([1, 3, 4, 6, 7, 9], dtype=int32)

    References:
      Graham, Fractional Max-Pooling, arXiv:1412.6071. `torch.nn.functional.fractional_max_pool2d` has equal windows.
    """

# jaxpool/_api/soft.py
def gem_pool(
    x: ArrayArgument,
    p: float | ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    eps: float = 1e-6,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
) -> Array:
    """Computes the generalised mean of each window (GeM).

    `y[b, i, j, c] = (mean over (u, v) of max(x[b, i * s - p0 + u * d, j * s - p0 + v * d, c], eps)^p)^(1/p)`, with
    low padding p0 and the other letters of `max_pool`. The mean is over the real elements, without padding. `p = 1`
    is the average, `p = -1` the harmonic mean. y approaches the geometric mean as p goes to 0, and the maximum as p
    grows. Nothing overflows. If `|p| < 1 / 16`, or if a power leaves the range of the dtype anywhere in x, elements
    are first divided by an element of their window. The divisor is the largest element, or the smallest if p is
    negative. This evaluation is slower.

    Gradient: the derivative of the mean for x above eps, half of the derivative at eps, 0 below. An array p gets a
    gradient too. An infinite output has gradient 0, and a NaN makes the output and the gradient of its windows NaN.
    Forward and reverse mode, to any order.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      p: a finite number other than 0, or an array of such numbers that broadcasts against the output, such as `(C,)`
        for channels. An array may be traced, and its values are not checked. An array that varies along a pooled axis
        needs a pass over the output for each tap.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      eps: a finite number above 0; smaller elements count as eps.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> rounded = lambda y: [round(value, 2) for value in y.ravel().tolist()]
      >>> x = jnp.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
      >>> rounded(jaxpool.gem_pool(x, 1, (3,)))
      [2.0, 2.0]
      >>> p = jnp.array([3.0, 10.0])
      >>> rounded(jaxpool.gem_pool(x, p, (3,)))
      [2.29, 2.69]
      >>> rounded(jax.grad(lambda p: jaxpool.gem_pool(x, p, (3,)).sum())(p))
      [0.11, 0.03]

    References:
      Radenovic, Tolias and Chum, "Fine-tuning CNN Image Retrieval with No Human Annotation", arXiv:1711.02512.
    """

# jaxpool/_api/adaptive.py
def global_avg_pool(
    x: ArrayArgument, *, axes: Axes = None, where: MaskArgument = None, keepdims: bool = False
) -> Array:
    """Computes the average over whole axes.

    `y[b, c] = 1 / n * sum over (h, w) with where[b, h, w, c] of x[b, h, w, c]`, with B batch, H W spatial, C channels
    and n the number of terms. Any number of axes can be pooled.

    Gradient: every included element gets `dy / n`, and excluded elements get 0, even NaN. Forward and reverse mode,
    to any order, and `jax.linear_transpose`.

    Args:
      x: array of shape `(B, *spatial, C)`, or of any shape with `axes`; floats, integers or bool. Pooled axes have a known
        size of at least 1.
      axes: the pooled axes; None is all except the first and the last. Row-major order follows `axes`.
      keepdims: whether pooled axes remain, with size 1.
      where: the elements to include, as in `max_pool`. Without a True the result and the gradient are 0.

    Returns:
      Array of shape `(B, C)`, in general the shape of x without the pooled axes, or with size 1 for each; the dtype
      of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1.0, 5.0, 3.0], [4.0, 2.0, 9.0]])[..., None]
      >>> jaxpool.global_avg_pool(x).ravel()
      Array([3., 5.], dtype=float32)

    References:
      `keras.layers.GlobalAveragePooling2D`; `where` as in `jax.numpy.mean`, which returns NaN without a True.
    """

# jaxpool/_api/adaptive.py
def global_max_pool(
    x: ArrayArgument,
    *,
    axes: Axes = None,
    where: MaskArgument = None,
    keepdims: bool = False,
    ties: Ties = "first",
) -> Array:
    """Computes the largest element over whole axes.

    `y[b, c] = max over (h, w) with where[b, h, w, c] of x[b, h, w, c]`, with B batch, H W spatial, C channels. Any
    number of axes can be pooled.

    Gradient: the cotangent goes to the selected element; excluded elements get 0, even NaN. NaN is larger than every
    number; -inf is an ordinary value. Forward and reverse mode, to any order.

    Args:
      x: array of shape `(B, *spatial, C)`, or of any shape with `axes`; floats, integers or bool. Pooled axes have a known
        size of at least 1.
      axes: the pooled axes; None is all except the first and the last. Row-major order follows `axes`.
      keepdims: whether pooled axes remain, with size 1.
      where: the elements to include, as in `max_pool`. Without a True the result is the lowest value of the dtype.
      ties: which of equal elements gets the cotangent: the "first", the "last", or all of them ("split").

    Returns:
      Array of shape `(B, C)`, in general the shape of x without the pooled axes, or with size 1; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1.0, 5.0, 3.0], [4.0, 2.0, 9.0]])[..., None]
      >>> jaxpool.global_max_pool(x).ravel()
      Array([5., 9.], dtype=float32)
      >>> mask = jnp.arange(3) < jnp.array([1, 2])[:, None]
      >>> jaxpool.global_max_pool(x, where=mask[..., None]).ravel()
      Array([1., 4.], dtype=float32)

    References:
      `keras.layers.GlobalMaxPooling2D`; `where` as in `jax.numpy.max`.
    """

# jaxpool/_api/rank.py
def k_max_pool(x: ArrayArgument, k: int, *, axis: int = -2) -> Array:
    """Selects the k largest elements along an axis, in their original order.

    Gradient: each cotangent goes to its element, all other elements get zeros. Of equal elements the first are
    selected, and NaN is larger than every number. Forward and reverse mode, to any order.

    Args:
      x: array of at least one axis; floats, integers or bool.
      k: the number of elements, an int from 1 to the size of the axis.
      axis: the axis, of known size; -2 is the axis before the channels.

    Returns:
      Array of the shape of x with k along the axis; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.k_max_pool(jnp.array([3, 1, 4, 1, 5]), 3, axis=0)
      Array([3, 4, 5], dtype=int32)

    References:
      Kalchbrenner, Grefenstette and Blunsom, arXiv:1404.2188.
    """

# jaxpool/_api/memory.py
def keep_memory() -> bool:
    """Makes the allocator of this process keep freed memory for later arrays.

    On CPU, XLA allocates each large result anew, and the page faults of new memory can take as long as the pool
    itself. Reused memory has no page faults. The setting holds for everything that the process computes.

    Call `keep_memory` before any thread starts and before the first call into jax, even `jax.devices()`. The setting
    cannot be undone. The process never shrinks, and may hold three to five times the memory in use. All threads
    allocate from one heap, and a child of `fork` inherits both. On other devices only host arrays are affected.

    Args:
        None: the function takes no argument.

    Returns:
        True if the settings are in force. False, and nothing is changed, if the allocator is not glibc 2.33 or
        later (macOS, Windows, musl, a preloaded allocator). False, with a warning, if a thread already has a heap, as
        in a notebook or after a call into jax. An environment variable works in these cases (docs/memory.md).

    Raises:
        TypeError: an argument is passed. If the system refuses a setting, the result is False.

    Example:
        >>> import jaxpool
        >>> kept = jaxpool.keep_memory()

    References:
        mallopt(3): M_MMAP_MAX 0, M_TRIM_THRESHOLD -1, M_TOP_PAD 256 MiB, M_ARENA_MAX 1.
    """

# jaxpool/_api/peaks.py
def local_maxima(
    x: ArrayArgument, window_shape: IntOrInts, *, axes: Axes = None, ties: PeakTies = "first"
) -> Array:
    """Marks each element that is the largest of its window, such as the peaks of a heatmap.

    `y[b, i, j, c] = (max_pool selects x[b, i, j, c] in the window around it)`, with B batch, H W spatial and C
    channels. Any number of axes can be pooled. Windows have stride 1 and the padding "SAME": a window of even size
    extends one element further towards the end.

    Gradient: none, because the result is boolean. NaN is larger than every number. -inf is an ordinary value: in a
    window of -inf, one element is the largest. Padding is never selected.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      ties: which elements equal to the maximum of their window are marked: the "first" or the "last" in row-major
        order of `axes`, or "all". Equal neighbours have different windows, so several neighbours can be marked.

    Returns:
      Boolean array of the shape of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> heatmap = jnp.array([0.1, 0.7, 0.7, 0.2, 0.3, 0.1])
      >>> jaxpool.local_maxima(heatmap, 3, axes=(0,))
      Array([False,  True, False, False,  True, False], dtype=bool)
      >>> jaxpool.local_maxima(heatmap, 3, axes=(0,), ties="all")
      Array([False,  True,  True, False,  True, False], dtype=bool)

    References:
      Zhou et al., Objects as Points, arXiv:1904.07850, with peaks that a 3x3 max pool keeps: `ties="all"`.
    """

# jaxpool/_api/peaks.py
def local_minima(
    x: ArrayArgument, window_shape: IntOrInts, *, axes: Axes = None, ties: PeakTies = "first"
) -> Array:
    """Marks each element that is the smallest of its window.

    `y[b, i, j, c] = (min_pool selects x[b, i, j, c] in the window around it)`, with the windows of `local_maxima`.

    Gradient: none, the result is boolean. NaN is smaller than every number.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      ties: which elements equal to the minimum of their window are marked: the "first", the "last" or "all".

    Returns:
      Boolean array of the shape of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.local_minima(jnp.array([3, 1, 2, 0, 4]), 3, axes=(0,))
      Array([False,  True, False,  True, False], dtype=bool)

    References:
      `local_maxima`.
    """

# jaxpool/_api/soft.py
def logsumexp_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    temperature: float | ArrayArgument = 1.0,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
) -> Array:
    """Computes a smooth maximum of each window, the logarithm of the sum of its exponentials.

    `y[b, i, j, c] = T * log(sum over (u, v) of exp(x[b, i * s - p + u * d, j * s - p + v * d, c] / T))`, with
    temperature T and the other letters of `max_pool`, without padding. y exceeds the maximum by at most `T * log(n)`
    for n elements, and approaches the maximum as T goes to 0. Nothing overflows: if an exponential leaves the range
    of the dtype anywhere in x, beyond `y / T` of 40 in float32, all exponentials are relative to the maximum of their
    window, which is slower.

    Gradient: an element gets its part `softmax(x / T)` of the cotangent. Infinities are ordinary values: the elements
    of a window of -inf get equal parts, and so do several +inf. A NaN makes the output and the gradient of its
    windows NaN. Forward and reverse mode, to any order, also for an array `temperature`.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      temperature: a finite number above 0, or an array of such numbers that broadcasts against the output. In
        float32, numbers are clipped to the range from 5e-29 to 8.5e37. An array may be traced, and its values are not
        checked. An array that varies along a pooled axis needs a pass over the output for each tap.
      where: the elements to include, as in `max_pool`. Excluded elements get no weight and no gradient, even NaN.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> rounded = lambda y: [round(value, 2) for value in y.ravel().tolist()]
      >>> x = jnp.array([1e4, 1e4, 0.0, 3.0])[:, None]
      >>> rounded(jaxpool.logsumexp_pool(x, (2,), (2,)))
      [10000.69, 3.05]
      >>> rounded(jaxpool.logsumexp_pool(x, (2,), (2,), temperature=0.01))
      [10000.01, 3.0]
      >>> rounded(jax.grad(lambda x: jaxpool.logsumexp_pool(x, (2,), (2,)).sum())(x))
      [0.5, 0.5, 0.05, 0.95]

    References:
      Pinheiro and Collobert, "From Image-level to Pixel-level Labeling with Convolutional Networks", arXiv:1411.6228,
      with a mean instead of the sum.
    """

# jaxpool/_api/soft.py
def lp_pool(
    x: ArrayArgument,
    p: float,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
) -> Array:
    """Computes the p-norm of each window.

    `y[b, i, j, c] = (sum over (u, v) of |x[b, i * s - p0 + u * d, j * s - p0 + v * d, c]|^p)^(1/p)`, with low padding
    p0 (zeros) and the other letters of `max_pool`. `p = 1` is the sum of absolute values, `p = 2` the Euclidean norm,
    `p = inf` the largest absolute value. Nothing overflows or underflows. If a power leaves the range of the dtype
    anywhere in x, elements are first divided by the largest element of their window, which is slower. A NaN makes the
    output of its windows NaN. A window cut by `ceil_mode` gives the norm of its elements.

    Gradient: an element gets `sign(x) * (|x| / y)^(p - 1)` of the cotangent; for `p = inf` the first largest element
    gets the whole cotangent. The gradient is 0 if y is 0, or if `p <= 1` and the element is 0. A window with an
    infinite element has gradient 0, except for `p = 1` and `p = inf`. Forward and reverse mode, to any order.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      p: a Python number above 0, or `math.inf`; use `gem_pool` for a traced p.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      where: the elements to include, as in `max_pool`. Excluded elements count as 0, even NaN, and get no gradient.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([3.0, -4.0, 0.0, 0.0])[:, None]
      >>> jaxpool.lp_pool(x, 2, (2,), (2,)).ravel()
      Array([5., 0.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.lp_pool(x, 2, (2,), (2,)).sum())(x).ravel()
      Array([ 0.6, -0.8,  0. ,  0. ], dtype=float32)

    References:
      `LpPool` of ONNX. `torch.nn.functional.lp_pool2d` uses powers of x itself and scales short windows up to the
      full size. An odd p gives NaN there for a negative sum.
    """

# jaxpool/_api/reduce.py
def max(
    x: ArrayArgument,
    axis: AxisArgument = None,
    *,
    keepdims: bool = False,
    where: MaskArgument = None,
    initial: ArrayArgument | float | None = None,
    ties: Ties = "split",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the largest element along axes.

    `y[i] = max over j of x[i, j]`, with i the remaining axes and j the reduced axes.

    Gradient: the cotangent is divided equally among the elements that attain the maximum, or goes to the element that
    `ties` selects. NaN is larger than every number: only NaNs get the cotangent then. -inf is an ordinary value.

    Args:
      x: array of any shape; floats, integers or bool (max is "or", min is "and").
      axis: an int, a tuple of distinct ints, or None for all axes; a negative axis counts from the end. Row-major order
        follows the order of `axis`. Reduced axes must have a known size.
      keepdims: whether reduced axes remain, with size 1.
      where: the elements to include, a boolean array that broadcasts to x. Needs `initial`.
      initial: a number or scalar array, cast to the dtype of x: a bound of the result. If `initial` lies beyond every
        element, `initial` gets the cotangent; in a tie the elements get all of the cotangent.
      ties: which of equal elements gets the cotangent: all of them ("split"), the "first" or the "last".
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape of x without the reduced axes, or with size 1 for each; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or `initial` is missing with `where` or an empty axis.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1.0, 3.0, 3.0], [5.0, 4.0, 2.0]])
      >>> jaxpool.max(x, axis=1)
      Array([3., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.max(x, axis=1).sum())(x)
      Array([[0. , 0.5, 0.5],
             [1. , 0. , 0. ]], dtype=float32)

    References:
      The arguments of `jax.numpy.max`, which also splits ties; its gradient at a NaN is NaN.
    """

# jaxpool/_api/blur.py
def max_blur_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    blur_shape: IntOrInts,
    strides: IntOrInts | None,
    padding: Padding = "SAME",
    *,
    axes: Axes = None,
) -> Array:
    """Computes the maximum of each window with stride 1, then the `blur_pool` of the maxima.

    `y = blur_pool(max_pool(x, window_shape, None, padding), blur_shape, strides, padding)`.

    Gradient: the cotangent goes through the blur to the first of the largest elements of each window.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      blur_shape: the window of the blur, in the form of `window_shape`. Its sizes add up to at most 1024.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([0.0, 4.0, 0.0, 8.0])[:, None]
      >>> jaxpool.max_blur_pool(x, (2,), (3,), (2,)).ravel()
      Array([5., 8.], dtype=float32)

    References:
      Zhang, Making Convolutional Networks Shift-Invariant Again, arXiv:1904.11486.
    """

# jaxpool/_api/max_pool.py
def max_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the largest element of each window.

    `y[b, i, j, c] = max over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, with B batch, H W spatial, C
    channels, strides s, low padding p, dilation d and offsets u, v in the window. Any number of axes can be pooled.

    Gradient: the cotangent of each output goes to the selected element, and cotangents of overlapping windows add up.
    NaN is larger than every number: the output is NaN, and the cotangent goes to the NaN that `ties` selects. Padding
    is never selected, for any dtype; -inf is an ordinary value.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats, integers or bool (max is "or").
        Pooled axes must have a known size; batch and channel axes may have size 0. If the type of x shows that pooled
        axes are sharded, the call equals `jaxpool.sharded(jaxpool.max_pool)` and has its limits on sizes.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: "VALID", "SAME" (an odd position is added at the end) or "SAME_LOWER" (at the start). Or a non-negative
        int, one int per pooled axis, or one (low, high) pair per pooled axis.
      window_dilation: distance between neighbouring window elements, one positive int per pooled axis; None is 1.
      ceil_mode: whether to round the output size up. Windows that would start in the high padding are dropped.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis. Row-major order follows
        `axes`. Channels-first images `(N, C, H, W)` need `axes=(2, 3)`: the default would pool C and H.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Excluded elements are treated
        as padding, even NaN. A window without a True gives the lowest value (-inf for most floats) and gradient 0.
      ties: which of equal elements gets the cotangent: the "first" or the "last" in row-major order, or all of them,
        equal parts ("split").
      autodiff: "vjp" for reverse mode to any order and forward-over-reverse; "jvp" for `jax.jvp`,
        `jax.linearize` and `jax.jacfwd` too.

    Returns:
      Array of the shape of x, except that pooled axes have size `floor((size + low + high - span) / stride) + 1` with
      `span = (window - 1) * dilation + 1`; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.
        A window extends at most `2**20` positions beyond the input, and has fewer than `2**32` elements.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 2.0, 5.0]).reshape(1, 4, 1)
      >>> jaxpool.max_pool(x, (2,), (2,)).ravel()
      Array([3., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.max_pool(x, (2,), (2,)).sum())(x).ravel()
      Array([0., 1., 0., 1.], dtype=float32)
      >>> mask = jnp.array([True, False, False, False])[:, None]
      >>> jaxpool.max_pool(x, (2,), (2,), where=mask).ravel()
      Array([  1., -inf], dtype=float32)

    References:
      The window arithmetic of `jax.lax.reduce_window`, `ceil_mode` of `torch.nn.functional.max_pool2d`.
    """

# jaxpool/_api/argmax.py
def max_pool_with_argmax(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> tuple[Array, Array]:
    """Computes the largest element of each window and its position in the input.

    `y = max_pool(x, window_shape, ...)` and `indices[b, i, j, c] = h * W + w` for the selected element
    `x[b, h, w, c]`, with the letters of `max_pool`. Any number of axes can be pooled.

    Gradient: y has the gradient of `max_pool`; the integers `indices` have no gradient. In a window with a NaN,
    `ties` selects a NaN and its index. An index never refers to padding, even if all elements are the lowest value.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool. The pooled axes have fewer than 2**31 positions.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis. Indices are row-major in the order of `axes`.
      ties: which of equal elements gets the cotangent and the index: the "first" or the "last" in row-major order.
        "split" divides the cotangent among all equal elements and returns the index of the first element.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      y, an array of the shape that `max_pool` returns and of the dtype of x, and `indices`, an int32 array of the
      same shape: positions from 0 to the product of the unpadded pooled axes minus 1.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1, 3, 2], [7, 5, 5]])
      >>> y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), axes=(0, 1))
      >>> y, indices
      (Array([[7, 5]], dtype=int32), Array([[3, 4]], dtype=int32))

    References:
      `torch.nn.functional.max_pool2d` with `return_indices=True`, which returns the last NaN of a window, but the
      first of equal numbers. The indices of `tf.nn.max_pool_with_argmax` count channels too.
    """

# jaxpool/_api/argmax.py
def max_unpool(
    y: ArrayArgument, indices: ArrayArgument, spatial_shape: Sequence[int], *, axes: Axes = None
) -> Array:
    """Puts each element at its position from `max_pool_with_argmax`, and zeros elsewhere.

    `x[b, h, w, c] = y[b, i, j, c]` for the last (i, j) in row-major order with `indices[b, i, j, c] == h * W + w`,
    with B batch, H W spatial, C channels. Positions without an index get 0. Any number of axes can be unpooled.

    Gradient: an element of y gets the cotangent at its index. The gradient is 0 if a later element overwrites the
    position, or if the index was dropped. Forward mode has the same rule.

    Args:
      y: array of shape `(..., *pooled, C)`, or of any shape with `axes`; floats, integers or bool. If the type of y
        shows that `axes` are sharded, each index must be in the shard of its element or in a neighbouring shard.
        Windows no longer than a shard give such indices. Other indices raise an error, or are dropped if traced.
      indices: integers of the shape of y: flat row-major positions over `spatial_shape`. A concrete index that is out
        of range raises an error; a traced index out of range is dropped.
      spatial_shape: the sizes of `axes` in the result, a tuple with one positive int per axis.
      axes: the axes to unpool; None is the `len(spatial_shape)` axes before the last. Indices are row-major in them.

    Returns:
      Array of the shape of y, except that `axes` have the sizes `spatial_shape`; the dtype of y.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[1, 3, 2], [7, 5, 5]])
      >>> y, indices = jaxpool.max_pool_with_argmax(x, (2, 2), axes=(0, 1))
      >>> jaxpool.max_unpool(y, indices, (2, 3), axes=(0, 1))
      Array([[0, 0, 0],
             [7, 5, 0]], dtype=int32)

    References:
      `torch.nn.functional.max_unpool2d`. With equal indices it is random, and overwritten elements get a gradient.
    """

# jaxpool/_api/elementwise.py
def maximum(*xs: ArrayArgument | float, ties: Ties = "split", autodiff: Autodiff = "vjp") -> Array:
    """Computes the elementwise maximum of two or more arrays.

    `y[i] = max(x1[i], x2[i], ...)`; the arrays broadcast.

    Gradient: the cotangent goes to the largest element at each position, or by `ties` to equal elements. Each array
    gets a gradient of its own shape and dtype, summed over broadcast axes. NaN is larger than every number.

    Args:
      *xs: two or more JAX or NumPy arrays, or Python numbers; floats, integers or bool.
      ties: which of equal elements gets the cotangent: all of them ("split"), the "first" or the "last" argument.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the broadcast shape and of dtype `jnp.result_type(*xs)`, weakly typed if `jnp.maximum` is.

    Raises:
      TypeError: fewer than two arrays, or an argument that is no array, such as a list or None.
      ValueError: the shapes do not broadcast, or `ties` or `autodiff` has a wrong value.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, y = jnp.array([1.0, 5.0, 2.0]), jnp.array([3.0, 4.0, 2.0])
      >>> jaxpool.maximum(x, y)
      Array([3., 5., 2.], dtype=float32)
      >>> jax.grad(lambda x, y: jaxpool.maximum(x, y).sum(), argnums=(0, 1))(x, y)
      (Array([0. , 1. , 0.5], dtype=float32), Array([1. , 0. , 0.5], dtype=float32))

    References:
      `jax.numpy.maximum` also splits ties, but drops the cotangent of a NaN.
    """

# jaxpool/_api/reduce.py
def maxout(x: ArrayArgument, groups: int, *, axis: int = -1, ties: Ties = "split") -> Array:
    """Computes the maximum of each group of neighbouring elements along an axis, the maxout unit.

    `y[..., g] = max over j < k of x[..., g * k + j]`, with G groups and `k = size / G`.

    Gradient: as in `max`, to the maxima of each group. Forward and reverse mode, to any order.

    Args:
      x: array of at least one axis; floats, integers or bool.
      groups: the number of outputs, a positive int that divides the size of the axis.
      axis: the axis along which elements are grouped, of known size.
      ties: which of equal elements gets the cotangent: all of them ("split"), the "first" or the "last".

    Returns:
      Array of the shape of x with `groups` along the axis; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 5.0, 4.0])
      >>> jaxpool.maxout(x, 2)
      Array([3., 5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.maxout(x, 2).sum())(x)
      Array([0., 1., 1., 0.], dtype=float32)

    References:
      Goodfellow et al., Maxout Networks, arXiv:1302.4389.
    """

# jaxpool/_api/rank.py
def median_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    method: MedianMethod = "higher",
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the median of each window.

    `y[b, i, j, c]` is the element of rank `n // 2`, counted from 0, among the n real elements
    `x[b, i * s - p + u * d, j * s - p + v * d, c]`, with the letters of `max_pool`. For even n this is the higher of
    the two middle elements; `method` changes that. Padding is not an element.

    Gradient: as in `max_pool`, to the selected element, or in equal parts to all equal elements with `ties="split"`.
    With `method="midpoint"` each middle element gets half of the cotangent. NaN ranks above every number. -0 and 0 tie.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      where: the elements to include, as in `max_pool`. A window without a True gives 0.
      method: the median for even n, named as in `numpy.quantile`: the "higher" or the "lower" of the two middle
        elements, or "midpoint", their mean.
      ties: which of equal elements gets the cotangent: the "first", the "last", or all of them,
        equal parts ("split").
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for the "midpoint" of integers
      and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 9.0, 2.0, 3.0])[:, None]
      >>> [jaxpool.median_pool(x, (4,), method=name).item() for name in ("higher", "lower", "midpoint")]
      [3.0, 2.0, 2.5]
      >>> jaxpool.median_pool(x, (3,)).ravel()
      Array([2., 3.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.median_pool(x, (3,)).sum())(x).ravel()
      Array([0., 0., 1., 1.], dtype=float32)

    References:
      `scipy.ndimage.median_filter`, which pads its border with elements; `torch.median` is "lower", `jnp.median` is
      "midpoint"; Batcher, Sorting Networks and their Applications.
    """

# jaxpool/_api/reduce.py
def min(
    x: ArrayArgument,
    axis: AxisArgument = None,
    *,
    keepdims: bool = False,
    where: MaskArgument = None,
    initial: ArrayArgument | float | None = None,
    ties: Ties = "split",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the smallest element along axes.

    `y[i] = min over j of x[i, j]`, with i the remaining axes and j the reduced axes.

    Gradient: as in `max`, to the elements that attain the minimum. NaN is smaller than every number.

    Args:
      x: array of any shape; floats, integers or bool (max is "or", min is "and").
      axis: an int, a tuple of distinct ints, or None for all axes; a negative axis counts from the end. Row-major order
        follows the order of `axis`. Reduced axes must have a known size.
      keepdims: whether reduced axes remain, with size 1.
      where: the elements to include, a boolean array that broadcasts to x. Needs `initial`.
      initial: a number or scalar array, cast to the dtype of x: a bound of the result. If `initial` lies beyond every
        element, `initial` gets the cotangent; in a tie the elements get all of the cotangent.
      ties: which of equal elements gets the cotangent: all of them ("split"), the "first" or the "last".
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape of x without the reduced axes, or with size 1 for each; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or `initial` is missing with `where` or an empty axis.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([[4, 3], [1, 2]])
      >>> jaxpool.min(x), jaxpool.min(x, axis=0, where=x > 1, initial=9)
      (Array(1, dtype=int32), Array([4, 2], dtype=int32))

    References:
      The arguments of `jax.numpy.min`.
    """

# jaxpool/_api/max_pool.py
def min_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the smallest element of each window.

    `y[b, i, j, c] = min over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, as in `max_pool`.

    Gradient: as in `max_pool`, to the selected element. NaN is smaller than every number; +inf is an ordinary value.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool (min is "and").
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      where: the elements to include, as in `max_pool`. A window without a True gives the highest value of the dtype.
      ties: which of equal elements gets the cotangent: the "first", the "last", or all of them,
        equal parts ("split").
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.min_pool(jnp.array([[4, 3], [1, 2], [0, 5]]), (2,))
      Array([[1, 2],
             [0, 2]], dtype=int32)

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """

# jaxpool/_api/elementwise.py
def minimum(*xs: ArrayArgument | float, ties: Ties = "split", autodiff: Autodiff = "vjp") -> Array:
    """Computes the elementwise minimum of two or more arrays.

    `y[i] = min(x1[i], x2[i], ...)`; the arrays broadcast.

    Gradient: as in `maximum`, to the smallest element at each position. NaN is smaller than every number.

    Args:
      *xs: two or more JAX or NumPy arrays, or Python numbers; floats, integers or bool.
      ties: which of equal elements gets the cotangent: all of them ("split"), the "first" or the "last" argument.
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the broadcast shape and of dtype `jnp.result_type(*xs)`, weakly typed if `jnp.maximum` is.

    Raises:
      TypeError: fewer than two arrays, or an argument that is no array, such as a list or None.
      ValueError: the shapes do not broadcast, or `ties` or `autodiff` has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.minimum(jnp.array([1, 5]), 3)
      Array([1, 3], dtype=int32)

    References:
      `jax.numpy.minimum`.
    """

# jaxpool/_api/regions.py
def multilevel_roi_align(
    features: Sequence[ArrayArgument],
    boxes: ArrayArgument,
    output_shape: IntOrInts,
    *,
    batch_indices: ArrayArgument | None = None,
    spatial_scale: float = 0.25,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
    samples: int = 2,
    aligned: bool = True,
) -> Array:
    """Computes `roi_align` of each box (y0, x0, y1, x1) in the level of a feature pyramid that suits its size.

    Boxes have rows first: torchvision boxes are `boxes[..., [1, 0, 3, 2]]` here. A box of height h and width w in
    pixels of the image is pooled from level `k = floor(canonical_level + log2(sqrt(h * w) / canonical_size))`. If
    there is no level k, the finest or the coarsest level is used. A pixel of level k covers `2**k` pixels.

    Gradient: as in `roi_align` of the selected level, with respect to the features and the boxes. The choice of the
    level has no gradient. Forward and reverse mode, to any order.

    Args:
      features: a list or tuple of arrays (B, H, W, C), or (H, W, C) for one image, one array per level, the finest
        first. The arrays have floats, integers or bool, one dtype and one number of channels. Channels come last.
      boxes: array of shape (B, K, 4) or (..., K, 4) in pixels of the image, as in `roi_align`. A box with `y1 <= y0`
        or `x1 <= x0` gives 0.
      output_shape: the number of cells down and across a box, an int or two ints.
      batch_indices: integers of shape (..., K), the image of each box, as in `roi_align`.
      spatial_scale: pixels of the first level per pixel of the image: 2**-k for level k. Each level halves the scale.
      canonical_size: the size of a box, in pixels of the image, that is pooled from `canonical_level`.
      canonical_level: an int from -1024 to 1024, 4 as in the paper.
      samples: points per cell and axis, an int from 1 to 1024.
      aligned: as in `roi_align`.

    Returns:
      Array of shape (..., K, *output_shape, C); the dtype of the features, or of their `jnp.mean` for integers, bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> fine, coarse = jnp.full((64, 64, 1), 2.0), jnp.full((32, 32, 1), 3.0)
      >>> boxes = jnp.array([[0.0, 0.0, 50.0, 80.0], [0.0, 0.0, 120.0, 110.0]])
      >>> jaxpool.multilevel_roi_align([fine, coarse], boxes, 1).ravel()
      Array([2., 3.], dtype=float32)

    References:
      Lin et al., Feature Pyramid Networks, arXiv:1612.03144, equation 1; `torchvision.ops.MultiScaleRoIAlign`.
    """

# jaxpool/_api/plan_of.py
def plan_of(fn: Callable[..., PyTree]) -> Callable[..., Plans]:
    """Returns a function that lists how each pool in `fn` is computed: its caller, its residual and its passes.

    `plan_of(fn)(*args)` traces `fn(*args)` and computes nothing, so arrays can be `jax.ShapeDtypeStruct`. `fn` is a
    pool, a model, or a whole train step with `jax.grad`, `jax.jit`, `jax.lax.scan` and `jax.vmap` inside. Under
    `accelerate` the replaced reductions of lax are listed too. A pool in a loop is one row, and so are repeated calls
    from one line with arrays of one shape. Under `sharded` and inside a `jax.shard_map`, a row describes the shard of
    one of its `devices`; means over whole axes have no row there.

    A pass reads an array and writes an array, so the passes show the memory traffic of a large window. The passes
    depend on the platform, and are read from the traced kernels. A pass has `axes`, `terms` (elements per element of
    the result), `how` (the JAX primitive), `writes` and `where` (the loops and branches around the pass).

    Gradient: with `jax.grad` in `fn`, `runs` of a row contains "backward". Without `jax.grad`, the row shows the
    residual and passes that a gradient would need.

    Args:
      fn: a function. Arguments that are not arrays are passed on unchanged.

    Returns:
      A function that takes the arguments of `fn` and returns a tuple with one row per pool. A row has `function`,
      `where` (the line of the call), `inputs`, `output`, `examples` (of a `vmap`), `devices` (of a `shard_map`),
      `window`, `kept` and `kept_bytes` (the residual), `runs` (the directions in the program) and `passes`, for
      "cpu", "gpu" and "tpu". The tuple and its rows print as text.

    Raises:
      TypeError: `fn` is not callable. Errors in `fn` are raised during tracing.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> def loss(x):
      ...     return jaxpool.max_pool(x, (2, 2), (2, 2)).sum()
      >>> plans = jaxpool.plan_of(jax.grad(loss))(jax.ShapeDtypeStruct((8, 64, 64, 32), jnp.float32))
      >>> [(row.function, row.runs, row.kept_bytes) for row in plans]
      [('max_pool', ('forward', 'backward'), 262144)]
      >>> [(each.axes, each.terms, each.how) for each in plans[0].passes["gpu"].forward]
      [((1, 2), 4, 'gather')]

    References:
      `python -m jaxpool info --plan CALL` prints the row of a call.
    """

# jaxpool/_api/rank.py
def rank_pool(
    x: ArrayArgument,
    rank: int,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    ties: Ties = "first",
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the element of a rank in each window: 0 is the smallest, -1 the largest.

    Gradient: as in `median_pool`, to the selected element. NaN ranks above every number.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      rank: an int from -n to n - 1, with n the smallest number of real elements in a window.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      where: the elements to include, as in `max_pool`. A window with too few included elements for the rank gives 0.
      ties: which of equal elements gets the cotangent: the "first", the "last", or all of them,
        equal parts ("split").
      autodiff: "vjp", or "jvp" for forward mode too.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.array([4, 1, 3, 2])[:, None]
      >>> jaxpool.rank_pool(x, 1, (3,)).ravel()
      Array([3, 2], dtype=int32)

    References:
      `scipy.ndimage.rank_filter`.
    """

# jaxpool/_api/regions.py
def roi_align(
    x: ArrayArgument,
    boxes: ArrayArgument,
    output_shape: IntOrInts,
    *,
    batch_indices: ArrayArgument | None = None,
    spatial_scale: float = 1.0,
    samples: int = 2,
    aligned: bool = True,
    kind: Literal["avg", "max"] = "avg",
) -> Array:
    """Computes the average or maximum of interpolated points in each cell of boxes (y0, x0, y1, x1).

    Boxes have rows first: torchvision boxes are `boxes[..., [1, 0, 3, 2]]` here.

    `y[k, i, j, c] = sum over (h, w) of down[k, i, h] * across[k, j, w] * x[b_k, h, w, c]`, with K boxes, cells (i, j),
    rows H, columns W, channels C. `down` and `across` are the weights of bilinear interpolation at `samples` evenly
    spaced points per cell and axis. A point more than a pixel outside the image counts as 0, a nearer point as the
    nearest pixel. NaN and infinities of x reach the cells whose points have such a neighbour. A box without area, or
    with `y1 < y0` or `x1 < x0`, gives 0; without `aligned` the box is extended to at least one pixel from (y0, x0).

    Gradient: the derivative of the formula with respect to x and the boxes; at the centre of a pixel, boxes get the
    derivative from the right. For "max" the cotangent goes to the first of the largest points. NaN and infinities of
    x count as 0 in the gradient of boxes. Forward and reverse mode, to any order.

    Args:
      x: array of shape (B, H, W, C), or (H, W, C) for one image; floats, integers or bool. Channels come last. An array
        (B, C, H, W) is not recognised: its C would be pooled as rows.
      boxes: array of shape (B, K, 4), with K boxes for each image, or (..., K, 4) for one image or with `batch_indices`; in
        pixels of the image before `spatial_scale`. A box with a NaN gives 0.
      output_shape: the number of cells down and across a box, an int or two ints.
      batch_indices: integers of shape (..., K), the image of each box, also for boxes (B, K, 4). None takes the first axis
        of `boxes`, or the only image. A box whose traced index is out of range gives 0.
      spatial_scale: a positive number by which boxes are multiplied. Above 1, features are finer than the image in which
        boxes are measured. Parts of a box beyond x are outside the image.
      samples: points per cell and axis, an int from 1 to 1024.
      aligned: True counts coordinates from the corner of a pixel, so half a pixel is subtracted. False counts from
        its centre, and a box is at least one pixel long.
      kind: "avg" or "max" of the points of a cell.

    Returns:
      Array of shape (..., K, *output_shape, C); the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, boxes = jnp.arange(16.0).reshape(4, 4, 1), jnp.array([[0.0, 0.0, 4.0, 4.0]])
      >>> jaxpool.roi_align(x, boxes, 2)[0, ..., 0]
      Array([[ 2.5,  4.5],
             [10.5, 12.5]], dtype=float32)
      >>> jax.grad(lambda boxes: jaxpool.roi_align(x, boxes, 1).sum())(boxes + 0.25)
      Array([[2. , 0.5, 2. , 0.5]], dtype=float32)

    References:
      He et al., Mask R-CNN, arXiv:1703.06870; `torchvision.ops.roi_align`, which has a gradient for x only, and
      interpolates x for a box without area. "max" is as in MMCV and OpenVINO; ONNX compares weighted pixels.
    """

# jaxpool/_api/regions.py
def roi_max_pool(
    x: ArrayArgument,
    boxes: ArrayArgument,
    output_shape: IntOrInts,
    *,
    batch_indices: ArrayArgument | None = None,
    spatial_scale: float = 1.0,
    ties: Ties = "first",
) -> Array:
    """Computes the largest pixel of each cell of boxes (y0, x0, y1, x1), rounded to whole pixels.

    Boxes have rows first: torchvision boxes are `boxes[..., [1, 0, 3, 2]]` here.

    `y[k, i, j, c] = max of x[b_k, h, w, c]` over the rows h of cell i and the columns w of cell j of box k. Corners
    are rounded, halves away from 0, and belong to the box, so a box has `max(y1 - y0 + 1, 1)` rows. Cell i of I has
    the rows from `floor(i * n / I)` to below `ceil((i + 1) * n / I)` of n rows, as far as the rows are in the image.
    A cell without pixels gives 0. These bounds are computed in float32 (float64 for float64 boxes), as in
    torchvision, so a cell may have one more row at either end.

    Gradient: the cotangent of a cell goes to the largest pixel, or by `ties` to equal pixels; boxes get no gradient.
    NaN is larger than every number. Forward and reverse mode, to any order.

    Args:
      x: array of shape (B, H, W, C), or (H, W, C) for one image; floats, integers or bool. Channels come last. An array
        (B, C, H, W) is not recognised: its C would be pooled as rows.
      boxes: array of shape (B, K, 4), with K boxes for each image, or (..., K, 4) for one image or with `batch_indices`; in
        pixels of the image before `spatial_scale`. A box with a NaN gives 0.
      output_shape: the number of cells down and across a box, an int or two ints.
      batch_indices: integers of shape (..., K), the image of each box, also for boxes (B, K, 4). None takes the first axis
        of `boxes`, or the only image. A box whose traced index is out of range gives 0.
      spatial_scale: a positive number by which boxes are multiplied. Above 1, features are finer than the image in which
        boxes are measured. Parts of a box beyond x are outside the image.
      ties: which of equal pixels gets the cotangent: the "first" or the "last" in row-major order, or all of them,
        equal parts ("split").

    Returns:
      Array of shape (..., K, *output_shape, C); the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, boxes = jnp.arange(16.0).reshape(4, 4, 1), jnp.array([[0.0, 0.0, 2.0, 3.0]])
      >>> jaxpool.roi_max_pool(x, boxes, 2)[0, ..., 0]
      Array([[ 5.,  7.],
             [ 9., 11.]], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.roi_max_pool(x, boxes, 1).sum())(x)[..., 0]
      Array([[0., 0., 0., 0.],
             [0., 0., 0., 0.],
             [0., 0., 0., 1.],
             [0., 0., 0., 0.]], dtype=float32)

    References:
      Girshick, Fast R-CNN, arXiv:1504.08083; `torchvision.ops.roi_pool`, which skips NaN.
    """

# jaxpool/_api/segments.py
def segment_logsumexp(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes a smooth maximum of each segment, the logarithm of the sum of the exponentials of its rows.

    `y[s, ...] = T * log(sum over n with segment_ids[n] == s of exp(x[n, ...] / T))`, with temperature T. Nothing
    overflows: if a sum of exponentials leaves the range of its dtype, all are relative to the maximum of the segment.

    Gradient: each row gets its part of the cotangent, the softmax of its segment. Infinities and NaN are as in
    `segment_softmax`. A segment without rows gives -inf, or the lowest value of a dtype without -inf, and its
    cotangent is dropped. Forward and reverse mode, to any order.

    Args:
      x: array of shape (N, ...); floats, integers, or bool except in `segment_sum`.
      segment_ids: integers of shape (N,). A row whose id is negative, or at least `num_segments`, is dropped.
      num_segments: the number of segments. None is the largest id plus one, for ids that are not traced and whose values
        this process has.
      indices_are_sorted: True promises that ids never decrease along N, which saves a sort. Otherwise y is undefined.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Others are in no segment.
      temperature: a finite number above 0, as in `segment_softmax`. For a traced or differentiated T, pass `x / T`
        and multiply the result by T.

    Returns:
      Array of shape (num_segments, ...); the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.segment_logsumexp(jnp.log(jnp.array([1.0, 2.0, 3.0])), jnp.array([0, 2, 0]))
      Array([1.3862944,      -inf, 0.6931472], dtype=float32)

    References:
      `jax.scipy.special.logsumexp`, over one array.
    """

# jaxpool/_api/segments.py
def segment_max(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
    ties: Ties = "split",
) -> Array:
    """Computes the maximum of the rows of each segment, element by element.

    `y[s, ...] = max over n with segment_ids[n] == s of x[n, ...]`, with N rows and S segments; for bool, max is "or".

    Gradient: the cotangent is divided equally among the rows that attain the maximum, or goes to the row that `ties`
    selects. NaN is larger than every number; -inf is an ordinary value. A segment without rows gives the lowest value
    of the dtype, and its cotangent is dropped. Forward and reverse mode, to any order.

    Args:
      x: array of shape (N, ...); floats, integers, or bool except in `segment_sum`.
      segment_ids: integers of shape (N,). A row whose id is negative, or at least `num_segments`, is dropped.
      num_segments: the number of segments. None is the largest id plus one, for ids that are not traced and whose values
        this process has.
      indices_are_sorted: True promises that ids never decrease along N, which saves a sort. Otherwise y is undefined.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Others are in no segment.
      ties: which of equal rows gets the cotangent: all of them ("split"), the "first" or the "last".

    Returns:
      Array of shape (num_segments, ...); the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x, ids = jnp.array([1.0, 5.0, 2.0, 5.0]), jnp.array([0, 2, 0, 2])
      >>> jaxpool.segment_max(x, ids)
      Array([  2., -inf,   5.], dtype=float32)
      >>> jax.grad(lambda x: jaxpool.segment_max(x, ids)[2])(x)
      Array([0. , 0.5, 0. , 0.5], dtype=float32)

    References:
      `jax.ops.segment_max`, whose gradient adds cotangents by a scatter.
    """

# jaxpool/_api/segments.py
def segment_max_with_argmax(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
    ties: Ties = "first",
) -> tuple[Array, Array]:
    """Computes the maximum of the rows of each segment, element by element, and the index of its row.

    `y[s, j] = x[indices[s, j], j]`, the largest `x[n, j]` with `segment_ids[n] == s`, and j along the other axes.

    Gradient: y has the gradient of `segment_max`; the integers `indices` have no gradient. In a segment with a NaN,
    `ties` selects a NaN and its index. A segment without rows has the index N, which is out of range. jax drops an
    update at N, and a gather with `mode="fill"` fills the element.

    Args:
      x: array of shape (N, ...); floats, integers, or bool except in `segment_sum`.
      segment_ids: integers of shape (N,). A row whose id is negative, or at least `num_segments`, is dropped.
      num_segments: the number of segments. None is the largest id plus one, for ids that are not traced and whose values
        this process has.
      indices_are_sorted: True promises that ids never decrease along N, which saves a sort. Otherwise y is undefined.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Others are in no segment.
      ties: which of equal rows gets the cotangent and the index: the "first" or the "last". "split" divides the
        cotangent among all equal rows and returns the index of the first row.

    Returns:
      y, an array of shape (num_segments, ...) and of the dtype of x, and `indices`, an int32 array of the same shape.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> y, indices = jaxpool.segment_max_with_argmax(jnp.array([1, 5, 2, 5]), jnp.array([0, 2, 0, 2]), 4)
      >>> y[2], indices
      (Array(5, dtype=int32), Array([2, 4, 1, 4], dtype=int32))

    References:
      `scatter_max` of PyTorch Scatter, which also returns N for an empty segment.
    """

# jaxpool/_api/segments.py
def segment_mean(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes the mean of the rows of each segment, element by element.

    `y[s, ...] = sum over n with segment_ids[n] == s of x[n, ...] / (number of these n)`.

    Gradient: each row gets an equal part of the cotangent of its segment. A segment without rows gives 0, and its
    cotangent is dropped. Forward and reverse mode, to any order.

    Args:
      x: array of shape (N, ...); floats, integers, or bool except in `segment_sum`.
      segment_ids: integers of shape (N,). A row whose id is negative, or at least `num_segments`, is dropped.
      num_segments: the number of segments. None is the largest id plus one, for ids that are not traced and whose values
        this process has.
      indices_are_sorted: True promises that ids never decrease along N, which saves a sort. Otherwise y is undefined.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Others are in no segment.

    Returns:
      Array of shape (num_segments, ...); the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.segment_mean(jnp.array([1.0, 5.0, 3.0]), jnp.array([0, 2, 0]), 4)
      Array([2., 0., 5., 0.], dtype=float32)

    References:
      `jax.ops.segment_sum` divided by the number of rows, as in graph libraries.
    """

# jaxpool/_api/segments.py
def segment_min(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
    ties: Ties = "split",
) -> Array:
    """Computes the minimum of the rows of each segment, element by element.

    `y[s, ...] = min over n with segment_ids[n] == s of x[n, ...]`, with N rows and S segments ("and" for bool).

    Gradient: as in `segment_max`, to the rows that attain the minimum. NaN is smaller than every number. A segment
    without rows gives the highest value of the dtype.

    Args:
      x: array of shape (N, ...); floats, integers, or bool except in `segment_sum`.
      segment_ids: integers of shape (N,). A row whose id is negative, or at least `num_segments`, is dropped.
      num_segments: the number of segments. None is the largest id plus one, for ids that are not traced and whose values
        this process has.
      indices_are_sorted: True promises that ids never decrease along N, which saves a sort. Otherwise y is undefined.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Others are in no segment.
      ties: which of equal rows gets the cotangent: all of them ("split"), the "first" or the "last".

    Returns:
      Array of shape (num_segments, ...); the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.segment_min(jnp.array([4, 3, 1, 2]), jnp.array([1, 1, 0, -1]), 2)
      Array([1, 3], dtype=int32)

    References:
      `jax.ops.segment_min`.
    """

# jaxpool/_api/segments.py
def segment_softmax(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    temperature: float = 1.0,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes the softmax over the rows of each segment, element by element.

    `y[n, ...] = exp(x[n, ...] / T) / sum over m with segment_ids[m] == segment_ids[n] of exp(x[m, ...] / T)`, with N
    rows and temperature T. Exponentials are relative to the maximum of their segment, so nothing overflows.

    Gradient: `dx[n] = y[n] * (dy[n] - sum over the segment of y[m] * dy[m]) / T`. Infinities are ordinary values:
    rows of only -inf get equal parts, and so do several +inf; a NaN makes its segment NaN. An element with `y == 0`
    gets the gradient 0, and its cotangent is ignored, even a NaN. Forward and reverse mode, to any order.

    Args:
      x: array of shape (N, ...); floats, integers, or bool except in `segment_sum`.
      segment_ids: integers of shape (N,). A row whose id is negative, or at least `num_segments`, is dropped.
      num_segments: the number of segments. None is the largest id plus one, for ids that are not traced and whose values
        this process has.
      indices_are_sorted: True promises that ids never decrease along N, which saves a sort. Otherwise y is undefined.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Others are in no segment. Their result is 0.
      temperature: a finite number above 0, clipped to the range from 1.2e-38 to 8.5e37 in float32. Divide x by a
        temperature that is traced or differentiated.

    Returns:
      Array of the shape of x; the dtype of x, or of `jnp.mean(x)` for integers and bool. A row of no segment is 0.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> scores, target = jnp.array([1.0, 3.0, 1.0, 7.0]), jnp.array([0, 1, 0, 5])
      >>> jaxpool.segment_softmax(scores, target, 3)
      Array([0.5, 1. , 0.5, 0. ], dtype=float32)

    References:
      `jraph.segment_softmax`, which may return NaN for a row whose id is out of range.
    """

# jaxpool/_api/segments.py
def segment_sum(
    x: ArrayArgument,
    segment_ids: ArrayArgument,
    num_segments: int | None = None,
    *,
    where: MaskArgument = None,
    indices_are_sorted: bool = False,
) -> Array:
    """Computes the sum of the rows of each segment, element by element.

    `y[s, ...] = sum over n with segment_ids[n] == s of x[n, ...]`, with N rows and S segments.

    Gradient: each row gets the cotangent of its segment. Without rows y is 0. Forward and reverse mode, to any order.

    Args:
      x: array of shape (N, ...); floats, integers, or bool except in `segment_sum`.
      segment_ids: integers of shape (N,). A row whose id is negative, or at least `num_segments`, is dropped.
      num_segments: the number of segments. None is the largest id plus one, for ids that are not traced and whose values
        this process has.
      indices_are_sorted: True promises that ids never decrease along N, which saves a sort. Otherwise y is undefined.
      where: the elements to include, a boolean array that broadcasts to x; None is all. Others are in no segment.

    Returns:
      Array of shape (num_segments, ...); the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.segment_sum(jnp.array([1.0, 5.0, 3.0]), jnp.array([0, 2, 0]), 4)
      Array([4., 0., 5., 0.], dtype=float32)

    References:
      `jax.ops.segment_sum`, which adds the rows of a segment one after another.
    """

# jaxpool/_api/sharded.py
def sharded(
    pool: Callable[P, R],
    *,
    mesh: Mesh | AbstractMesh | None = None,
    spec: PartitionSpec | None = None,
) -> Callable[P, R]:
    """Returns a version of `pool` for arrays that are sharded along the pooled axes.

    `y = sharded(pool, spec=spec)(x, ...)` is `y = pool(x, ...)`, where x is sharded by `spec`, and y has the same
    sharding. Each device pools its own shard. Neighbours send the halo, the rows that the windows reach beyond the
    shard, by collective-permutes, forward and backward. Pools over whole axes are all-reduces. A function that needs
    a whole axis raises if the axis is sharded.

    Under explicit axis types, the default of `jax.make_mesh`, the type of x shows its sharding, and `pool` alone
    suffices. Under automatic axis types the sharding is read from x outside of `jax.jit` and `jax.grad`; `spec` works
    anywhere. `pool` alone is correct too, but XLA chooses the communication. Inside a `jax.shard_map` over the axes
    of `spec`, x is the shard of this device; sizes, windows and positions refer to the whole array.

    Gradient: as in `pool`, in its modes and to any order.

    Args:
      pool: a function of this library that takes an array, or outside of a `shard_map` a composition of such
        functions. The array is the first argument, or follows a `key`; of several operands, the operand with the most
        axes, and of those the one with the fewest axes of size 1. Arguments whose axes are those of the array are
        sharded like the array: `y`, `indices`, `where`, `reset`, `temperature` and `p`, also as parameters of a
        composition. Other arrays keep their sharding. Inside a `shard_map` other arrays are the parts of this device.
        Over automatic mesh axes, `pool` gets the array of an object with `__jax_array__` that is not a pytree.
      mesh: the mesh of x; None reads the mesh from the type of x, from x, or from `jax.set_mesh`.
      spec: a `jax.sharding.PartitionSpec` with one entry per axis of x. None reads the spec from the type of x, or
        from x outside of `jax.jit` and `jax.grad`.

    Returns:
      A function with the signature of `pool`, whose results are sharded like x along the remaining axes. The number
      of shards of an axis must divide the sizes of x and y. The function can be pickled and copied if `pool`
      and `mesh` can.

    Raises:
      TypeError: `pool` is not callable, or the returned function finds that `mesh` or `spec` is unknown or of the
        wrong kind.
      ValueError: the returned function finds that `mesh` or `spec` does not match x, or that shards would differ in
        size. Errors of `pool` have the name of `pool`.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> from jax.sharding import NamedSharding, PartitionSpec
      >>> mesh = jax.make_mesh((1,), ("rows",), (jax.sharding.AxisType.Auto,))
      >>> spec = PartitionSpec("rows")
      >>> x = jax.device_put(jnp.array([[1.0, 3.0], [2.0, 5.0]]), NamedSharding(mesh, spec))
      >>> pool = jaxpool.sharded(jaxpool.max_pool, spec=spec)
      >>> y = jax.jit(lambda x: pool(x, (2,), (2,), axes=(0,)))(x)
      >>> y, y.sharding.spec[0]
      (Array([[2., 5.]], dtype=float32), 'rows')

    References:
      `jax.sharding.explicit_axes`; `jax.shard_map` and `jax.lax.ppermute`.
    """

# jaxpool/_api/soft.py
def softmax_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    temperature: float | ArrayArgument = 1.0,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
) -> Array:
    """Computes the mean of each window, weighted by the softmax of its elements (SoftPool).

    `y[b, i, j, c] = sum over (u, v) of w * x[b, i * s - p + u * d, j * s - p + v * d, c]` with `w = softmax(x / T)`
    over the window, temperature T and the other letters of `max_pool`. Padding has weight 0. y approaches the mean as
    T grows, and the maximum as T goes to 0.

    Gradient: an element gets `w * (1 + (x - y) / T)` of the cotangent. A window of equal infinities gives this
    infinity, and equal parts to its elements; next to larger elements -inf has weight 0. A NaN makes the output and
    the gradient of its windows NaN. Forward and reverse mode, to any order, also for an array `temperature`.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      temperature: a finite number above 0, or an array of such numbers, as in `logsumexp_pool`.
      where: the elements to include, as in `logsumexp_pool`, but a window without a True gives 0.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> rounded = lambda y: [round(value, 2) for value in y.ravel().tolist()]
      >>> x = jnp.array([1.0, 1.0, 0.0, 3.0])[:, None]
      >>> rounded(jaxpool.softmax_pool(x, (2,), (2,)))
      [1.0, 2.86]
      >>> rounded(jaxpool.softmax_pool(x, (2,), (2,), temperature=0.1))
      [1.0, 3.0]

    References:
      Stergiou, Poppe and Kalliatakis, "Refining activation downsampling with SoftPool", arXiv:2101.00440.
    """

# jaxpool/_api/adaptive.py
def spatial_pyramid_pool(
    x: ArrayArgument,
    levels: Sequence[int],
    *,
    kind: Literal["max", "avg"] = "max",
    axes: Axes = None,
) -> Array:
    """Computes adaptive pools of several sizes, joined into a vector whose length does not depend on the size of x.

    `y[b, (l, i, j, c)] = pool(x, (n_l, n_l))[b, i, j, c]`, with levels `n_l` from coarse to fine, windows (i, j) in
    row-major order, B batch and C channels, which vary fastest. Any number of axes can be pooled.

    Gradient: as in `adaptive_max_pool` with `ties="first"`, or as in `adaptive_avg_pool`. Cotangents of the levels
    add up. Forward and reverse mode, to any order; averages also support `jax.linear_transpose`.

    Args:
      x: array of shape `(B, *spatial, C)`, or of any shape with `axes`; floats, integers or bool. Pooled axes have a
        known size of at least 1.
      levels: a tuple of positive ints, the number of windows of each level along every pooled axis, in any order. The
        output has the levels in ascending order.
      kind: "max" or "avg".
      axes: the pooled axes; None is all except the first and the last. The last other axis is the channel axis.

    Returns:
      Array of shape `(..., C * sum of n_l**k)`, with k the number of pooled axes; the dtype of x, or of `jnp.mean(x)`
      for averages of integers and bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, or a pooled axis has no elements.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> x = jnp.arange(16.0).reshape(1, 4, 4, 1)
      >>> jaxpool.spatial_pyramid_pool(x, (1, 2))
      Array([[15.,  5.,  7., 13., 15.]], dtype=float32)

    References:
      He et al., Spatial Pyramid Pooling in Deep Convolutional Networks, arXiv:1406.4729.
    """

# jaxpool/_api/random.py
def stochastic_pool(
    key: ArrayArgument | None,
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    axes: Axes = None,
) -> Array:
    """Draws one element of each window, with a probability proportional to its value.

    `y[b, i, j, c] = x[b, i * s - p + u, j * s - p + v, c]` with (u, v) drawn with the probability `w[u, v] / sum(w)`,
    where `w[u, v] = max(x[b, i * s - p + u, j * s - p + v, c], 0)`, with the letters of `max_pool`. Overlapping
    windows draw independently. With `key=None`, for evaluation, y is the mean of a draw, `sum(w * x) / sum(w)`. A
    window whose weights are all 0 gives its first real element; padding is never drawn. In float32 an element with
    less than about 1e-7 of the weight may never be drawn.

    Gradient: the cotangent of a draw goes to the drawn element, and overlapping windows add up. With `key=None` the
    gradient is the derivative of the formula, 0 for elements of weight 0. NaN is drawn before +inf, and +inf before
    any number; the mean is NaN or +inf then. Forward and reverse mode, to any order.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, also bool.
      key: a PRNG key such as `jax.random.key(0)`, which always draws the same elements, or None for the mean.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x, or of `jnp.mean(x)` for the mean of integers or bool.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jax, jaxpool, jax.numpy as jnp
      >>> x = jnp.array([1.0, 3.0, 0.0, 2.0])[:, None]
      >>> jaxpool.stochastic_pool(jax.random.key(0), x, (2,), (2,)).ravel()
      Array([3., 2.], dtype=float32)
      >>> jaxpool.stochastic_pool(None, x, (2,), (2,)).ravel()
      Array([2.5, 2. ], dtype=float32)

    References:
      Zeiler and Fergus, Stochastic Pooling for Regularization of Deep Convolutional Neural Networks, arXiv:1301.3557.
    """

# jaxpool/_api/avg_pool.py
def sum_pool(
    x: ArrayArgument,
    window_shape: IntOrInts,
    strides: IntOrInts | None = None,
    padding: Padding = "VALID",
    *,
    window_dilation: IntOrInts | None = None,
    ceil_mode: bool = False,
    axes: Axes = None,
    where: MaskArgument = None,
    autodiff: Autodiff = "vjp",
) -> Array:
    """Computes the sum of each window.

    `y[b, i, j, c] = sum over (u, v) of x[b, i * s - p + u * d, j * s - p + v * d, c]`, with the letters of
    `max_pool`. Padding counts as 0.

    Gradient: each element gets the sum of the cotangents of the windows that contain the element.

    Args:
      x: array of shape `(..., *spatial, C)`, or of any shape with `axes`; floats or integers, not bool.
      window_shape: one positive int per pooled axis, or a single int with `axes`.
      strides: one positive int per pooled axis, or one int for all axes; None is 1.
      padding: as in `max_pool`.
      window_dilation: distance between neighbouring window elements; None is 1.
      ceil_mode: whether to round the output size up.
      axes: the pooled axes; None is the `len(window_shape)` axes before the last axis.
      where: the elements to include, as in `max_pool`. Excluded elements count as 0, even NaN, and get no gradient.
      autodiff: "vjp", or "jvp" for forward mode and `jax.linear_transpose` too.

    Returns:
      Array of the shape that `max_pool` returns; the dtype of x.

    Raises:
      TypeError: an argument is of the wrong kind.
      ValueError: an argument has a wrong value, an output axis would be empty, or a window would contain only padding.

    Example:
      >>> import jaxpool, jax.numpy as jnp
      >>> jaxpool.sum_pool(jnp.arange(5.0)[:, None], (3,)).ravel()
      Array([3., 6., 9.], dtype=float32)

    References:
      The window arithmetic of `jax.lax.reduce_window`.
    """
