"""The page of `explain`: a single file without network access, with the arithmetic of the library."""

import dataclasses
import importlib.resources
import json
import math
import random
import re
import shutil
import subprocess

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli import UsageError
from jaxpool._cli._array import read_array
from jaxpool._cli._page import html_page
from jaxpool._cli._route import PoolSettings, route_cotangents
from tests.cli.random_settings import (
    array_text,
    assert_close,
    expected_route,
    random_case,
    settings_json,
)

PAGE = importlib.resources.files("jaxpool._cli") / "page"
MAX_BYTES = 200_000
# Reads one case per line and prints the result of arithmetic.js.
RUN_CASES_JS = """
const { createInterface } = require("node:readline");
createInterface({ input: process.stdin }).on("line", (line) => {
  const { settings, x, dy } = JSON.parse(line);
  const numbers = (values) => values.map(String);
  try {
    settings.p = parseNumber(String(settings.p));
    settings.divisor &&= parseNumber(String(settings.divisor));
    const array = parseGrid(x, "x");
    const found = pool(settings, array);
    const { rows, cols, values } = found.output;
    const dx = dy && pullBack(found, gridOf(rows, cols, dy.slice(0, rows * cols)));
    const call = callOf(settings, array);
    console.log(JSON.stringify({ shape: [rows, cols], y: numbers(values), dx: dx && numbers(dx.values), call }));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    console.log(JSON.stringify({ refused: error.message }));
  }
});
"""


