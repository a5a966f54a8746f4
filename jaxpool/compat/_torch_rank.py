"""`of_rank` creates the 1d, 2d and 3d functions of a PyTorch pool, such as `max_pool2d`, from one implementation."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from jaxpool._arguments.calls import public

P = ParamSpec("P")
R = TypeVar("R")

_AXES = {1: "L", 2: "HW", 3: "DHW"}


def _words(name: str, rank: int) -> dict[str, str]:
    """The values of the placeholders in a docstring template, for `rank` pooled axes."""
    axes = _AXES[rank]

    def shape(*spatial: str) -> str:
        return f"`(N, C, {', '.join(spatial)})` or `(C, {', '.join(spatial)})`"

    last = ", ".join(["1"] * (rank - 1))
    return {
        "name": name,
        "nd": f"{rank}d",
        "shape": shape(*axes),
        "pooled": shape(*(f"{axis}_out" for axis in axes)),
        "targets": shape("*output_size"),
        "flat": " * ".join(axes),
        "sizes": "an int, or one per axis" if rank > 1 else "an int, alone or in a tuple",
        # For the examples: a window of two elements along the last axis, a shape with one long axis, and two shapes.
        "window": f"({last}, 2)" if rank > 1 else "2",
        "row": f"(1, {last}, -1)" if rank > 1 else "(1, -1)",
        "large": str((1, *(8,) * rank)),
        "small": str((1, *(3,) * rank)),
    }


def of_rank(rank: int, pool: Callable[Concatenate[int, P], R], text: str) -> Callable[P, R]:
    """A public function that calls `pool` with `rank`. Its docstring is the template `text`, filled in for that rank.

    The first line of `text` must contain the PyTorch name of the pool, such as `torch.nn.functional.max_pool{nd}`.
    """
    name = re.findall(r"functional\.(\w+)", text)[0] + f"{rank}d"
    bound: Any = functools.update_wrapper(functools.partial(pool, rank), pool)
    bound.__name__ = bound.__qualname__ = name
    bound.__doc__ = text.format(**_words(name, rank))
    signature = inspect.signature(pool)
    bound.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    function: Callable[P, R] = public(bound)
    return function
