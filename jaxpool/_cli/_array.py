"""Reading of the small arrays of `explain`: rows in a text, .npy and .csv files, images.

Nothing is ever unpickled, and .npy files are memory-mapped.
"""

from __future__ import annotations

import argparse
import io
import os
import warnings
from pathlib import Path

import numpy as np

from jaxpool._cli import option_error, quote_text, require_modules

MAX_NUMBERS = 400  # limit of numbers in an array; more fit neither a terminal nor a page
SUBNORMAL_NOTE = (
    "The array has subnormal numbers, shown in the order of their values. XLA on CPU compares them as zeros, so that "
    "they tie with zeros and with each other in a max or min pool (docs/conventions.md)."
)
MAX_IMAGE_SIDE = 16  # maximum pixels of a shrunk image, per side
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


def read_array(text: str) -> tuple[np.ndarray, list[str]]:
    """The float32 array (rows, columns) in the `text` of an option, a file name or numbers, and notes to print."""
    path = Path(text)
    suffix = path.suffix.lower()
    is_file_name = suffix in (".npy", ".csv", *IMAGE_SUFFIXES)
    if is_file_name and not os.path.isfile(path):
        raise option_error("a file that exists", text)
    if suffix in IMAGE_SUFFIXES:
        require_modules("demo", "PIL")
    notes: list[str] = []
    try:
        with warnings.catch_warnings(action="ignore"):
            if suffix in IMAGE_SUFFIXES:
                x, notes = _read_image(path)
            elif suffix == ".npy":
                x, notes = _select_two_axes(np.lib.format.open_memmap(path, mode="r"))
            else:
                x = _parse_rows(
                    path.read_text("utf-8-sig").replace(";", ",") if is_file_name else text
                )
            float32_array = np.asarray(x).astype(np.float32)
    except Exception:  # its type depends on how the file is damaged
        rule = 'rows of numbers, as in "1 3; 4 2", or a .npy, .csv or image file with real numbers'
        raise option_error(rule, text) from None
    if not 0 < x.size <= MAX_NUMBERS:
        got = f"{x.size} in {quote_text(text)}"
        raise argparse.ArgumentTypeError(f"must have 1 to {MAX_NUMBERS} numbers; got {got}")
    if (np.isinf(float32_array) & np.isfinite(x)).any():
        raise option_error("numbers in the range of float32", text)
    is_subnormal = (float32_array != 0) & (
        abs(float32_array) < np.finfo(np.float32).smallest_normal
    )
    return float32_array, notes + [SUBNORMAL_NOTE] * bool(is_subnormal.any())


def _parse_rows(text: str) -> np.ndarray:
    """Parse rows separated by ";" or line ends, with values separated by commas or spaces."""
    lines = io.StringIO(text.replace(";", "\n"))
    return np.loadtxt(lines, delimiter="," if "," in text else None, comments=None, ndmin=2)


def _select_two_axes(x: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """x with two axes, and notes to print. Of three or four axes, the first channel of the first example is taken."""
    if x.dtype.kind not in "biuf" or not 1 <= x.ndim <= 4:
        raise ValueError
    if x.ndim < 3:
        return np.atleast_2d(x), []
    notes = []
    index = "0, " * (x.ndim - 3) + ":, :, 0"
    channel = x[(0,) * (x.ndim - 3)][:, :, 0]
    if x.shape[-3] in (1, 3) and x.shape[-1] > 4:
        notes = [
            f"An array of shape {x.shape} looks as if channels came first (NCHW). jaxpool pools the axes "
            f"before the last one: pass axes={(x.ndim - 2, x.ndim - 1)} for this layout."
        ]
        index = ", ".join("0" * (x.ndim - 2))
        channel = x[(0,) * (x.ndim - 2)]
    if x.size > channel.size:
        notes.append(f"Shown is one channel of one example, x[{index}].")
    return channel, notes


def _read_image(path: Path) -> tuple[np.ndarray, list[str]]:
    from PIL import Image

    with Image.open(path) as image:
        width, height = image.size
        is_wide = image.mode[0] in "IF"  # more than 8 bits per pixel, which "L" would clip
        grey_image = image.convert("F" if is_wide else "L")
    shrink_factor = max(1, -(-max(width, height) // MAX_IMAGE_SIDE))
    shrunk_image = np.asarray(grey_image.reduce(shrink_factor))
    note = "Grey levels of the image" + ("" if is_wide else ", 0 to 255")
    if shrink_factor > 1:
        note += f", shrunk from {height}x{width} to {shrunk_image.shape[0]}x{shrunk_image.shape[1]}"
    return shrunk_image, [note + "."]
