"""Thresholds, the code on both sides of them, and two libraries in one process."""

import dataclasses
import math
import sys
import types

import jax
import numpy as np
import pytest

from bench import against, tune
from bench._jax_peer import jaxpool_op
from bench.cases import CASES, pool, select
from bench.forms import Thresholds, arrays, forms
from bench.oracle import Reference
from jaxpool._plan.tuning import TUNING, Limits, Tuning
from tests.support.later import in_turn

NOTES = (against.ROOT / "bench" / "NOTES.md").read_text()
FIELDS = tune.fields()
HELD_BY_KERNELS = {"fold_taps", "adaptive_places"}  # read while a kernel is traced
# Thresholds that decide a case of the table on CPU. The rest concern other platforms, or ops without a form.
READ_ON_CPU = """
masked_taps whole_taps adaptive_window pass_taps overlapping_taps overlapping_taps_an_element pieces
longest_pass sum_taps sum_taps_an_element spread_taps_an_element short_window
short_spread_of_16_bits longest_sum sum_passes conditional in_place widened_apart region_bytes
sum_region_bytes least_inside tested_end tested_taps tested_terms vector longest_table table_row
table_taps table_taps_an_element table_phases route_row route_windows route_windows_without_strides
route_windows_of_axis separate_taps loses_nan
"""
SMALL = [
    pool("max_pool", (2, 9, 8, 16), 3, 1, "SAME"),
    pool("max_pool", (2, 12, 12, 4), (2, 5), 1, "SAME"),
    pool("avg_pool", (2, 9, 8, 12), 3, 1, "SAME"),
    pool("avg_pool", (2, 9, 8, 11), 3, 1, "SAME"),
]


def test_every_threshold_is_described_and_has_a_heading_in_the_notes():
    names = [field.name for kind in (Limits, Tuning) for field in dataclasses.fields(kind)]
    assert list(FIELDS) == names
    headings = {line.removeprefix("## ") for line in NOTES.splitlines() if line[:3] == "## "}
    for field in FIELDS.values():
        switch = isinstance(Thresholds.of("cpu").get(field.name), bool)
        assert field.reason
        assert bool(field.unit) != switch
        assert field.heading in headings


def test_a_moved_threshold_is_nobody_elses():
    before = dict(TUNING)
    moved = Thresholds.of("cpu").moved("table_row", 40)
    assert moved.get("table_row") == 40
    assert moved.moved("fold_taps", 2).get("fold_taps") == 2
    assert Thresholds.of("cpu").get("table_row") == TUNING["cpu"].table_row == 12
    assert before == TUNING


@pytest.mark.parametrize(
    ("field", "sides"),
    [("table_row", [11, 13]), ("overlapping_taps", [8, 10]), ("in_place", [False])],
)
def test_cases_on_both_sides_of_a_threshold(field, sides):
    trials = tune.trials(field, "cpu", SMALL)
    assert list(dict.fromkeys(trial.value for trial in trials)) == sides
    for trial in trials:
        assert trial.chosen.plan != trial.other.plan


@pytest.mark.slow
@pytest.mark.parametrize("field", [name for name in FIELDS if name not in HELD_BY_KERNELS])
def test_the_table_has_cases_on_both_sides_of_every_threshold(field):
    value = Thresholds.of("cpu").get(field)
    trials = tune.trials(field, "cpu", [*select(), *tune.EDGES])
    assert trials or field not in READ_ON_CPU.split()
    if trials:
        sides = {trial.value > value for trial in trials}
        has_one_side = isinstance(value, bool) or value == math.inf
        assert sides == ({False} if has_one_side else {False, True})


