"""The command line: what it prints, what it refuses and with which words."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jaxpool
from jaxpool.__main__ import main
from jaxpool._cli import demo

PNG = b"\x89PNG\r\n"

EXAMPLE = 'Write it as in "max 3x3 stride 2 SAME 16x112x112x64 bfloat16".'
PLAN = """\
avg_pool, float32, 8x64x64x8 to 8x64x64x8

cpu
  keeps       nothing: it is linear
  forward     axes 1 2: 9 terms, 9 regions, in place (no copy, but bounds to test in the loop)
              decided by in_place=True, sum_region_bytes=2048
  tangent     as forward
  backward    axes 1 2: 9 terms, 9 regions, in place (no copy, but bounds to test in the loop)
              decided by in_place=True, sum_region_bytes=2048

gpu
  keeps       nothing: it is linear
  forward     axes 1 2: 9 terms, from a padded copy (padded once, then each term is a plain slice)
  tangent     as forward
  backward    axes 1 2: 9 terms, from a padded copy (padded once, then each term is a plain slice)

tpu
  keeps       nothing: it is linear
  forward     axes 1 2: 9 terms, by lax.reduce_window (one instruction of XLA reads the array once)
              decided by sum_passes=0
  tangent     as forward
  backward    axes 1 2: 9 terms, by lax.reduce_window (one instruction of XLA reads the array once)
              decided by sum_passes=0
