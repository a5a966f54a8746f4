"""The pooling layers of `torch.nn`: frozen dataclasses that call the function of `compat.torch` with the same name.

Arguments are checked when a layer is called, as in PyTorch. Only fractional pools check `output_size` and
`output_ratio` at construction. A layer with hashable fields is hashable, and may be a static argument of `jax.jit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jax import Array

from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool._arguments.sizes import array_to_list
from jaxpool.compat import _torch_adaptive as adaptive
from jaxpool.compat import _torch_fractional as fractional
from jaxpool.compat import _torch_unpool as unpool
from jaxpool.compat import _torch_windowed as windowed
from jaxpool.compat._function_layer import FunctionLayer, frozen_layer
from jaxpool.compat._torch_adaptive import OutputSizes
from jaxpool.compat._torch_args import IntOrInts, ValuesOrValuesAndIndices


def _tuple_per_axis(value: Any, num_axes: int) -> Any:
    """`value` as a tuple with one entry per axis, as PyTorch stores some sizes; an array of another shape as it is."""
    if tuple(getattr(value, "shape", ())) not in ((), (num_axes,)):
        return value
    value = array_to_list(value)
    return tuple(value) if hasattr(value, "__iter__") else (value,) * num_axes


@frozen_layer
class Layer(FunctionLayer):
    """Base class of all layers, with a `repr` like PyTorch's."""

    num_spatial_dims: ClassVar[int]
    repr_fields: ClassVar[tuple[str, ...]]

    def __call__(self, input: Any) -> Any:
        """The function of the layer with `input` and the arguments of the layer."""
        return self.call_function(input)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.repr_fields)
        return f"{type(self).__name__}({fields})"

    def _set_frozen_fields(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __init_subclass__(cls, function: Callable[..., Any] | None = None) -> None:
        super().__init_subclass__(function)
        if function is not None:
            cls.num_spatial_dims = int(cls.__name__[-2])


@frozen_layer
class MaxPool(Layer):
    """Base class of max pooling layers, with their arguments."""

    kernel_size: IntOrInts
    stride: IntOrInts | None = None
    padding: IntOrInts = 0
    dilation: IntOrInts = 1
    return_indices: bool = False
    ceil_mode: bool = False
    repr_fields = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __post_init__(self) -> None:
        self._set_frozen_fields(stride=self.kernel_size if self.stride is None else self.stride)


class MaxPool1d(MaxPool, function=windowed.max_pool1d):
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


class MaxPool2d(MaxPool, function=windowed.max_pool2d):
    """The largest element of each window, `max_pool2d` as a layer of two pooled axes; see `MaxPool1d`."""


class MaxPool3d(MaxPool, function=windowed.max_pool3d):
    """The largest element of each window, `max_pool3d` as a layer of three pooled axes; see `MaxPool1d`."""


@frozen_layer
class AvgPool(Layer):
    """Base class of average pooling layers, with the arguments of layers with one pooled axis."""

    kernel_size: IntOrInts
    stride: IntOrInts | None = None
    padding: IntOrInts = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    repr_fields = ("kernel_size", "stride", "padding")

    def __post_init__(self) -> None:
        self._set_frozen_fields(stride=self.kernel_size if self.stride is None else self.stride)
        if self.num_spatial_dims == 1:
            self._set_frozen_fields(
                **{name: _tuple_per_axis(getattr(self, name), 1) for name in self.repr_fields}
            )


class AvgPool1d(AvgPool, function=windowed.avg_pool1d):
    """The average of each window of `(N, C, L)` or `(C, L)`, as `torch.nn.AvgPool1d`.

    Takes `kernel_size`, `stride=None`, `padding=0`, `ceil_mode=False` and `count_include_pad=True`, and is called
    with an array, see `avg_pool1d`. The 2d and 3d layers also take `divisor_override=None`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> nn.AvgPool1d(2)(jnp.arange(4.0)[None])
      Array([[0.5, 2.5]], dtype=float32)
    """


@frozen_layer
class AvgPoolWithDivisor(AvgPool):
    """Base class of average pooling layers with two or three pooled axes."""

    divisor_override: int | None = None


class AvgPool2d(AvgPoolWithDivisor, function=windowed.avg_pool2d):
    """The average of each window, `avg_pool2d` as a layer of two pooled axes; see `AvgPool1d`."""


class AvgPool3d(AvgPoolWithDivisor, function=windowed.avg_pool3d):
    """The average of each window, `avg_pool3d` as a layer of three pooled axes; see `AvgPool1d`."""


@frozen_layer
class LPPool(Layer):
    """Base class of Lp pooling layers, with their arguments."""

    norm_type: float
    kernel_size: IntOrInts
    stride: IntOrInts | None = None
    ceil_mode: bool = False
    repr_fields = ("norm_type", "kernel_size", "stride", "ceil_mode")


class LPPool1d(LPPool, function=windowed.lp_pool1d):
    """The norm of each window of `(N, C, L)` or `(C, L)`, as `torch.nn.LPPool1d`.

    Takes `norm_type`, `kernel_size`, `stride=None` and `ceil_mode=False`, and is called with an array, see
    `lp_pool1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> nn.LPPool1d(2, 2)(jnp.array([[3.0, 4.0]]))
      Array([[5.]], dtype=float32)
    """


class LPPool2d(LPPool, function=windowed.lp_pool2d):
    """The norm of each window, `lp_pool2d` as a layer of two pooled axes; see `LPPool1d`."""


class LPPool3d(LPPool, function=windowed.lp_pool3d):
    """The norm of each window, `lp_pool3d` as a layer of three pooled axes; see `LPPool1d`."""


@frozen_layer
class AdaptiveMaxPool(Layer):
    """Base class of adaptive max pooling layers, with their arguments."""

    output_size: OutputSizes
    return_indices: bool = False
    repr_fields = ("output_size",)


class AdaptiveMaxPool1d(AdaptiveMaxPool, function=adaptive.adaptive_max_pool1d):
    """The largest element of each of `output_size` windows of `(N, C, L)` or `(C, L)`, as `torch.nn.AdaptiveMaxPool1d`.

    Takes `output_size` and `return_indices=False`, and is called with an array, see `adaptive_max_pool1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> nn.AdaptiveMaxPool1d(2)(jnp.arange(5.0)[None])
      Array([[2., 4.]], dtype=float32)
    """


class AdaptiveMaxPool2d(AdaptiveMaxPool, function=adaptive.adaptive_max_pool2d):
    """`adaptive_max_pool2d` as a layer of two pooled axes; see `AdaptiveMaxPool1d`."""


class AdaptiveMaxPool3d(AdaptiveMaxPool, function=adaptive.adaptive_max_pool3d):
    """`adaptive_max_pool3d` as a layer of three pooled axes; see `AdaptiveMaxPool1d`."""


@frozen_layer
class AdaptiveAvgPool(Layer):
    """Base class of adaptive average pooling layers, with their arguments."""

    output_size: OutputSizes
    repr_fields = ("output_size",)


class AdaptiveAvgPool1d(AdaptiveAvgPool, function=adaptive.adaptive_avg_pool1d):
    """The average of each of `output_size` windows of `(N, C, L)` or `(C, L)`, as `torch.nn.AdaptiveAvgPool1d`.

    Takes `output_size`, and is called with an array, see `adaptive_avg_pool1d`.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxpool.compat import torch as nn
      >>> nn.AdaptiveAvgPool1d(2)(jnp.arange(5.0)[None])
      Array([[1., 3.]], dtype=float32)
    """


class AdaptiveAvgPool2d(AdaptiveAvgPool, function=adaptive.adaptive_avg_pool2d):
    """`adaptive_avg_pool2d` as a layer of two pooled axes; see `AdaptiveAvgPool1d`."""


class AdaptiveAvgPool3d(AdaptiveAvgPool, function=adaptive.adaptive_avg_pool3d):
    """`adaptive_avg_pool3d` as a layer of three pooled axes; see `AdaptiveAvgPool1d`."""


@frozen_layer
class MaxUnpool(Layer):
    """Base class of max unpooling layers, with their arguments."""

    kernel_size: IntOrInts
    stride: IntOrInts | None = None
    padding: IntOrInts = 0
    repr_fields = ("kernel_size", "stride", "padding")

    def __post_init__(self) -> None:
        stride = self.kernel_size if self.stride is None else self.stride
        sizes = {"kernel_size": self.kernel_size, "stride": stride, "padding": self.padding}
        self._set_frozen_fields(
            **{name: _tuple_per_axis(size, self.num_spatial_dims) for name, size in sizes.items()}
        )

    def __call__(self, input: Any, indices: Any, output_size: Sequence[int] | None = None) -> Array:
        """The elements of input at `indices`, zeros elsewhere."""
        y: Array = self.call_function(input, indices, output_size=output_size)
        return y


class MaxUnpool1d(MaxUnpool, function=unpool.max_unpool1d):
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


class MaxUnpool2d(MaxUnpool, function=unpool.max_unpool2d):
    """The elements at their indices, `max_unpool2d` as a layer of two pooled axes; see `MaxUnpool1d`."""


class MaxUnpool3d(MaxUnpool, function=unpool.max_unpool3d):
    """The elements at their indices, `max_unpool3d` as a layer of three pooled axes; see `MaxUnpool1d`."""


@frozen_layer
class FractionalMaxPool(Layer):
    """Base class of fractional max pooling layers, with their arguments."""

    kernel_size: IntOrInts
    output_size: IntOrInts | None = None
    output_ratio: float | Sequence[float] | None = None
    return_indices: bool = False
    _random_samples: Any = None
    repr_fields = ("kernel_size", "output_size", "output_ratio")

    def __post_init__(self) -> None:
        self._set_frozen_fields(
            kernel_size=_tuple_per_axis(self.kernel_size, self.num_spatial_dims)
        )
        with name_function_in_errors(f"compat.torch.{type(self).__name__}"):
            if (self.output_size is None) == (self.output_ratio is None):
                rule = "given, or else `output_ratio`, and not both"
                raise ArgumentError("output_size", rule, self.output_size, "Pass one of the two.")
            if self.output_size is not None:
                self._set_frozen_fields(
                    output_size=_tuple_per_axis(self.output_size, self.num_spatial_dims)
                )
                return
            ratios = _tuple_per_axis(self.output_ratio, self.num_spatial_dims)
            rule, hint = "one number or more between 0 and 1", "Pass 0.5, say."
            if not all(isinstance(ratio, (int, float)) for ratio in ratios):
                raise ArgumentError("output_ratio", rule, self.output_ratio, hint, TypeError)
            if not all(0 < ratio < 1 for ratio in ratios):
                raise ArgumentError("output_ratio", rule, self.output_ratio, hint)
            self._set_frozen_fields(output_ratio=ratios)

    def __call__(self, input: Any, *, key: Any = None) -> ValuesOrValuesAndIndices:
        """The largest element of windows of input at random positions, drawn with `key`."""
        y: ValuesOrValuesAndIndices = self.call_function(input, key=key)
        return y


class FractionalMaxPool2d(FractionalMaxPool, function=fractional.fractional_max_pool2d):
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


class FractionalMaxPool3d(FractionalMaxPool, function=fractional.fractional_max_pool3d):
    """`fractional_max_pool3d` as a layer of three pooled axes; see `FractionalMaxPool2d`."""
