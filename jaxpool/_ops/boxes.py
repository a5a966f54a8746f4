"""The largest pixel of each cell of boxes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together
from jaxpool._kernels import cells, regions
from jaxpool._kernels.compare import Ties
from jaxpool._kernels.dtypes import accumulator
from jaxpool._ops.op import Op
from jaxpool._ops.regions import away_from_zero, in_pixels
from jaxpool._plan.problem import Platform, keep_on

SLICES = 32  # columns of cells whose cotangents are added to an image in one loop
AT_ONCE = {"cpu": 8}  # boxes that are looked at together: what a cache holds, or else MANY
MANY = 128


@dataclasses.dataclass(frozen=True)
class BoxMax(Op):
    """The largest pixel of each cell of boxes (K, 4) of images (B, H, W, C); `many` if given the image of each box.

    Keeps the position of each chosen pixel in its image, or with "split" x and y.
    """

    output_shape: tuple[int, ...]
    scale: float
    ties: Ties
    sizes: tuple[int, ...]  # B, H, W

    def _bounds(self, boxes: Array) -> cells.Bounds:
        scaled = away_from_zero(in_pixels(boxes, self.scale)).T
        bounds: list[Array] = []
        ends = zip(scaled[:2], scaled[2:], self.output_shape, self.sizes[1:], strict=True)
        for start, end, count, size in ends:
            bounds += regions.cell_bounds(start, jnp.maximum(end - start + 1, 1), count, size)
        return bounds

    def _groups(self, kept: Any, most: int) -> tuple[regions.Groups, int]:
        count = kept["boxes"].shape[0]
        size = max(1, min(count, most))
        return regions.group(kept.get("images"), count, self.sizes[0], size), size

    def primal(self, on: Platform, x: Array, boxes: Array, *images: Array) -> tuple[Array, Any]:
        kept: dict[str, Any] = {"boxes": boxes} | ({"images": images[0]} if images else {})
        groups, size = self._groups(kept, AT_ONCE.get(on, MANY))
        bounds = self._grouped(self._bounds(boxes), groups, size)
        order = "first" if self.ties == "split" else self.ties

        def of_group(group: Any) -> tuple[Array, Array]:
            image, *bounds = group
            one = lax.dynamic_index_in_dim(x, image, keepdims=False)
            return cells.largest(one, bounds, order)

        found = lax.map(of_group, (groups.image, *bounds))
        y, where = (regions.rows(a.reshape(-1, *a.shape[2:]), groups.slot) for a in found)
        if self.ties == "split":
            return y, kept | {"x": x, "y": y}
        known = jnp.broadcast_to((groups.slot < groups.box.shape[0])[:, None, None, None], y.shape)
        none = np.asarray(self.sizes[1] * self.sizes[2], where.dtype)
        return y, kept | {"where": jnp.where(known, where, none)}

    def _grouped(self, arrays: Any, groups: regions.Groups, size: int) -> list[Array]:
        """Arrays with a row a box as (groups, boxes, ...)."""
        taken = [regions.rows(a, groups.box) for a in arrays]
        return [a.reshape(-1, size, *a.shape[1:]) for a in taken]

    def _each(
        self, on: Platform, kept: Any, more: tuple[Array, ...]
    ) -> tuple[regions.Groups, int, tuple[Array, ...], Callable[..., cells.Tests]]:
        """Groups, what they need of each box, `more` included, and who is chosen in a group."""
        groups, size = self._groups(kept, SLICES // self.output_shape[1])
        if self.ties == "split":
            arrays = (*more, kept["y"], *self._bounds(kept["boxes"]))
        else:
            none = self.sizes[1] * self.sizes[2]
            arrays = (*more, none - kept["where"].astype(np.int32))  # a free slot holds 0
        xs = (groups.image, *self._grouped(arrays, groups, size))

        def tests(image: Array, *arrays: Array) -> cells.Tests:
            if self.ties == "split":
                one = lax.dynamic_index_in_dim(kept["x"], image, keepdims=False)
                y, *bounds = arrays
                return cells.at_ties(one, y, bounds)
            _, height, width = self.sizes
            return cells.at_positions(height * width - arrays[0], height, width, keep_on(on))

        return groups, size, xs, tests

    def _collected(self, on: Platform, kept: Any, x: Array) -> Array:
        """The sum of x (B, H, W, C) over the pixels that each cell chose."""
        groups, size, xs, tests = self._each(on, kept, ())

        def of_group(group: Any) -> Array:
            image, *arrays = group
            one = lax.dynamic_index_in_dim(x, image, keepdims=False)
            return cells.collect(one, tests(image, *arrays), (size, *self.output_shape))

        found = lax.map(of_group, xs)
        return regions.rows(found.reshape(-1, *found.shape[2:]), groups.slot)

    def _tied(self, on: Platform, kept: Any, dtype: Any) -> Array:
        """How many pixels each cell chose, at least 1."""
        return jnp.maximum(self._collected(on, kept, jnp.ones(kept["x"].shape, dtype)), 1)

    def linear(self, on: Platform, kept: Any, x_dot: Array) -> Array:
        wide = x_dot.astype(accumulator(x_dot.dtype))
        if self.ties == "split":
            return (self._collected(on, kept, wide) / self._tied(on, kept, wide.dtype)).astype(
                x_dot.dtype
            )
        batch, height, width = self.sizes
        where = kept["where"].astype(np.int32)
        first = kept["images"][:, None, None, None] * (height * width) if "images" in kept else 0
        at = jnp.where(where < height * width, first + where, batch * height * width)
        flat = wide.reshape(batch * height * width, -1)
        found = jnp.take_along_axis(
            flat, at.reshape(-1, at.shape[-1]), 0, mode="fill", fill_value=0
        )
        return found.reshape(at.shape).astype(x_dot.dtype)

    def transpose(self, on: Platform, kept: Any, dy: Array) -> tuple[Array]:
        share = dy.astype(accumulator(dy.dtype))
        if self.ties == "split":
            share = share / self._tied(on, kept, share.dtype)
        _, _, xs, tests = self._each(on, kept, (share,))

        def add(dx: Array, group: Any) -> tuple[Array, None]:
            image, share, *arrays = group
            one = lax.dynamic_index_in_dim(dx, image, keepdims=False)
            one = one + cells.spread(share, tests(image, *arrays), keep_on(on))
            return lax.dynamic_update_index_in_dim(dx, one, image, 0), None

        zeros = jnp.zeros((*self.sizes, dy.shape[-1]), share.dtype)
        dx = lax.scan(add, vary_together([zeros], dy)[0], xs)[0]
        return (dx.astype(dy.dtype),)
