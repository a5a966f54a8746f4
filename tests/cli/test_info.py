"""`python -m jaxpool info`: its tables, and the plan of a call."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jaxpool
from jaxpool.__main__ import main
from jaxpool._cli import info
from jaxpool.testing import pools


def test_every_function_has_an_entry(capsys):
    assert main(["info", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["functions"]) == set(pools())
    assert said["functions"]["max_pool"] == 'reverse; forward too with autodiff="jvp"'
    assert said["functions"]["lp_pool"] == "reverse and forward"


def test_tables(capsys):
    assert main(["info"]) == 0
    said = capsys.readouterr().out
    for name in set(pools()):
        assert re.search(rf"^    (.*, )?{name}(,.*)?$", said, re.MULTILINE), name
    assert "\n  reverse and forward\n" in said


def test_module_run_from_another_folder(tmp_path):
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


def test_missing_package_and_huge_pages_rows(monkeypatch):
    assert info._versions(("no-such-package",)) == {"no-such-package": "not installed"}
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert info._huge_pages_row() == {}
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.malloc.arena_max=1:{info.HUGE_PAGES_TUNABLE}")
    assert info._huge_pages_row() == {"huge pages": "on"}
