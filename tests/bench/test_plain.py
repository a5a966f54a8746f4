"""`python -m bench --plain`: each function compared with the equivalent jax code of a user."""

import dataclasses

import jax
import numpy as np
import pytest

from bench import plain, results
from bench.__main__ import main
from bench._case import MODES
from jaxpool.testing import pools

SMALL = plain.chosen([r"\[small\]"])


def test_setting_names_are_unique():
    names = [(setting.name, setting.size) for setting in plain.chosen([])]
    assert len(set(names)) == len(names)


def test_every_function_has_two_settings():
    settings = {name: set() for name in pools()}
    for setting in SMALL:
        settings[setting.function].add(setting.words)
    assert [name for name, words in settings.items() if len(words) < 2] == []


@pytest.mark.parametrize("setting", SMALL, ids=lambda setting: setting.name)
def test_equivalent_code_matches_shapes_and_dtypes(setting):
    xs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in setting.arrays()]
    ours, theirs = (jax.eval_shape(way, *xs) for way in (setting.ours, setting.plain))
    kinds = [[(a.shape, a.dtype) for a in jax.tree.leaves(way)] for way in (ours, theirs)]
    assert kinds[0] == kinds[1]


@pytest.mark.slow
@pytest.mark.parametrize("setting", SMALL, ids=lambda setting: setting.name)
def test_equivalent_code_matches_values_and_cotangents(setting):
    line = plain.measure(setting, "forward_and_vjp", 0.0)
    assert (line.difference is None) == bool(setting.differs)
    assert not line.wrong, line.difference


def test_different_result_is_marked_wrong_unless_arrays_are_large():
    (setting,) = plain.chosen([r"^max over -1, 1x16", r"small"])
    assert not plain.measure(setting, "forward_and_vjp", 0.0).wrong
    other = dataclasses.replace(setting, plain=lambda x: jax.numpy.max(x, -1) * 1.01)
    assert plain.measure(other, "forward", 0.0).wrong
    large = plain.measure(dataclasses.replace(other, size="large"), "forward", 0.0)
    assert (large.difference, large.wrong) == (None, False)


def test_command_replaces_functions_and_modes_that_it_timed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(plain, "SLOW", np.inf)  # keeps all rows
    path = tmp_path / "a.json"
    always = ["--plain", "--budget", "0", "--json", str(path), "--filter", "small"]
    assert main([*always, "--filter", "^(maxout 4 groups|fmax of two), 1x16"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("| maxout |") == printed.count("| fmax |") == 2
    first = results.read(path)
    both = [(name, mode) for name in ("fmax", "maxout") for mode in MODES]
    for part in ("means", "rows"):
        assert [(row["function"], row["mode"]) for row in first[part]] == both

    assert main([*always, "--mode", "forward", "--filter", "^maxout 4 groups bfloat16"]) == 0
    second = results.read(path)
    assert [row["name"] for row in second["rows"]] == [
        *(row["name"] for row in first["rows"][:2]),
        "maxout 4 groups bfloat16, 1x16x16x48 [small]",
        first["rows"][3]["name"],
    ]
    assert second["means"][3] == first["means"][3]
    assert "| fmax | forward_and_vjp |" in plain.load(second)


def test_means_per_size_and_overall():
    line = plain.Line("maxout", "a [small]", MODES[1], (1.0, 1.0), (0.1, 0.1), (0, 0), None, False)
    lines = [line, dataclasses.replace(line, name="a [large]", ms=(1.0, 4.0))]
    lines += [dataclasses.replace(line, name="a [large]", mode=MODES[0], ms=(1.0, 3.0))]
    forward, both = plain.means(lines)
    assert forward == {"function": "maxout", "mode": MODES[0], "large": 3.0, "all": 3.0}
    assert both == {"function": "maxout", "mode": MODES[1], "small": 1, "large": 4, "all": 2}
