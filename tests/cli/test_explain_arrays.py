"""Arrays that `python -m jaxpool explain` reads, and refusals in one line with exit status 2."""

import pickle
import warnings

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli._array import read_array


def error_message(capsys, *options: str) -> str:
    """The error message, which is a single line on standard error. Nothing else is printed."""
    assert main(["explain", *options]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("jaxpool explain: ")
    assert said.err.endswith("\n")
    assert said.err.count("\n") == 1
    return said.err.removeprefix("jaxpool explain: ").removesuffix("\n")


def read_rows(text) -> list[list[float]]:
    x, notes = read_array("--array", str(text))
    assert x.dtype == np.float32
    assert notes == []
    return x.tolist()


class TestArrays:
    @pytest.mark.parametrize(
        "text", ["1 3;4 2", "1,3; 4,2;", "1 , 3\n4 2\n", " +1.0 3e0 ; .4e1 2. "]
    )
    def test_rows(self, text):
        assert read_rows(text) == [[1, 3], [4, 2]]

    @pytest.mark.parametrize("content", [b"1,3\r\n4,2\r\n", b"\xef\xbb\xbf1 3\n4 2", b"1;3\n4;2\n"])
    def test_csv(self, content, tmp_path):
        path = tmp_path / "array.csv"
        path.write_bytes(content)
        assert read_rows(path) == [[1, 3], [4, 2]]

    @pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint64", "bool", ">f4"])
    def test_npy(self, dtype, tmp_path):
        path = tmp_path / "array.npy"
        np.save(path, np.array([[0, 1], [1, 0]], dtype))
        assert read_rows(path) == [[0, 1], [1, 0]]

    @pytest.mark.parametrize(
        ("shape", "notes"),
        [
            ((5,), []),
            ((1, 6, 6, 1), []),
            ((6, 6, 3), ["Shown is one channel of one example, x[:, :, 0]."]),
            ((2, 6, 6, 3), ["Shown is one channel of one example, x[0, :, :, 0]."]),
            (
                (2, 3, 6, 6),
                [
                    "An array of shape (2, 3, 6, 6) looks as if channels came first (NCHW). jaxpool pools "
                    "the axes before the last one: pass axes=(2, 3) for this layout.",
                    "Shown is one channel of one example, x[0, 0].",
                ],
            ),
            (
                (1, 6, 6),
                [
                    "An array of shape (1, 6, 6) looks as if channels came first (NCHW). jaxpool pools "
                    "the axes before the last one: pass axes=(1, 2) for this layout."
                ],
            ),
        ],
    )
    def test_axes(self, shape, notes, tmp_path):
        path, whole = (
            tmp_path / "array.npy",
            np.arange(np.prod(shape), dtype=np.float32).reshape(shape),
        )
        np.save(path, whole)
        lanes = {1: lambda: whole[None], 3: lambda: whole[..., 0], 4: lambda: whole[0, ..., 0]}
        lane = (
            whole[(0,) * (whole.ndim - 2)] if notes and "NCHW" in notes[0] else lanes[whole.ndim]()
        )
        x, said = read_array("--array", str(path))
        assert said == notes
        assert x.tolist() == lane.tolist()

    def test_image(self, tmp_path):
        image = pytest.importorskip("PIL.Image")
        path = tmp_path / "image.png"
        image.fromarray(np.full((40, 20, 3), 200, np.uint8)).save(path)
        x, notes = read_array("--array", str(path))
        assert x.tolist() == [[200] * 7] * 14
        assert notes == ["Grey levels of the image, 0 to 255, shrunk from 40x20 to 14x7."]
        image.fromarray(np.eye(4, dtype=np.uint8)).save(path)
        x, notes = read_array("--array", str(path))
        assert x.tolist() == np.eye(4).tolist()
        assert notes == ["Grey levels of the image, 0 to 255."]
        image.fromarray(np.array([[0, 256], [4096, 65535]], np.uint16)).save(path)
        x, notes = read_array("--array", str(path))
        assert x.tolist() == [[0, 256], [4096, 65535]]
        assert notes == ["Grey levels of the image."]


class Bomb:
    def __reduce__(self):
        return print, ("a pickle was loaded",)


class TestErrors:
    def test_pickles_are_never_loaded(self, capsys, tmp_path):
        path = tmp_path / "array.npy"
        np.save(path, np.array([[Bomb()]], object), allow_pickle=True)
        assert error_message(capsys, "--array", str(path)).startswith(
            "`--array` must be numbers, not pickled Python objects, which are never loaded; got --array="
        )
        path.write_bytes(pickle.dumps(Bomb()))
        message = (
            "`--array` must be a .npy file that can be read, with at least one number; got --array="
        )
        assert error_message(capsys, "--array", str(path)).startswith(message)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda whole: b"",
            lambda whole: whole[:7],
            lambda whole: whole[:-1],
            lambda whole: whole.replace(b"'<f8'", b"'<q8'"),
            lambda whole: whole.replace(b"(2, 2)", b"(0, 2)"),
            lambda whole: whole.replace(b"(2, 2)", b"(9**9)"),
            lambda whole: b"PK\x03\x04" + whole,
            lambda whole: whole.replace(b"}", b" "),  # numpy's reader raises an error of `tokenize`
        ],
    )
    def test_damaged_npy(self, damage, capsys, tmp_path):
        path = tmp_path / "array.npy"
        np.save(path, np.eye(2))
        path.write_bytes(damage(path.read_bytes()))
        assert "a .npy file that can be read" in error_message(capsys, "--array", str(path))

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.zeros((30, 20)), "`--array` must have at most 400 numbers; got 600 (30x20)."),
            (
                np.zeros((2, 2), complex),
                "`--array` must hold real numbers; got dtype 'complex128' in ",
            ),
            (np.array(["a"]), "`--array` must hold real numbers; got dtype '<U1' in "),
            (np.float32(1), "`--array` must have 1 to 4 axes; got 0 axes in "),
            (np.zeros((1,) * 5), "`--array` must have 1 to 4 axes; got 5 axes in "),
            (
                np.full((2, 2), 1e39),
                "`--array` must be numbers in the range of float32; got --array=",
            ),
        ],
    )
    def test_npy(self, array, message, capsys, tmp_path):
        path = tmp_path / "array.npy"
        np.save(path, array)
        assert error_message(capsys, "--array", str(path)).startswith(message)

    @pytest.mark.parametrize(
        "content", [b"", b"\n\n", b"a,b\n1,2\n", b"1,2\n3\n", b"1,,2", b"\xff\xfe1", b"\0"]
    )
    def test_csv(self, content, capsys, tmp_path):
        path = tmp_path / "array.csv"
        path.write_bytes(content)
        assert error_message(capsys, "--array", str(path)).startswith("`--array` must be ")

    def test_truncated_image_emits_no_warning(self, capsys, tmp_path):
        image = pytest.importorskip("PIL.Image")
        path = tmp_path / "image.tif"
        image.new("L", (9, 9)).save(path)
        path.write_bytes(path.read_bytes()[:8])
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            error_message(capsys, "--array", str(path))
        assert warned == []

    def test_long_texts_are_shortened(self, capsys, tmp_path):
        path = tmp_path / "array.csv"
        path.write_bytes(b"1" * 99_999 + b"x")
        assert error_message(capsys, "--array", str(path)).startswith("`--array` must be rows")
        assert error_message(capsys, "--array", "x" * 99_999).startswith("`--array` must be rows")
        message = error_message(capsys, "--array", "x" * 300 + ".csv")
        assert message == f"`--array` must be a file that exists; got --array='{'x' * 197}…'."
        message = error_message(capsys, "--window", "9" * 9999)
        assert message.endswith(f" as in 2x3; got --window={'9' * 199}….")
        message = error_message(capsys, "--array", "1 " * 401)
        assert message == "`--array` must have at most 400 numbers; got 401 (1x401)."

    def test_large_csv(self, capsys, tmp_path):
        path = tmp_path / "array.csv"
        path.write_bytes(b"1," * 60_000)
        assert error_message(capsys, "--array", str(path)).startswith(
            "`--array` must be a file of at most 100 kB; got --array="
        )

    def test_images(self, capsys, tmp_path, monkeypatch):
        image = pytest.importorskip("PIL.Image")
        path = tmp_path / "image.png"
        path.write_bytes(b"\x89PNG\r\n\x1a\nnothing")
        message = "`--array` must be an image that can be read; got --array="
        assert error_message(capsys, "--array", str(path)).startswith(message)
        image.new("L", (60, 60)).save(path)
        path.write_bytes(path.read_bytes()[:60])
        assert error_message(capsys, "--array", str(path)).startswith(message)
        image.new("L", (60, 60)).save(path)
        monkeypatch.setattr("jaxpool._cli._array.MAX_IMAGE_PIXELS", 3000)
        assert error_message(capsys, "--array", str(path)).startswith(
            "`--array` must have at most 3000 pixels; got 60x60 in "
        )
