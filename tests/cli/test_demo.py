"""`python -m jaxpool demo`: printed lines, pictures and exit status."""

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli import demo
from tests.cli.processes import run_python

for module in ("flax", "matplotlib", "optax", "PIL", "sklearn", "tqdm"):
    pytest.importorskip(module)

from jaxpool._cli import _digits, _photograph  # noqa: E402


@pytest.mark.slow  # README's first command runs the whole demo
def test_short_demo(tmp_path, capsys):
    picture = tmp_path / "digits.png"
    accuracy = _digits.train_and_draw(2, 7, picture)
    assert _photograph.compare_with_lax(_photograph.load_photographs()[:, :32, :32], 1)
    captured = capsys.readouterr()
    assert captured.err == ""  # no progress bar without a terminal
    lines = captured.out.splitlines()
    assert lines[0].startswith("Handwritten digits: 1437 to learn from, 360 held out. Backend: ")
    assert lines[1].startswith(f"Held-out accuracy: {accuracy:.2%} (")
    assert " of 360) after 2 steps, " in lines[1]
    assert lines[2].endswith(str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    cases = [line[:22].rstrip() for line in lines[6:10]]
    assert cases == [str(case) for case in _photograph.BENCHMARK_CASES]
    assert lines[10].startswith("value and gradient: the largest difference from jax.lax, ")
    assert lines[11].startswith("The photographs have 3 channels. The table in README.md is of ")
    assert len(lines) == 12


SHORT_MESSAGE = "The accuracy is below 97%: reaching it takes the default of 600 steps.\n"


@pytest.mark.parametrize(
    ("accuracy", "agree", "steps", "code", "message"),
    [
        (0.98, True, 600, 0, ""),
        (0.96, True, 600, 1, "The accuracy is below 97%.\n"),
        (0.96, True, 9, 0, SHORT_MESSAGE),
        (0.98, False, 9, 1, "The pools do not agree with jax.lax: see the table.\n"),
    ],
)
def test_exit_code(accuracy, agree, steps, code, message, capsys):
    assert demo._exit_status(accuracy, agree, steps) == code
    assert capsys.readouterr().out == message


def test_table_marks_difference_from_lax():
    cases = _photograph.BENCHMARK_CASES
    rounding = _photograph.BenchmarkResult(cases[0], 1e-3, 9e-3, 0.0, 5e-7)
    wrong = _photograph.BenchmarkResult(cases[1], 1e-3, 9e-3, 0.0, float("nan"))
    assert not _photograph.BenchmarkResult(cases[0], 1e-3, 9e-3, 2e-5, 0.0).results_agree
    slow = _photograph.BenchmarkResult(cases[2], 0.1, 1.5, 0.0, 0.0)
    assert [each.results_agree for each in (rounding, wrong, slow)] == [True, False, True]
    assert [_photograph.TABLE_HEADING, *(each.table_row() for each in (rounding, wrong, slow))] == [
        "                              jaxpool          lax   faster   value   gradient",
        "max 2x2 stride 2 VALID        1.00 ms      9.00 ms    9.0 x   equal   5e-07",
        "max 3x3 stride 2 SAME         1.00 ms      9.00 ms    9.0 x   equal   DIFFERS by nan",
        "max 3x3 stride 1 SAME       100.00 ms   1500.00 ms   15.0 x   equal   equal",
    ]


def test_picture():
    """Labels, captions, pixels and loss curves are read from the figure."""
    images = np.random.default_rng(0).random((6, 8, 8, 1), np.float32)
    read = np.array([0, 1, 2, 3, 4, 9])
    losses = np.array([2.0, 1.0])
    above, below = _digits.draw_picture(images, read, losses, {1: 1.5, 2: 1.25}).subfigs
    titles = [axes.get_title() for axes in above.axes[:6]]
    assert (titles[0], titles[-1]) == ("a 0, read as 0", "a 5, read as 9")
    assert all(above.axes[row * 6].get_ylabel() for row in range(3))
    assert above.get_supxlabel().startswith("Forward, a 2x2 max pool with stride 2 keeps ")
    panels = [axes.images[0].get_array() for axes in above.axes[:18]]
    # The lines separate windows, in the pooled images too.
    for axes, panel in zip(above.axes[:18], panels, strict=True):
        assert list(axes.get_xticks()) == [len(panel) / 4 * part - 0.5 for part in (1, 2, 3)]
    # Each window has one selected pixel, its largest.
    for image, pooled, selected in zip(images, panels[6:12], panels[12:], strict=True):
        windows = np.ma.filled(selected, np.nan).reshape(4, 2, 4, 2)
        assert (np.isfinite(windows).sum((1, 3)) == 1).all()
        np.testing.assert_array_equal(np.nanmax(windows, (1, 3)), pooled)
        np.testing.assert_array_equal(image.reshape(4, 2, 4, 2).max((1, 3)), pooled)
    scales = [axes.get_ylabel() for axes in above.axes[18:]]
    assert scales == ["pixel", "pixel", "selected pixel"]
    curves = {line.get_label(): line.get_xydata().tolist() for line in below.axes[0].lines}
    assert curves == {
        "training": [[1, 2], [2, 1]],
        "training, mean of 2 steps": [[2, 1.5]],
        "held out": [[1, 1.5], [2, 1.25]],
    }


@pytest.mark.slow
def test_default_settings_reach_the_accuracy(tmp_path):
    assert main(["demo", "--output", str(tmp_path)]) == 0


@pytest.mark.slow
def test_two_devices(tmp_path):
    """In a process of its own, because the number of devices is set before jax starts."""
    status, printed, errors = run_python(["-m", "jaxpool", "demo", "--devices", "2"], tmp_path)
    assert status == 0, printed + errors[-2000:]
    assert "each of 2 devices holds 512 rows" in printed
    assert (tmp_path / "jaxpool_demo.png").stat().st_size > 10_000
