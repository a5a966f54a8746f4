"""`python -m bench --plain`: each function compared with the equivalent jax code of a user."""

import collections
import dataclasses

import jax
import pytest

from bench import plain, results
from bench.__main__ import main
from bench._case import MODES
from bench.results import CaseResult, Row
from bench.timing import Timing
from jaxpool.testing import pools

SMALL = plain.chosen([r"\[small\]"])


def test_setting_names_are_unique():
    names = [setting.name for setting in plain.chosen([])]
    assert len(set(names)) == len(names)


def test_list_shows_the_chosen_settings(capsys):
    wanted = ["^maxout.*groups=4", "small"]
    assert main(["--plain", "--list", "--filter", wanted[0], "--filter", wanted[1]]) == 0
    assert capsys.readouterr().out.splitlines() == [each.name for each in plain.chosen(wanted)]


def test_every_function_has_two_settings():
    settings = collections.Counter(each.function for each in SMALL if each.dtype == "float32")
    assert [name for name in pools() if settings[name] < 2] == []


@pytest.mark.parametrize("setting", SMALL, ids=lambda setting: setting.name)
def test_equivalent_code_matches_shapes_and_dtypes(setting):
    xs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in setting.arrays()]
    ours, theirs = (jax.eval_shape(way, *xs) for way in (setting.ours, setting.plain))
    kinds = [[(a.shape, a.dtype) for a in jax.tree.leaves(way)] for way in (ours, theirs)]
    assert kinds[0] == kinds[1]


@pytest.mark.slow
@pytest.mark.parametrize("setting", SMALL, ids=lambda setting: setting.name)
def test_equivalent_code_matches_values_and_cotangents(setting):
    row = plain.measure(setting, "forward_and_vjp", 0.0).peers["jaxpool"]
    assert (row.difference is None) == bool(setting.differs)
    assert not row.wrong, row.difference


def test_different_result_is_marked_wrong_unless_arrays_are_large():
    (setting,) = plain.chosen([r"^max\(float32.*axis=-1", "small"])
    other = dataclasses.replace(setting, equivalent=lambda x, axis: jax.numpy.max(x, axis) * 1.01)
    large = dataclasses.replace(other, size="large")
    wrong = [
        plain.measure(each, "forward", 0.0).peers["jaxpool"] for each in (setting, other, large)
    ]
    assert [row.wrong for row in wrong] == [False, True, False]
    assert wrong[2].difference is None


def test_command_prints_and_writes_means_per_size(tmp_path, capsys, monkeypatch):
    def measure(setting, mode, budget_s):
        times = {"small": 1.0, "medium": 2.0, "large": 4.0}
        seconds = times[setting.size] * (2 if mode == "forward" else 1)
        rows = {"jaxpool": Row(Timing(1.0, 1.0, 1.0, 5)), "plain": Row(Timing(seconds, 0, 0, 5))}
        return CaseResult(f"{setting.name}, {mode}", rows)

    monkeypatch.setattr(plain, "measure", measure)
    path = tmp_path / "a.json"
    assert main(["--plain", "--json", str(path), "--filter", "^maxout.*groups=4"]) == 0
    columns = [f"{mode}, {size}" for mode in MODES for size in ("small", "medium", "large", "all")]
    (row,) = results.read(path)["rows"]
    assert [row[column] for column in columns] == [2, 4, 8, 4, 1, 2, 4, 2]
    assert "2.83 times as fast as plain" in capsys.readouterr().out


def test_file_keeps_other_functions_and_modes(tmp_path):
    path = tmp_path / "a.json"
    maxout = {"function": "maxout", "forward, all": 2.0, "forward_and_vjp, all": 3.0}
    fmax = {"function": "fmax", "forward, all": 1.0}
    for row in (maxout, fmax, {"function": "maxout", "forward, all": 4.0}):
        plain.save(path, {}, row)
    assert results.read(path)["rows"] == [fmax, maxout | {"forward, all": 4.0}]
