"""The command line: refusals other than those in `tests/api/bad_calls.txt`, and commands that run without jax."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jaxpool
from jaxpool.__main__ import main
from tests.cli.processes import run_python

ROWS = (Path(__file__).parent / "bad_commands.txt").read_text("utf-8").splitlines()


class TestErrors:
    @pytest.mark.parametrize("row", [row for row in ROWS if "  ->  " in row])
    def test_message_is_one_line(self, row, capsys):
        words, message = row.split("  ->  ")
        words = shlex.split(words)
        assert main(words) == 2
        said = capsys.readouterr()
        pattern = ".*".join(map(re.escape, message.split("…")))
        assert re.fullmatch(f"jaxpool {words[0]}: {pattern}\n", said.err)
        assert said.out == ""

    def test_long_and_unprintable_texts(self, capsys):
        assert main(["demo", "--output", "x" * 300 + ".png"]) == 2
        assert capsys.readouterr().err.endswith(f"; got --output={'x' * 199}….\n")
        assert main(["demo", "--steps", "a\nb"]) == 2
        assert capsys.readouterr().err.endswith("; got --steps='a\\nb'.\n")

    def test_unwritable_output_path(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr("os.access", lambda path, mode: False)
        path = tmp_path / "digits.png"
        for _ in range(2):
            assert main(["demo", "--output", str(path)]) == 2
            assert capsys.readouterr().err == (
                "jaxpool demo: `--output` must be in a place that can be written to; "
                f"got --output={path}.\n"
            )
            path.touch()  # an existing file is refused too

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


def test_closed_stdout_pipe(tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "jaxpool", "explain", "--op", "sum"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(jaxpool.__file__).parents[1])},
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


RUN_WITHOUT_JAX = """
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


def test_keyboard_interrupt_prints_one_line(capsys, monkeypatch):
    def run(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxpool._cli.info.run", run)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "\njaxpool info: interrupted.\n"


def test_failed_page_write_prints_one_line(tmp_path, capsys, monkeypatch):
    def full(path, text, encoding):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert main(["explain", "--html", str(tmp_path / "page.html")]) == 2
    said = "jaxpool explain: nothing could be written: no space left on device.\n"
    assert capsys.readouterr().err == said


def test_help_version_and_errors_need_no_jax(tmp_path):
    statuses = {
        ("--help",): 0,
        ("--version",): 0,
        ("exlpain",): 2,
        (): 2,
        ("demo", "--help"): 0,
        ("demo", "--steps", "x"): 2,
        ("info", "--help"): 0,
        ("info", "--plna"): 2,
        ("explain", "--help"): 0,
        ("explain", "--tise"): 2,
        ("run", "--help"): 0,
        ("run", "--quite", "x.py"): 2,
    }
    program = RUN_WITHOUT_JAX.format(words=list(statuses))
    status, printed, errors = run_python(["-c", program], tmp_path)
    assert status == 0, errors
    said = printed.split("---\n")
    assert [int(text.split()[-1]) for text in said[:-1]] == list(statuses.values())
    assert said[0].startswith("usage: python -m jaxpool {demo,explain,info,run} [options]\n")
    assert said[1] == f"jaxpool {jaxpool.__version__}\nstatus 0\n"
    assert errors.splitlines() == [
        "jaxpool: the command must be demo, explain, info or run; got 'exlpain'. Did you mean explain? "
        "See python -m jaxpool --help.",
        "jaxpool: the command must be demo, explain, info or run; got none. See python -m jaxpool --help.",
        "jaxpool demo: `--steps` must be an integer of 1 or more; got --steps=x.",
        "jaxpool info: there is no such option: --plna. Did you mean --plan?",
        "jaxpool explain: there is no such option: --tise. Did you mean --ties?",
        "jaxpool run: there is no such option: --quite. Did you mean --quiet?",
    ]
