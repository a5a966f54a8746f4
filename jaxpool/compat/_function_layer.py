"""The base class of the layers of `torch` and `torchvision`, dataclasses whose fields are arguments of a function."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar


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
