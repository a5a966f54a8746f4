"""`python -m bench --plain`: each function compared with the equivalent jax code of a user."""

import dataclasses

import jax
import pytest

from bench import plain
from bench.__main__ import main
from bench._case import MODES
from bench.plain_ways import beside_twin
from jaxpool.testing import pools
from tests.support.later import in_turn

SMALL = plain.chosen([r"\[small\]"])


def test_no_two_settings_have_the_same_name():
    names = [(setting.name, setting.size) for setting in plain.chosen([])]
    assert len(set(names)) == len(names)


def test_every_function_is_timed_in_two_settings_or_more():
    settings = {name: set() for name in pools()}
    for setting in SMALL:
        settings[setting.function].add(setting.words)
    assert [name for name, words in settings.items() if len(words) < 2] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", pools())
def test_a_function_without_lines_of_its_own_is_timed_beside_its_twin(name):
    for setting in beside_twin(pools()[name], "small"):
        xs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in setting.arrays()]
        ours, theirs = (jax.eval_shape(way, *xs) for way in (setting.ours, setting.plain))
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)


@pytest.mark.parametrize("setting", in_turn(SMALL, 4), ids=lambda setting: setting.name)
def test_the_plain_way_gives_the_same_shapes_and_dtypes(setting):
    xs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in setting.arrays()]
    ours, theirs = (jax.eval_shape(way, *xs) for way in (setting.ours, setting.plain))
    kinds = [[(a.shape, a.dtype) for a in jax.tree.leaves(way)] for way in (ours, theirs)]
    assert kinds[0] == kinds[1]


@pytest.mark.slow
@pytest.mark.parametrize("setting", SMALL, ids=lambda setting: setting.name)
def test_the_plain_way_gives_the_same_values_and_cotangents(setting):
    line = plain.measure(setting, "forward_and_vjp", 0.0)
    assert (line.difference is None) == bool(setting.differs)
    assert not line.wrong, line.difference


def test_another_result_than_the_plain_one_is_noticed():
    (setting,) = plain.chosen([r"^max of|^max over -1, 1x16", r"small"])
    assert not plain.measure(setting, "forward_and_vjp", 0.0).wrong
    other = dataclasses.replace(setting, plain=lambda x: jax.numpy.max(x, -1) * 1.01)
    assert plain.measure(other, "forward", 0.0).wrong


def test_results_on_large_arrays_are_not_compared():
    (setting,) = plain.chosen([r"^max over -1, 1x16", r"small"])
    other = dataclasses.replace(setting, plain=lambda x: jax.numpy.max(x, -1) * 1.01, size="large")
    line = plain.measure(other, "forward", 0.0)
    assert (line.difference, line.wrong) == (None, False)


def test_the_command_prints_a_line_a_mode_and_writes_both_files(tmp_path, capsys):
    files = ["--json", str(tmp_path / "a.json"), "--markdown", str(tmp_path / "a.md")]
    chosen = ["--filter", "^maxout 4 groups, 1x16", "--budget", "0"]
    assert main(["--plain", *chosen, *files]) == 0
    printed = capsys.readouterr().out
    rows = printed.partition("geometric means")[0].splitlines()[1:]
    assert [row.split(", ")[-1] for row in rows] == ["forward", "forward_and_vjp"]
    assert "other results than the plain way: 0" in printed
    assert (tmp_path / "a.md").read_text().count("| maxout") == 2
    results = plain.load(tmp_path / "a.json")
    assert [line.mode for line in results] == ["forward", "forward_and_vjp"]

    other = ["--filter", "^maxout 4 groups bfloat16, 1x16", "--budget", "0", "--mode", "forward"]
    assert main(["--plain", *other, *files]) == 0
    assert [line.name for line in plain.load(tmp_path / "a.json")] == [
        "maxout 4 groups, 1x16x16x48 [small]",
        "maxout 4 groups, 1x16x16x48 [small]",
        "maxout 4 groups bfloat16, 1x16x16x48 [small]",
    ]
    again = ["--filter", "^maxout 4 groups, 1x16", "--budget", "0", "--mode", "forward"]
    assert main(["--plain", *again, *files]) == 0
    lines = plain.load(tmp_path / "a.json")
    assert len(lines) == 3
    assert lines[0] != results[0]
    assert lines[1] == results[1]


def test_means_stand_between_the_marks_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{plain.BEGIN}\nold\n{plain.END}\n\nafter\n")
    line = plain.Line("maxout", "a", "forward", (1.0, 4.0), (0.1, 0.1), (0.0, 0.0), None, False)
    plain.put_means(page, [line, dataclasses.replace(line, ms=(1.0, 1.0), mode=MODES[1])])
    text = page.read_text()
    assert text.startswith(f"before\n\n{plain.BEGIN}\n| function")
    assert "| `maxout` | 1.00 | 4.00 |" in text
    assert text.endswith(f"{plain.END}\n\nafter\n")
    assert "old" not in text


def test_means_by_size_and_of_all_sizes():
    line = plain.Line("maxout", "a [small]", MODES[1], (1.0, 1.0), (0.1, 0.1), (0, 0), None, False)
    lines = [line, dataclasses.replace(line, name="a [large]", ms=(1.0, 4.0))]
    lines += [dataclasses.replace(line, name="a [large]", mode=MODES[0], ms=(1.0, 3.0))]
    head, _, row = plain.table_by_size(lines).splitlines()
    gradient = "with gradient, small | with gradient, large | with gradient, all"
    assert head == f"| function | {gradient} | forward, large | forward, all |"
    assert row == "| `maxout` | 1.00 | 4.00 | 2.00 | 3.00 | 3.00 |"
