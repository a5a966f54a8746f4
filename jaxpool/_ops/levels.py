"""Averages over boxes that each lie in one level of a pyramid of images."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from jaxpool._arguments.arrays import vary_together
from jaxpool._ops.apply import apply_given
from jaxpool._ops.op import Op
from jaxpool._ops.regions import BoxMean, mean_dtype, read_cells
from jaxpool._plan.problem import Platform
from jaxpool._plan.stages import OpPlan, linear_plan


@dataclasses.dataclass(frozen=True)
class LevelMean(Op):
    """`BoxMean` of boxes that each lie in one level of a pyramid, which are one after another the rows of x.

    Given are the boxes (K, 4) in pixels of their levels, the level of each, and its image. What cells read pixel by
    pixel they read once, from one level; as products every level is read, with those of its boxes alone.
    """

    one: BoxMean  # of any of the levels
    levels: tuple[tuple[int, int, int], ...]  # B, H, W of each

    linear_in_x = True
    differentiable_given = True

    def plan(self, on: Platform, x: Any, *given: Any) -> OpPlan:
        images = [jax.ShapeDtypeStruct((*sizes, x.shape[-1]), x.dtype) for sizes in self.levels]
        plans = [self.one.plan(on, image, *given) for image in images]
        if self.one.by_pixels(on):
            return plans[0]
        forward = [stage for plan in plans for stage in plan.forward]
        return linear_plan(forward, [stage for plan in plans for stage in plan.backward])

    def _of_levels(self, given: Any) -> Iterator[tuple[BoxMean, tuple[Array, Array]]]:
        """For each level its op, with its boxes: the others are of no image."""
        boxes, level, image = given
        for number, sizes in enumerate(self.levels):
            there = jnp.where(level == number, image, np.int32(-1))
            yield dataclasses.replace(self.one, sizes=sizes), (boxes, there)

    def linear(self, on: Platform, given: tuple[Array, ...], x: Array) -> Array:
        if self.one.by_pixels(on):
            return self._read(x, *given).astype(x.dtype)
        ends = np.cumsum([math.prod(sizes) for sizes in self.levels]).tolist()
        y: Any = 0
        for (op, boxes), end in zip(self._of_levels(given), ends, strict=True):
            image = x[end - math.prod(op.sizes) : end].reshape(*op.sizes, x.shape[-1])
            y = y + op.linear(on, boxes, image)
        return jnp.asarray(y)

    def transpose(self, on: Platform, given: tuple[Array, ...], dy: Array) -> tuple[Array]:
        dxs = [op.transpose(on, boxes, dy)[0] for op, boxes in self._of_levels(given)]
        return (jnp.concatenate([dx.reshape(-1, dx.shape[-1]) for dx in dxs]),)

    def _read(self, x: Array, boxes: Array, level: Array, image: Array) -> Array:
        """The sum over the pixels of each cell, of the level and the image of its box."""
        sizes = np.asarray(self.levels, np.int32)
        begins = np.cumsum([0, *(math.prod(each) for each in self.levels[:-1])], dtype=np.int32)
        of = jnp.clip(level, 0, len(sizes) - 1)
        batch, heights, widths = jnp.asarray(sizes)[of].T
        known = (level == of) & (image >= 0) & (image < batch)
        first = jnp.asarray(begins)[of] + jnp.clip(image, 0, batch - 1) * heights * widths
        return read_cells(x, first, widths, *self.one.points_in(boxes, known, (heights, widths)))


def level_mean(op: BoxMean, xs: Sequence[Array], *given: Array) -> Array:
    """What `LevelMean` gives for the levels `xs` of a pyramid, in both modes."""
    flat = jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in xs])
    flat = vary_together([flat.astype(mean_dtype(flat.dtype))], *given)[0]
    levels: Any = tuple(x.shape[:3] for x in xs)
    return apply_given(LevelMean(op, levels), flat, *given)[0]
