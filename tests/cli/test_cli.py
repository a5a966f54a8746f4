"""The command line: error messages, and commands that run without jax."""

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

UNUSUAL_TEXTS = (
    *("9" * 5000, "", "-1", "1e3", "nan", "a b\nc " * 1000, "=" + "-" * 50000 + "2"),
    *("folder", "folder.png", "folder.html", "folder.json", "folder.npy", "absent/a.png"),
)
# Options with a value; explain gets a function that takes the option.
VALUE_OPTIONS = {
    "demo": ("--steps", "--seed", "--devices", "--output"),
    "explain": (
        *("--array", "--op", "--window", "--stride", "--dilation", "--padding", "--ties", "--png"),
        *("--op=avg --divisor", "--op=lp --p", "--op=rank --rank", "--op=adaptive_max --to"),
        *("--op=k_max --set", "--set=k", "--cotangent", "--html", "--json", "--unknown"),
    ),
    "info": ("--plan",),
    "run": ("--report",),
}
VALID_TEXTS = {
    "--divisor": ("-1", "1e3"),
    "--p": ("1e3", "9" * 5000),  # read as infinity
    "--rank": ("-1",),
    "--cotangent": ("-1", "1e3"),
    "--output": ("folder", "folder.png", "folder.html", "folder.json", "folder.npy"),
}
LINES = (Path(__file__).parent / "bad_commands.txt").read_text("utf-8").splitlines()


@pytest.fixture(autouse=True)
def writable_folder(tmp_path, monkeypatch):
    """Working folder that can be written to, as the default `--output` of demo must be."""
    monkeypatch.chdir(tmp_path)


class TestErrors:
    @pytest.mark.parametrize("line", [line for line in LINES if "  ->  " in line])
    def test_message_is_one_line(self, line, capsys):
        words, message = line.split("  ->  ")
        words = shlex.split(words)
        assert main(words) == 2
        said = capsys.readouterr()
        pattern = ".*".join(map(re.escape, message.split("…")))
        assert re.fullmatch(f"jaxpool {words[0]}: {pattern}\n", said.err)
        assert said.out == ""

    def test_long_and_unprintable_text(self, capsys):
        assert main(["demo", "--output", "a\n" + "x" * 300]) == 2
        assert re.search(r"; got 'a\\nx{80,}\.\.\.x{80,}'\n$", capsys.readouterr().err)

    @pytest.mark.parametrize("text", UNUSUAL_TEXTS, ids=lambda text: text[:20])
    @pytest.mark.parametrize(
        ("command", "option"),
        [(name, each) for name in VALUE_OPTIONS for each in VALUE_OPTIONS[name]],
    )
    def test_unusual_text(self, command, option, text, tmp_path, capsys, monkeypatch):
        """One line of at most 1000 characters, and nothing on standard output."""
        monkeypatch.setattr("jaxpool._cli.demo.run", lambda args: 0)
        monkeypatch.setattr("jaxpool._cli.run.run", lambda args: 0)
        for suffix in ("", ".png", ".html", ".json", ".npy"):
            (tmp_path / f"folder{suffix}").mkdir()
        *others, name = option.split()
        words = [command, *others, f"{name}={text}", *["script.py"] * (command == "run")]
        is_valid = text in VALID_TEXTS.get(name, ())
        assert main(words) == (0 if is_valid else 2)
        said = capsys.readouterr()
        assert is_valid or said.out == ""
        assert re.fullmatch("" if is_valid else rf"jaxpool {command}: .{{1,1000}}\n", said.err)

    def test_unwritable_output_path(self, tmp_path, capsys, monkeypatch):
        path = tmp_path / "digits.png"
        path.touch()
        monkeypatch.setattr("os.access", lambda place, mode: place != path)
        assert main(["demo", "--output", str(path)]) == 2
        assert "folder that exists and can be written to; got " in capsys.readouterr().err

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

    monkeypatch.setattr("jaxpool._cli._page.html_page", lambda *route: "")
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
        "jaxpool demo: argument --steps: must be an integer from 1 to 1000000; got 'x'",
        "jaxpool info: there is no such option: --plna. Did you mean --plan?",
        "jaxpool explain: there is no such option: --tise. Did you mean --ties?",
        "jaxpool run: there is no such option: --quite. Did you mean --quiet?",
    ]
