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
    modes = json.loads(capsys.readouterr().out)["functions"]
    assert set(modes) == set(pools())
    assert modes["max_pool"] == 'reverse; forward too with autodiff="jvp"'
    assert modes["lp_pool"] == "reverse and forward"


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
    assert re.match(r"versions\n  Python +3\..*\n\nmachine\n  platform ", done.stdout, re.DOTALL)
    for name in pools():
        assert re.search(rf"^    (.*, )?{name}(,.*)?$", done.stdout, re.MULTILINE), name
    assert "\n  reverse and forward\n" in done.stdout


def test_missing_package_and_huge_pages_rows(monkeypatch):
    assert info._versions(("no-such-package",)) == {"no-such-package": "not installed"}
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert info._huge_pages_row() == {}
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.malloc.arena_max=1:{info.HUGE_PAGES_TUNABLE}")
    assert info._huge_pages_row() == {"huge pages": "on"}
