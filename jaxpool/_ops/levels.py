"""Averages over boxes in a pyramid of images, where each box belongs to one level (FPN)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from jaxpool._arguments.arrays import match_varying_mesh_axes
from jaxpool._arguments.sizes import is_int
from jaxpool._kernels.dtypes import accumulator, float_dtype
from jaxpool._kernels.weighted import Weighted, read_one_of
from jaxpool._ops.apply import apply_with_extra_args
from jaxpool._ops.op import Op
from jaxpool._ops.regions import BoxMean
from jaxpool._plan.problem import Platform
from jaxpool._plan.regions import joins_levels
from jaxpool._plan.stages import OpPlan, along, linear_plan


@dataclasses.dataclass(frozen=True)
class LevelMean(Op):
    """`BoxMean` of boxes in a pyramid of images, where each box belongs to one level.

    The arguments after the levels are the boxes (K, 4) in pixels of their level, the level of each box, and its image.
    By matrix products, each level is read with its own boxes only, and the results are added.
    """

    one: BoxMean  # the op of one level, of any size
    levels: tuple[tuple[int, int, int], ...]  # B, H, W of each level

    linear_in_x = True
    differentiable_residual = True

    @property
    def inputs(self) -> int:
        return len(self.levels)

    def plan(self, platform: Platform, *types: Any) -> OpPlan:
        xs, extra_args = types[: self.inputs], types[self.inputs :]
        plans = [self.one.plan(platform, x, *extra_args) for x in xs]
        if self._by_pixels(platform):
            joined = self._joined(platform, xs, extra_args[0])
            note = "all levels made one array" if joined else "a box at a time"
            read = along((1, 2), "gathered", self.one.pixels_of_a_cell, note)
            return linear_plan(read, plans[0].backward)
        forward = [stage for plan in plans for stage in plan.forward]
        return linear_plan(forward, [stage for plan in plans for stage in plan.backward])

    def _of_levels(self, extra_args: Any) -> Iterator[tuple[BoxMean, tuple[Array, Array]]]:
        """For each level, its op and the boxes. Boxes of other levels have the image index -1."""
        boxes, level, image = extra_args
        for number, sizes in enumerate(self.levels):
            image_of_level = jnp.where(level == number, image, np.int32(-1))
            yield dataclasses.replace(self.one, sizes=sizes), (boxes, image_of_level)

    def linear(self, platform: Platform, extra_args: tuple[Array, ...], *xs: Array | None) -> Array:
        if not self._by_pixels(platform):
            pairs = zip(self._of_levels(extra_args), xs, strict=True)
            means = [op.linear(platform, boxes, x) for (op, boxes), x in pairs if x is not None]
            return functools.reduce(lax.add, means)
        known = {n: x for n, x in enumerate(xs) if x is not None}
        flats = [x.reshape(-1, x.shape[-1]) for x in known.values()]
        which, of = self._weighted([*known], *extra_args)
        joined = self._joined(platform, known.values(), extra_args[0])
        return read_one_of(flats, which, of, joined=joined).astype(flats[0].dtype)

    def transpose(
        self, platform: Platform, extra_args: tuple[Array, ...], dy: Array
    ) -> tuple[Array, ...]:
        if not self._by_pixels(platform):
            return tuple(
                op.transpose(platform, boxes, dy)[0] for op, boxes in self._of_levels(extra_args)
            )
        which, of = self._weighted(range(len(self.levels)), *extra_args)
        counts = [math.prod(sizes) for sizes in self.levels]
        dxs = self.one.sent(dy.astype(accumulator(dy.dtype)), which, of, counts)
        pairs = zip(dxs, self.levels, strict=True)
        return tuple(dx.reshape(*sizes, dy.shape[-1]).astype(dy.dtype) for dx, sizes in pairs)

    def _by_pixels(self, platform: Platform) -> bool:
        """`BoxMean.by_pixels` for an array with the pixels of all levels."""
        pixels = sum(map(math.prod, self.levels))
        return dataclasses.replace(self.one, sizes=(pixels,)).by_pixels(platform)

    def _joined(self, platform: Platform, xs: Iterable[Any], boxes: Any) -> bool:
        """Whether boxes (K, 4) read from one concatenation of the levels `xs`."""
        sizes = [x.size if is_int(x.size) else None for x in xs]
        itemsize = next(iter(xs)).dtype.itemsize
        return joins_levels(platform, sizes, itemsize, boxes.shape[0])

    def _weighted(
        self, numbers: Sequence[int], boxes: Array, level: Array, image: Array
    ) -> tuple[Array, Weighted]:
        """The index in `numbers` of the level of each box, and its pixels, with weight 0 if the level is not listed."""
        matches = level[:, None] == np.asarray(numbers, np.int32)[None]
        which = jnp.argmax(matches, 1).astype(np.int32)
        sizes = jnp.asarray([self.levels[n] for n in numbers], np.int32)[which]
        image = jnp.where(matches.any(1), image, np.int32(-1))
        return which, self.one.weighted([*sizes.T], boxes, image)


def level_mean(op: BoxMean, xs: Sequence[Array], *extra_args: Array) -> Array:
    """Evaluate `LevelMean` on the levels `xs`, with forward- and reverse-mode derivatives."""
    dtype = float_dtype(xs[0].dtype)
    xs = match_varying_mesh_axes([x.astype(dtype) for x in xs], *extra_args)
    levels: Any = tuple(x.shape[:3] for x in xs)
    return apply_with_extra_args(LevelMean(op, levels), *xs, *extra_args)[0]
