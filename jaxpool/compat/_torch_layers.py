"""Base classes of the layers of `torch.nn`: frozen dataclasses that call the functions of `compat.torch`.

Arguments are checked when a layer is called, as in PyTorch. Only fractional pools check `output_size` and
`output_ratio` at construction. A layer with hashable fields is hashable, and may be a static argument of `jax.jit`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from jax import Array

from jaxpool._arguments.errors import ArgumentError, name_function_in_errors
from jaxpool.compat._torch_adaptive import OutputSizes
from jaxpool.compat._torch_args import IntOrInts, ValuesOrValuesAndIndices

PoolFunction = Callable[..., Any]


def _tuple_per_axis(value: Any, num_axes: int) -> Any:
    """`value` as a tuple with one entry per axis, as PyTorch stores some sizes."""
    return tuple(value) if hasattr(value, "__iter__") else (value,) * num_axes


@dataclasses.dataclass(frozen=True, repr=False)
class Layer:
    """Base class of all layers: the function to call, and a `repr` like PyTorch's."""

    function: ClassVar[PoolFunction]
    num_spatial_dims: ClassVar[int]
    repr_fields: ClassVar[tuple[str, ...]]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.repr_fields)
        return f"{type(self).__name__}({fields})"

    def _set_frozen_fields(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __init_subclass__(cls, function: PoolFunction | None = None) -> None:
        if function is not None:
            cls.function = staticmethod(function)
            cls.num_spatial_dims = int(cls.__name__[-2])


@dataclasses.dataclass(frozen=True, repr=False)
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

    def __call__(self, input: Any) -> ValuesOrValuesAndIndices:
        """The largest element of each window of input."""
        sizes = (self.kernel_size, self.stride, self.padding, self.dilation)
        y: ValuesOrValuesAndIndices = self.function(
            input, *sizes, self.ceil_mode, self.return_indices
        )
        return y


@dataclasses.dataclass(frozen=True, repr=False)
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

    def __call__(self, input: Any) -> Array:
        """The average of each window of input."""
        y: Array = self.function(
            input, *(getattr(self, field.name) for field in dataclasses.fields(self))
        )
        return y


@dataclasses.dataclass(frozen=True, repr=False)
class AvgPoolWithDivisor(AvgPool):
    """Base class of average pooling layers with two or three pooled axes."""

    divisor_override: int | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class LPPool(Layer):
    """Base class of Lp pooling layers, with their arguments."""

    norm_type: float
    kernel_size: IntOrInts
    stride: IntOrInts | None = None
    ceil_mode: bool = False
    repr_fields = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __call__(self, input: Any) -> Array:
        """The norm of each window of input."""
        y: Array = self.function(
            input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode
        )
        return y


@dataclasses.dataclass(frozen=True, repr=False)
class AdaptiveMaxPool(Layer):
    """Base class of adaptive max pooling layers, with their arguments."""

    output_size: OutputSizes
    return_indices: bool = False
    repr_fields = ("output_size",)

    def __call__(self, input: Any) -> ValuesOrValuesAndIndices:
        """The largest element of each of `output_size` windows of input."""
        y: ValuesOrValuesAndIndices = self.function(input, self.output_size, self.return_indices)
        return y


@dataclasses.dataclass(frozen=True, repr=False)
class AdaptiveAvgPool(Layer):
    """Base class of adaptive average pooling layers, with their arguments."""

    output_size: OutputSizes
    repr_fields = ("output_size",)

    def __call__(self, input: Any) -> Array:
        """The average of each of `output_size` windows of input."""
        y: Array = self.function(input, self.output_size)
        return y


@dataclasses.dataclass(frozen=True, repr=False)
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
        sizes = (self.kernel_size, self.stride, self.padding)
        y: Array = self.function(input, indices, *sizes, output_size)
        return y


@dataclasses.dataclass(frozen=True, repr=False)
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
        sizes = (self.kernel_size, self.output_size, self.output_ratio)
        y: ValuesOrValuesAndIndices = self.function(
            input, *sizes, self.return_indices, self._random_samples, key=key
        )
        return y
