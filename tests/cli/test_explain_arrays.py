"""Arrays that `python -m jaxpool explain` reads; `bad_commands.txt` has wrong texts."""

import argparse
import io
import pickle

import jax
import numpy as np
import pytest

import jaxpool
from jaxpool._cli._array import SUBNORMAL_NOTE, read_array

NCHW_NOTE = (
    "An array of shape {} looks as if channels came first (NCHW). jaxpool pools the axes "
    "before the last one: pass axes={} for this layout."
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("", b"1 3;4 2"),
        ("", b"1,3; 4 , 2;"),
        ("", b" +1.0 3e0 \n .4e1 2. "),
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
    x, notes = read_array(text)
    assert (x.dtype, x.tolist(), notes) == (np.float32, [[1, 3], [4, 2]], [])


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint64", "bool", ">f4"])
def test_npy_dtypes(dtype, tmp_path):
    np.save(tmp_path / "array.npy", np.array([[0, 1], [1, 0]], dtype))
    x, _ = read_array(str(tmp_path / "array.npy"))
    assert (x.dtype, x.tolist()) == (np.float32, [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("text", "has_note"),
    [("1e-42 0", True), ("0 -1e-45", True), ("1.2e-38 0 inf nan", False), ("1e-50", False)],
)
def test_note_about_subnormal_numbers(text, has_note):
    assert read_array(text)[1] == [SUBNORMAL_NOTE] * has_note


def test_subnormal_numbers_tie_as_the_note_says():
    x, (note,) = read_array("0 1e-42; 2e-42 -1e-42")
    assert "they tie with zeros and with each other in a max or min pool" in note
    for pool in (jaxpool.max_pool, jaxpool.min_pool):
        gradient = jax.grad(lambda x: pool(x, (2, 2), axes=(0, 1), ties="split").sum())  # noqa: B023
        with jax.default_device(jax.devices("cpu")[0]):
            assert (gradient(x) == 0.25).all()


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
    x, printed_notes = read_array(str(tmp_path / "array.npy"))
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
        (np.array([[0, 256], [4096, 65535]], np.uint16), [[0, 256], [4096, 65535]], ""),
    ],
)
def test_image(pixels, expected, note, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(pixels).save(tmp_path / "image.png")
    x, notes = read_array(str(tmp_path / "image.png"))
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
    ("name", "content"),
    [
        ("array.npy", b""),
        ("array.npy", EYE[:-1]),
        ("array.npy", EYE.replace(b"(2, 2)", b"(9**9)")),
        ("array.npy", EYE.replace(b"}", b" ")),  # numpy raises an error of `tokenize`
        ("array.npy", npy_bytes(np.array([PrintsIfUnpickled()]))),
        ("array.npy", pickle.dumps(PrintsIfUnpickled())),
        ("array.npy", npy_bytes(np.zeros((2, 2), complex))),
        ("array.npy", npy_bytes(np.float32(1))),
        ("array.npy", npy_bytes(np.zeros((1,) * 5))),
        *(("array.csv", text) for text in (b"a,b\n1,2\n", b"1,2\n3\n", b"1,,2", b"\xff\xfe1")),
        *(("", text) for text in (b"1_0 2", b"0x10", "٣".encode(), b"x" * 9999)),
        ("image.png", b"\x89PNG\r\n\x1a\nnothing"),
    ],
)
def test_unreadable_array(name, content, tmp_path, capsys):
    text = str(tmp_path / name) if name else content.decode()
    if name == "image.png":
        pytest.importorskip("PIL")
    if name:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(argparse.ArgumentTypeError, match=r"^must be rows of numbers, .{,300}$"):
        read_array(text)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("size", [0, 401])
def test_number_of_elements(size):
    with pytest.raises(
        argparse.ArgumentTypeError, match=f"^must have 1 to 400 numbers; got {size} in"
    ):
        read_array("1 " * size)
