"""Means of windows that random numbers place.

Where windows begin is traced, but which positions a window may hold is known beforehand (`reach`), and so
is which windows may hold an element (`turned`). Both directions read through these tables and mask what
chance did not place there; neither scatters.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._kernels import slices
from jaxpool._kernels.dtypes import accumulator, cast
from jaxpool._kernels.keep import keep
from jaxpool._ops.op import Op
from jaxpool._ops.random_pool import window_starts
from jaxpool._plan.problem import Platform, keep_on
from jaxpool._plan.stages import OpPlan, along, linear_plan


@dataclasses.dataclass(frozen=True)
class RandomAxis:
    """`out` windows of `width` over `size` positions of an axis, of about equal distances."""

    axis: int
    size: int
    width: int
    out: int

    def reach(self) -> np.ndarray:
        """The positions that each window may hold, a row per window.

        Chance moves the start of a window by at most one. Rounding in float32 may move it back by one where
        its exact start is a whole number, and on long axes anywhere, either way, by 3/4 * size / 2^22: three
        roundings of 2^-24 each.
        """
        apart = max(1, self.out - 1)
        place = (np.arange(self.out) + (self.out == 1)) * (self.size - self.width)
        whole = int((place[1:-1] % apart == 0).any())
        far = -(-self.size // 2**22) if self.size * self.out >= 2**22 else 0
        return place[:, None] // apart + np.arange(-max(far, whole), self.width + 1 + far)

    def turned(self) -> np.ndarray:
        """The windows that may hold each position, a row per position; `out` where there is none."""
        reach = self.reach()
        window, column = np.nonzero((reach >= 0) & (reach < self.size))
        order = np.argsort(reach[window, column], kind="stable")
        at = reach[window, column][order]
        which = np.arange(len(at)) - np.searchsorted(at, at)
        table = np.full((self.size, which.max() + 1), self.out)
        table[at, which] = window[order]
        return table


@dataclasses.dataclass(frozen=True)
class FractionalMean(Op):
    """The mean of windows that random numbers place; keeps these, arrays of size 1 along pooled axes."""

    dims: tuple[RandomAxis, ...]

    linear_in_x = True

    def plan(self, on: Platform, x: Any, *samples: Any) -> OpPlan:
        ahead = [along([dim.axis], "gathered", dim.reach().shape[1]) for dim in self.dims]
        back = [along([dim.axis], "gathered", dim.turned().shape[1]) for dim in self.dims[::-1]]
        why = (
            "elements that a window might hold are read, and left out where chance did not place it"
        )
        return linear_plan(sum(ahead, ()), sum(back, ()), why)

    def linear(self, on: Platform, samples: tuple[Array, ...], x: Array) -> Array:
        y = cast(x, accumulator(x.dtype))
        for dim, sample in zip(self.dims, samples, strict=True):
            start = window_starts(sample, dim.axis, dim.size, dim.width, dim.out)
            y = keep(keep_on(on), functools.partial(_masked, dim, dim.reach(), False), y, start)
        return cast(y, x.dtype)

    def transpose(self, on: Platform, samples: tuple[Array, ...], dy: Array) -> tuple[Array]:
        dx = cast(dy, accumulator(dy.dtype))
        for dim, sample in zip(reversed(self.dims), reversed(samples), strict=True):
            start = window_starts(sample, dim.axis, dim.size, dim.width, dim.out)
            kernel = functools.partial(_masked, dim, dim.turned(), True)
            dx = keep(keep_on(on), kernel, dx, start)
        return (cast(dx, dy.dtype),)


def _masked(dim: RandomAxis, table: np.ndarray, turned: bool, x: Array, start: Array) -> Array:
    """For each row of `table` the sum of those of its entries that belong together, divided by the width.

    A row lists the positions that a window may hold; `turned`, the windows that may hold a position. Where the windows
    begin (`start`) decides which of them do.
    """

    def terms() -> Iterator[Array]:
        for column in table.T:
            read = column.clip(0, x.shape[dim.axis] - 1)
            begin = jnp.take(start, read, dim.axis, mode="clip") if turned else start
            here = np.arange(dim.size) if turned else column
            after = slices.along(here.astype(np.int32), dim.axis, x.ndim) - begin
            held = (after >= 0) & (after < dim.width)
            if turned:
                held = held & slices.along(column < dim.out, dim.axis, x.ndim)
            term = jnp.take(x, read, dim.axis, mode="clip")
            yield lax.select(slices.broadcast_like(held, term), term, lax.full_like(term, 0))

    total = functools.reduce(lax.add, terms())
    return total / lax.full_like(total, dim.width)
