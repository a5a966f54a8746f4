"""`python -m tests.affected` selects the tests of changed lines and files."""

import subprocess

import pytest

pytest.importorskip("coverage")

from coverage import CoverageData

from tests import affected
from tests.support import reach

CODE = "import os\n\n\ndef f(x):\n    return x\n\n\ndef g(x):\n    return -x\n"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A git repository with two functions, a test file, and coverage data of two tests."""
    (tmp_path / "jaxpool").mkdir()
    (tmp_path / "jaxpool" / "room.py").write_text(CODE)
    for folder in ("tests/support", "tests/api", "tests/bench", "tests/docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests/support/shared.py").write_text("")
    (tmp_path / "tests/support/middle.py").write_text("from tests.support import shared\n")
    (tmp_path / "tests/api/test_f.py").write_text("from tests.support.middle import a\n")
    data = CoverageData(str(tmp_path / ".coverage"))
    for test, lines in (("tests/api/test_f.py::test_f", [5]), ("tests/api/test_g.py::test_g", [9])):
        data.set_context(test)
        data.add_lines({str(tmp_path / "jaxpool" / "room.py"): lines})
    data.write()
    seconds = "0.10 tests/api/test_f.py::test_f\n0.20 tests/api/test_g.py::test_g\n"
    (tmp_path / ".coverage-seconds").write_text(seconds)
    (tmp_path / ".gitignore").write_text(".coverage*\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "a"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(affected, "TREE", tmp_path)
    return tmp_path


def affected_tests(tree, lines_of):
    return affected.affected(lines_of, reach.Reach(tree))


def test_changed_line_selects_its_tests(tree):
    (tree / "jaxpool" / "room.py").write_text(CODE.replace("-x", "+x"))
    assert affected.changed_lines("HEAD") == {"jaxpool/room.py": [9]}
    assert affected_tests(tree, affected.changed_lines("HEAD")) == (
        ["tests/api/test_g.py::test_g"],
        [],
    )


def test_file_selects_its_tests(tree):
    tests, unknown = affected_tests(
        tree, {"jaxpool/room.py": affected.all_lines("jaxpool/room.py")}
    )
    assert sorted(tests) == ["tests/api/test_f.py::test_f", "tests/api/test_g.py::test_g"]
    assert unknown == []


def test_file_without_coverage_data(tree, monkeypatch, capsys):
    (tree / "jaxpool" / "_api").mkdir()
    (tree / "jaxpool" / "_api" / "new.py").write_text("x = 1\n")
    assert affected.changed_lines("HEAD") == {"jaxpool/_api/new.py": range(1, 2)}
    ran = []
    monkeypatch.setattr(affected.pytest, "main", ran.append)
    affected.main(["--", "-n", "2"])
    assert ran == [["-n", "2", "tests/api"]]
    assert reach.COVERAGE_COMMAND in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("tests/support/shared.py", {"tests/api/test_f.py"}),
        ("tests/api/test_f.py", {"tests/api/test_f.py"}),
        ("tests/api/test_gone.py", set()),
        ("tests/plan/golden.txt", {"tests/plan"}),
        ("bench/run.py", {"tests/bench"}),
        ("README.md", {"tests/docs"}),
        ("docs/hooks.py", {"tests/docs"}),
        ("pyproject.toml", set()),
    ],
)
def test_files_outside_the_library(tree, file, tests):
    assert affected.tests_of_file(file) == tests


def test_no_changed_lines(tree, capsys):
    assert affected.main([]) == 0
    assert "no test reaches" in capsys.readouterr().out
