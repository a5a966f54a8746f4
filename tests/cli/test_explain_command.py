"""`python -m jaxpool explain`: every op and option, as text, JSON and picture."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli._route_text import format_number

ROW_WINDOW = ("--window", "1x2", "--stride", "1x2")
# Worked examples: the number of 2x2 windows that select each position of the built-in array.
STRIDE_2 = """\
0 0 0 0 0 0
1 0 0 1 1 0
0 0 0 1 1 0
1 0 0 0 0 0
0 1 0 1 0 0
0 0 0 0 0 1"""
STRIDE_1 = """\
0 0 0 0 0 0
1 0 1 1 2 0
1 0 2 2 4 0
1 0 0 2 0 0
0 4 0 1 0 1
0 0 0 0 1 1"""
SQUARE = "1 3; 4 2"
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


def explain_stdout(capsys, *options: str) -> str:
    assert main(["explain", *options]) == 0
    return capsys.readouterr().out


def explain_json(capsys, *options: str):
    return json.loads(explain_stdout(capsys, "--json", *options))


def parse_rows(text: str) -> list[list[int]]:
    return [[int(value) for value in row.split()] for row in text.splitlines()]


class TestText:
    def test_the_worked_example(self, capsys):
        assert explain_stdout(capsys) == EXAMPLE

    def test_lines_fit_terminal_width(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "40")
        said = explain_stdout(
            capsys, "--array", "1000 2000 3000 4000 5000 6000 7000 8000 9000 12345.5", *ROW_WINDOW
        )
        assert max(map(len, said.splitlines()[1:])) <= 40
        assert "columns 0 to 3\n" in said

    def test_avg_shows_shares(self, capsys):
        said = explain_stdout(
            capsys, "--op", "avg", "--array", SQUARE, "--padding", "0:1x0", "--ceil-mode"
        )
        assert "(0, 0)  2.5    rows 0-1, columns 0-1  all 4, 1/4 each\n" in said

    def test_split_ties_show_shares(self, capsys):
        said = explain_stdout(capsys, "--array", "1 4; 4 2", "--ties", "split")
        assert "(0, 1) gets 1/2, (1, 0) gets 1/2\n" in said

    def test_dilated_window_lists_each_tap(self, capsys):
        said = explain_stdout(capsys, "--array", "1 2 3", "--window", "1x2", "--dilation", "2")
        assert "(0, 0)  3      rows 0, columns 0 2  (0, 2)\n" in said

    def test_custom_cotangent_omits_note_on_mean(self, capsys):
        said = explain_stdout(capsys, "--array", SQUARE, "--cotangent", "2")
        assert "gradient of the sum" not in said

    def test_unpool(self, capsys):
        said = explain_stdout(
            capsys, "--op", "unpool", "--array", "1 9 2", "--window", "1x2", "--stride", "1"
        )
        assert "indices of y (1x2)\n" in said
        # Both windows select the 9, and the later value stays.
        assert "(0, 1)  9      (0, 1)\n" in said

    def test_npy_file_with_notes(self, capsys, tmp_path):
        path = tmp_path / "ARRAY.NPY"
        with path.open("wb") as file:
            np.save(file, np.ones((1, 1, 2, 6)))
        said = explain_stdout(capsys, "--array", str(path), "--op", "sum", *ROW_WINDOW)
        assert "\nNote: An array of shape (1, 1, 2, 6) looks as if channels came first" in said
        assert "x: input (2x6)" in said

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
        said = explain_stdout(capsys)
        assert ("\x1b[" in said) == coloured
        lines = re.sub(r"\x1b\[[\d;]*m", "", said).splitlines()
        assert [line.rstrip() for line in lines] == EXAMPLE.splitlines()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (-0.0, "0"),
        (1 / 36, "0.0278"),
        (-2 / 3, "-0.6667"),
        (1.23456e-5, "1.23e-05"),
        (3.14159, "3.142"),
        (1000.5, "1000.5"),
        (1e8, "1e+08"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_number_format(value, text):
    assert format_number(value) == text


class TestJson:
    def test_stride_1(self, capsys):
        said = explain_json(capsys, "--stride", "1")
        assert said["dx"] == parse_rows(STRIDE_1)
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
            (["--op", "median"], [[3]], [[0, 1], [0, 0]]),
            (["--op", "rank", "--rank", "-3"], [[2]], [[0, 0], [0, 1]]),
            (["--op", "dilate"], [[4]], [[0, 0], [1, 0]]),
            (["--op", "erode"], [[1]], [[1, 0], [0, 0]]),
            (["--op", "adaptive-max", "--to", "1x2"], [[4, 3]], [[0, 1], [1, 0]]),
            (["--op", "adaptive_avg", "--to", "1"], [[2.5]], [[0.25, 0.25], [0.25, 0.25]]),
            (["--op", "max", "--stride", "1", "--ceil-mode"], [[4]], [[0, 0], [1, 0]]),
        ],
    )
    def test_every_op(self, options, y, dx, capsys):
        said = explain_json(capsys, "--array", SQUARE, *options)
        np.testing.assert_allclose(said["y"], y, rtol=1e-6)
        np.testing.assert_allclose(said["dx"], dx, rtol=1e-6)

    def test_unpool(self, capsys):
        for name in ("unpool", "max_unpool"):
            said = explain_json(
                capsys, "--op", name, "--array", "1 3; 4 2", "--cotangent", "1 2; 3 4"
            )
            assert said["array"] == [[1, 3], [4, 2]]
            assert (said["y"], said["indices"], said["dy"]) == ([[4]], [[2]], [[3]])
            assert (said["x"], said["dx"]) == ([[0, 0], [4, 0]], [[1, 2], [3, 4]])

    def test_a_nan_does_not_reach_other_windows(self, capsys):
        options = ["--op", "lp", "--array", "nan 3 4", "--window", "1x2", "--stride", "1"]
        said = explain_json(capsys, *options)
        assert said["y"] == [["nan", 5]]
        assert said["shares"][1]["to"] == [[0, 1, pytest.approx(0.6)], [0, 2, pytest.approx(0.8)]]

    def test_infinities_are_strings(self, capsys):
        said = explain_json(
            capsys, "--array=-inf inf; nan 0", "--op", "lp", "--p", "inf", "--window", "1"
        )
        assert said["x"] == [["-inf", "inf"], ["nan", 0]]
        assert said["settings"]["p"] == "inf"


def test_picture(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "picture.png"
    said = explain_stdout(capsys, "--op", "unpool", "--array", SQUARE, "--png", str(path))
    assert said.endswith(f"\nPicture: {path}\n")
    assert path.read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("strides", "outlines"),
    [((2, 2), {"x: input (4x4)": 4}), ((1, 1), {"x: input (4x4)": 1, "y: output (3x3)": 1})],
)
def test_picture_outlines_windows(strides, outlines):
    """Outlines of all disjoint windows, or of one overlapping window and its output."""
    pytest.importorskip("matplotlib")
    from jaxpool._cli._function_call import find_record, make_call
    from jaxpool._cli._route import route_cotangents
    from jaxpool._cli._route_picture import draw_figure

    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    call = make_call(find_record("max"), x, {"strides": strides})
    counts = {}
    for axes in draw_figure(route_cotangents(call)).axes:
        windows = [each for each in axes.collections if each.get_gid() == "window"]
        if windows:
            counts[axes.get_title("left")] = len(windows)
            assert all(len(each.get_segments()) in (4, 8) for each in windows)
    assert counts == outlines


def test_picture_colours_match_documentation():
    pytest.importorskip("matplotlib")
    from jaxpool._cli import _route_picture
    from jaxpool._cli._function_call import find_record, make_call
    from jaxpool._cli._route import route_cotangents

    x = np.array([[0, 0, 0], [0, 9, 0], [0, 0, 1]], np.float32)
    x_axes, _, dx_axes, _ = _route_picture.draw_figure(
        route_cotangents(make_call(find_record("max"), x, {"strides": (1, 1)}))
    ).axes
    for axes in (x_axes, dx_axes):  # four windows select the 9
        np.testing.assert_allclose(axes.images[0].get_array(), [[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    routing = Path(__file__).parents[2] / "docs" / "pictures" / "routing.py"
    if routing.exists():  # an installed wheel has no docs
        text = routing.read_text()
        assert all(
            f'"{colour}"' in text for colour in (*_route_picture.CELL_COLOURS, _route_picture.INK)
        )


def test_padding_by_name(capsys):
    assert '(2, 2), (2, 2), "SAME", axes' in explain_stdout(capsys, "--padding", "SAME")


def test_norm_of_zeros_has_no_cotangent_receiver(capsys):
    said = explain_stdout(capsys, "--array", "0 0; 0 0", "--op", "lp")
    assert re.search(r"^\(0, 0\)  0 .* nobody$", said, re.MULTILINE)
