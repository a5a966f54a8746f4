"""The weighted pixels of each cell of boxes: read one after another, and sent cotangents by scatters in order.

Images are rows of pixels, (pixels, C), one image behind the other. Where there are several such arrays, levels of a
pyramid, the pixels of a box all stand in one of them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together
from jaxpool._kernels.compare import decode
from jaxpool._kernels.dtypes import accumulator, is_float

# XLA for CPU computes the bits of a 16-bit image inside each lookup, if there are at most 15; for more it stores all
# bits first, a copy of the image. As uint16 and int16 in turn they are two arrays, each of 8 lookups where a cell has
# 16 pixels: neither is stored.
_BITS = (np.uint16, np.int16)


class Weighted(NamedTuple):
    """Of K boxes the pixels of each cell, down and across, and their weights: (K, cells, n) each.

    A pixel's number is that of the first in its row, which stands in `down`, and its column. A weight of
    0 is that of no pixel.
    """

    down: tuple[Array, Array]
    across: tuple[Array, Array]

    @property
    def pixels(self) -> tuple[int, int]:
        """How many pixels a cell has, down and across."""
        return self.down[0].shape[2], self.across[0].shape[2]

    def every(self) -> tuple[Array, Array]:
        """The numbers of the pixels of every cell and their weights: (K, cells, cells, n, n) each."""
        (rows, down), (columns, across) = self.down, self.across
        at = rows[:, :, None, :, None] + columns[:, None, :, None, :]
        return at, down[:, :, None, :, None] * across[:, None, :, None, :]

    def one(self, u: int, v: int) -> tuple[Array, Array]:
        """The number and the weight of one pixel of every cell: (K, cells, cells) each."""
        (rows, down), (columns, across) = self.down, self.across
        at = rows[:, :, None, u] + columns[:, None, :, v]
        return at, down[:, :, None, u] * across[:, None, :, v]

    def behind(self, others: Array) -> "Weighted":
        """The same pixels, numbered in an array that holds so many others, (K,), before those of each box."""
        (rows, down), across = self
        return Weighted((rows + others[:, None, None], down), across)


def _looked_up(flat: Array, at: Array, number: int) -> Array:
    """The rows of `flat` at `at`; 16-bit floats as float32.

    Those are looked up as integers: XLA for CPU casts all of an array of floats before it looks some up.
    """
    if not is_float(flat.dtype) or flat.dtype.itemsize != 2:
        return jnp.take(flat, at, axis=0, mode="clip").astype(accumulator(flat.dtype))
    bits = lax.bitcast_convert_type(flat, _BITS[number % 2])
    found = jnp.take(bits, at, axis=0, mode="clip")
    return decode(lax.bitcast_convert_type(found, flat.dtype))


def read(flat: Array, of: Weighted) -> Array:
    """The sums over the pixels of each cell, (K, cells, cells, C), in the type in which they are added."""
    total = jnp.zeros((), accumulator(flat.dtype))
    for number, (u, v) in enumerate(np.ndindex(*of.pixels)):
        at, weight = of.one(u, v)
        weight = weight.astype(total.dtype)[..., None]
        # A weight of 0 does not undo an infinity or a NaN.
        total = total + jnp.where(weight != 0, _looked_up(flat, at, number) * weight, 0)
    return total


def read_one_of(flats: Sequence[Array], which: Array, of: Weighted, *, joined: bool) -> Array:
    """What `read` gives of each box for the array that it lies in.

    Arrays are `joined` into one, or boxes are read one after another.
    """
    if joined or len(flats) == 1:
        before = np.cumsum([0, *map(len, flats[:-1])], dtype=np.int32)
        return read(jnp.concatenate(flats), of.behind(jnp.asarray(before)[which]))
    cells = (of.down[0].shape[1], of.across[0].shape[1])

    def one_box(number: Array, y: Array) -> Array:
        readers = [lambda flats, box, n=n: read(flats[n], box) for n in range(len(flats))]
        found = lax.switch(which[number], readers, list(flats), _box(of, number))
        return lax.dynamic_update_slice_in_dim(y, found, number, 0)

    shape = (len(which), *cells, flats[0].shape[1])
    zeros = jnp.zeros(shape, accumulator(flats[0].dtype))
    return lax.fori_loop(0, len(which), one_box, vary_together([zeros], *flats)[0])


def send(dy: Array, which: Array, of: Weighted, counts: Sequence[int], parts: int) -> list[Array]:
    """The transpose of `read_one_of`: for arrays of so many rows, what the dy (K, cells, cells, C) sends them.

    One box after another, each in so many `parts` of its rows of cells; a scatter adds their pixels one after another.
    """
    channels = dy.shape[-1]
    which, across = jax.tree.map(lambda a: jnp.repeat(a, parts, 0), (which, of.across))
    dy, down = jax.tree.map(
        lambda a: a.reshape(len(which), a.shape[1] // parts, *a.shape[2:]), (dy, of.down)
    )
    of = Weighted(down, across)

    def one_box(number: Array, dxs: list[Array]) -> list[Array]:
        at, weight = _box(of, number).every()
        weight = weight.astype(dy.dtype)[..., None]
        share = _box(dy, number)[:, :, :, None, None]
        terms = jnp.where(weight != 0, share * weight, 0).reshape(-1, channels)
        rows = [jnp.where(which[number] == n, at, count) for n, count in enumerate(counts)]
        pairs = zip(dxs, rows, strict=True)
        return [dx.at[at.reshape(-1)].add(terms, mode="drop") for dx, at in pairs]

    zeros = [jnp.zeros((count, channels), dy.dtype) for count in counts]
    return lax.fori_loop(0, len(which), one_box, [*vary_together(zeros, dy)])


def _box(arrays: Any, number: Array) -> Any:
    """Of arrays (K, ...) what belongs to one box, (1, ...)."""
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, number, 1), arrays)
