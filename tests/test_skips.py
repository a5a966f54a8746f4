"""`python -m tests.skips` lists a test that every run skips, and omits a test that at least one run has run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import skips

ROOT = Path(__file__).parents[1]
MODULE = "import pytest\npytest.importorskip({!r})\ndef test_it(): pass\n"
TESTS = """
import pytest
@pytest.mark.skipif(True, reason="needs a package")
def test_marked(): pass
@pytest.mark.parametrize("name", ["os", "no_such_package"], ids=["os", "no such package"])
def test_asks(name): pytest.importorskip(name)
@pytest.mark.xfail
def test_fails(): assert False
"""


def run_in(folder, *words):
    """Run pytest in a folder and return the tests that have never been run there."""
    outcomes = folder / "outcomes"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAXPOOL_OUTCOMES": str(outcomes)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.skips", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *words], cwd=folder, env=environment, capture_output=True)
    assert done.returncode in (0, 5), done.stdout
    return skips.never_run(outcomes.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("workers", ["0", "2"])
def test_skipped_tests_are_listed_until_run(tmp_path, workers):
    (tmp_path / "test_whole.py").write_text(MODULE.format("no_such_package"))
    (tmp_path / "test_parts.py").write_text(TESTS)
    found = run_in(tmp_path, "-n", workers)
    assert sorted(found) == [
        "test_parts.py::test_asks[no such package]",
        "test_parts.py::test_marked",
        "test_whole.py",
    ]
    assert found["test_parts.py::test_marked"] == "Skipped: needs a package"
    (tmp_path / "test_whole.py").write_text(MODULE.format("os"))
    (tmp_path / "test_parts.py").write_text(TESTS.replace("True", "False"))
    (tmp_path / "names").write_text("\n".join(found))
    found = run_in(tmp_path, "-n", workers, "@names")
    assert list(found) == ["test_parts.py::test_asks[no such package]"]


def test_command_fails_for_tests_never_run(tmp_path, capsys):
    outcomes = tmp_path / "outcomes"
    outcomes.write_text("skipped\ttest_a.py\tneeds b\nskipped\ttest_c.py::test_d[1]\tneeds e\n")
    assert skips.main([str(outcomes)]) == 1
    assert capsys.readouterr().out == "test_a.py: needs b\ntest_c.py::test_d[1]: needs e\n"
    assert skips.main(["--names", str(outcomes)]) == 0
    assert capsys.readouterr().out == "test_a.py\ntest_c.py::test_d[1]\n"
    with outcomes.open("a") as file:
        file.write("run\ttest_a.py::test_x\t\nrun\ttest_c.py::test_d[1]\t\n")
    assert skips.main([str(outcomes)]) == 0
    assert capsys.readouterr().out == ""
