"""Halos: rows of neighbouring shards that the windows of a shard read, and the transfer of these rows.

Shard j computes `num_windows` windows, which read `num_rows` rows. The first row is `starts[j]`, relative to the shard:

    3 windows per shard, window 3, stride 1, one row of padding      a b c | d e f | g h i
    shard 0                                                        [. a b c d]
    shard 1                                                              [c d e f g]
    shard 2                                                                    [f g h i .]

A shard receives rows before and after it from its neighbours by `lax.ppermute`. A halo wider than a shard takes several
hops, one per neighbour. Halo rows beyond the ends of the global array hold the padding value of the pool.
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
        """Number of windows that a shard computes."""
        return self.dim.out // self.num_shards

    @property
    def num_rows(self) -> int:
        """Number of rows that the windows of a shard read, padding included."""
        return (self.num_windows - 1) * self.dim.stride + self.dim.span

    @property
    def drift(self) -> int:
        """Difference between the `starts` of a shard and of the previous shard."""
        return self.num_windows * self.dim.stride - self.shard_size

    @property
    def starts(self) -> tuple[int, ...]:
        """For each shard, the first row that its windows read, relative to the shard; negative for rows before it."""
        return tuple(shard * self.drift - self.dim.low for shard in range(self.num_shards))

    @property
    def rows_before(self) -> tuple[int, ...]:
        """For each shard, the number of rows that its windows need from previous shards."""
        return tuple(
            min(max(0, -start), shard * self.shard_size) for shard, start in enumerate(self.starts)
        )

    @property
    def rows_after(self) -> tuple[int, ...]:
        """For each shard, the number of rows that its windows need from later shards."""
        return tuple(
            min(
                max(0, start + self.num_rows - self.shard_size),
                (self.num_shards - 1 - shard) * self.shard_size,
            )
            for shard, start in enumerate(self.starts)
        )

    @property
    def pad_rows(self) -> tuple[tuple[int, int], ...]:
        """For each shard, the numbers of padding rows before and after the global array that its windows read."""
        step, low = self.num_windows * self.dim.stride, self.dim.low
        firsts = [shard * step - low for shard in range(self.num_shards)]
        return tuple(
            (max(0, -first), max(0, first + self.num_rows - self.dim.size)) for first in firsts
        )

    def _axis(self, size: int, low: int, high: int = 0) -> Axis:
        """The `Axis` of a shard's windows over `size` rows."""
        return dataclasses.replace(self.dim, size=size, low=low, high=high, out=self.num_windows)

    @property
    def extended_axis(self) -> Axis:
        """The `Axis` of a shard with its halo. Halo rows beyond the array count as elements, not as padding."""
        return self._axis(self.num_rows, 0)

    def cropped_axis(self, low: int, high: int) -> Axis:
        """The `Axis` of a shard with its halo, without the first `low` and last `high` rows, which become padding."""
        return self._axis(self.num_rows - low - high, low, high)

    @property
    def local_axis(self) -> Axis:
        """The `Axis` of a shard alone, with padding in place of its halo."""
        return self._axis(self.shard_size, self.dim.low)

    @property
    def wide_axis(self) -> Axis:
        """The `Axis` of a shard with halo rows on both sides, enough for the shard that needs most."""
        before = max(self.rows_before)
        return self._axis(before + self.shard_size + max(self.rows_after), self.dim.low - before)

    @property
    def crossing_windows(self) -> tuple[range, range] | None:
        """Indices of a shard's windows that begin before its first row, and of its windows that end after its last row.

        None if `drift` is not 0 or every window crosses an end of the shard. Also None if a window needs rows
        beyond the adjacent shard, or is outside of its own shard.
        """
        dim, own = self.dim, self.shard_size
        begin = min(self.num_windows, max(0, -(-dim.low // dim.stride)))
        end = min(self.num_windows, max(0, (own + dim.low - dim.span) // dim.stride + 1))
        # `first`: start of the first window that ends after the shard. `last`: end of the last that begins before it.
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
        """The indices, among the windows of the global array, of the windows of this device's shard."""
        return self.shard_id() * np.int32(self.num_windows) + int32_iota(self.num_windows)

    def window_starts(self) -> Array:
        """The start, in the global array, of each window of this device's shard; negative in the low padding."""
        return self.window_indices() * np.int32(self.dim.stride) - np.int32(self.dim.low)

    def element_mask(self) -> Array:
        """`num_rows` bools for the rows of this device's shard and halo: False for rows beyond the global array."""
        first = self.shard_id() * np.int32(self.shard_size + self.drift) - np.int32(self.dim.low)
        rows = first + int32_iota(self.num_rows)
        return (rows >= 0) & (rows < self.dim.size)

    def extend(self, x: Array, fill: Any) -> Array:
        """The shard x with its halo, `num_rows` rows; halo rows beyond the global array hold `fill`."""
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
        """Receive `rows` of the shard that is `hop` shards before, or (`is_after`) after, this device's shard.

        Rows are sent only to shards that need them. Beyond the ends of the array, the result holds `fill`.
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
            jnp.full(received.shape, fill, rows.dtype),  # `lax.ppermute` returns zeros there
        )


@dataclasses.dataclass(frozen=True)
class Strip:
    """The windows of a shard that cross its first row, or (`is_after`) its last row, along one sharded axis.

    `window` pools the rows from `start_row` to `stop_row`, relative to the first row of the shard.
    `first_window` is the index, within the shard, of the first window of the strip.
    """

    halo: Halo
    is_after: bool
    start_row: int
    stop_row: int
    first_window: int
    window: Window

    @property
    def axis(self) -> int:
        """The array axis along which the strip's windows cross an end of the shard."""
        return self.halo.dim.axis

    @property
    def num_windows(self) -> int:
        """Number of windows of the strip."""
        return self.window.dims[self.window.axes.index(self.axis)].out

    @property
    def neighbour_rows(self) -> tuple[int, int]:
        """Start and stop of the rows that the strip reads from the neighbouring shard, relative to that shard."""
        own = self.halo.shard_size
        return (0, self.stop_row - own) if self.is_after else (own + self.start_row, own)

    @property
    def shard_rows(self) -> tuple[int, int]:
        """Start and stop of the rows that the strip reads from its own shard."""
        return (self.start_row, self.halo.shard_size) if self.is_after else (0, self.stop_row)


@dataclasses.dataclass(frozen=True)
class ShardGeometry:
    """A `window` over a sharded global array, with one entry of `halos` per pooled axis that is sharded."""

    window: Window
    halos: tuple[Halo, ...]

    @property
    def extended_window(self) -> Window:
        """The `Window` over a shard with its halos."""
        return self._map_axes(lambda halo: halo.extended_axis)

    @property
    def local_window(self) -> Window:
        """The `Window` over a shard alone, with padding in place of its halos."""
        return self._map_axes(lambda halo: halo.local_axis)

    def cropped_window(self, pad_rows: Sequence[tuple[int, int]]) -> Window:
        """The `Window` over a shard with its halos cropped by `pad_rows`, the rows beyond the array along each axis."""
        rows_of_halo = dict(zip(self.halos, pad_rows, strict=True))
        return self._map_axes(lambda halo: halo.cropped_axis(*rows_of_halo[halo]))

    @property
    def strips(self) -> tuple[Strip, ...] | None:
        """The strips of a shard; None if `Halo.crossing_windows` is None along any axis."""
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
        """Whether a halo may contain rows beyond the ends of the global array."""
        return any(halo.dim.is_padded for halo in self.halos)

    def _map_axes(self, axis_of: Callable[[Halo], Axis]) -> Window:
        """The `Window` with each sharded axis replaced by `axis_of(halo)`."""
        if not self.halos:
            return self.window
        new_axes = {halo.dim.axis: axis_of(halo) for halo in self.halos}
        return Window(tuple(new_axes.get(dim.axis, dim) for dim in self.window.dims))

    def find_halo(self, dim: Axis) -> Halo | None:
        """The halo of the pooled axis `dim`, or None if the axis is not sharded."""
        return next((halo for halo in self.halos if halo.dim.axis == dim.axis), None)

    def extend(self, x: Array, fill: Any) -> Array:
        """x extended by its halos, one axis after another, so that corners come from diagonal neighbours."""
        for halo in self.halos:
            x = halo.extend(x, fill)
        return x
