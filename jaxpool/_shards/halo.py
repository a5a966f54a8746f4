"""Halos: rows of neighbouring shards that the windows of a shard read, and their transfer.

Shard j computes `outs` windows. They read `length` rows from `starts[j]` on, counted from the first row of the shard:

    3 windows per shard, window 3, stride 1, one row of padding      a b c | d e f | g h i
    shard 0                                                        [. a b c d]
    shard 1                                                              [c d e f g]
    shard 2                                                                    [f g h i .]

Rows before and after a shard come from its neighbours by `lax.ppermute`. A halo wider than a shard takes more hops, one
for each neighbour. Rows beyond the ends of the array hold the padding value of the pool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.positions import int32_iota


@dataclasses.dataclass(frozen=True)
class Halo:
    """A pooled axis `dim` of the global array, sharded along `mesh_axes` into `num_shards` equal shards."""

    dim: Axis
    mesh_axes: tuple[str, ...]
    num_shards: int

    @property
    def shard_size(self) -> int:
        """Number of rows of a shard."""
        return self.dim.size // self.num_shards

    @property
    def num_windows(self) -> int:
        """Number of windows of a shard."""
        return self.dim.out // self.num_shards

    @property
    def num_rows(self) -> int:
        """Number of rows that the windows of a shard read, padding included."""
        return (self.num_windows - 1) * self.dim.stride + self.dim.span

    @property
    def drift(self) -> int:
        """Difference of `starts` from one shard to the next."""
        return self.num_windows * self.dim.stride - self.shard_size

    @property
    def starts(self) -> tuple[int, ...]:
        """The row of each shard at which its windows begin; negative before its first row."""
        return tuple(shard * self.drift - self.dim.low for shard in range(self.num_shards))

    @property
    def rows_before(self) -> tuple[int, ...]:
        """Number of rows that each shard needs from the shards before it."""
        return tuple(
            min(max(0, -start), shard * self.shard_size) for shard, start in enumerate(self.starts)
        )

    @property
    def rows_after(self) -> tuple[int, ...]:
        """Number of rows that each shard needs from the shards after it."""
        return tuple(
            min(
                max(0, start + self.num_rows - self.shard_size),
                (self.num_shards - 1 - shard) * self.shard_size,
            )
            for shard, start in enumerate(self.starts)
        )

    @property
    def pad_rows(self) -> tuple[tuple[int, int], ...]:
        """Number of rows before and after the global array that the windows of each shard read."""
        step, low = self.num_windows * self.dim.stride, self.dim.low
        firsts = [shard * step - low for shard in range(self.num_shards)]
        return tuple(
            (max(0, -first), max(0, first + self.num_rows - self.dim.size)) for first in firsts
        )

    def _axis(self, size: int, low: int, high: int = 0) -> Axis:
        """The axis of the windows of a shard over `size` rows."""
        return dataclasses.replace(self.dim, size=size, low=low, high=high, out=self.num_windows)

    @property
    def extended_axis(self) -> Axis:
        """The axis of a shard and its halo, where rows beyond the array are elements, not padding."""
        return self._axis(self.num_rows, 0)

    def cropped_axis(self, low: int, high: int) -> Axis:
        """The axis of a shard and its halo, less the `low` first and `high` last rows, which become padding."""
        return self._axis(self.num_rows - low - high, low, high)

    @property
    def local_axis(self) -> Axis:
        """The axis of a shard alone, with padding in place of its halo."""
        return self._axis(self.shard_size, self.dim.low)

    @property
    def wide_axis(self) -> Axis:
        """The axis of a shard with all rows that any shard needs before and after it."""
        before = max(self.rows_before)
        return self._axis(before + self.shard_size + max(self.rows_after), self.dim.low - before)

    @property
    def crossing_windows(self) -> tuple[range, range] | None:
        """The windows of a shard that begin before its first row, and the windows that end after its last row.

        None if `drift` is not 0 or every window crosses an end of the shard. None too if a window needs rows
        beyond the adjacent shard, or is outside of its own shard.
        """
        dim, own = self.dim, self.shard_size
        begin = min(self.num_windows, max(0, -(-dim.low // dim.stride)))
        end = min(self.num_windows, max(0, (own + dim.low - dim.span) // dim.stride + 1))
        # The start of the first window that ends after the shard, and the end of the last that begins before it.
        first = end * dim.stride - dim.low
        last = (begin - 1) * dim.stride + dim.span - dim.low
        fits = max(dim.low, self.num_rows - dim.low - own, first) <= own and (
            last >= 0 or not begin
        )
        if self.drift or begin >= end or not fits:
            return None
        return range(begin), range(end, self.num_windows)

    def shard_id(self) -> Array:
        """The index of this device's shard, a traced int32."""
        return lax.axis_index(self.mesh_axes)

    def window_indices(self) -> Array:
        """The indices of the windows of this shard among those of the global array."""
        return self.shard_id() * np.int32(self.num_windows) + int32_iota(self.num_windows)

    def window_starts(self) -> Array:
        """The position in the global array of the first tap of each window of this shard."""
        return self.window_indices() * np.int32(self.dim.stride) - np.int32(self.dim.low)

    def element_mask(self) -> Array:
        """True for rows of this shard and its halo that are elements of the array: `num_rows` bools."""
        first = self.shard_id() * np.int32(self.shard_size + self.drift) - np.int32(self.dim.low)
        rows = first + int32_iota(self.num_rows)
        return (rows >= 0) & (rows < self.dim.size)

    def extend(self, x: Array, fill: Any) -> Array:
        """The shard x and its halo, `num_rows` rows; rows beyond the array hold `fill`."""
        axis, shard_size = self.dim.axis, self.shard_size
        pieces = [x]
        for is_after, rows_needed in enumerate((self.rows_before, self.rows_after)):
            for hop in range(1, -(-max(rows_needed) // shard_size) + 1):
                size = min(shard_size, max(rows_needed) - (hop - 1) * shard_size)
                first = 0 if is_after else shard_size - size
                rows = lax.slice_in_dim(x, first, first + size, axis=axis)
                rows = self.receive_rows(rows, fill, hop, is_after=bool(is_after))
                pieces.insert(len(pieces) if is_after else 0, rows)
        extended = lax.concatenate(pieces, axis) if pieces[1:] else x
        low = max(0, *[-start for start in self.starts])
        high = max(0, *[start + self.num_rows - shard_size for start in self.starts])
        pads = (low - max(self.rows_before), high - max(self.rows_after), 0)
        extended = slices.pad(extended, [axis], [pads], fill)
        first = low - self.dim.low
        if not self.drift:
            return lax.slice_in_dim(extended, first, first + self.num_rows, axis=axis)
        start = self.shard_id() * np.int32(self.drift) + np.int32(first)
        return lax.dynamic_slice_in_dim(extended, start, self.num_rows, axis)

    def receive_rows(self, rows: Array, fill: Any, hop: int = 1, *, is_after: bool) -> Array:
        """`rows` of the shard `hop` shards before, or `is_after`, this shard; `fill` beyond the ends of the array.

        Rows are sent only to shards that need rows from `hop` shards away.
        """
        needed, shards = (self.rows_after if is_after else self.rows_before, range(self.num_shards))
        pairs = [(to + hop if is_after else to - hop, to) for to in shards]
        pairs = [
            pair
            for pair in pairs
            if pair[0] in shards and needed[pair[1]] > (hop - 1) * self.shard_size
        ]
        exist = self.shard_id() < self.num_shards - hop if is_after else self.shard_id() >= hop
        received = lax.ppermute(rows, self.mesh_axes, pairs)
        return lax.select(
            jnp.broadcast_to(exist, received.shape),
            received,
            jnp.full(received.shape, fill, rows.dtype),  # `ppermute` gives zeros
        )


@dataclasses.dataclass(frozen=True)
class Strip:
    """The windows of a shard that begin before its first row, or end `is_after` its last row, along one sharded axis.

    They read the rows from `start_row` to `stop_row`, counted from the first row of the shard, which `window` pools.
    `first_window` is the index of the first of them.
    """

    halo: Halo
    is_after: bool
    start_row: int
    stop_row: int
    first_window: int
    window: Window

    @property
    def axis(self) -> int:
        """The sharded axis of the array."""
        return self.halo.dim.axis

    @property
    def num_windows(self) -> int:
        """Number of windows."""
        return self.window.dims[self.window.axes.index(self.axis)].out

    @property
    def neighbour_rows(self) -> tuple[int, int]:
        """Start and stop of the rows that the strip reads of the neighbour, from the neighbour's first row."""
        own = self.halo.shard_size
        return (0, self.stop_row - own) if self.is_after else (own + self.start_row, own)

    @property
    def shard_rows(self) -> tuple[int, int]:
        """Start and stop of the rows that the strip reads of the shard."""
        return (self.start_row, self.halo.shard_size) if self.is_after else (0, self.stop_row)


@dataclasses.dataclass(frozen=True)
class ShardGeometry:
    """A window over a sharded array, with the `halos` of the pooled axes that are sharded."""

    window: Window
    halos: tuple[Halo, ...]

    @property
    def extended_window(self) -> Window:
        """The window over a shard and its halos."""
        return self._map_axes(lambda halo: halo.extended_axis)

    @property
    def local_window(self) -> Window:
        """The window over a shard alone, with padding in place of its halos."""
        return self._map_axes(lambda halo: halo.local_axis)

    def cropped_window(self, pad_rows: Sequence[tuple[int, int]]) -> Window:
        """The window over a shard and its halos without the `pad_rows` of each axis, which are beyond the array."""
        rows_of_halo = dict(zip(self.halos, pad_rows, strict=True))
        return self._map_axes(lambda halo: halo.cropped_axis(*rows_of_halo[halo]))

    @property
    def strips(self) -> tuple[Strip, ...] | None:
        """The strips of a shard; None if `Halo.crossing` is None along some axis."""
        all_strips = []
        for halo_index, halo in enumerate(self.halos):
            if halo.crossing_windows is None:
                return None
            for is_after, windows in enumerate(halo.crossing_windows):
                if windows:
                    all_strips.append(self._make_strip(halo_index, bool(is_after), windows))
        return tuple(all_strips)

    def _make_strip(self, halo_index: int, is_after: bool, windows: range) -> Strip:
        halo, wide = self.halos[halo_index], self.halos[:halo_index]
        dim, count = halo.dim, len(windows)
        begin, rows = windows[0] * dim.stride - dim.low, (count - 1) * dim.stride + dim.span
        crossed = Axis(dim.axis, rows, dim.window, dim.stride, dim.dilation, 0, 0, count)

        def axis_of(each: Halo) -> Axis:
            return crossed if each is halo else each.wide_axis if each in wide else each.local_axis

        return Strip(halo, is_after, begin, begin + rows, windows[0], self._map_axes(axis_of))

    @property
    def is_padded(self) -> bool:
        """Whether a halo may hold rows that are not elements of the array."""
        return any(halo.dim.is_padded for halo in self.halos)

    def _map_axes(self, axis_of: Callable[[Halo], Axis]) -> Window:
        """The window with each sharded axis replaced by `axis_of` of its halo."""
        if not self.halos:
            return self.window
        new_axes = {halo.dim.axis: axis_of(halo) for halo in self.halos}
        return Window(tuple(new_axes.get(dim.axis, dim) for dim in self.window.dims))

    def find_halo(self, dim: Axis) -> Halo | None:
        """The halo of `dim`, if it is sharded."""
        return next((halo for halo in self.halos if halo.dim.axis == dim.axis), None)

    def extend(self, x: Array, fill: Any) -> Array:
        """x with its halos, extended axis by axis, so that corners come from diagonal neighbours."""
        for halo in self.halos:
            x = halo.extend(x, fill)
        return x
