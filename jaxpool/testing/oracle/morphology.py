"""What morphology should give: a kernel added before the maximum, or subtracted before the minimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxpool._geometry.window import Window, make_window
from jaxpool.testing import _twins as twins
from jaxpool.testing._answer import Answer, Term, exact_values, rounded
from jaxpool.testing._record import record
from jaxpool.testing.oracle import _parts as parts
from jaxpool.testing.oracle._parts import Ties

__all__ = ["dilate", "erode"]


def _twin(kind: str) -> Callable[..., Any]:
    best, sign = (twins.largest, 1) if kind == "max" else (twins.smallest, -1)

    def twin(
        x: Any, kernel: Any, *args: Any, axes: Any = None, ties: Any = None, **options: Any
    ) -> Any:
        kernel = jnp.asarray(kernel)
        rank = kernel.ndim - (kernel.ndim == x.ndim - 1) if axes is None else len(axes)
        shape = kernel.shape[:rank]
        window = make_window(x.shape, shape, *args, axes=axes, **options)
        values, there = twins.windows(x, shape, *args, axes=axes, **options)
        taps = twins.side_by_side(_numbers(window, x.ndim), window.axes, _places(window))[0]
        weights = kernel.reshape(math.prod(shape), -1)[taps]  # (..., taps, channels or 1)
        if rank < kernel.ndim:
            channels = max(set(range(x.ndim)) - set(window.axes))
            weights = jnp.moveaxis(jnp.squeeze(weights, channels), -1, channels)
        else:
            weights = weights[..., 0]
        return best(values + sign * weights, there)

    return twin


def _numbers(window: Window, ndim: int) -> np.ndarray:
    """The number of each tap, where `_places` looks for those of each window."""
    shape = [1] * ndim
    for dim in window.dims:
        shape[dim.axis] = dim.window
    flat = np.arange(window.size).reshape(window.window_shape)
    return flat.transpose(np.argsort(window.axes)).reshape(shape)


def _places(window: Window) -> list[list[list[int]]]:
    """Along each axis the taps of each window that are elements."""
    return [
        [
            [
                t
                for t in range(dim.window)
                if 0 <= o * dim.stride - dim.low + t * dim.dilation < dim.size
            ]
            for o in range(dim.out)
        ]
        for dim in window.dims
    ]


# Sums of an infinite element and an infinite entry are NaN: the kernel stays finite.
@record(twin=_twin("max"), operands=("x", "kernel"))
def dilate(x: Any, kernel: Any, *args: Any, ties: Ties = "first", **options: Any) -> Answer:
    """The largest sum of each window and the kernel, as in `jaxpool.dilate`; operand 1 is the kernel."""
    return _morphology("max", x, kernel, args, ties, **options)


@record(twin=_twin("min"), operands=("x", "kernel"))
def erode(x: Any, kernel: Any, *args: Any, ties: Ties = "first", **options: Any) -> Answer:
    """The smallest difference of each window and the kernel, as in `jaxpool.erode`."""
    return _morphology("min", x, kernel, args, ties, **options)


def _morphology(
    kind: Literal["max", "min"],
    x: Any,
    kernel: Any,
    args: Any,
    ties: Ties,
    *,
    axes: Sequence[int] | None = None,
    **options: Any,
) -> Answer:
    x, kernel = np.asarray(x), np.asarray(kernel)
    rank = kernel.ndim - (kernel.ndim == x.ndim - 1) if axes is None else len(axes)
    window = make_window(x.shape, kernel.shape[:rank], *args, axes=axes, **options)
    channels = max(set(range(x.ndim)) - set(window.axes), default=0)
    best, sign = (max, 1) if kind == "max" else (min, -1)
    values, weights = exact_values(x), exact_values(kernel)
    y, terms = np.zeros(window.pooled(x.shape), object), []
    for target in np.ndindex(*y.shape):
        found = []
        for tap in np.ndindex(*window.window_shape):
            at = list(target)
            for dim, t in zip(window.dims, tap, strict=True):
                at[dim.axis] = target[dim.axis] * dim.stride - dim.low + t * dim.dilation
            if all(0 <= i < size for i, size in zip(at, x.shape, strict=True)):
                entry = tap if rank == kernel.ndim else (*tap, target[channels])
                found.append((tuple(at), entry, values[tuple(at)] + sign * weights[entry]))
        y[target], shares = parts.choose(best, ties)([value for *_, value in found])
        for (position, entry, _), share in zip(found, shares, strict=True):
            terms += [Term(target, 0, position, share), Term(target, 1, entry, sign * share)]
    inputs = ((x.shape, x.dtype), (kernel.shape, kernel.dtype))
    return Answer(rounded(y, x.dtype), inputs, tuple(term for term in terms if term.share))
