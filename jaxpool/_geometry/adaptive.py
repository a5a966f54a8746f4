"""Geometry of adaptive pooling: a given number of windows, almost equal, over an axis.

Window `i` of `n` over a length `L` is `[floor(i * L / n), ceil((i + 1) * L / n))`. Where n divides
L these are the windows of an ordinary pool. Elsewhere the axis is laid out anew, one window after
another, each filled up to the longest: on that grid they are the windows of an ordinary pool too,
some with a tap that is not real. No jax here.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sizes import is_int, is_sequence, known_sizes, normalise_axes
from jaxpool._geometry.window import Axis, Window

Sizes = int | Sequence[int | None]


@dataclasses.dataclass(frozen=True)
class RaggedAxis(Axis):
    """An axis of `length` positions on its grid: all else describes the grid and its windows."""

    length: int

    def start(self, output: int) -> int:
        """The first position of window `output` on the axis itself."""
        return output * self.length // self.out

    def stop(self, output: int) -> int:
        """The position after its last one."""
        return -((output + 1) * -self.length // self.out)

    @property
    def padded(self) -> bool:
        """Whether any window has a tap that is not real: windows of equal length need no grid."""
        return True

    def last_real(self, output: int) -> int:
        """The last tap of window `output` that is real; its first one always is."""
        return self.stop(output) - self.start(output) - 1

    @functools.cached_property
    def sources(self) -> np.ndarray:
        """For each place of the grid the position that is laid there, `length` where none is."""
        starts = np.array([self.start(o) for o in range(self.out)], np.int32)
        stops = np.array([self.stop(o) for o in range(self.out)], np.int32)
        places = starts[:, None] + np.arange(self.window, dtype=np.int32)
        return np.where(places < stops[:, None], places, np.int32(self.length)).reshape(-1)

    @functools.cached_property
    def places(self) -> np.ndarray:
        """For each position, one a column, the places of the grid where it lies.

        There are as many rows as the most of any position. In the rows that a position does not
        need stands a number beyond the grid, another for each position.
        """
        order = np.argsort(self.sources, kind="stable")[: (self.sources < self.length).sum()]
        owner = self.sources[order]
        row = np.arange(len(owner)) - np.searchsorted(owner, owner)
        table = np.tile(self.size + np.arange(self.length, dtype=np.int32), (row.max() + 1, 1))
        table[row, owner] = order
        return table


@functools.lru_cache(maxsize=4096)
def _adaptive_axis(axis: int, length: int, out: int) -> Axis:
    if length % out == 0:
        width = length // out
        return Axis(axis, length, width, width, 1, 0, 0, out)
    width = max(-((i + 1) * -length // out) - i * length // out for i in range(out))
    return RaggedAxis(axis, out * width, width, width, 1, 0, 0, out, length)


def adaptive_window(shape: Sequence[Any], output_shape: Any, axes: Any) -> Window:
    """Checks the arguments of an adaptive pool over an array of `shape` and places its windows."""
    rule = "an int, or a tuple with a positive int or None for each pooled axis"
    hint = "Pass a tuple such as (7, 7), or (7, None) to keep the size of the second axis."
    single = is_int(output_shape)
    if not single and not is_sequence(output_shape):
        raise ArgumentError("output_shape", rule, output_shape, hint, TypeError)
    if single and axes is None:
        more = "Pass axes=(1, 2), say."
        raise ArgumentError("axes", "given when `output_shape` is an int", None, more, TypeError)
    if not single and not output_shape:
        raise ArgumentError("output_shape", rule, output_shape, hint)
    where = normalise_axes(axes, len(shape), None if single else len(output_shape))
    outs = (output_shape,) * len(where) if single else tuple(output_shape)
    if not all(out is None or is_int(out) for out in outs):
        raise ArgumentError("output_shape", rule, output_shape, hint, TypeError)
    if any(out is not None and out < 1 for out in outs):
        raise ArgumentError("output_shape", rule, output_shape, hint)
    lengths = known_sizes(shape, where)
    return Window(
        tuple(
            _adaptive_axis(axis, length, length if out is None else operator.index(out))
            for axis, length, out in zip(where, lengths, outs, strict=True)
        )
    )
