"""Arrays that `python -m jaxpool explain` reads, and refusals in one line with exit status 2."""

import pickle
import warnings

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli._array import read_array

OPS = "max, min, avg, sum, lp, median, rank, unpool, dilate, erode, adaptive_max, adaptive_avg"
OTHER_FUNCTIONS = "or another public function of an array"


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

    def test_long_text(self, capsys, tmp_path):
        path = tmp_path / "array.csv"
        path.write_bytes(b"1" * 99_999 + b"x")
        assert error_message(capsys, "--array", str(path)).startswith("`--array` must be rows")
        assert error_message(capsys, "--array", "x" * 99_999).startswith("`--array` must be rows")

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

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                ["--array", "no/such.npy"],
                "`--array` must be a file that exists; got --array='no/such.npy'.",
            ),
            (
                ["--array", "x" * 300 + ".csv"],
                f"`--array` must be a file that exists; got --array='{'x' * 197}…'.",
            ),
            (
                ["--array", "data.txt"],
                '`--array` must be rows of equally many numbers, as in "1 3; 4 2"; '
                "got --array='data.txt'. A file must end in .npy, .csv or as an image does, in .png say.",
            ),
            (
                ["--array", ""],
                "`--array` must be rows of equally many numbers, as in \"1 3; 4 2\"; got --array=''.",
            ),
            (
                ["--array", "1_0 2"],
                "`--array` must be rows of equally many numbers, as in \"1 3; 4 2\"; got --array='1_0 2'.",
            ),
            (
                ["--array", "1e39"],
                "`--array` must be numbers in the range of float32; got --array='1e39'.",
            ),
            (["--array", "1 " * 401], "`--array` must have at most 400 numbers; got 401 (1x401)."),
            (["--op", "mean"], f"`--op` must be one of {OPS}, {OTHER_FUNCTIONS}; got --op=mean."),
            (["--op", "pool"], f"`--op` must be one of {OPS}, {OTHER_FUNCTIONS}; got --op=pool."),
            (
                ["--op", "avg", "--ties", "last"],
                "`--ties` does not go with --op avg_pool.",
            ),
            (["--p", "2"], "`--p` does not go with --op max_pool."),
            (["--to", "2"], "`--to` does not go with --op max_pool."),
            (
                ["--no-count-include-pad"],
                "`--count-include-pad` does not go with --op max_pool.",
            ),
            (["--window", "401"], "`--window` must be at most 400; got --window=401."),
            (
                ["--window", "9" * 9999],
                f"`--window` must be a positive integer or two, as in 2x3; got --window={'9' * 199}….",
            ),
            (
                ["--window", "21", "--padding", "30"],
                "`--window` must have at most 400 numbers; got --window=21x21.",
            ),
            (["--padding", "401"], "`--padding` must be at most 400; got --padding=401."),
            (
                ["--op", "lp", "--p", "0"],
                "`--p` must be a number above 0, or inf; got --p=0.",
            ),
            (["--op", "lp", "--p", "nan"], "`--p` must be a number above 0, or inf; got --p=nan."),
            (
                ["--op", "avg", "--divisor", "0"],
                "`--divisor` must be a number other than 0; got --divisor=0.",
            ),
            (
                ["--op", "avg", "--divisor=inf"],
                "`--divisor` must be a number other than 0; got --divisor=inf.",
            ),
            (
                ["--cotangent", "1 2"],
                "`--cotangent` must be of the size of the output, 1 or 3x3; got 1x2.",
            ),
            (["--op", "rank", "--rank", "1.5"], "`--rank` must be an integer; got --rank=1.5."),
            (
                ["--op", "rank", "--rank", "4"],
                "jaxpool.rank_pool: `rank` must be an int from -4 to 3; got rank=4 (x.shape=(6, 6), "
                "window_shape=(2, 2)). 0 is the smallest element, -1 the largest.",
            ),
            (
                ["--cotangent", "nan"],
                "`--cotangent` must be finite numbers; it holds a nan or an inf.",
            ),
            (
                ["--cotangent", "one"],
                "`--cotangent` must be rows of equally many numbers, as in \"1 3; 4 2\"; got --cotangent='one'.",
            ),
            (
                ["--window", "20", "--padding", "19", "--stride", "1"],
                "The output must have at most 400 numbers; got 25x25. Use larger strides or less padding.",
            ),
            (["--png", "x.jpg"], "`--png` must be a file that ends in .png; got --png=x.jpg."),
            (
                ["--html", "no/such/x.html"],
                "`--html` must be in a folder that exists; got --html=no/such/x.html.",
            ),
        ],
    )
    def test_option(self, options, message, capsys):
        assert error_message(capsys, *options) == message

    @pytest.mark.parametrize(
        "options",
        [
            ["--window", "7"],
            ["--window", "1", "--padding", "1"],
            ["--window", "3", "--dilation", "3"],
            ["--op", "avg", "--divisor", "1e-60"],
            ["--op", "lp", "--window", "9x1"],
        ],
    )
    def test_pool_errors(self, options, capsys):
        assert error_message(capsys, *options).startswith("jaxpool.")

    def test_unwritable_html_path(self, capsys, monkeypatch, tmp_path):
        monkeypatch.setattr("os.access", lambda path, mode: False)
        path = tmp_path / "page.html"
        expected = f"`--html` must be in a place that can be written to; got --html={path}."
        assert error_message(capsys, "--html", str(path)) == expected
