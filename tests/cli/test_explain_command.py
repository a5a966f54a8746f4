"""`python -m jaxpool explain`: every op, every option, files, and what is refused in which words."""

import json
import pickle
import re

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli._array import read_array
from tests.cli.test_cli import PNG, STRIDE_1

ROW = ("--window", "1x2", "--stride", "1x2")
SQUARE = "1 3; 4 2"
OPS = "max, min, avg, sum, lp, adaptive_max, adaptive_avg, unpool"
EXAMPLE = """\
jaxpool.max_pool(x, (2, 2), (2, 2), axes=(0, 1))

x: input (6x6)             y: output (3x3)
 1   3   4   2   5   2      4  6  8
 4*  2   5   6*  8*  3      8  8  9
 5   3   7   8*  9*  3     10  6  8
 8*  4   3   6   0   2
 7  10*  3   6*  3   5
 4   7   2   4   7   8*

dx: what x gets (6x6)      dy: cotangent of y (3x3)
 0   0   0   0   0   0      1  1  1
 1   0   0   1   1   0      1  1  1
 0   0   0   1   1   0      1  1  1
 1   0   0   0   0   0
 0   1   0   1   0   0
 0   0   0   0   0   1

A cotangent says how much a loss changes when a number does. A star marks what
some window chose. dx adds up what the windows of an input send it. Each dy is
1, so dx is the gradient of the sum of y; that of the mean is this over the
number of windows, 9.

y at    value  window                 cotangent goes to
(0, 0)  4      rows 0-1, columns 0-1  (1, 0)
(0, 1)  6      rows 0-1, columns 2-3  (1, 3)
(0, 2)  8      rows 0-1, columns 4-5  (1, 4)
(1, 0)  8      rows 2-3, columns 0-1  (3, 0)
(1, 1)  8      rows 2-3, columns 2-3  (2, 3)
(1, 2)  9      rows 2-3, columns 4-5  (2, 4)
(2, 0)  10     rows 4-5, columns 0-1  (4, 1)
(2, 1)  6      rows 4-5, columns 2-3  (4, 3)
(2, 2)  8      rows 4-5, columns 4-5  (5, 5)
"""


def explained(capsys, *options: str) -> str:
    assert main(["explain", *options]) == 0
    return capsys.readouterr().out


def as_json(capsys, *options: str):
    return json.loads(explained(capsys, "--json", *options))


