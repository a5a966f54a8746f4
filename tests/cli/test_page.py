"""The page of `explain`: one file without network, whose arithmetic is the library's."""

import importlib.resources
import json
import random
import re
import shutil
import subprocess

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli._page import page
from jaxpool._cli._route import Settings
from tests.cli.random_settings import answer, as_json, assert_close, random_case, rows_of

PAGE = importlib.resources.files("jaxpool._cli") / "page"
MOST_BYTES = 200_000
# Reads cases, a line each, and writes what arithmetic.js makes of them.
RUN = """
const { createInterface } = require("node:readline");
createInterface({ input: process.stdin }).on("line", (line) => {
  const { settings, x, dy } = JSON.parse(line);
  const numbers = (values) => values.map(String);
  try {
    settings.p = Number(settings.p === "inf" ? Infinity : settings.p);
    const found = pool(settings, parseGrid(x, "x"));
    const { rows, cols, values } = found.output;
    const dx = dy && pullBack(found, gridOf(rows, cols, dy.slice(0, rows * cols)));
    console.log(JSON.stringify({ shape: [rows, cols], y: numbers(values), dx: dx && numbers(dx.values) }));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    console.log(JSON.stringify({ refused: error.message }));
  }
});
"""


def under_node(cases):
    """What arithmetic.js says of (settings as JSON, text of an array, flat cotangent or None)."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    lines = [
        json.dumps({"settings": json.loads(settings), "x": x, "dy": dy})
        for settings, x, dy in cases
    ]
    program = (PAGE / "arithmetic.js").read_text() + RUN
    done = subprocess.run(
        [node, "-e", program], input="\n".join(lines), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(count, seed):
    rng = random.Random(seed)
    cases, expected = [], []
    while len(cases) < count:
        settings, x, dy = random_case(rng)
        found = answer(settings, x, dy)
        flat = None if isinstance(found, str) else found.dy.ravel().tolist()
        cases.append((as_json(settings), rows_of(x), flat))
        expected.append(found)
    possible = 0
    for case, said, found in zip(cases, under_node(cases), expected, strict=True):
        if isinstance(found, str):
            assert said.get("refused"), (case, found)
            continue
        assert "refused" not in said, (case, said)
        possible += 1
        assert said["shape"] == list(found.y.shape), case
        assert_close(said["y"], found.y)
        assert_close(said["dx"], found.dx)
    return possible


def test_one_small_file_without_network(tmp_path, capsys):
    path = tmp_path / "page.html"
    words = ["--op", "lp", "--p", "inf", "--array", "1 nan; -inf 2.5", "--cotangent", "3"]
    assert main(["explain", *words, "--padding", "0:1x0", "--html", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"\nPage: {path}\n")
    html = path.read_text(encoding="utf-8")
    assert len(html.encode()) < MOST_BYTES
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
    assert start["array"] == "1 nan\n-inf 2.5"
    assert start["cotangent"] == "3"
    assert start["settings"]["p"] == "inf"
    assert start["settings"]["padding"] == [[0, 1], [0, 0]]


def test_what_is_written_into_the_page_stays_data():
    html = page(Settings(ties="</script>"), np.zeros((1, 1)))
    assert html.count("</script>") == (PAGE / "page.html").read_text().count("</script>")


def test_arithmetic_is_the_librarys():
    assert compare(10, seed=1) >= 5


@pytest.mark.slow
def test_arithmetic_is_the_librarys_on_many_settings():
    assert compare(300, seed=2) >= 150
