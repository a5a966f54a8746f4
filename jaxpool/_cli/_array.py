"""Reading of the small arrays of `explain`: rows in a text, .npy and .csv files, images.

Every failure is a `UsageError` of one line. Nothing is ever unpickled, .npy files are memory-mapped, and .csv files are
read up to `MAX_CSV_BYTES`.
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import numpy as np

from jaxpool._cli import UsageError, option_error, quote_text, require_modules

MAX_NUMBERS = 400  # limit of numbers in an array; more fit neither a terminal nor a page
MAX_CSV_BYTES = 100_000  # bytes of a .csv file; 400 numbers take a tenth of that
MAX_IMAGE_SIDE = 16  # maximum pixels of a shrunk image, per side
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
NUMBER_PATTERN = re.compile(
    r"[+-]?(nan|inf|infinity|(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?)", re.ASCII | re.IGNORECASE
)


def read_array(option: str, text: str) -> tuple[np.ndarray, list[str]]:
    """The float32 array (rows, columns) in the `text` of an option, a file name or numbers, and notes to print."""
    path = Path(text)
    notes: list[str] = []
    suffix = path.suffix.lower()
    is_image = suffix in IMAGE_SUFFIXES
    if not is_image and suffix not in (".npy", ".csv"):
        is_file_name = len(text.split()) == 1 and re.fullmatch(r"\.[a-zA-Z]\w{1,4}", path.suffix)
        hint = " A file must end in .npy, .csv or as an image does, in .png say."
        x = _parse_rows(option, text, text, hint if is_file_name else "")
    elif not os.path.isfile(path):
        raise option_error(option, "a file that exists", quote_text(text))
    elif is_image:
        require_modules("demo", "PIL")
        x, notes = _read_image(option, path)
    elif suffix == ".npy":
        x, notes = _select_two_axes(_read_npy(option, path))
    else:
        x = _read_csv(option, path)
    if x.size > MAX_NUMBERS:
        got = f"{x.size} ({'x'.join(map(str, x.shape))})"
        raise UsageError(f"`{option}` must have at most {MAX_NUMBERS} numbers; got {got}.")
    with np.errstate(over="ignore"):
        float32_array = np.asarray(x).astype(np.float32)
    if (np.isinf(float32_array) & np.isfinite(x)).any():
        raise option_error(option, "numbers in the range of float32", quote_text(text))
    return float32_array, notes


def _parse_rows(option: str, content: str, text: str, hint: str = "") -> np.ndarray:
    """Parse rows separated by ";" or line ends, with values separated by commas or spaces."""
    lines = [line.strip() for line in re.split(r"[;\n]", content) if line.strip()]
    rows = [re.split(r"\s*,\s*|\s+", line) for line in lines]
    is_uneven = len({len(row) for row in rows}) != 1
    if is_uneven or not all(NUMBER_PATTERN.fullmatch(word) for row in rows for word in row):
        rule = 'rows of equally many numbers, as in "1 3; 4 2"'
        raise UsageError(f"`{option}` must be {rule}; got {option}={quote_text(text)}.{hint}")
    return np.array([[float(word) for word in row] for row in rows])


def _read_csv(option: str, path: Path) -> np.ndarray:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CSV_BYTES + 1)
        if len(content) > MAX_CSV_BYTES:
            raise ValueError("too large")
        text = content.decode("utf-8-sig")
    except (OSError, ValueError):
        rule = f"a text file of at most {MAX_CSV_BYTES // 1000} kB that can be read"
        raise option_error(option, rule, quote_text(str(path))) from None
    return _parse_rows(option, text.replace(";", ","), str(path))


def _read_npy(option: str, path: Path) -> np.ndarray:
    try:
        with warnings.catch_warnings(action="ignore"):
            array = np.lib.format.open_memmap(path, mode="r")  # unpickles nothing
    except Exception:  # its type depends on how the file is damaged
        rule = "a .npy file that can be read, without Python objects, which are never unpickled"
        raise option_error(option, rule, quote_text(str(path))) from None
    if array.dtype.kind not in "biuf" or not 1 <= array.ndim <= 4 or array.size == 0:
        rule = "a non-empty array of real numbers with 1 to 4 axes"
        got = f"dtype {quote_text(str(array.dtype))} and shape {array.shape} in {quote_text(str(path))}"
        raise UsageError(f"`{option}` must be {rule}; got {got}.")
    return array


def _select_two_axes(x: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """x with two axes, and notes to print. Of three or four axes, the first channel of the first example is taken."""
    if x.ndim < 3:
        return np.atleast_2d(x), []
    notes = []
    if x.shape[-3] in (1, 3) and x.shape[-1] > 4:
        notes = [
            f"An array of shape {x.shape} looks as if channels came first (NCHW). jaxpool pools the axes "
            f"before the last one: pass axes={(x.ndim - 2, x.ndim - 1)} for this layout."
        ]
        index = ["0"] * (x.ndim - 2)
        channel = x[(0,) * (x.ndim - 2)]
    else:
        index = [*["0"] * (x.ndim - 3), ":", ":", "0"]
        channel = x[(0,) * (x.ndim - 3)][:, :, 0]
    if x.size > channel.size:
        notes.append(f"Shown is one channel of one example, x[{', '.join(index)}].")
    return channel, notes


def _read_image(option: str, path: Path) -> tuple[np.ndarray, list[str]]:
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as image:
            width, height = image.size
            is_wide = image.mode[0] in "IF"  # more than 8 bits per pixel, which "L" would clip
            grey_image = image.convert("F" if is_wide else "L")
    except Exception:  # its type depends on how the file is damaged
        raise option_error(option, "an image that can be read", quote_text(str(path))) from None
    shrink_factor = max(1, -(-max(width, height) // MAX_IMAGE_SIDE))
    shrunk_image = np.asarray(grey_image.reduce(shrink_factor))
    note = "Grey levels of the image" + ("" if is_wide else ", 0 to 255")
    if shrink_factor > 1:
        note += f", shrunk from {height}x{width} to {shrunk_image.shape[0]}x{shrunk_image.shape[1]}"
    return shrunk_image, [note + "."]
