"""`python -m jaxpool info`: its tables, and the plan of a call."""

import json
import re

from jaxpool.__main__ import main
from jaxpool._cli import info
from jaxpool.testing import pools
from tests.cli.processes import run_python


def test_every_function_has_an_entry(capsys):
    assert main(["info", "--json"]) == 0
    modes = json.loads(capsys.readouterr().out)["functions"]
    assert set(modes) == set(pools())
    assert modes["max_pool"] == 'reverse; forward too with autodiff="jvp"'
    assert modes["lp_pool"] == "reverse and forward"


def test_module_run_from_another_folder(tmp_path):
    status, printed, errors = run_python(["-m", "jaxpool", "info"], tmp_path)
    assert (status, errors) == (0, "")
    assert re.match(r"versions\n  Python +3\..*\n\nmachine\n  platform ", printed, re.DOTALL)
    for name in pools():
        assert re.search(rf"^    (.*, )?{name}(,.*)?$", printed, re.MULTILINE), name
    assert "\n  reverse and forward\n" in printed


def test_missing_package_and_huge_pages_rows(monkeypatch):
    assert info._versions(("no-such-package",)) == {"no-such-package": "not installed"}
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert info._huge_pages_row() == {}
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.malloc.arena_max=1:{info.HUGE_PAGES_TUNABLE}")
    assert info._huge_pages_row() == {"huge pages": "on"}
