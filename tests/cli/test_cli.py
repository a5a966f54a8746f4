"""The command line: what it prints, what it refuses and with which words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jaxpool
from jaxpool.__main__ import main

PNG = b"\x89PNG\r\n"

EXAMPLE = 'Write it as in "max 3x3 stride 2 SAME 16x112x112x64 bfloat16".'


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
            (
                ["exlpain"],
                "jaxpool: the command must be demo, explain or info; got 'exlpain'. "
                "Did you mean explain? See python -m jaxpool --help.",
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
            (
                ["demo", "--stepz", "3"],
                "jaxpool demo: there is no such option: --stepz 3. Did you mean --steps?",
            ),
            (["info", "--all"], "jaxpool info: there is no such option: --all."),
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


BLOCKED = """
import runpy, sys
sys.modules["jax"] = None  # an import of it raises
for words in {words}:
    sys.argv = ["jaxpool", *words]
    try:
        runpy.run_module("jaxpool", run_name="__main__", alter_sys=True)
    except SystemExit as left:
        print("status", left.code or 0)
    print("---")
"""


def test_ctrl_c_is_one_line(capsys, monkeypatch):
    def run(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxpool._cli.info.run", run)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "\njaxpool info: interrupted.\n"


def test_a_page_that_cannot_be_written_is_one_line(tmp_path, capsys, monkeypatch):
    def full(path, text, encoding):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert main(["explain", "--html", str(tmp_path / "page.html")]) == 2
    said = "jaxpool explain: nothing could be written: no space left on device.\n"
    assert capsys.readouterr().err == said


def test_help_version_and_mistakes_are_answered_without_jax(tmp_path):
    words = [
        ["--help"],
        ["--version"],
        ["exlpain"],
        [],
        ["demo", "--help"],
        ["demo", "--steps", "x"],
    ]
    words += [["info", "--help"], ["info", "--plna"], ["explain", "--help"], ["explain", "--tise"]]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format(words=words)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(jaxpool.__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("---\n")
    assert [text.split()[-1] for text in said[:-1]] == [
        "0",
        "0",
        "2",
        "2",
        "0",
        "2",
        "0",
        "2",
        "0",
        "2",
    ]
    assert said[0].startswith("usage: python -m jaxpool {demo,explain,info} [options]\n")
    assert said[1] == f"jaxpool {jaxpool.__version__}\nstatus 0\n"
    assert done.stderr.splitlines() == [
        "jaxpool: the command must be demo, explain or info; got 'exlpain'. Did you mean explain? "
        "See python -m jaxpool --help.",
        "jaxpool: the command must be demo, explain or info; got none. See python -m jaxpool --help.",
        "jaxpool demo: `--steps` must be an integer of 1 or more; got --steps=x.",
        "jaxpool info: there is no such option: --plna. Did you mean --plan?",
        "jaxpool explain: there is no such option: --tise. Did you mean --ties?",
    ]
