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
from jaxpool._kernels.positions import int32_range


@dataclasses.dataclass(frozen=True)
class Halo:
    """A pooled axis `dim` of the global array, sharded along the mesh axes `names` into `count` equal shards."""

    dim: Axis
    names: tuple[str, ...]
    count: int

    @property
    def own(self) -> int:
        """Number of rows of a shard."""
        return self.dim.size // self.count

    @property
    def outs(self) -> int:
        """Number of windows of a shard."""
        return self.dim.out // self.count

    @property
    def length(self) -> int:
        """Number of rows that the windows of a shard read, padding included."""
        return (self.outs - 1) * self.dim.stride + self.dim.span

    @property
    def drift(self) -> int:
        """Difference of `starts` from one shard to the next."""
        return self.outs * self.dim.stride - self.own

    @property
    def starts(self) -> tuple[int, ...]:
        """The row of each shard at which its windows begin; negative before its first row."""
        return tuple(shard * self.drift - self.dim.low for shard in range(self.count))

    @property
    def before(self) -> tuple[int, ...]:
        """Number of rows that each shard needs from the shards before it."""
        return tuple(
            min(max(0, -start), shard * self.own) for shard, start in enumerate(self.starts)
        )

    @property
    def after(self) -> tuple[int, ...]:
        """Number of rows that each shard needs from the shards after it."""
        return tuple(
            min(max(0, start + self.length - self.own), (self.count - 1 - shard) * self.own)
            for shard, start in enumerate(self.starts)
        )

    @property
    def beyond(self) -> tuple[tuple[int, int], ...]:
        """Number of rows before and after the global array that the windows of each shard read."""
        step, low = self.outs * self.dim.stride, self.dim.low
        firsts = [shard * step - low for shard in range(self.count)]
        return tuple(
            (max(0, -first), max(0, first + self.length - self.dim.size)) for first in firsts
        )

    def _axis(self, size: int, low: int, high: int = 0) -> Axis:
        """The axis of the windows of a shard over `size` rows."""
        return dataclasses.replace(self.dim, size=size, low=low, high=high, out=self.outs)

    @property
    def extended(self) -> Axis:
        """The axis of a shard and its halo, where rows beyond the array are elements, not padding."""
        return self._axis(self.length, 0)

    def cropped(self, low: int, high: int) -> Axis:
        """The axis of a shard and its halo, less the `low` first and `high` last rows, which become padding."""
        return self._axis(self.length - low - high, low, high)

    @property
    def inside(self) -> Axis:
        """The axis of a shard alone, with padding in place of its halo."""
        return self._axis(self.own, self.dim.low)

    @property
    def around(self) -> Axis:
        """The axis of a shard with all rows that any shard needs before and after it."""
        before = max(self.before)
        return self._axis(before + self.own + max(self.after), self.dim.low - before)

    @property
    def crossing(self) -> tuple[range, range] | None:
        """The windows of a shard that begin before its first row, and the windows that end after its last row.

        None if `drift` is not 0 or every window crosses an end of the shard. None too if a window needs rows
        beyond the adjacent shard, or is outside of its own shard.
        """
        dim, own = self.dim, self.own
        begin = min(self.outs, max(0, -(-dim.low // dim.stride)))
        end = min(self.outs, max(0, (own + dim.low - dim.span) // dim.stride + 1))
        # The start of the first window that ends after the shard, and the end of the last that begins before it.
        first = end * dim.stride - dim.low
        last = (begin - 1) * dim.stride + dim.span - dim.low
        near = max(dim.low, self.length - dim.low - own, first) <= own and (last >= 0 or not begin)
        if self.drift or begin >= end or not near:
            return None
        return range(begin), range(end, self.outs)

    def shard(self) -> Array:
        """The index of this device's shard, a traced int32."""
        return lax.axis_index(self.names)

    def windows(self) -> Array:
        """The indices of the windows of this shard among those of the global array."""
        return self.shard() * np.int32(self.outs) + int32_range(self.outs)

    def window_starts(self) -> Array:
        """The position in the global array of the first tap of each window of this shard."""
        return self.windows() * np.int32(self.dim.stride) - np.int32(self.dim.low)

    def rows_exist(self) -> Array:
        """True for rows of this shard and its halo that are elements of the array: `length` bools."""
        first = self.shard() * np.int32(self.own + self.drift) - np.int32(self.dim.low)
        rows = first + int32_range(self.length)
        return (rows >= 0) & (rows < self.dim.size)

    def extend(self, x: Array, fill: Any) -> Array:
        """The shard x and its halo, `length` rows; rows beyond the array hold `fill`."""
        axis, own = self.dim.axis, self.own
        parts = [x]
        for after, counts in enumerate((self.before, self.after)):
            for hop in range(1, -(-max(counts) // own) + 1):
                size = min(own, max(counts) - (hop - 1) * own)
                first = 0 if after else own - size
                rows = lax.slice_in_dim(x, first, first + size, axis=axis)
                rows = self.received(rows, fill, hop, after=bool(after))
                parts.insert(len(parts) if after else 0, rows)
        extended = lax.concatenate(parts, axis) if parts[1:] else x
        low = max(0, *[-start for start in self.starts])
        high = max(0, *[start + self.length - own for start in self.starts])
        pads = (low - max(self.before), high - max(self.after), 0)
        extended = slices.pad(extended, [axis], [pads], fill)
        first = low - self.dim.low
        if not self.drift:
            return lax.slice_in_dim(extended, first, first + self.length, axis=axis)
        start = self.shard() * np.int32(self.drift) + np.int32(first)
        return lax.dynamic_slice_in_dim(extended, start, self.length, axis)

    def received(self, rows: Array, fill: Any, hop: int = 1, *, after: bool) -> Array:
        """`rows` of the shard `hop` shards before, or `after`, this shard; `fill` beyond the ends of the array.

        Rows are sent only to shards that need rows from `hop` shards away.
        """
        needed, shards = self.after if after else self.before, range(self.count)
        pairs = [(to + hop if after else to - hop, to) for to in shards]
        pairs = [
            pair for pair in pairs if pair[0] in shards and needed[pair[1]] > (hop - 1) * self.own
        ]
        exist = self.shard() < self.count - hop if after else self.shard() >= hop
        received = lax.ppermute(rows, self.names, pairs)
        return lax.select(
            jnp.broadcast_to(exist, received.shape),
            received,
            jnp.full(received.shape, fill, rows.dtype),  # `ppermute` gives zeros
        )


@dataclasses.dataclass(frozen=True)
class Strip:
    """The windows of a shard that begin before its first row, or end `after` its last row, along one sharded axis.

    They read the rows from `begin` to `end`, counted from the first row of the shard, which `window` pools. `first` is
    the index of the first of them.
    """

    halo: Halo
    after: bool
    begin: int
    end: int
    first: int
    window: Window

    @property
    def axis(self) -> int:
        """The sharded axis of the array."""
        return self.halo.dim.axis

    @property
    def count(self) -> int:
        """Number of windows."""
        return self.window.dims[self.window.axes.index(self.axis)].out

    @property
    def neighbour_rows(self) -> tuple[int, int]:
        """Start and stop of the rows that the strip reads of the neighbour, from the neighbour's first row."""
        own = self.halo.own
        return (0, self.end - own) if self.after else (own + self.begin, own)

    @property
    def shard_rows(self) -> tuple[int, int]:
        """Start and stop of the rows that the strip reads of the shard."""
        return (self.begin, self.halo.own) if self.after else (0, self.end)


@dataclasses.dataclass(frozen=True)
class Shards:
    """A window over a sharded array, with the `halos` of the pooled axes that are sharded."""

    window: Window
    halos: tuple[Halo, ...]

    @property
    def extended(self) -> Window:
        """The window over a shard and its halos."""
        return self._with(lambda halo: halo.extended)

    @property
    def inside(self) -> Window:
        """The window over a shard alone, with padding in place of its halos."""
        return self._with(lambda halo: halo.inside)

    def cropped(self, ends: Sequence[tuple[int, int]]) -> Window:
        """The window over a shard and its halos, less the rows beyond the array, `ends` along each sharded axis."""
        beyond = dict(zip(self.halos, ends, strict=True))
        return self._with(lambda halo: halo.cropped(*beyond[halo]))

    @property
    def strips(self) -> tuple[Strip, ...] | None:
        """The strips of a shard; None if `Halo.crossing` is None along some axis."""
        all_strips = []
        for which, halo in enumerate(self.halos):
            if halo.crossing is None:
                return None
            for after, windows in enumerate(halo.crossing):
                if windows:
                    all_strips.append(self._strip(which, bool(after), windows))
        return tuple(all_strips)

    def _strip(self, which: int, after: bool, windows: range) -> Strip:
        halo, wide = self.halos[which], self.halos[:which]
        dim, count = halo.dim, len(windows)
        begin, rows = windows[0] * dim.stride - dim.low, (count - 1) * dim.stride + dim.span
        crossed = Axis(dim.axis, rows, dim.window, dim.stride, dim.dilation, 0, 0, count)

        def along(each: Halo) -> Axis:
            return crossed if each is halo else each.around if each in wide else each.inside

        return Strip(halo, after, begin, begin + rows, windows[0], self._with(along))

    @property
    def padded(self) -> bool:
        """Whether a halo may hold rows that are not elements of the array."""
        return any(halo.dim.padded for halo in self.halos)

    def _with(self, local: Callable[[Halo], Axis]) -> Window:
        """The window with each sharded axis replaced by `local` of its halo."""
        if not self.halos:
            return self.window
        sharded = {halo.dim.axis: local(halo) for halo in self.halos}
        return Window(tuple(sharded.get(dim.axis, dim) for dim in self.window.dims))

    def halo(self, dim: Axis) -> Halo | None:
        """The halo of `dim`, if it is sharded."""
        return next((halo for halo in self.halos if halo.dim.axis == dim.axis), None)

    def extend(self, x: Array, fill: Any) -> Array:
        """x with its halos, extended axis by axis, so that corners come from diagonal neighbours."""
        for halo in self.halos:
            x = halo.extend(x, fill)
        return x
