"""Arrays that `python -m jaxpool explain` reads, and error messages for other arrays."""

import io
import pickle
import warnings

import numpy as np
import pytest

from jaxpool._cli import UsageError
from jaxpool._cli._array import read_array

ROWS_RULE = 'rows of equally many numbers, as in "1 3; 4 2"'
CSV_RULE = "a text file of at most 100 kB that can be read"
NPY_RULE = "a .npy file that can be read, without Python objects, which are never unpickled"
ARRAY_RULE = "a non-empty array of real numbers with 1 to 4 axes"
IMAGE_RULE = "an image that can be read"
NCHW_NOTE = (
    "An array of shape {} looks as if channels came first (NCHW). jaxpool pools the axes "
    "before the last one: pass axes={} for this layout."
)


def error_message(text):
    """The error message without its first words. Reading emits no warning."""
    with warnings.catch_warnings(action="error"), pytest.raises(UsageError) as caught:
        read_array("--array", str(text))
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix("`--array` must be ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("", b"1 3;4 2"),
        ("", b"1,3; 4,2;"),
        ("", b"1 , 3\n4 2\n"),
        ("", b" +1.0 3e0 ; .4e1 2. "),
        ("array.csv", b"1,3\r\n4,2\r\n"),
        ("array.csv", b"\xef\xbb\xbf1 3\n4 2"),
        ("ARRAY.CSV", b"1;3\n4;2\n"),
    ],
)
def test_rows(name, content, tmp_path):
    text = content.decode()
    if name:
        (tmp_path / name).write_bytes(content)
        text = str(tmp_path / name)
    x, notes = read_array("--array", text)
    assert (x.dtype, x.tolist(), notes) == (np.float32, [[1, 3], [4, 2]], [])


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint64", "bool", ">f4"])
def test_npy_dtypes(dtype, tmp_path):
    np.save(tmp_path / "array.npy", np.array([[0, 1], [1, 0]], dtype))
    x, _ = read_array("--array", str(tmp_path / "array.npy"))
    assert (x.dtype, x.tolist()) == (np.float32, [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("shape", "index", "notes"),
    [
        ((5,), None, []),
        ((1, 6, 6, 1), (0, ..., 0), []),
        ((6, 6, 3), (..., 0), ["Shown is one channel of one example, x[:, :, 0]."]),
        ((2, 6, 6, 3), (0, ..., 0), ["Shown is one channel of one example, x[0, :, :, 0]."]),
        (
            (2, 3, 6, 6),
            (0, 0),
            [
                NCHW_NOTE.format((2, 3, 6, 6), (2, 3)),
                "Shown is one channel of one example, x[0, 0].",
            ],
        ),
        ((1, 6, 6), (0,), [NCHW_NOTE.format((1, 6, 6), (1, 2))]),
    ],
)
def test_npy_axes(shape, index, notes, tmp_path):
    whole = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.save(tmp_path / "array.npy", whole)
    x, printed_notes = read_array("--array", str(tmp_path / "array.npy"))
    assert printed_notes == notes
    assert x.tolist() == whole[index].tolist()


@pytest.mark.parametrize(
    ("pixels", "expected", "note"),
    [
        (
            np.full((40, 20, 3), 200, np.uint8),
            np.full((14, 7), 200),
            ", 0 to 255, shrunk from 40x20 to 14x7",
        ),
        (np.eye(4, dtype=np.uint8), np.eye(4), ", 0 to 255"),
        (np.array([[0, 256], [4096, 65535]], np.uint16), [[0, 256], [4096, 65535]], ""),
    ],
)
def test_image(pixels, expected, note, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(pixels).save(tmp_path / "image.png")
    x, notes = read_array("--array", str(tmp_path / "image.png"))
    np.testing.assert_array_equal(x, expected)
    assert notes == [f"Grey levels of the image{note}."]


class PrintsIfUnpickled:
    def __reduce__(self):
        return print, ("a pickle was loaded",)


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


EYE = npy_bytes(np.eye(2))


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        *(
            ("array.npy", damaged, NPY_RULE)
            for damaged in (b"", EYE[:7], EYE[:-1], b"PK\x03\x04" + EYE)
        ),
        ("array.npy", EYE.replace(b"'<f8'", b"'<q8'"), NPY_RULE),
        ("array.npy", EYE.replace(b"(2, 2)", b"(0, 2)"), ARRAY_RULE),
        ("array.npy", EYE.replace(b"(2, 2)", b"(9**9)"), NPY_RULE),
        ("array.npy", EYE.replace(b"}", b" "), NPY_RULE),  # numpy raises an error of `tokenize`
        ("array.npy", npy_bytes(np.array([PrintsIfUnpickled()])), NPY_RULE),
        ("array.npy", pickle.dumps(PrintsIfUnpickled()), NPY_RULE),
        (
            "array.npy",
            npy_bytes(np.zeros((2, 2), complex)),
            f"{ARRAY_RULE}; got dtype 'complex128' and ",
        ),
        (
            "array.npy",
            npy_bytes(np.array(["a"])),
            f"{ARRAY_RULE}; got dtype '<U1' and shape (1,) in ",
        ),
        (
            "array.npy",
            npy_bytes(np.float32(1)),
            f"{ARRAY_RULE}; got dtype 'float32' and shape () in ",
        ),
        ("array.npy", npy_bytes(np.zeros((1,) * 5)), ARRAY_RULE),
        ("array.npy", npy_bytes(np.full((2, 2), 1e39)), "numbers in the range of float32"),
        *(
            ("array.csv", text, ROWS_RULE)
            for text in (b"", b"\n\n", b"a,b\n1,2\n", b"1,2\n3\n", b"1,,2", b"\0")
        ),
        ("array.csv", b"1" * 99_999 + b"x", ROWS_RULE),
        ("array.csv", b"\xff\xfe1", CSV_RULE),
        ("array.csv", b"1," * 60_000, CSV_RULE),
        ("image.png", b"\x89PNG\r\n\x1a\nnothing", IMAGE_RULE),
    ],
)
def test_damaged_and_unsuitable_files(name, content, rule, tmp_path, capsys):
    if name == "image.png":
        pytest.importorskip("PIL")
    (tmp_path / name).write_bytes(content)
    assert error_message(tmp_path / name).startswith(rule)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("name", "size"), [("image.png", 60), ("image.tif", 8)])
def test_truncated_image(name, size, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("L", (60, 60)).save(tmp_path / name)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:size])
    assert error_message(tmp_path / name).startswith(IMAGE_RULE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * 99_999, f"{ROWS_RULE}; got --array='{'x' * 197}…'."),
        ("x" * 300 + ".csv", f"a file that exists; got --array='{'x' * 197}…'."),
        ("1 " * 401, "`--array` must have at most 400 numbers; got 401 (1x401)."),
    ],
)
def test_long_texts_are_shortened(text, message):
    assert error_message(text) == message
