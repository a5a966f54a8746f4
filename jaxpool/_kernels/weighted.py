"""Weighted sums over the pixels of each cell of boxes, by gathers, and their transpose by ordered scatters.

The images of a batch are concatenated to rows of pixels, (pixels, C). A pyramid has one such array per level, and all
pixels of a box are in the same array.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._kernels.compare import decode
from jaxpool._kernels.dtypes import accumulator, is_float

# XLA for CPU fuses the bitcast of a 16-bit image into at most 15 gathers; for more it stores a copy of the image.
# Alternating uint16 and int16 makes two arrays, with 8 gathers each for a cell of 16 pixels: neither is stored.
_BITS = (np.uint16, np.int16)


class Weighted(NamedTuple):
    """Pixel numbers and weights of each cell of K boxes, down and across: (K, cells, n) each.

    The number of a pixel is the number of the first pixel in its row, from `down`, plus its column, from `across`.
    Entries of weight 0 are not pixels.
    """

    down: tuple[Array, Array]
    across: tuple[Array, Array]

    @property
    def pixels(self) -> tuple[int, int]:
        """Number of pixels per cell, down and across."""
        return self.down[0].shape[2], self.across[0].shape[2]

    def every(self) -> tuple[Array, Array]:
        """Numbers and weights of all pixels of every cell: (K, cells, cells, n, n) each."""
        (rows, down), (columns, across) = self.down, self.across
        at = rows[:, :, None, :, None] + columns[:, None, :, None, :]
        return at, down[:, :, None, :, None] * across[:, None, :, None, :]

    def one(self, u: int, v: int) -> tuple[Array, Array]:
        """Number and weight of pixel (u, v) of every cell: (K, cells, cells) each."""
        (rows, down), (columns, across) = self.down, self.across
        at = rows[:, :, None, u] + columns[:, None, :, v]
        return at, down[:, :, None, u] * across[:, None, :, v]

    def behind(self, others: Array) -> "Weighted":
        """Renumber the pixels for an array with `others`, (K,), further pixels in front."""
        (rows, down), across = self
        return Weighted((rows + others[:, None, None], down), across)


def _looked_up(flat: Array, at: Array, number: int) -> Array:
    """Gather rows of `flat` at `at`, and widen 16-bit floats to float32.

    16-bit floats are gathered as integers, because XLA for CPU casts a whole float array before the gather.
    """
    if not is_float(flat.dtype) or flat.dtype.itemsize != 2:
        return jnp.take(flat, at, axis=0, mode="clip").astype(accumulator(flat.dtype))
    bits = lax.bitcast_convert_type(flat, _BITS[number % 2])
    rows = jnp.take(bits, at, axis=0, mode="clip")
    return decode(lax.bitcast_convert_type(rows, flat.dtype))


def read(flat: Array, of: Weighted) -> Array:
    """Weighted sums over the pixels of each cell, (K, cells, cells, C), in the accumulator dtype."""
    total = jnp.zeros((), accumulator(flat.dtype))
    for number, (u, v) in enumerate(np.ndindex(*of.pixels)):
        at, weight = of.one(u, v)
        weight = weight.astype(total.dtype)[..., None]
        # An infinity or a NaN times a weight of 0 is NaN.
        total = total + jnp.where(weight != 0, _looked_up(flat, at, number) * weight, 0)
    return total


def read_one_of(flats: Sequence[Array], which: Array, of: Weighted, *, joined: bool) -> Array:
    """`read` for boxes in several arrays: box k reads `flats[which[k]]`.

    `joined` concatenates the arrays first. Otherwise a loop reads one box after another.
    """
    if joined or len(flats) == 1:
        before = np.cumsum([0, *map(len, flats[:-1])], dtype=np.int32)
        return read(jnp.concatenate(flats), of.behind(jnp.asarray(before)[which]))
    cells = (of.down[0].shape[1], of.across[0].shape[1])

    def one_box(number: Array, y: Array) -> Array:
        readers = [lambda flats, box, n=n: read(flats[n], box) for n in range(len(flats))]
        sums = lax.switch(which[number], readers, list(flats), _box(of, number))
        return lax.dynamic_update_slice_in_dim(y, sums, number, 0)

    shape = (len(which), *cells, flats[0].shape[1])
    zeros = jnp.zeros(shape, accumulator(flats[0].dtype))
    return lax.fori_loop(0, len(which), one_box, match_varying_mesh_axes([zeros], *flats)[0])


def send(dy: Array, which: Array, of: Weighted, counts: Sequence[int], parts: int) -> list[Array]:
    """Transpose of `read_one_of`: cotangents of arrays with `counts` rows, from dy (K, cells, cells, C).

    A loop scatters one box after another, in `parts` groups of rows of cells; each scatter adds pixels in order.
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
    return lax.fori_loop(0, len(which), one_box, [*match_varying_mesh_axes(zeros, dy)])


def _box(arrays: Any, number: Array) -> Any:
    """Entries of one box, (1, ...), in arrays (K, ...)."""
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, number, 1), arrays)
