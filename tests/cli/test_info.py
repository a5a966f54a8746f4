"""`python -m jaxpool info`: its tables, and the plan of a case."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jaxpool
from jaxpool.__main__ import main
from jaxpool._cli import info

PLAN = """\
avg_pool, float32, 8x64x64x8 to 8x64x64x8

cpu
  keeps       nothing: it is linear
  forward     axes 1 2: 9 terms, 9 regions, in place (no copy, but bounds to test in the loop)
              decided by in_place=True, sum_region_bytes=2048
  tangent     as forward
  backward    axes 1 2: 9 terms, 9 regions, in place (no copy, but bounds to test in the loop)
              decided by in_place=True, sum_region_bytes=2048

gpu
  keeps       nothing: it is linear
  forward     axes 1 2: 9 terms, from a padded copy (padded once, then each term is a plain slice)
  tangent     as forward
  backward    axes 1 2: 9 terms, from a padded copy (padded once, then each term is a plain slice)

tpu
  keeps       nothing: it is linear
  forward     axes 1 2: 9 terms, by lax.reduce_window (one instruction of XLA reads the array once)
              decided by sum_passes=0
  tangent     as forward
  backward    axes 1 2: 9 terms, by lax.reduce_window (one instruction of XLA reads the array once)
              decided by sum_passes=0
"""


def test_every_function_has_an_entry(capsys):
    assert main(["info", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said["functions"]) == set(jaxpool.__all__) - {"accelerate", "keep_memory", "sharded"}
    for entry in said["functions"].values():
        together = [platform for plan in entry["plans"] for platform in plan["platforms"]]
        assert sorted(together) == ["cpu", "gpu", "tpu"]
        assert all(plan["forward"] for plan in entry["plans"])
    pool = said["functions"]["max_pool"]
    assert set(pool["keeps"]) == {"tap", "bits", "arrays", "rank"}
    assert [plan["platforms"] for plan in pool["plans"]] == [["cpu"], ["gpu", "tpu"]]
    assert "tables" in pool["plans"][0]["backward"]
    assert "tables" not in pool["plans"][1]["backward"]


def test_tables(capsys):
    assert main(["info"]) == 0
    said = capsys.readouterr().out
    for name in set(jaxpool.__all__) - {"accelerate", "keep_memory", "sharded"}:
        assert re.search(rf"^  (\w+, )*{name}(, \w+)*$", said, re.MULTILINE)
    elementwise = said.split("  fmax, fmin, maximum, minimum\n")[1]
    assert elementwise.startswith(
        '    derivative  reverse; forward too with autodiff="jvp"\n'
        "    keeps       which array was chosen, a bit for each array\n"
        "    everywhere  forward element by element; backward element by element\n"
    )


def test_plan_of_a_case(capsys):
    assert main(["info", "--plan", "avg 3x3 SAME 8x64x64x8"]) == 0
    assert capsys.readouterr().out == PLAN


def test_plan_of_a_case_as_json(capsys):
    assert main(["info", "--plan", "max 13x13 SAME 8x?x40x40x128", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["output_shape"] == [8, None, 40, 40, 128]
    cpu, gpu, tpu = said["plans"]
    assert [each["platforms"] for each in (cpu, gpu, tpu)] == [["cpu"], ["gpu"], ["tpu"]]
    assert [stage["axes"] for stage in gpu["forward"]] == [[3], [2]]
    assert [stage["axes"] for stage in tpu["forward"]] == [[3], [3], [2], [2]]
    assert [stage["kept"] for stage in tpu["forward"]] == [True, True, True, False]
    assert tpu["decided_by"]["forward"] == {"overlapping_taps": 9, "pieces": 8}


@pytest.mark.parametrize(
    "case",
    [
        "lp 2x2 stride 2 16x128x128x32",
        "softmax 3x3 SAME 2x9x8x3",
        "stochastic 2x2 stride 2 2x8x8x3",
        "fractional max 2x2 to 3x3 2x9x9x4",
        "max unpool to 8x8 1x4x4x2",
        "cummin over 0 12x3",
        "global avg 4x7x7x8",
        "fmax of 3 ties split 5",
        "adaptive max with argmax to 5x5 ties last 1x64x64x3",
        "max 15x15 ties split 2x40x40x8",
        "max 2x2 stride 3 0x9x9x4",
    ],
)
def test_every_kind_of_case_has_words(case, capsys):
    assert main(["info", "--plan", case]) == 0
    assert "\n  keeps       " in capsys.readouterr().out


def test_as_a_program_in_another_folder(tmp_path):
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


def test_what_is_not_there(monkeypatch):
    assert info._versions(("no-such-package",)) == [("no-such-package", "not installed")]
    assert info._huge_pages("tpu") == []
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.malloc.arena_max=1:{info.HUGE_PAGES}")
    assert info._huge_pages("cpu") == [("huge pages", "on")]


def plans_of(case, capsys):
    assert main(["info", "--plan", case, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["plans"]


def test_segments_keep_what_their_usual_ties_need(capsys):
    assert plans_of("segment max to 9 99x8", capsys)[0]["keeps"] == "element bits"
    assert plans_of("segment max ties first to 9 99x8", capsys)[0]["keeps"] == "position"


def test_blurred_maxima_keep_what_the_first_of_ties_needs(capsys):
    assert main(["info", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["functions"]["max_blur_pool"]
    assert said["keeps"] == ["tap", "rank", "nothing"]


def test_fractional_averages_read_what_chance_can_reach(capsys):
    """Windows of 2, 64 to 40: each begins at one of two places an axis, where one of two may begin."""
    plan, *_ = plans_of("fractional avg 2x2 to 40x40 8x64x64x64", capsys)
    assert [stage["terms"] for stage in plan["forward"][-2:]] == [2, 2]
    assert [stage["terms"] for stage in plan["backward"][:2]] == [2, 2]
