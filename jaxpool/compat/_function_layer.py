"""The base class of the layers of `torch` and `torchvision`, dataclasses whose fields are arguments of a function."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform

from jaxpool._arguments.calls import clearer_error

T = TypeVar("T", bound=type[Any])


@dataclass_transform(frozen_default=True)
def frozen_layer(cls: T) -> T:
    """Decorator like `dataclasses.dataclass(frozen=True)`; wrong arguments have the error messages of functions.

    A `repr` that `cls` inherits is kept.
    """
    layer: Any = cls
    layer = dataclasses.dataclass(frozen=True, repr=layer.__repr__ is object.__repr__)(layer)
    init = layer.__init__

    @functools.wraps(init)
    def init_with_clearer_errors(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            public_class = next(
                c for c in type(self).__mro__ if c.__module__.startswith("jaxpool.")
            )
            shown_error = clearer_error(error, public_class, args, kwargs)
            if shown_error is None:
                raise
            raise shown_error from None

    layer.__init__ = init_with_clearer_errors
    return cls


class FunctionLayer:
    """Calls `function`, the keyword of a subclass, with the fields of the layer as keyword arguments."""

    function: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, function: Callable[..., Any] | None = None) -> None:
        if function is not None:
            cls.function = staticmethod(function)

    def call_function(self, *arrays: Any, **call_arguments: Any) -> Any:
        """`function` of arrays, the fields of the layer and arguments of the call."""
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
        }
        return self.function(*arrays, **fields, **call_arguments)
