"""What a plan is made for: the array, the window and the platform. Frozen, hashable, no jax."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Literal

from jaxpool._geometry.window import Window
from jaxpool._plan.tuning import PORTABLE, TUNING, Tuning

Platform = Literal["cpu", "gpu", "tpu"]
PLATFORMS: tuple[Platform, ...] = ("cpu", "gpu", "tpu")
Shape = tuple[int | None, ...]  # None where a size is symbolic


@dataclasses.dataclass(frozen=True)
class Problem:
    """A pool over an array of `shape`. The axes of a vmap are not seen."""

    window: Window
    shape: Shape
    dtype: str
    platform: Platform
    sharded: bool = (
        False  # whether the array's type says so; of a mesh that XLA alone knows it does not
    )

    @property
    def tuning(self) -> Tuning:
        """The thresholds of the platform."""
        return TUNING[self.platform]

    @property
    def bits(self) -> int:
        """Bits of an element; a bool has 8."""
        found = re.search(r"\d+", self.dtype)
        return int(found.group()) if found else 8

    @property
    def low_precision(self) -> bool:
        """Whether the array is added up in a wider type: 8- and 16-bit floats are."""
        return self.dtype.startswith(("float", "bfloat")) and self.bits < 32

    @property
    def sum_bits(self) -> int:
        """Bits of the type in which elements are added up."""
        return 32 if self.low_precision else self.bits

    def inner(self, axes: Sequence[int], shape: Shape | None = None) -> float:
        """How many elements lie next to each other at a position of `axes`; infinite where not known."""
        inside = (self.shape if shape is None else shape)[max(axes, default=-1) + 1 :]
        return math.prod(math.inf if size is None else size for size in inside)

    def nbytes(self, shape: Shape, bits: int) -> float:
        """How many bytes an array of `shape` has; infinite where not known."""
        return math.prod(math.inf if size is None else size for size in shape) * bits / 8


@dataclasses.dataclass(frozen=True)
class Tuned(Problem):
    """A problem that brings thresholds of its own."""

    thresholds: Tuning = PORTABLE

    @property
    def tuning(self) -> Tuning:
        """These, not those of the platform."""
        return self.thresholds
