"""Reports of `accelerate`: a `LaxReduction` for each windowed reduction of a program, and the line that calls it."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from types import FrameType

import jax

_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_JAX_AND_JAXPOOL_FOLDERS = (
    os.path.dirname(os.path.abspath(jax.__file__)) + os.sep,
    _PACKAGE_FOLDER + os.sep,
)
_STANDARD_LIBRARY = (sysconfig.get_path("stdlib") + os.sep, "<frozen")
# A folder of installed packages, perhaps of another environment that a .pth file or PYTHONPATH adds.
_PACKAGES_FOLDER = re.compile(r"[/\\](site|dist)-packages[/\\]")

NO_REDUCTION = (
    "no windowed max, min or sum; pools by reshape, adaptive and global pools are not replaced"
)


@dataclasses.dataclass(frozen=True)
class LaxReduction:
    """A windowed reduction in a traced program. Tuples have one entry per axis of the array."""

    kind: str  # "max", "min", "sum", "other", or "none" for a call without any reduction
    dtype: str
    shape: tuple[object, ...]
    window_shape: tuple[object, ...]  # ints or symbolic sizes, as in `strides` and `padding`
    strides: tuple[object, ...]
    padding: tuple[tuple[object, object], ...]
    where: str  # file, line and function of the caller
    reason: str | None = None  # why lax computes the reduction; None if our pools do

    @property
    def taken_over(self) -> bool:
        """Whether our pools compute the reduction."""
        return self.reason is None

    @classmethod
    def none(cls) -> LaxReduction:
        """The report of a call in which there was no reduction."""
        return cls("none", "", (), (), (), (), format_caller_line(), NO_REDUCTION)

    def __str__(self) -> str:
        if self.kind == "none":
            return f"{self.where}: {self.reason}"
        shape = ", ".join(map(str, self.shape))
        window = _format_tuple(self.window_shape)
        description = f"{self.kind} of {self.dtype}[{shape}], window {window}"
        if any(stride != 1 for stride in self.strides):
            description += f", strides {_format_tuple(self.strides)}"
        if any(side != 0 for pair in self.padding for side in pair):
            description += f", padding {_format_tuple(map(_format_tuple, self.padding))}"
        outcome = "by jaxpool" if self.reason is None else f"left to lax ({self.reason})"
        return f"{self.where}: {description}: {outcome}"


def _format_tuple(sizes: Iterable[object]) -> str:
    """`sizes` formatted as a tuple, with symbolic sizes as their names."""
    size_texts = [str(size) for size in sizes]
    return f"({', '.join(size_texts)}{',' if len(size_texts) == 1 else ''})"


def format_caller_line() -> str:
    """File, line and function of the innermost stack frame of the user's program, or else of another library."""
    frames = [frame for frame, _ in traceback.walk_stack(sys._getframe(1))][::-1]
    index = caller_index(frames)
    return "unknown" if index is None else format_frame_line(frames[index])


def caller_index(frames: Sequence[FrameType]) -> int | None:
    """The index of the last of `frames` that is of the user's program, or else of another library than jax."""
    files = [frame.f_code.co_filename for frame in frames]
    user_indices = [i for i, file in enumerate(files) if is_user_file(file)]
    own_folders = _JAX_AND_JAXPOOL_FOLDERS
    library_indices = [i for i, file in enumerate(files) if not file.startswith(own_folders)]
    return next(reversed(user_indices or library_indices), None)


def path_in_package(file_path: str) -> str:
    """The path of a file within this package, with slashes; "" for other files."""
    is_inside = file_path.startswith(_PACKAGE_FOLDER + os.sep)
    return os.path.relpath(file_path, _PACKAGE_FOLDER).replace(os.sep, "/") if is_inside else ""


def is_user_file(file_path: str) -> bool:
    """Whether a file belongs to the user's program rather than to an installed package."""
    is_installed = _PACKAGES_FOLDER.search(file_path) is not None
    return not (is_installed or file_path.startswith(_JAX_AND_JAXPOOL_FOLDERS + _STANDARD_LIBRARY))


def format_frame_line(frame: FrameType) -> str:
    """The file, line and function of a frame."""
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} ({code.co_qualname})"