@pytest.mark.parametrize("field", ["table_row", "overlapping_taps"])
def test_both_forms_give_the_same(field):
    for trial in tune.trials(field, "cpu", SMALL):
        xs = arrays(trial.case, trial.chosen.reads)
        chosen, other = (jax.jit(form.run)(*xs) for form in (trial.chosen, trial.other))
        for got, want in zip(jax.tree.leaves(other), jax.tree.leaves(chosen), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def sends_its_value(form):
    """True if the backward pass of a form takes its own forward result as the cotangent."""
    return form.reads == ("x",)


def check_form(case, way, form):
    """Compare a form with the reference: the value, the cotangent, or both."""
    results = jax.jit(form.run)(*arrays(case, form.reads))
    y, dx = results if way.startswith("both ways") else (results, None)
    if way == "backward":
        y, dx = None, results
    elif isinstance(y, tuple):
        y, _ = y  # a wrong index shows in the cotangent of the backward pass
    dy = None
    if isinstance(dx, tuple):
        (dx,) = dx
    if dx is not None:
        dy = np.asarray(y) if sends_its_value(form) else case.cotangent()
    reference = Reference(case, case.inputs(), dy)
    ((want, *_), wanted_dxs), allowed = reference.expected(), reference.tolerance(dx is not None)
    if y is not None:
        y = np.reshape(y, case.output_shape)[case.sample]
        np.testing.assert_allclose(np.asarray(y, float), want, 0, allowed, err_msg=way)
    if dx is not None:
        dx = np.asarray(dx[case.sample], float)
        np.testing.assert_allclose(dx, *wanted_dxs, 0, allowed, err_msg=way)


FORMS = [case for case in select(["small"]) if forms(case, Thresholds.of("cpu"))]


@pytest.mark.parametrize("case", in_turn(FORMS, 4), ids=lambda case: case.name)
def test_the_forms_of_a_case_give_what_the_reference_says(case):
    with jax.enable_x64(case.dtype == "float64"):
        for way, form in forms(case, Thresholds.of("cpu")).items():
            check_form(case, way, form)


def test_a_report_says_what_was_chosen_and_whether_it_holds():
    lines = []
    tune.tune(FIELDS["table_row"], "cpu", SMALL[-1:], 0.0, lines.append)
    said = "\n".join(lines)
    assert said.startswith("table_row = 12 on cpu, in contiguous elements\n")
    assert '(bench/NOTES.md, "Tables")' in said
    assert "chosen: axes (1, 2): 9 terms, in place, 9 regions" in said
    assert "if 11:  axes (1, 2): 9 terms, through tables" in said
    assert " hold" in lines[-1]


def test_a_threshold_that_no_case_is_near():
    lines = []
    tune.tune(FIELDS["scan_block"], "cpu", SMALL, 0.0, lines.append)
    assert "No case changes with it" in lines[-1]


def test_the_list_shows_the_values_of_every_platform():
    assert "table_row = 12 | never, contiguous elements" in tune.listed()
    assert tune.listed().count("\n") == len(FIELDS)


def test_two_libraries_are_timed_in_turn(capsys):
    """Both libraries are copies of this version, and `sys.modules` has the original again afterwards."""
    ours = sys.modules["jaxpool"]
    libraries = {name: against.library_at(against.ROOT) for name in ("old", "new")}
    assert sys.modules["jaxpool"] is ours
    assert len({id(library["jaxpool"]) for library in libraries.values()} | {id(ours)}) == 3
    against._compare(libraries, SMALL[:1], "forward", "cpu", 0.0)
    said = capsys.readouterr().out
    assert SMALL[0].name in said
    assert "WRONG" not in said
    assert "geometric mean" in said


def test_a_revision_that_is_not_there(capsys):
    assert against.compare("no-such-revision", CASES[:1], ["forward"], "cpu", 0.0) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("op", ["max", "max_pool"])
def test_each_version_is_asked_for_its_own_function(op):
    case = next(case for case in CASES if case.op == op)
    other = types.ModuleType("jaxpool")
    setattr(other, op, lambda *args, **options: "theirs")
    with against._in_place({"jaxpool": other}):
        assert jaxpool_op(case)(np.zeros(1)) == "theirs"
