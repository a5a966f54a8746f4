"""Halos: rows of neighbouring shards that the windows of a shard read, and pools of a shard with its halo.

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
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.typing import ArrayLike

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._arguments.errors import ArgumentError
from jaxpool._arguments.sharding import ArraySharding
from jaxpool._geometry.window import Axis, Window
from jaxpool._kernels import slices
from jaxpool._kernels.positions import IntArray, all_window_indices, int32_iota

Ends = tuple[int, int]  # start and stop of some rows, or numbers of rows before and after


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
        pairs = enumerate(self.starts)
        return tuple(min(max(0, -start), shard * self.shard_size) for shard, start in pairs)

    @property
    def rows_after(self) -> tuple[int, ...]:
        """For each shard, the number of rows that its windows need from later shards."""
        ends = [start + self.num_rows - self.shard_size for start in self.starts]
        pairs = zip(ends, reversed(range(self.num_shards)), strict=True)
        return tuple(min(max(0, end), later * self.shard_size) for end, later in pairs)

    @property
    def pad_rows(self) -> tuple[Ends, ...]:
        """For each shard, the numbers of padding rows before and after the global array that its windows read."""
        firsts = [start + shard * self.shard_size for shard, start in enumerate(self.starts)]
        ends = [first + self.num_rows - self.dim.size for first in firsts]
        return tuple((max(0, -first), max(0, end)) for first, end in zip(firsts, ends, strict=True))

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

    def _axis(self, size: int, low: int, high: int = 0) -> Axis:
        return dataclasses.replace(self.dim, size=size, low=low, high=high, out=self.num_windows)

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
        fits = max(dim.low, self.num_rows - dim.low - own, first) <= own
        if self.drift or begin >= end or not fits or (begin and last < 0):
            return None
        return range(begin), range(end, self.num_windows)

    def shard_id(self) -> Array:
        """The index of this device's shard, a traced int32."""
        return lax.axis_index(self.mesh_axes)

    def element_mask(self) -> Array:
        """`num_rows` bools for the rows of this device's shard and halo: False for rows beyond the global array."""
        first = self.shard_id() * np.int32(self.shard_size + self.drift) - np.int32(self.dim.low)
        rows = first + int32_iota(self.num_rows)
        return (rows >= 0) & (rows < self.dim.size)

    def extend(self, x: Array, fill: ArrayLike) -> Array:
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
        low, high = max(0, -min(self.starts)), max(self.starts) + self.num_rows - shard_size
        pads = (low - max(self.rows_before), max(0, high) - max(self.rows_after), 0)
        extended = slices.pad(extended, [axis], [pads], fill)
        first = low - self.dim.low
        if not self.drift:
            return lax.slice_in_dim(extended, first, first + self.num_rows, axis=axis)
        start = self.shard_id() * np.int32(self.drift) + np.int32(first)
        return lax.dynamic_slice_in_dim(extended, start, self.num_rows, axis)

    def receive_rows(self, rows: Array, fill: ArrayLike, hop: int = 1, *, is_after: bool) -> Array:
        """Receive `rows` of the shard that is `hop` shards before, or (`is_after`) after, this device's shard.

        Rows are sent only to shards that need them. Beyond the ends of the array, the result holds `fill`.
        """
        shards, needed = range(self.num_shards), self.rows_after if is_after else self.rows_before
        offset, min_needed = hop if is_after else -hop, (hop - 1) * self.shard_size
        receivers = [to for to in shards if to + offset in shards and needed[to] > min_needed]
        exist = self.shard_id() < self.num_shards - hop if is_after else self.shard_id() >= hop
        received = lax.ppermute(rows, self.mesh_axes, [(to + offset, to) for to in receivers])
        missing = jnp.full(received.shape, fill, rows.dtype)  # `lax.ppermute` returns zeros there
        return lax.select(exist, received, missing)


@dataclasses.dataclass(frozen=True)
class Strip:
    """The `windows` of a shard that cross its first row, or (`is_after`) its last row, along one sharded axis.

    `window` pools `rows`, which are relative to the first row of the shard.
    """

    halo: Halo
    is_after: bool
    windows: range
    rows: range
    window: Window

    @property
    def axis(self) -> int:
        """The array axis along which the strip's windows cross an end of the shard."""
        return self.halo.dim.axis

    @property
    def neighbour_rows(self) -> Ends:
        """Start and stop of the rows that the strip reads from the neighbouring shard, relative to that shard."""
        own = self.halo.shard_size
        return (0, self.rows.stop - own) if self.is_after else (own + self.rows.start, own)

    @property
    def shard_rows(self) -> Ends:
        """Start and stop of the rows that the strip reads from its own shard."""
        return (self.rows.start, self.halo.shard_size) if self.is_after else (0, self.rows.stop)


