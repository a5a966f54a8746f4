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


def found(tree, lines_of):
    return affected.affected(lines_of, reach.Reach(tree))


def test_the_tests_of_a_changed_line(tree):
    (tree / "jaxpool" / "room.py").write_text(CODE.replace("-x", "+x"))
    assert affected.changed("HEAD") == {"jaxpool/room.py": [9]}
    assert found(tree, affected.changed("HEAD")) == (["tests/api/test_g.py::test_g"], [])


def test_the_tests_of_a_file(tree):
    tests, unknown = found(tree, {"jaxpool/room.py": affected.whole("jaxpool/room.py")})
    assert sorted(tests) == ["tests/api/test_f.py::test_f", "tests/api/test_g.py::test_g"]
    assert unknown == []


def test_a_file_of_which_nothing_is_noted(tree, monkeypatch, capsys):
    (tree / "jaxpool" / "_api").mkdir()
    (tree / "jaxpool" / "_api" / "new.py").write_text("x = 1\n")
    assert affected.changed("HEAD") == {"jaxpool/_api/new.py": range(1, 2)}
    ran = []
    monkeypatch.setattr(affected.pytest, "main", ran.append)
    affected.main(["--", "-n", "2"])
    assert ran == [["-n", "2", "tests/api"]]
    assert reach.NOTING in capsys.readouterr().out


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
def test_what_is_no_part_of_the_library_has_its_own(tree, file, tests):
    assert affected.beside(file) == tests


def test_nothing_has_changed(tree, capsys):
    assert affected.main([]) == 0
    assert "no test reaches" in capsys.readouterr().out