def run_in_node(cases):
    """Results of arithmetic.js for (settings as JSON, text of an array, flat cotangent or None)."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    lines = [
        json.dumps({"settings": json.loads(settings), "x": x, "dy": dy})
        for settings, x, dy in cases
    ]
    program = (PAGE / "arithmetic.js").read_text() + RUN_CASES_JS
    done = subprocess.run(
        [node, "-e", program], input="\n".join(lines), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare_random_cases(count, seed):
    rng = random.Random(seed)
    cases, expected = [], []
    while len(cases) < count:
        settings, x, dy = random_case(rng)
        route = expected_route(settings, x, dy)
        flat = None if isinstance(route, str) else route.dy.ravel().tolist()
        cases.append((settings_json(settings), array_text(x), flat))
        expected.append(route)
    possible = 0
    for case, said, route in zip(cases, run_in_node(cases), expected, strict=True):
        if isinstance(route, str):
            assert said.get("refused"), (case, route)
            continue
        assert "refused" not in said, (case, said)
        possible += 1
        assert said["shape"] == list(route.y.shape), case
        assert said["call"] == route.settings.source_code(route.array.shape)
        assert_close(said["y"], route.y)
        assert_close(said["dx"], route.dx)
    return possible


def test_page_is_small_and_self_contained(tmp_path, capsys):
    path = tmp_path / "page.html"
    words = ["--op", "lp", "--p", "inf", "--array", "0.1 nan; -inf 2", "--cotangent", "3"]
    assert main(["explain", *words, "--padding", "0:1x0", "--html", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"\nPage: {path}\n")
    html = path.read_text(encoding="utf-8")
    assert len(html.encode()) < MAX_BYTES
    assert (
        re.search(
            r"https?://(?!www\.w3\.org/2000/svg)|<link(?! rel=\"icon\" href=\"data:)|@import|url\((?!#)",
            html,
        )
        is None
    )
    assert "/*{" not in html
    start = json.loads(
        re.search(r'<script type="application/json" id="start">(.*?)</script>', html)[1]
    )
    assert start["array"] == "0.1 nan\n-inf 2"
    assert start["cotangent"] == "3"
    assert start["settings"]["p"] == "inf"
    assert start["settings"]["padding"] == [[0, 1], [0, 0]]


def test_page_data_is_escaped():
    route = route_cotangents(PoolSettings(), np.zeros((2, 2), np.float32))
    html = html_page(dataclasses.replace(route, settings=PoolSettings(ties="</script>")))
    assert html.count("</script>") == (PAGE / "page.html").read_text().count("</script>")


NAN, INF = math.nan, math.inf
ROW_WINDOW = {"window": (1, 2), "strides": (1, 2)}
CONVENTIONS = [  # settings, an array, the output, and the gradient of its sum
    ({}, "nan nan; 1 2", [NAN], [1, 0, 0, 0]),
    ({"ties": "last"}, "nan nan; 1 2", [NAN], [0, 1, 0, 0]),
    ({"ties": "split"}, "0 -0; -1 0", [0], [1 / 3, 1 / 3, 0, 1 / 3]),
    ({"op": "min"}, "nan nan; 1 2", [NAN], [1, 0, 0, 0]),
    (  # lax gives [1, 1, 0], because it loses a cotangent to the padding
        {"window": (1, 3), "strides": (1, 1), "padding": ((0, 0), (1, 1))},
        "-inf -inf -inf",
        [-INF] * 3,
        [2, 1, 0],
    ),
    ({"op": "avg", "padding": ((0, 0), (0, 1)), **ROW_WINDOW}, "1 2 3", [1.5, 1.5], [0.5] * 3),
    ({"op": "avg", "ceil_mode": True, **ROW_WINDOW}, "1 2 3", [1.5, 3], [0.5, 0.5, 1]),
    (
        {"op": "avg", "padding": ((0, 0), (0, 1)), "count_include_pad": False, **ROW_WINDOW},
        "1 2 3",
        [1.5, 3],
        [0.5, 0.5, 1],
    ),
    ({"op": "avg", "divisor": 4.0, **ROW_WINDOW}, "1 inf", [INF], [0.25, 0.25]),
    ({"op": "sum", **ROW_WINDOW}, "inf -inf", [NAN], [1, 1]),
    ({"op": "lp", **ROW_WINDOW}, "3 -4 0 0", [5, 0], [0.6, -0.8, 0, 0]),
    ({"op": "lp", **ROW_WINDOW}, "3e38 -3e38", [INF], [math.sqrt(0.5), -math.sqrt(0.5)]),
    ({"op": "lp", **ROW_WINDOW}, "-inf 2 nan inf", [INF, NAN], [0, 0, NAN, 0]),
    ({"op": "lp", "p": 1.5, **ROW_WINDOW}, "nan 0", [NAN], [NAN, 0]),
    ({"op": "lp", "p": INF, **ROW_WINDOW}, "-4 4", [4], [-1, 0]),
    ({"op": "median", **ROW_WINDOW}, "1 nan nan 3", [NAN, NAN], [0, 1, 1, 0]),
    (
        {"op": "rank", "rank": -2, "ties": "split", **ROW_WINDOW},
        "1 1 nan 3",
        [1, 3],
        [0.5, 0.5, 0, 1],
    ),
    ({"op": "dilate", **ROW_WINDOW}, "1 nan -inf -inf", [NAN, -INF], [0, 1, 1, 0]),
    ({"op": "erode", "ties": "last", **ROW_WINDOW}, "nan 1 0 -0", [NAN, 0], [1, 0, 0, 1]),
    ({"op": "adaptive_max", "output_shape": (1, 2)}, "1 9 2", [9, 9], [0, 2, 0]),
    ({"op": "adaptive_avg", "output_shape": (1, 4)}, "1 9 2", [1, 5, 5.5, 2], [1.5, 1, 1.5]),
    ({"op": "unpool", "window": (1, 2), "strides": (1, 1)}, "1 9 2", [0, 9, 0], [0, 1]),
]


def test_conventions():
    """`test_conventions_are_the_librarys` compares the library with the same table."""
    cases = [
        (settings_json(PoolSettings(**settings)), x, [1.0] * 9) for settings, x, _, _ in CONVENTIONS
    ]
    for said, (settings, _, y, dx) in zip(run_in_node(cases), CONVENTIONS, strict=True):
        assert "refused" not in said, settings
        assert_close(said["y"], np.array(y))
        assert_close(said["dx"], np.array(dx))


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "x", "y", "dx"), CONVENTIONS)
def test_conventions_are_the_librarys(settings, x, y, dx):
    route = route_cotangents(PoolSettings(**settings), read_array("--array", x)[0])
    assert_close(route.y.ravel(), np.array(y))
    assert_close(route.dx.ravel(), np.array(dx))


ARRAY_TEXTS = [
    "1 2;3 4",
    "1,2 , 3",
    "1,,2",
    "1 2;3",
    "nan -INF +inf",
    "1e38",
    "1e39",
    "1_0",
    "",
    ";",
    ".5 5. +.5e-1",
]
ARRAY_TEXTS += ["1e", "0x10", "1 2;\n;3 4\n", "- 1", "1 " * 401, "1;" * 400, "٣", "infinity"]


def test_array_texts_match_command_line():
    settings = settings_json(PoolSettings(window=(1, 1), strides=(1, 1)))
    for text, said in zip(
        ARRAY_TEXTS, run_in_node([(settings, text, None) for text in ARRAY_TEXTS]), strict=True
    ):
        try:
            x, _ = read_array("--array", text)
        except UsageError:
            assert "refused" in said, text
        else:
            assert said["shape"] == list(x.shape)
            assert_close(said["y"], x)


def test_arithmetic_matches_library():
    assert compare_random_cases(6, seed=1) >= 3


@pytest.mark.slow
def test_arithmetic_matches_library_on_many_settings():
    assert compare_random_cases(300, seed=2) >= 150
