"""What a plan is made for: the array, the window and the platform. Frozen, hashable, no jax."""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Literal

from jaxpool._geometry.window import Window
from jaxpool._plan.tuning import TUNING, Tuning

Platform = Literal["cpu", "gpu", "tpu", "portable"]  # the last: any other
PLATFORMS: tuple[Platform, ...] = ("cpu", "gpu", "tpu")
Barrier = Literal["barrier", "call"]  # what makes XLA store a result
Shape = tuple[int | None, ...]  # None where a size is symbolic


def barrier_on(platform: Platform, thresholds: Tuning | None = None) -> Barrier:
    """What makes XLA store a result on a platform, or under other thresholds than those of the platform."""
    return "call" if (thresholds or TUNING[platform]).drops_barriers else "barrier"


def elements(shape: Shape) -> float:
    """How many elements an array of `shape` has; infinite where not known."""
    return math.prod(math.inf if size is None else size for size in shape)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A pool over an array of `shape`. The axes of a vmap are not seen."""

    window: Window
    shape: Shape
    dtype: str
    platform: Platform
    sharded: bool = False  # whether the type says so; of a mesh that XLA alone knows it does not
    # Whether XLA may divide the array among devices, whatever its type says.
    partitioned: bool = False
    thresholds: Tuning | None = None  # in place of those of the platform

    @property
    def tuning(self) -> Tuning:
        """The thresholds that choose."""
        return self.thresholds or TUNING[self.platform]

    @property
    def bits(self) -> int:
        """Bits of an element; a bool has 8."""
        found = re.search(r"\d+", self.dtype)
        return int(found.group()) if found else 8

    @property
    def is_float(self) -> bool:
        """Whether an element may be NaN."""
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def low_precision(self) -> bool:
        """Whether the array is added up in a wider type: 8- and 16-bit floats are."""
        return self.is_float and self.bits < 32

    @property
    def sum_bits(self) -> int:
        """Bits of the type in which elements are added up."""
        return 32 if self.low_precision else self.bits


def row(shape: Shape, axes: Sequence[int]) -> float:
    """How many elements lie next to each other at a position of `axes`; infinite where not known."""
    return elements(shape[max(axes, default=-1) + 1 :])


def nbytes(shape: Shape, bits: int) -> float:
    """How many bytes an array of `shape` has; infinite where not known."""
    return elements(shape) * bits / 8
