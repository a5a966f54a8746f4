"""Reading of the small arrays of `explain`: rows in a text, .npy and .csv files, images.

Every failure is a `UsageError` of one line. Nothing is ever unpickled, .npy files are memory-mapped, and .csv files are
read up to `MAX_CSV_BYTES`.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxpool._cli import UsageError, option_error, quote_text, require_modules

MAX_NUMBERS = 400  # limit of numbers in an array; more fit neither a terminal nor a page
MAX_CSV_BYTES = 100_000  # bytes of a .csv file; 400 numbers take a tenth of that
MAX_IMAGE_PIXELS = 50_000_000
MAX_IMAGE_SIDE = 16  # maximum pixels of a shrunk image, per side
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
NUMBER_PATTERN = re.compile(
    r"[+-]?(nan|inf|infinity|(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?)", re.ASCII | re.IGNORECASE
)


def read_array(option: str, text: str) -> tuple[np.ndarray, list[str]]:
    """The float32 array (rows, columns) in the `text` of an option, a file name or numbers, and notes to print."""
    suffix = Path(text).suffix.lower()
    readers = {".npy": _read_npy, ".csv": _read_csv} | dict.fromkeys(IMAGE_SUFFIXES, _read_image)
    if suffix in readers:
        path = Path(text)
        if not os.path.isfile(path):
            raise option_error(option, "a file that exists", quote_text(text))
        x, notes = readers[suffix](option, path)
    else:
        x, notes = _parse_rows(option, text, text), []
    if x.size > MAX_NUMBERS:
        shape = "x".join(map(str, x.shape))
        raise UsageError(
            f"`{option}` must have at most {MAX_NUMBERS} numbers; got {x.size} ({shape})."
        )
    return _as_float32(option, x, text), notes


def _as_float32(option: str, x: np.ndarray, text: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        float32_array = np.asarray(x).astype(np.float32)
    if (np.isinf(float32_array) & np.isfinite(x)).any():
        raise option_error(option, "numbers in the range of float32", quote_text(text))
    return float32_array


def _parse_rows(option: str, content: str, text: str) -> np.ndarray:
    """Parse rows separated by ";" or line ends, with values separated by commas or spaces."""
    lines = [line.strip() for line in re.split(r"[;\n]", content) if line.strip()]
    rows = [re.split(r"\s*,\s*|\s+", line) for line in lines]
    is_uneven = len({len(row) for row in rows}) != 1
    if is_uneven or not all(NUMBER_PATTERN.fullmatch(word) for row in rows for word in row):
        rule = 'rows of equally many numbers, as in "1 3; 4 2"'
        hint = "" if content is not text else _missing_file_hint(text)
        raise UsageError(f"`{option}` must be {rule}; got {option}={quote_text(text)}.{hint}")
    return np.array([[float(word) for word in row] for row in rows])


def _missing_file_hint(text: str) -> str:
    is_path = len(text.split()) == 1 and re.fullmatch(r"\.[a-zA-Z]\w{1,4}", Path(text).suffix)
    return " A file must end in .npy, .csv or as an image does, in .png say." if is_path else ""


def _read_npy(option: str, path: Path) -> tuple[np.ndarray, list[str]]:
    try:
        with _suppress_warnings():
            array = np.lib.format.open_memmap(path, mode="r")  # unpickles nothing
        if array.size == 0:
            raise ValueError("empty")
    except Exception as error:
        if "Python objects" in str(error):
            rule = "numbers, not pickled Python objects, which are never loaded"
        else:
            rule = "a .npy file that can be read, with at least one number"
        raise option_error(option, rule, quote_text(str(path))) from None
    if array.dtype.kind not in "biuf":
        got = f"dtype {quote_text(str(array.dtype))} in {quote_text(str(path))}"
        raise UsageError(f"`{option}` must hold real numbers; got {got}.")
    if not 1 <= array.ndim <= 4:
        got = f"{array.ndim} axes in {quote_text(str(path))}"
        raise UsageError(f"`{option}` must have 1 to 4 axes; got {got}.")
    return _select_two_axes(array)


def _select_two_axes(x: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """x with two axes, and notes to print. Of three or four axes, the first channel of the first example is taken."""
    if x.ndim < 3:
        return np.atleast_2d(x), []
    channel = x.ndim - 3
    is_nchw = x.shape[channel] in (1, 3) and x.shape[-1] > 4
    index: tuple[Any, ...] = (0,) * (channel + 1) if is_nchw else (*(0,) * channel, ..., 0)
    index_text = (
        ", ".join(["0"] * (channel + 1))
        if is_nchw
        else ", ".join(["0"] * channel + [":", ":", "0"])
    )
    notes = []
    if is_nchw:
        notes = [
            f"An array of shape {x.shape} looks as if channels came first (NCHW). jaxpool pools the axes "
            f"before the last one: pass axes={(x.ndim - 2, x.ndim - 1)} for this layout."
        ]
    if x.size > x[index].size:
        notes.append(f"Shown is one channel of one example, x[{index_text}].")
    return x[index], notes


def _read_csv(option: str, path: Path) -> tuple[np.ndarray, list[str]]:
    shown = quote_text(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CSV_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise option_error(option, "a text file that can be read", shown) from None
    if len(content) > MAX_CSV_BYTES:
        raise option_error(option, f"a file of at most {MAX_CSV_BYTES // 1000} kB", shown)
    return _parse_rows(option, text.replace(";", ","), str(path)), []


def _read_image(option: str, path: Path) -> tuple[np.ndarray, list[str]]:
    require_modules("demo", "PIL")
    from PIL import Image

    try:
        with _suppress_warnings(), Image.open(path) as image:
            width, height = image.size
            is_small = width * height <= MAX_IMAGE_PIXELS
            is_wide = image.mode[0] in "IF"  # more than 8 bits per pixel, which "L" would clip
            grey_image = image.convert("F" if is_wide else "L") if is_small else None
    except Exception:
        raise option_error(option, "an image that can be read", quote_text(str(path))) from None
    if grey_image is None:
        got = f"{width}x{height} in {quote_text(str(path))}"
        raise UsageError(f"`{option}` must have at most {MAX_IMAGE_PIXELS} pixels; got {got}.")
    shrink_factor = max(1, -(-max(width, height) // MAX_IMAGE_SIDE))
    shrunk_image = np.asarray(grey_image.reduce(shrink_factor))
    note = "Grey levels of the image" + ("" if is_wide else ", 0 to 255")
    if shrink_factor > 1:
        note += f", shrunk from {height}x{width} to {shrunk_image.shape[0]}x{shrunk_image.shape[1]}"
    return shrunk_image, [note + "."]


@contextlib.contextmanager
def _suppress_warnings() -> Iterator[None]:
    """Suppress the warnings of file readers.

    Callers catch every exception of a reader, because its type depends on how the file is damaged.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
