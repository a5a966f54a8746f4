"""What `accelerate` met: each windowed reduction of a program, taken over or not, and why."""

from __future__ import annotations

import dataclasses
import os
import sys
import sysconfig
from collections.abc import Iterable
from types import FrameType

import jax

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OWN = (os.path.dirname(os.path.abspath(jax.__file__)) + os.sep, _PACKAGE + os.sep)
_INSTALLED = (
    *(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib")),
    "<frozen",
)


@dataclasses.dataclass(frozen=True)
class LaxReduction:
    """A windowed reduction in a traced program; axes in the order of the array's."""

    kind: str  # "max", "min", "sum" or "other"
    dtype: str
    shape: tuple[object, ...]
    window_shape: tuple[object, ...]  # ints, as those below, or sizes that are symbolic
    strides: tuple[object, ...]
    padding: tuple[tuple[object, object], ...]
    where: str  # file, line and function of the caller
    reason: str | None = None  # why it was left to lax; None if it was taken over

    @property
    def taken_over(self) -> bool:
        """Whether our kernels compute it."""
        return self.reason is None

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        window = _tuple(self.window_shape)
        what = f"{self.kind} of {self.dtype}[{shape}], window {window}"
        if any(stride != 1 for stride in self.strides):
            what += f", strides {_tuple(self.strides)}"
        if any(side != 0 for sides in self.padding for side in sides):
            what += f", padding {_tuple(map(_tuple, self.padding))}"
        fate = "taken over" if self.reason is None else f"left to lax ({self.reason})"
        return f"{self.where}: {what}: {fate}"


def _tuple(sizes: Iterable[object]) -> str:
    """`sizes` as a tuple is written; a symbolic size by its name alone."""
    written = [str(size) for size in sizes]
    return f"({', '.join(written)}{',' if len(written) == 1 else ''})"


def caller() -> str:
    """The innermost line of the user's program; of a library if no other is on the stack."""
    frame: FrameType | None = sys._getframe(1)
    library = None
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            return line(frame)
        if not is_own(file):
            library = library or line(frame)
        frame = frame.f_back
    return library or "unknown"


def in_package(file: str) -> str:
    """The place of a file in this library, with slashes; empty if it is not of it."""
    inside = file.startswith(_PACKAGE + os.sep)
    return os.path.relpath(file, _PACKAGE).replace(os.sep, "/") if inside else ""


def is_own(file: str) -> bool:
    """Whether a file is of this library or of jax."""
    return file.startswith(_OWN)


def is_users(file: str) -> bool:
    """Whether a file is of no library at all."""
    return not file.startswith((*_OWN, *_INSTALLED))


def line(frame: FrameType) -> str:
    """The file, line and function that a frame is at."""
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} ({code.co_qualname})"