def refused(capsys, *options: str) -> str:
    """The message, which is one line on standard error and all that is printed."""
    assert main(["explain", *options]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("jaxpool explain: ")
    assert said.err.endswith("\n")
    assert said.err.count("\n") == 1
    return said.err.removeprefix("jaxpool explain: ").removesuffix("\n")


def rows(text: str) -> list[list[int]]:
    return [[int(value) for value in row.split()] for row in text.splitlines()]


class TestText:
    def test_the_worked_example(self, capsys):
        assert explained(capsys) == EXAMPLE

    def test_nothing_is_wider_than_the_terminal(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "40")
        said = explained(
            capsys, "--array", "1000 2000 3000 4000 5000 6000 7000 8000 9000 12345.5", *ROW
        )
        assert max(map(len, said.splitlines()[1:])) <= 40
        assert "columns 0 to 4\n" in said

    def test_a_mean_has_shares(self, capsys):
        said = explained(
            capsys, "--op", "avg", "--array", SQUARE, "--padding", "0:1x0", "--ceil-mode"
        )
        assert "(0, 0)  2.5    rows 0-1, columns 0-1  all 4, 1/4 each\n" in said

    def test_ties_are_shared(self, capsys):
        said = explained(capsys, "--array", "1 4; 4 2", "--ties", "split")
        assert "(0, 1) gets 1/2, (1, 0) gets 1/2\n" in said

    def test_dilation_is_shown_tap_by_tap(self, capsys):
        said = explained(capsys, "--array", "1 2 3", "--window", "1x2", "--dilation", "2")
        assert "(0, 0)  3      rows 0, columns 0 2  (0, 2)\n" in said

    def test_a_cotangent_has_no_word_on_the_mean(self, capsys):
        said = explained(capsys, "--array", SQUARE, "--cotangent", "2")
        assert "gradient of the sum" not in said

    def test_unpool(self, capsys):
        said = explained(
            capsys, "--op", "unpool", "--array", "1 9 2", "--window", "1x2", "--stride", "1"
        )
        assert "indices of y (1x2)\n" in said
        assert "(0, 1)  9      (0, 0), (0, 1)\n" in said  # both maxima are the 9, both get dx there

    @pytest.mark.parametrize(
        ("terminal", "variables", "coloured"),
        [
            (True, {}, True),
            (True, {"NO_COLOR": "1"}, False),
            (True, {"NO_COLOR": ""}, True),
            (True, {"TERM": "dumb"}, False),
            (False, {}, False),
        ],
    )
    def test_colours(self, terminal, variables, coloured, capsys, monkeypatch):
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
        said = explained(capsys)
        assert ("\x1b[" in said) == coloured
        lines = re.sub(r"\x1b\[[\d;]*m", "", said).splitlines()
        assert [line.rstrip() for line in lines] == EXAMPLE.splitlines()


class TestJson:
    def test_stride_1(self, capsys):
        said = as_json(capsys, "--stride", "1")
        assert said["dx"] == rows(STRIDE_1)
        assert said["call"] == "jaxpool.max_pool(x, (2, 2), (1, 1), axes=(0, 1))"
        assert said["settings"]["strides"] == [1, 1]
        assert said["shares"][0] == {"output": [0, 0], "to": [[1, 0, 1.0]]}

    @pytest.mark.parametrize(
        ("options", "y", "dx"),
        [
            (["--op", "max"], [[4]], [[0, 0], [1, 0]]),
            (["--op", "max_pool"], [[4]], [[0, 0], [1, 0]]),
            (["--op", "min"], [[1]], [[1, 0], [0, 0]]),
            (["--op", "avg"], [[2.5]], [[0.25, 0.25], [0.25, 0.25]]),
            (["--op", "avg", "--divisor", "2"], [[5]], [[0.5, 0.5], [0.5, 0.5]]),
            (["--op", "avg", "--padding", "0:1", "--window", "3"], [[10 / 9]], [[1 / 9] * 2] * 2),
            (
                ["--op", "avg", "--padding", "0:1", "--window", "3", "--no-count-include-pad"],
                [[2.5]],
                [[0.25] * 2] * 2,
            ),
            (["--op", "sum", "--cotangent", "3"], [[10]], [[3, 3], [3, 3]]),
            (["--op", "lp", "--p", "1"], [[10]], [[1, 1], [1, 1]]),
            (["--op", "lp", "--p", "inf"], [[4]], [[0, 0], [1, 0]]),
            (["--op", "adaptive-max", "--to", "1x2"], [[4, 3]], [[0, 1], [1, 0]]),
            (["--op", "adaptive_avg", "--to", "1"], [[2.5]], [[0.25, 0.25], [0.25, 0.25]]),
            (["--op", "max", "--stride", "1", "--ceil-mode"], [[4]], [[0, 0], [1, 0]]),
        ],
    )
    def test_every_op(self, options, y, dx, capsys):
        said = as_json(capsys, "--array", SQUARE, *options)
        np.testing.assert_allclose(said["y"], y, rtol=1e-6)
        np.testing.assert_allclose(said["dx"], dx, rtol=1e-6)

    def test_unpool(self, capsys):
        for name in ("unpool", "max_unpool"):
            said = as_json(capsys, "--op", name, "--array", "1 3; 4 2", "--cotangent", "1 2; 3 4")
            assert said["array"] == [[1, 3], [4, 2]]
            assert (said["y"], said["indices"], said["dy"]) == ([[4]], [[2]], [[3]])
            assert (said["x"], said["dx"]) == ([[0, 0], [4, 0]], [[1, 2], [3, 4]])

    def test_a_nan_does_not_reach_other_windows(self, capsys):
        options = ["--op", "lp", "--array", "nan 3 4", "--window", "1x2", "--stride", "1"]
        said = as_json(capsys, *options)
        assert said["y"] == [["nan", 5]]
        assert said["shares"][1]["to"] == [[0, 1, pytest.approx(0.6)], [0, 2, pytest.approx(0.8)]]

    def test_infinities_are_words(self, capsys):
        said = as_json(
            capsys, "--array=-inf inf; nan 0", "--op", "lp", "--p", "inf", "--window", "1"
        )
        assert said["x"] == [["-inf", "inf"], ["nan", 0]]
        assert said["settings"]["p"] == "inf"


def read(text) -> list[list[float]]:
    x, notes = read_array("--array", str(text))
    assert x.dtype == np.float32
    assert notes == []
    return x.tolist()


class TestArrays:
    @pytest.mark.parametrize(
        "text", ["1 3;4 2", "1,3; 4,2;", "1 , 3\n4 2\n", " +1.0 3e0 ; .4e1 2. "]
    )
    def test_rows(self, text):
        assert read(text) == [[1, 3], [4, 2]]

    @pytest.mark.parametrize("content", [b"1,3\r\n4,2\r\n", b"\xef\xbb\xbf1 3\n4 2", b"1;3\n4;2\n"])
    def test_csv(self, content, tmp_path):
        path = tmp_path / "array.csv"
        path.write_bytes(content)
        assert read(path) == [[1, 3], [4, 2]]

    @pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint64", "bool", ">f4"])
    def test_npy(self, dtype, tmp_path):
        path = tmp_path / "array.npy"
        np.save(path, np.array([[0, 1], [1, 0]], dtype))
        assert read(path) == [[0, 1], [1, 0]]

    def test_a_file_is_explained_with_its_notes(self, capsys, tmp_path):
        path = tmp_path / "ARRAY.NPY"
        with path.open("wb") as file:
            np.save(file, np.ones((1, 1, 2, 6)))
        said = explained(capsys, "--array", str(path), "--op", "sum", *ROW)
        assert "\nNote: An array of shape (1, 1, 2, 6) looks as if channels came first" in said
        assert "x: input (2x6)" in said

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


class Bomb:
    def __reduce__(self):
        return print, ("a pickle was loaded",)


class TestWhatIsRefused:
    def test_pickles_are_never_loaded(self, capsys, tmp_path):
        path = tmp_path / "array.npy"
        np.save(path, np.array([[Bomb()]], object), allow_pickle=True)
        assert refused(capsys, "--array", str(path)).startswith(
            "`--array` must be numbers, not pickled Python objects, which are never loaded; got --array="
        )
        path.write_bytes(pickle.dumps(Bomb()))
        message = (
            "`--array` must be a .npy file that can be read, with at least one number; got --array="
        )
        assert refused(capsys, "--array", str(path)).startswith(message)

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
        ],
    )
    def test_damaged_npy(self, damage, capsys, tmp_path):
        path = tmp_path / "array.npy"
        np.save(path, np.eye(2))
        path.write_bytes(damage(path.read_bytes()))
        assert "a .npy file that can be read" in refused(capsys, "--array", str(path))

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
        assert refused(capsys, "--array", str(path)).startswith(message)

    @pytest.mark.parametrize(
        "content", [b"", b"\n\n", b"a,b\n1,2\n", b"1,2\n3\n", b"1,,2", b"\xff\xfe1", b"\0"]
    )
    def test_csv(self, content, capsys, tmp_path):
        path = tmp_path / "array.csv"
        path.write_bytes(content)
        assert refused(capsys, "--array", str(path)).startswith("`--array` must be ")

    def test_large_csv(self, capsys, tmp_path):
        path = tmp_path / "array.csv"
        path.write_bytes(b"1," * 60_000)
        assert refused(capsys, "--array", str(path)).startswith(
            "`--array` must be a file of at most 100 kB; got --array="
        )

    def test_images(self, capsys, tmp_path, monkeypatch):
        image = pytest.importorskip("PIL.Image")
        path = tmp_path / "image.png"
        path.write_bytes(b"\x89PNG\r\n\x1a\nnothing")
        message = "`--array` must be an image that can be read; got --array="
        assert refused(capsys, "--array", str(path)).startswith(message)
        image.new("L", (60, 60)).save(path)
        path.write_bytes(path.read_bytes()[:60])
        assert refused(capsys, "--array", str(path)).startswith(message)
        image.new("L", (60, 60)).save(path)
        monkeypatch.setattr("jaxpool._cli._array.MOST_PIXELS", 3000)
        assert refused(capsys, "--array", str(path)).startswith(
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
            (["--op", "mean"], f"`--op` must be one of {OPS}; got --op=mean."),
            (["--op", "pool"], f"`--op` must be one of {OPS}; got --op=pool."),
            (
                ["--op", "avg", "--ties", "last"],
                "`--ties` goes with --op max, min, adaptive_max, unpool; got --op=avg.",
            ),
            (["--p", "2"], "`--p` goes with --op lp; got --op=max."),
            (["--to", "2"], "`--to` goes with --op adaptive_max, adaptive_avg; got --op=max."),
            (
                ["--no-count-include-pad"],
                "`--count-include-pad` goes with --op avg; got --op=max.",
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
        assert refused(capsys, *options) == message

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
    def test_what_a_pool_refuses(self, options, capsys):
        assert refused(capsys, *options).startswith("jaxpool.")

    def test_a_place_that_cannot_be_written_to(self, capsys, monkeypatch, tmp_path):
        monkeypatch.setattr("os.access", lambda path, mode: False)
        path = tmp_path / "page.html"
        expected = f"`--html` must be in a place that can be written to; got --html={path}."
        assert refused(capsys, "--html", str(path)) == expected


def test_picture(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.png"
    said = explained(capsys, "--op", "unpool", "--array", SQUARE, "--png", str(path))
    assert said.endswith(f"\nPicture: {path}\n")
    assert path.read_bytes().startswith(PNG)
