"""The pooling layers of `torch.nn`. Each layer calls the function of `compat.torch` with the same name."""

from jaxpool.compat import _torch_adaptive as adaptive
from jaxpool.compat import _torch_avg_pool as avg
from jaxpool.compat import _torch_fractional as fractional
from jaxpool.compat import _torch_layers as layers
from jaxpool.compat import _torch_lp as lp
from jaxpool.compat import _torch_max_pool as most
from jaxpool.compat import _torch_unpool as unpool


class MaxPool1d(layers.MaxPool, function=most.max_pool1d):
    """The largest element of each window of `(N, C, L)` or `(C, L)`, as `torch.nn.MaxPool1d`.

    Takes `kernel_size`, `stride=None`, `padding=0`, `dilation=1`, `return_indices=False` and `ceil_mode=False`, and
    is called with an array. Dtypes, gradient and errors are those of `max_pool1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> pool = nn.MaxPool1d(2)
      >>> pool, pool(jnp.arange(4.0)[None])
      (MaxPool1d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False),
       Array([[1., 3.]], dtype=float32))
    """


class MaxPool2d(layers.MaxPool, function=most.max_pool2d):
    """The largest element of each window, `max_pool2d` as a layer of two pooled axes; see `MaxPool1d`."""


class MaxPool3d(layers.MaxPool, function=most.max_pool3d):
    """The largest element of each window, `max_pool3d` as a layer of three pooled axes; see `MaxPool1d`."""


class AvgPool1d(layers.AvgPool, function=avg.avg_pool1d):
    """The average of each window of `(N, C, L)` or `(C, L)`, as `torch.nn.AvgPool1d`.

    Takes `kernel_size`, `stride=None`, `padding=0`, `ceil_mode=False` and `count_include_pad=True`, and is called
    with an array, see `avg_pool1d`. The 2d and 3d layers also take `divisor_override=None`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> nn.AvgPool1d(2)(jnp.arange(4.0)[None])
      Array([[0.5, 2.5]], dtype=float32)
    """


class AvgPool2d(layers.AvgPoolWithDivisor, function=avg.avg_pool2d):
    """The average of each window, `avg_pool2d` as a layer of two pooled axes; see `AvgPool1d`."""


class AvgPool3d(layers.AvgPoolWithDivisor, function=avg.avg_pool3d):
    """The average of each window, `avg_pool3d` as a layer of three pooled axes; see `AvgPool1d`."""


class LPPool1d(layers.LPPool, function=lp.lp_pool1d):
    """The norm of each window of `(N, C, L)` or `(C, L)`, as `torch.nn.LPPool1d`.

    Takes `norm_type`, `kernel_size`, `stride=None` and `ceil_mode=False`, and is called with an array, see
    `lp_pool1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> nn.LPPool1d(2, 2)(jnp.array([[3.0, 4.0]]))
      Array([[5.]], dtype=float32)
    """


class LPPool2d(layers.LPPool, function=lp.lp_pool2d):
    """The norm of each window, `lp_pool2d` as a layer of two pooled axes; see `LPPool1d`."""


class LPPool3d(layers.LPPool, function=lp.lp_pool3d):
    """The norm of each window, `lp_pool3d` as a layer of three pooled axes; see `LPPool1d`."""


class AdaptiveMaxPool1d(layers.AdaptiveMaxPool, function=adaptive.adaptive_max_pool1d):
    """The largest element of each of `output_size` windows of `(N, C, L)` or `(C, L)`, as `torch.nn.AdaptiveMaxPool1d`.

    Takes `output_size` and `return_indices=False`, and is called with an array, see `adaptive_max_pool1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> nn.AdaptiveMaxPool1d(2)(jnp.arange(5.0)[None])
      Array([[2., 4.]], dtype=float32)
    """


class AdaptiveMaxPool2d(layers.AdaptiveMaxPool, function=adaptive.adaptive_max_pool2d):
    """`adaptive_max_pool2d` as a layer of two pooled axes; see `AdaptiveMaxPool1d`."""


class AdaptiveMaxPool3d(layers.AdaptiveMaxPool, function=adaptive.adaptive_max_pool3d):
    """`adaptive_max_pool3d` as a layer of three pooled axes; see `AdaptiveMaxPool1d`."""


class AdaptiveAvgPool1d(layers.AdaptiveAvgPool, function=adaptive.adaptive_avg_pool1d):
    """The average of each of `output_size` windows of `(N, C, L)` or `(C, L)`, as `torch.nn.AdaptiveAvgPool1d`.

    Takes `output_size`, and is called with an array, see `adaptive_avg_pool1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> nn.AdaptiveAvgPool1d(2)(jnp.arange(5.0)[None])
      Array([[1., 3.]], dtype=float32)
    """


class AdaptiveAvgPool2d(layers.AdaptiveAvgPool, function=adaptive.adaptive_avg_pool2d):
    """`adaptive_avg_pool2d` as a layer of two pooled axes; see `AdaptiveAvgPool1d`."""


class AdaptiveAvgPool3d(layers.AdaptiveAvgPool, function=adaptive.adaptive_avg_pool3d):
    """`adaptive_avg_pool3d` as a layer of three pooled axes; see `AdaptiveAvgPool1d`."""


class MaxUnpool1d(layers.MaxUnpool, function=unpool.max_unpool1d):
    """The elements of `(N, C, L)` or `(C, L)` at their indices, zeros elsewhere, as `torch.nn.MaxUnpool1d`.

    Takes `kernel_size`, `stride=None` and `padding=0`, and is called with an array, its indices and
    `output_size=None`, see `max_unpool1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> y, indices = nn.MaxPool1d(2, return_indices=True)(jnp.arange(4.0)[None])
      >>> nn.MaxUnpool1d(2)(y, indices)
      Array([[0., 1., 0., 3.]], dtype=float32)
    """


class MaxUnpool2d(layers.MaxUnpool, function=unpool.max_unpool2d):
    """The elements at their indices, `max_unpool2d` as a layer of two pooled axes; see `MaxUnpool1d`."""


class MaxUnpool3d(layers.MaxUnpool, function=unpool.max_unpool3d):
    """The elements at their indices, `max_unpool3d` as a layer of three pooled axes; see `MaxUnpool1d`."""


class FractionalMaxPool2d(layers.FractionalMaxPool, function=fractional.fractional_max_pool2d):
    """The largest element of windows at random positions, as `torch.nn.FractionalMaxPool2d`.

    Takes `kernel_size`, `output_size=None`, `output_ratio=None`, `return_indices=False` and `_random_samples=None`.
    Pass either `output_size` or `output_ratio`. The layer is called with an array, and with `key` if there are no
    samples, see `fractional_max_pool2d`.

    Raises:
      TypeError: `output_ratio` is not a number.
      ValueError: both or neither are passed, or the ratio is not between 0 and 1.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> pool = nn.FractionalMaxPool2d(2, output_size=(3, 2))
      >>> pool(jnp.ones((1, 8, 8)), key=jax.random.key(0)).shape
      (1, 3, 2)
    """


class FractionalMaxPool3d(layers.FractionalMaxPool, function=fractional.fractional_max_pool3d):
    """`fractional_max_pool3d` as a layer of three pooled axes; see `FractionalMaxPool2d`."""