@dataclasses.dataclass(frozen=True)
class ShardedWindows:
    """A `window` over a sharded global array, with one entry of `halos` per pooled axis that is sharded."""

    window: Window
    halos: tuple[Halo, ...]
    sharding: ArraySharding

    @property
    def extended_window(self) -> Window:
        """The `Window` over a shard with its halos. Rows beyond the array count as elements, not as padding."""
        return self.cropped_window([(0, 0)] * len(self.halos))

    @property
    def local_window(self) -> Window:
        """The `Window` over a shard alone, with padding in place of its halos."""
        return self._replace_axes([halo.local_axis for halo in self.halos])

    def cropped_window(self, pad_rows: Sequence[Ends]) -> Window:
        """The `Window` over a shard with its halos cropped by `pad_rows`, the rows beyond the array along each axis."""
        pairs = zip(self.halos, pad_rows, strict=True)
        return self._replace_axes([halo.cropped_axis(*rows) for halo, rows in pairs])

    @property
    def strips(self) -> tuple[Strip, ...] | None:
        """The strips of a shard; None if `Halo.crossing_windows` is None along any axis."""
        strips = []
        for i, halo in enumerate(self.halos):
            dim, crossing_windows = halo.dim, halo.crossing_windows
            if crossing_windows is None:
                return None
            previous = [each.wide_axis for each in self.halos[:i]]
            later = [each.local_axis for each in self.halos[i + 1 :]]
            for is_after, windows in enumerate(crossing_windows):
                if not windows:
                    continue
                start, count = windows.start * dim.stride - dim.low, len(windows)
                rows = range(start, start + (count - 1) * dim.stride + dim.span)
                crossed = dataclasses.replace(dim, size=len(rows), low=0, high=0, out=count)
                window = self._replace_axes([*previous, crossed, *later])
                strips.append(Strip(halo, bool(is_after), windows, rows, window))
        return tuple(strips)

    def _replace_axes(self, sharded_axes: Sequence[Axis]) -> Window:
        """The `Window` with each sharded axis replaced."""
        new_axes = {dim.axis: dim for dim in sharded_axes}
        return Window(tuple(new_axes.get(dim.axis, dim) for dim in self.window.dims))

    def window_indices(self, dim: Axis) -> IntArray:
        """The indices, among the windows of the global array, of a shard's windows along the pooled axis `dim`."""
        halo = next((halo for halo in self.halos if halo.dim.axis == dim.axis), None)
        if halo is None:
            return all_window_indices(dim)
        return halo.shard_id() * np.int32(halo.num_windows) + int32_iota(halo.num_windows)

    def window_starts(self) -> list[IntArray]:
        """Along each pooled axis, the start of a shard's windows in the global array; negative in the low padding."""
        dims = self.window.dims
        return [self.window_indices(d) * np.int32(d.stride) - np.int32(d.low) for d in dims]

    def extend(self, x: Array, fill: ArrayLike) -> Array:
        """x extended by its halos, one axis after another, so that corners come from diagonal neighbours."""
        for halo in self.halos:
            x = halo.extend(x, fill)
        return x

    def check_reflection(self, arg_name: str = "x") -> None:
        """Raise unless each shard with its halo contains all rows that reflection padding reads at the array's ends."""
        for halo in self.halos:
            if any(max(ends) >= halo.num_rows - sum(ends) for ends in halo.pad_rows if any(ends)):
                axis, size = halo.dim.axis, halo.dim.size
                rule = f"of more rows in each of its {halo.num_shards} shards along axis {axis}, "
                rule += "where it is reflected"
                hint = "Use fewer devices there."
                raise ArgumentError(arg_name, rule, size, hint, attribute=f"shape[{axis}]")


def pool_with_halo(
    windows: ShardedWindows, pool: Callable[..., Array], op: Any, has_mask: bool, *xs: Array
) -> Array:
    """`pool(op, *xs)` of the shard `xs[0]` and its halo, and if `has_mask` of the shard `xs[1]` of a `where` mask.

    Halo rows beyond the ends of the global array are cropped, and become padding of `op.window`. Shards differ in the
    number of cropped rows, so `lax.switch` has a branch for each number.
    """
    num_extended = 2 if has_mask else 1
    extended = [windows.extend(x, 0) for x in xs[:num_extended]]
    branch_index = jnp.zeros((), np.int32)
    padding_cases = [sorted(set(halo.pad_rows)) for halo in windows.halos]
    for halo, cases in zip(windows.halos, padding_cases, strict=True):
        case = np.asarray([cases.index(ends) for ends in halo.pad_rows], np.int32)
        branch_index = branch_index * np.int32(len(cases)) + jnp.asarray(case)[halo.shard_id()]

    def pool_cropped(pad_rows: Sequence[Ends], *xs: Array) -> Array:
        axes = [halo.dim.axis for halo in windows.halos]
        padding = [(-low, -high, 0) for low, high in pad_rows]
        cropped = [slices.pad(x, axes, padding, 0) for x in xs[:num_extended]]
        cropped_op = dataclasses.replace(op, window=windows.cropped_window(pad_rows))
        return pool(cropped_op, *cropped, *xs[num_extended:])

    branches = [functools.partial(pool_cropped, ends) for ends in itertools.product(*padding_cases)]
    switch: Callable[..., Array] = functools.partial(lax.switch, branch_index, branches)
    if op.saves_x:
        switch = jax.checkpoint(switch)
    # Cast outside of the switch: the transpose of the cast sums over devices, which may take different branches.
    y: Array = switch(*match_varying_mesh_axes([*extended, *xs[num_extended:]]))
    return y
