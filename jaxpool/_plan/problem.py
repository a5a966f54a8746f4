"""`Problem`, the input of every plan: window, shape, dtype, sharding and platform. Hashable, without jax."""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Literal

from jaxpool._geometry.window import Window
from jaxpool._plan.tuning import TUNING, Tuning

Platform = Literal["cpu", "gpu", "tpu", "portable"]  # "portable": any other platform
PLATFORMS: tuple[Platform, ...] = ("cpu", "gpu", "tpu")
BarrierKind = Literal["barrier", "call"]  # an optimization barrier, or a call that is not inlined
Shape = tuple[int | None, ...]  # None where a size is symbolic


def barrier_of(platform: Platform, thresholds: Tuning | None = None) -> BarrierKind:
    """The kind of barrier that makes XLA store a result; the thresholds are `thresholds`, or those of the platform."""
    return "call" if (thresholds or TUNING[platform]).drops_barriers else "barrier"


def num_elements(shape: Shape) -> float:
    """Number of elements of an array of `shape`; infinite if a size is symbolic."""
    return math.prod(math.inf if size is None else size for size in shape)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A pool over an array of `shape`; axes that `jax.vmap` adds are not part of the shape."""

    window: Window
    shape: Shape
    dtype: str
    platform: Platform
    # True if the type of the array has a sharding over explicit mesh axes. Types carry no automatic mesh axes.
    is_sharded: bool = False
    # True if XLA may partition the array over devices, even if the array's type has no sharding.
    is_partitioned: bool = False
    thresholds: Tuning | None = None  # replaces the thresholds of the platform

    @property
    def tuning(self) -> Tuning:
        """The thresholds that decide between implementations."""
        return self.thresholds or TUNING[self.platform]

    @property
    def bits(self) -> int:
        """Number of bits of an array element; 8 for bool."""
        digits = re.search(r"\d+", self.dtype)
        return int(digits.group()) if digits else 8

    @property
    def is_float(self) -> bool:
        """Whether array elements are floats, which may be NaN."""
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def is_low_precision(self) -> bool:
        """Whether array elements are 8- or 16-bit floats, which are summed in float32."""
        return self.is_float and self.bits < 32

    @property
    def sum_bits(self) -> int:
        """Number of bits of the dtype of sums: 32 for low-precision floats."""
        return 32 if self.is_low_precision else self.bits


def row_size(shape: Shape, axes: Sequence[int]) -> float:
    """Number of contiguous elements per position of `axes`: the product of all later sizes; infinite if symbolic."""
    return num_elements(shape[max(axes, default=-1) + 1 :])


def nbytes(shape: Shape, bits: int) -> float:
    """Size in bytes of an array of `shape`; infinite if a size is symbolic."""
    return num_elements(shape) * bits / 8
