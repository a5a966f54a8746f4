"""`python -m jaxpool demo`: printed lines, pictures and exit status."""

from pathlib import Path

import numpy as np
import pytest
from jax import lax

import jaxpool
from jaxpool.__main__ import main
from jaxpool._cli import demo
from tests.cli.processes import run_python

for module in ("flax", "matplotlib", "optax", "PIL", "sklearn", "tqdm"):
    pytest.importorskip(module)

from jaxpool._cli import _devices, _digits, _photograph  # noqa: E402


@pytest.mark.slow  # README's first command runs the whole demo
def test_short_demo(tmp_path, capsys):
    picture = tmp_path / "digits.png"
    accuracy = _digits.train_and_draw(2, 7, picture)
    captured = capsys.readouterr()
    assert captured.err == ""  # no progress bar without a terminal
    lines = captured.out.splitlines()
    assert lines[0].startswith("Handwritten digits: 1437 to learn from, 360 held out. Backend: ")
    assert lines[1].startswith(f"Held-out accuracy: {accuracy:.2%} (")
    assert " of 360) after 2 steps, " in lines[1]
    assert lines[2].endswith(str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")


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


@pytest.mark.parametrize("factor", [1, 1.001, float("nan")])
def test_table_and_difference_from_lax(factor, capsys, monkeypatch):
    """`factor` makes the gradient of an average wrong."""
    right = jaxpool.avg_pool

    def avg_pool(x, **sizes):
        y = right(x, **sizes)
        return factor * y + lax.stop_gradient(y - factor * y)

    monkeypatch.setattr(jaxpool, "avg_pool", avg_pool)
    assert _photograph.compare_with_lax(_photograph.load_photographs()[:, :32, :32], 1) == (
        factor == 1
    )
    heading, *rows = capsys.readouterr().out.splitlines()[2:7]
    assert heading.split() == ["jaxpool", "lax", "faster", "value", "gradient"]
    assert [row.split()[:4] for row in rows] == [
        ["max", "2x2", "stride", "2"],
        ["max", "3x3", "stride", "2"],
        ["max", "3x3", "stride", "1"],
        ["avg", "2x2", "stride", "2"],
    ]
    assert float(rows[0].split()[-1]) == 0


def test_picture():
    """Titles and pixels are read from the figure."""
    images = np.random.default_rng(0).random((6, 8, 8, 1), np.float32)
    panels = _digits.draw_picture(images, np.array([0, 1, 2, 3, 4, 9])).axes
    titles = [axes.get_title() for axes in panels[:6]]
    assert (titles[0], titles[-1]) == ("digit 0, read as 0", "digit 5, read as 9")
    assert all(panels[row * 6].get_ylabel() for row in range(3))
    arrays = [axes.images[0].get_array() for axes in panels]
    # The lines separate windows, in the pooled images too.
    for axes, array in zip(panels, arrays, strict=True):
        assert list(axes.get_xticks()) == [len(array) / 4 * part - 0.5 for part in (1, 2, 3)]
    # Each window has one pixel with a cotangent, its largest.
    for image, pooled, cotangent in zip(images, arrays[6:12], arrays[12:], strict=True):
        np.testing.assert_array_equal(image.reshape(4, 2, 4, 2).max((1, 3)), pooled)
        np.testing.assert_array_equal(cotangent.reshape(4, 2, 4, 2).sum((1, 3)), np.ones((4, 4)))
        selected = (cotangent * image[..., 0]).reshape(4, 2, 4, 2)
        np.testing.assert_array_equal(selected.max((1, 3)), pooled)


@pytest.mark.slow
def test_default_settings_reach_the_accuracy(tmp_path):
    assert main(["demo", "--output", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--devices", "2"], "jaxpool_demo_devices.png"),
        (["--devices", "2", "--output", "folder"], "folder/jaxpool_demo_devices.png"),
        (["--devices", "2", "--output", "mine.png"], "mine.png"),
        (["--output", "folder"], "folder/jaxpool_demo.png"),
        ([], "jaxpool_demo.png"),
    ],
)
def test_name_of_picture(options, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    paths = []
    monkeypatch.setattr(
        _digits, "train_and_draw", lambda steps, seed, path: paths.append(path) or 1
    )
    monkeypatch.setattr(_photograph, "compare_with_lax", lambda photographs: True)
    monkeypatch.setattr(_devices, "run", lambda devices, seed, path: paths.append(path) or 0)
    assert main(["demo", *options]) == 0
    assert paths == [Path(name)]


@pytest.mark.slow
def test_two_devices(tmp_path):
    """In a process of its own, because the number of devices is set before jax starts."""
    status, printed, errors = run_python(["-m", "jaxpool", "demo", "--devices", "2"], tmp_path)
    assert status == 0, printed + errors[-2000:]
    assert "each of 2 devices holds 512 rows" in printed
    assert (tmp_path / "jaxpool_demo_devices.png").stat().st_size > 10_000
    assert not (tmp_path / "jaxpool_demo.png").exists()
