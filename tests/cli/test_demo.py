"""`python -m jaxpool demo`: printed lines, pictures and exit status."""

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli import demo

for module in ("flax", "matplotlib", "optax", "PIL", "sklearn", "tqdm"):
    pytest.importorskip(module)

PNG = b"\x89PNG\r\n"


@pytest.mark.slow  # README's first command runs the whole demo
def test_short_demo(tmp_path, capsys, monkeypatch):
    from jaxpool._cli._photograph import BENCHMARK_CASES, load_photographs

    drawn, draw = [], demo._draw_picture
    monkeypatch.setattr(demo, "_draw_picture", lambda *args: (drawn.append(args), draw(*args)))
    picture = tmp_path / "digits.png"
    accuracy, agree = demo._run_demo(2, 7, picture, load_photographs()[:, :32, :32], num_repeats=1)
    assert agree
    captured = capsys.readouterr()
    assert captured.err == ""  # no progress bar without a terminal
    said = captured.out.splitlines()
    assert said[0].startswith("Handwritten digits: 1437 to learn from, 360 held out. Backend: ")
    assert said[1].startswith(f"Held-out accuracy: {accuracy:.2%} (")
    assert " of 360) after 2 steps, " in said[1]
    assert said[2].endswith(str(picture))
    assert picture.read_bytes().startswith(PNG)
    assert [line[:22].rstrip() for line in said[6:10]] == [str(case) for case in BENCHMARK_CASES]
    assert said[10].startswith("value and gradient: the largest difference from jax.lax, ")
    assert said[11].startswith("The photographs have 3 channels. The table in README.md is of ")
    assert len(said) == 12
    # Each window has one selected pixel, its largest.
    chosen = drawn[0][0].selected_pixels.reshape(demo.NUM_DIGITS_DRAWN, 4, 2, 4, 2)
    assert (np.isfinite(chosen).sum((2, 4)) == 1).all()
    np.testing.assert_array_equal(np.nanmax(chosen, (2, 4)), drawn[0][0].max_pooled)
    history = drawn[0][1]
    assert history.losses.shape == (2,)
    assert history.held_out_steps.tolist() == [2]
    assert np.isfinite(history.held_out_losses).all()


@pytest.mark.parametrize(
    ("accuracy", "agree", "steps", "code", "message"),
    [
        (0.98, True, 600, 0, ""),
        (0.96, True, 600, 1, "The accuracy is below 97%.\n"),
        (0.96, True, 800, 1, "The accuracy is below 97%.\n"),
        (
            0.96,
            True,
            9,
            0,
            "The accuracy is below 97%: reaching it takes the default of 600 steps.\n",
        ),
        (0.98, False, 9, 1, "The pools do not agree with jax.lax: see the table.\n"),
    ],
)
def test_exit_code(accuracy, agree, steps, code, message, capsys):
    assert demo._exit_status(accuracy, agree, steps) == code
    assert capsys.readouterr().out == message


def test_comparison_table_marks_difference_from_lax():
    from jaxpool._cli._photograph import BENCHMARK_CASES, BenchmarkResult, comparison_table

    rounding = BenchmarkResult(BENCHMARK_CASES[0], 1e-3, 9e-3, 0.0, 5e-7)
    wrong = BenchmarkResult(BENCHMARK_CASES[1], 1e-3, 9e-3, 0.0, float("nan"))
    assert rounding.results_agree
    assert not wrong.results_agree
    slow = BenchmarkResult(BENCHMARK_CASES[2], 0.1, 1.5, 0.0, 0.0)
    assert comparison_table([rounding, wrong, slow]).splitlines() == [
        "                           jaxpool          lax   faster   value   gradient",
        "max 2x2 stride 2 VALID     1.00 ms      9.00 ms    9.0 x   equal   5e-07",
        "max 3x3 stride 2 SAME      1.00 ms      9.00 ms    9.0 x   equal   DIFFERS by nan",
        "max 3x3 stride 1 SAME    100.00 ms   1500.00 ms   15.0 x   equal   equal",
    ]


def test_picture_labels(monkeypatch, tmp_path):
    """Labels, captions and loss curves are read from the figure."""
    from matplotlib.figure import Figure

    from jaxpool._cli._digits import LossHistory, PictureArrays

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, dpi: figures.append(figure))
    zeros, pooled = np.zeros((demo.NUM_DIGITS_DRAWN, 8, 8)), np.zeros((demo.NUM_DIGITS_DRAWN, 4, 4))
    read = np.array([0, 1, 2, 3, 4, 9])
    drawn = PictureArrays(zeros, pooled, zeros + 1, np.arange(demo.NUM_DIGITS_DRAWN), read)
    history = LossHistory(np.array([2.0, 1.0]), np.array([1, 2]), np.array([1.5, 1.25]))
    demo._draw_picture(drawn, history, tmp_path)
    above, below = figures[0].subfigs
    titles = [axes.get_title() for axes in above.axes[: demo.NUM_DIGITS_DRAWN]]
    assert titles[0] == "a 0, read as 0"
    assert titles[-1] == "a 5, read as 9"
    labels = [above.axes[row * demo.NUM_DIGITS_DRAWN].get_ylabel() for row in range(3)]
    assert all(labels)
    assert above.get_supxlabel().startswith("Forward, a 2x2 max pool with stride 2 keeps ")
    # The lines separate windows, in the pooled images too.
    for axes in above.axes[: 3 * demo.NUM_DIGITS_DRAWN : demo.NUM_DIGITS_DRAWN]:
        (pixels,) = (len(image.get_array()) for image in axes.images)
        assert list(axes.get_xticks()) == [pixels / 4 * part - 0.5 for part in (1, 2, 3)]
    scales = [axes.get_ylabel() for axes in above.axes[3 * demo.NUM_DIGITS_DRAWN :]]
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