"""


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (
                [],
                "jaxpool: the command must be demo, explain or info; got none. "
                "See python -m jaxpool --help.",
            ),
            (
                ["train"],
                "jaxpool: the command must be demo, explain or info; got 'train'. "
                "See python -m jaxpool --help.",
            ),
            (
                ["--seed", "1"],
                "jaxpool: the command must be demo, explain or info; got '--seed'. "
                "See python -m jaxpool --help.",
            ),
            (["explain", "--ties"], "jaxpool explain: argument --ties: expected one argument"),
        ],
    )
    def test_command_line(self, words, message, capsys):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 2
        assert capsys.readouterr().err == message + "\n"

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["demo", "--stepz", "3"], "jaxpool demo: there is no such option: --stepz 3."),
            (
                ["demo", "--steps", "0"],
                "jaxpool demo: `--steps` must be an integer of 1 or more; got --steps=0.",
            ),
            (
                ["demo", "--steps=-5"],
                "jaxpool demo: `--steps` must be an integer of 1 or more; got --steps=-5.",
            ),
            (
                ["demo", "--steps", "many"],
                "jaxpool demo: `--steps` must be an integer of 1 or more; got --steps=many.",
            ),
            (
                ["demo", "--steps", "2.5"],
                "jaxpool demo: `--steps` must be an integer of 1 or more; got --steps=2.5.",
            ),
            (
                ["demo", "--seed", "4294967296"],
                "jaxpool demo: `--seed` must be an integer from 0 to 4294967295; "
                "got --seed=4294967296.",
            ),
            (
                ["demo", "--output", "no/such/place.png"],
                "jaxpool demo: `--output` must be in a folder that exists; "
                "got --output=no/such/place.png.",
            ),
            (
                ["demo", "--output", "digits.jpg"],
                "jaxpool demo: `--output` must be a path that ends in .png or an existing folder; "
                "got --output=digits.jpg.",
            ),
            (
                ["explain", "--array", "1 2; 3"],
                "jaxpool explain: `--array` must be rows of equally many numbers, as in "
                "\"1 3; 4 2\"; got --array='1 2; 3'.",
            ),
            (
                ["explain", "--array", "1 two"],
                "jaxpool explain: `--array` must be rows of equally many numbers, as in "
                "\"1 3; 4 2\"; got --array='1 two'.",
            ),
            (
                ["explain", "--array", "1 " * 401],
                "jaxpool explain: `--array` must have at most 400 numbers; got 401 (1x401).",
            ),
            (
                ["explain", "--window", "0"],
                "jaxpool explain: `--window` must be a positive integer or two, as in 2x3; "
                "got --window=0.",
            ),
            (
                ["explain", "--stride", "2x2x2"],
                "jaxpool explain: `--stride` must be a positive integer or two, as in 2x3; "
                "got --stride=2x2x2.",
            ),
            (
                ["explain", "--padding=-1"],
                "jaxpool explain: `--padding` must be VALID, SAME, SAME_LOWER, an integer of 0 or "
                "more, or one integer or low:high pair an axis, as in 0:1x2; got --padding=-1.",
            ),
            (
                ["info", "--plan", "max 3x3 stride 2"],
                "jaxpool info: `--plan` must be a case with sizes of a window and of an array for "
                f"max_pool; got --plan='max 3x3 stride 2'. {EXAMPLE}",
            ),
            (
                ["info", "--plan", "max 3x3 strid 2 4x9x9x3"],
                "jaxpool info: `--plan` must be a case of stride, dilation, pad, to, of, over, "
                "ties, VALID, SAME, SAME_LOWER, sizes such as 3x3, a dtype, channels-first, not "
                f"'strid'; got --plan='max 3x3 strid 2 4x9x9x3'. {EXAMPLE}",
            ),
            (
                ["info", "--plan", "cummax 3x4"],
                "jaxpool info: `--plan` must be a case with 'over' and sizes for cummax; "
                f"got --plan='cummax 3x4'. {EXAMPLE}",
            ),
            (
                ["info", "--plan", "max 9x9 1x4x4x1", "--json"],
                "jaxpool info: `window_shape` must be at most the padded input, 4 along axis 1 "
                "(it spans 9); got window_shape=(9, 9). Use a smaller window or more padding.",
            ),
            (
                ["explain", "--ties", "random"],
                "jaxpool explain: `--ties` must be first, last or split; got --ties=random.",
            ),
        ],
    )
    def test_option(self, words, message, capsys):
        assert main(words) == 2
        said = capsys.readouterr()
        assert said.err == message + "\n"
        assert said.out == ""

    def test_what_the_pool_refuses_is_one_line_too(self, capsys):
        assert main(["explain", "--window", "7"]) == 2
        message = capsys.readouterr().err
        assert message.startswith("jaxpool explain: jaxpool.max_pool: `window_shape` must be ")
        assert message.count("\n") == 1

    def test_a_place_that_cannot_be_written_to(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr("os.access", lambda path, mode: False)
        path = tmp_path / "digits.png"
        assert main(["demo", "--output", str(path)]) == 2
        assert capsys.readouterr().err == (
            "jaxpool demo: `--output` must be in a place that can be written to; "
            f"got --output={path}.\n"
        )

    @pytest.mark.parametrize(
        ("words", "missing"),
        [
            (["demo"], ["flax", "tqdm"]),
            (["explain", "--png", "x.png"], ["matplotlib"]),
        ],
    )
    def test_missing_extras(self, words, missing, capsys, monkeypatch):
        monkeypatch.setattr(
            "jaxpool._cli.importlib.util.find_spec",
            lambda name: None if name in missing else object(),
        )
        assert main(words) == 2
        assert capsys.readouterr().err == (
            f"jaxpool {words[0]}: {', '.join(missing)} must be installed for this. "
            'Install what is missing with: pip install "jaxpool[demo]"\n'
        )


class TestInfo:
    def test_every_function_has_an_entry(self, capsys):
        assert main(["info", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert set(said["functions"]) == set(jaxpool.__all__) - {"accelerate", "keep_memory"}
        for entry in said["functions"].values():
            together = [platform for plan in entry["plans"] for platform in plan["platforms"]]
            assert sorted(together) == ["cpu", "gpu", "tpu"]
            assert all(plan["forward"] for plan in entry["plans"])
        pool = said["functions"]["max_pool"]
        assert set(pool["keeps"]) == {"tap", "bits", "arrays", "rank"}
        assert [plan["platforms"] for plan in pool["plans"]] == [["cpu"], ["gpu", "tpu"]]
        assert "tables" in pool["plans"][0]["backward"]
        assert "tables" not in pool["plans"][1]["backward"]

    def test_tables(self, capsys):
        assert main(["info"]) == 0
        said = capsys.readouterr().out
        for name in set(jaxpool.__all__) - {"accelerate", "keep_memory"}:
            assert re.search(rf"^  (\w+, )*{name}(, \w+)*$", said, re.MULTILINE)
        elementwise = said.split("  fmax, fmin, maximum, minimum\n")[1]
        assert elementwise.startswith(
            '    derivative  reverse; forward too with autodiff="jvp"\n'
            "    keeps       which array was chosen, a bit for each array\n"
            "    everywhere  forward element by element; backward element by element\n"
        )

    def test_plan_of_a_case(self, capsys):
        assert main(["info", "--plan", "avg 3x3 SAME 8x64x64x8"]) == 0
        assert capsys.readouterr().out == PLAN

    def test_plan_of_a_case_as_json(self, capsys):
        assert main(["info", "--plan", "max 13x13 SAME 8x?x40x40x128", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["output_shape"] == [8, None, 40, 40, 128]
        cpu, gpu, tpu = said["plans"]
        assert [each["platforms"] for each in (cpu, gpu, tpu)] == [["cpu"], ["gpu"], ["tpu"]]
        assert [stage["axes"] for stage in gpu["forward"]] == [[3], [2]]
        assert [stage["axes"] for stage in tpu["forward"]] == [[3], [3], [2], [2]]
        assert [stage["kept"] for stage in tpu["forward"]] == [True, True, True, False]
        assert tpu["decided_by"]["forward"] == {"overlapping_taps": 9, "pieces": 8}

    @pytest.mark.parametrize(
        "case",
        [
            "lp 2x2 stride 2 16x128x128x32",
            "softmax 3x3 SAME 2x9x8x3",
            "stochastic 2x2 stride 2 2x8x8x3",
            "fractional max 2x2 to 3x3 2x9x9x4",
            "max unpool to 8x8 1x4x4x2",
            "cummin over 0 12x3",
            "global avg 4x7x7x8",
            "fmax of 3 ties split 5",
            "adaptive max with argmax to 5x5 ties last 1x64x64x3",
            "max 15x15 ties split 2x40x40x8",
            "max 2x2 stride 3 0x9x9x4",
        ],
    )
    def test_every_kind_of_case_has_words(self, case, capsys):
        assert main(["info", "--plan", case]) == 0
        assert "\n  keeps       " in capsys.readouterr().out

    def test_as_a_program_in_another_folder(self, tmp_path):
        sources = str(Path(jaxpool.__file__).parents[1])
        done = subprocess.run(
            [sys.executable, "-m", "jaxpool", "info"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": sources},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("versions\n")


@pytest.fixture
def demo_extra():
    for module in ("flax", "matplotlib", "optax", "PIL", "sklearn", "tqdm"):
        pytest.importorskip(module)


@pytest.mark.usefixtures("demo_extra")
class TestDemo:
    def test_a_few_steps(self, tmp_path, capsys, monkeypatch):
        from jaxpool._cli import _photograph

        whole = _photograph.photographs()
        monkeypatch.setattr(_photograph, "photographs", lambda: whole[:, :32, :32])
        monkeypatch.setattr(_photograph, "REPEATS", 1)
        picture = tmp_path / "digits.png"
        assert main(["demo", "--steps", "2", "--seed", "7", "--output", str(picture)]) == 0
        said = capsys.readouterr().out.splitlines()
        assert said[0].startswith("Handwritten digits: 1437 to learn from, 360 held out. Backend: ")
        assert said[1].startswith("Held-out accuracy: ")
        assert " of 360) after 2 steps, " in said[1]
        assert said[2].endswith(str(picture))
        assert picture.read_bytes().startswith(PNG)
        cases = [line[:22].rstrip() for line in said[6:10]]
        assert cases == [str(case) for case in _photograph.CASES]
        assert said[10:] == ["The accuracy is below 97%, which takes the default of 600 steps."]

    @pytest.mark.parametrize(
        ("accuracy", "agree", "steps", "code", "message"),
        [
            (0.98, True, "600", 0, ""),
            (0.96, True, "600", 1, "The accuracy is below 97%.\n"),
            (0.96, True, "800", 1, "The accuracy is below 97%.\n"),
            (0.98, False, "9", 1, "The pools do not agree with jax.lax: see the table.\n"),
        ],
    )
    def test_exit_code(self, accuracy, agree, steps, code, message, capsys, monkeypatch, tmp_path):
        monkeypatch.setattr(demo, "_train", lambda digits, steps, seed: (None, accuracy))
        monkeypatch.setattr(demo, "_draw", lambda network, digits, path: None)
        monkeypatch.setattr(demo, "_compare", lambda: agree)
        assert main(["demo", "--steps", steps, "--output", str(tmp_path)]) == code
        assert capsys.readouterr().out.split("\n", 1)[1] == message

    def test_a_difference_from_lax_is_seen(self):
        from jaxpool._cli._photograph import CASES, Comparison, table

        rounding = Comparison(CASES[0], 1e-3, 9e-3, 0.0, 5e-7)
        wrong = Comparison(CASES[1], 1e-3, 9e-3, 0.0, float("nan"))
        assert rounding.agrees
        assert not wrong.agrees
        assert table([rounding, wrong]).splitlines()[1:] == [
            "max 2x2 stride 2 VALID  1.00 ms    9.00 ms     9.0 x   equal   5e-07",
            "max 3x3 stride 2 SAME   1.00 ms    9.00 ms     9.0 x   equal   DIFFERS by nan",
        ]

    @pytest.mark.slow
    def test_default_settings_reach_the_accuracy(self, tmp_path):
        assert main(["demo", "--output", str(tmp_path)]) == 0
