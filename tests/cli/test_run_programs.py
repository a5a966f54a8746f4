"""`python -m jaxpool run`: a program of any kind runs as under `python`.

No program here imports jax, so a process takes a tenth of a second.
"""

import importlib.util
import marshal
import os
import py_compile
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import jaxpool
from tests.cli.processes import JAXPOOL_RUN, run_python, write_script

# What a program can read about itself.
SHOWS_ITSELF = """\
import __main__, sys
print(sorted(globals()), globals().get("__annotations__"), __builtins__, __doc__)
print(__name__, globals().get("__file__"), globals().get("__cached__"), __package__)
print(__spec__ and (__spec__.name, __spec__.origin, __spec__.cached, __spec__.parent))
print(type(__loader__), getattr(__loader__, "path", None), sys.modules["__main__"])
print(sys.argv, sys.path, __main__.__dict__ is globals(), (lambda: 0).__code__.co_filename)
"""


def assert_runs_as_python(words, folder, stdin=None):
    """Results under Python, which must be equal under `run`."""
    plain = run_python(words, folder, stdin)
    assert run_python([*JAXPOOL_RUN, "--quiet", *words], folder, stdin) == plain
    return plain


def run_in_bash(words, folder):
    """Exit status, standard output and standard error of Python with arguments in the syntax of bash."""
    environment = os.environ | {"PYTHONPATH": str(Path(jaxpool.__file__).parents[1])}
    command = ["bash", "-c", f"{shlex.quote(sys.executable)} {words}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def write_programs(folder):
    """Programs of every kind that print `SHOWS_ITSELF`."""
    (folder / "folder_without_main").mkdir()
    for name in ("train", "__main__", "inner/__main__", "package/__init__", "package/train"):
        write_script(folder, SHOWS_ITSELF, f"{name}.py")
    write_script(folder, SHOWS_ITSELF, "package/__main__.py")
    for name in ("train.pyc", "bytecode"):
        py_compile.compile(str(folder / "train.py"), str(folder / name))
    with zipfile.ZipFile(folder / "train.zip", "w") as archive:
        archive.writestr("__main__.py", SHOWS_ITSELF)
        archive.writestr("inner/__main__.py", SHOWS_ITSELF)


SCRIPT_WORDS = ["--", "x", "-m", "--quiet", "-c"]


@pytest.mark.parametrize(
    "words",
    [
        ["train.py"],
        ["./train.py"],
        ["inner/../train.py"],
        ["link.py"],
        ["--", "train.py"],
        ["train.pyc"],
        ["./bytecode"],
        ["inner"],
        ["./inner/"],
        ["."],
        ["train.zip"],
        ["train.zip/"],
        ["./train.zip/inner"],
        ["folder_without_main"],
        ["-m", "train"],
        ["-m", "package"],
        ["-mpackage.train"],
        ["-mtrain"],
        ["-m", "--"],
        ["-c", SHOWS_ITSELF],
        ["-c" + SHOWS_ITSELF],
        ["-c", "-print(3)"],
        ["-c", ""],
        ["-c", "def fails():\n    1 / 0\n\nfails()"],
        ["-"],
    ],
)
@pytest.mark.parametrize("safe_path", ["", "1"])
def test_kinds_of_programs_match_python(words, safe_path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONSAFEPATH", safe_path)
    write_programs(tmp_path)
    (tmp_path / "link.py").symlink_to(tmp_path / "inner" / "__main__.py")
    status, printed, said = assert_runs_as_python([*words, *SCRIPT_WORDS], tmp_path, SHOWS_ITSELF)
    assert status == bool(said)
    assert ("'--', 'x', '-m', '--quiet', '-c'" in printed) == ("__main__" in printed)


@pytest.mark.parametrize(
    "words",
    [
        "<(cat train.py) -- x",
        "/dev/stdin x < train.py",
        "/dev/stdin < train.pyc",
        "/dev/stdin x < <(cat train.py)",
        "link_to_pipe x < <(cat train.py)",
        "- < train.py",
        "- <&-",
        "train.py <&-",
        "train.py >&-",
        "fails.py >&-",
        "fails.py 2>&-",
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_pipes_and_closed_streams_match_python(words, tmp_path):
    write_programs(tmp_path)
    write_script(tmp_path, "1 / 0", "fails.py")
    (tmp_path / "link_to_pipe").symlink_to("/dev/stdin")
    assert run_in_bash(f"-m jaxpool run --quiet {words}", tmp_path) == run_in_bash(words, tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
def test_pipe_of_bytecode_is_read_once(tmp_path):
    """Python itself reads bytecode from files only."""
    write_programs(tmp_path)
    words = "-m jaxpool run --quiet <(cat train.pyc) x"
    status, printed, said = run_in_bash(words, tmp_path)
    assert (status, "', 'x'] " in printed, said) == (0, True, "")


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be deleted")
@pytest.mark.parametrize("path", ["train.py", "inner"])
def test_deleted_working_folder_matches_python(path, tmp_path):
    write_programs(tmp_path)
    folder, results = tmp_path / "deleted", []
    quoted_folder, script = shlex.quote(str(folder)), shlex.quote(str(tmp_path / path))
    for run in ("-m jaxpool run --quiet", ""):
        folder.mkdir()
        results.append(run_in_bash(f"{run} $(rmdir {quoted_folder}) {script}", folder))
    assert results[0] == results[1]
    assert results[0][0] == 0


HEADER = importlib.util.MAGIC_NUMBER + bytes(12)


@pytest.mark.parametrize(
    "content",
    [
        b"no bytecode at all",
        b"print(1)  # source",
        HEADER[:2] + b"the magic number of no Python",
        HEADER,
        HEADER + marshal.dumps(None),
        HEADER + marshal.dumps(compile("1", "", "exec"))[:9],
    ],
)
def test_wrong_bytecode_matches_python(content, tmp_path):
    (tmp_path / "train.pyc").write_bytes(content)
    status, _, said = assert_runs_as_python(["train.pyc"], tmp_path)
    assert status == 1
    assert said.startswith("RuntimeError: Bad ")


def test_main_module_can_be_pickled(tmp_path):
    script = write_script(
        tmp_path,
        """
        import pickle, sys
        class Mine: pass
        pickle.loads(pickle.dumps(Mine()))
        assert sys.modules["__main__"].Mine is Mine
        """,
    )
    assert assert_runs_as_python([script], tmp_path) == (0, "", "")


@pytest.mark.parametrize(
    "module",
    [
        "bare",
        "plain",
        "absent",
        "absent.main",
        "plain.absent",
        "train.py",
        ".plain",
        "sys",
        "broken",
        "-m",
    ],
)
def test_unrunnable_module_error_matches_python(module, tmp_path):
    (tmp_path / "bare").mkdir()  # a namespace package
    write_script(tmp_path, "", "plain/__init__.py")
    write_script(tmp_path, "", "train.py")
    write_script(tmp_path, "import torc", "broken/__init__.py")  # a dependency that is missing
    assert assert_runs_as_python(["-m", module], tmp_path)[0] == 1


@pytest.mark.parametrize(
    "ending",
    [
        "raise ValueError('mine')",
        "sys.exit(3)",
        "sys.exit('because')",
        "def f(): 1 / 0\ntry: f()\nexcept ZeroDivisionError: raise KeyError(1)",
        "def broken(:",
        "sys.excepthook = lambda *what: print(what[1], what[2].tb_lineno)\nraise OSError('hooked')",
        "del sys.excepthook\n1 / 0",
        # Under a parent that ignores SIGINT, such as a background job, Python has no handler of it.
        "from signal import *\nsignal(SIGINT, default_int_handler)\nraise_signal(SIGINT)",
    ],
)
def test_exit_matches_python(ending, tmp_path):
    script = write_script(tmp_path, f"import sys\n{ending}")
    status, _, said = assert_runs_as_python([script], tmp_path)
    assert status != 0
    assert "jaxpool" not in said


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.skipif(os.name == "nt", reason="needs the signals and umask of POSIX")
def test_tests_pass_under_other_parents(tmp_path):
    """The parent process ignores signals, has another umask, locale, time zone and home, and has no terminal."""
    variables = {"LC_ALL": "C", "TZ": "Asia/Kathmandu", "HOME": str(tmp_path / "missing")}
    variables |= {"COLUMNS": "20", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    command += [__file__, str(Path(__file__).with_name("test_cli.py"))]
    done = subprocess.run(
        ["sh", "-c", "umask 077; trap '' INT HUP QUIT PIPE; exec \"$@\"", "sh", *command],
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
