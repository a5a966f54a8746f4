"""The benchmark suite: its table, its oracle, its timer and its report."""

import functools
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxpool
from bench import every_op, plain, report, results
from bench.__main__ import main
from bench._case import TRAIN_STEP
from bench._jax_peer import AddOnePeer, JaxPeer, jaxpool_op, lax_op
from bench._peer import Unsupported, Work
from bench._tf_peer import PYTHON_VARIABLE, TensorFlowPeer
from bench.cases import CASES, Case, matches, pool, select
from bench.oracle import Reference
from bench.results import CaseResult, Row, Run
from bench.run import run_case
from bench.timing import Timing, take_turns, timed_calls
from jaxpool._cli._plan import trace_plans
from jaxpool.testing import pools

SMALL = select(["small"])
PUBLISHED = Path(report.__file__).parent / "results"
# Windowed pools that lax supports. Other ops are tested in test_beyond_windows.py.
WINDOWED_CASES = [case for case in SMALL if not set(case.tags) & {"adaptive", "argmax", "train"}]
POOL_CASES = [case for case in SMALL if case.op != TRAIN_STEP]


def case_names(cases):
    return [case.name for case in cases]


def test_case_names_are_unique():
    assert len(set(case_names(CASES))) == len(CASES)


def test_small_cases_are_excluded_by_default():
    assert SMALL
    assert not set(case_names(select())) & set(case_names(SMALL))


def test_filters_must_all_match_name_or_tags():
    chosen = select(["^max_pool", "(3, 3)", "table"])
    assert chosen
    assert all(case.op == "max_pool" and "table" in case.tags for case in chosen)


def test_case_name_is_valid_filter():
    for case in (SMALL[0], CASES[0]):
        assert case in select([case.name, *["small"] * ("small" in case.tags)])


@pytest.mark.parametrize("case", SMALL, ids=case_names(SMALL))
def test_case_name_is_the_call(case):
    called = trace_plans(case.name)
    if case.op == TRAIN_STEP:
        assert "backward" in called[0].runs
        return
    with jax.enable_x64(case.dtype == "float64"):
        run = jaxpool.plan_of(jaxpool_op(case))(*case.inputs())
    assert [row.inputs for row in called] == [row.inputs for row in run]
    assert [row.passes for row in called] == [row.passes for row in run]


@pytest.mark.parametrize("case", SMALL, ids=case_names(SMALL))
def test_case_survives_json(case):
    assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


@pytest.mark.parametrize("case", WINDOWED_CASES, ids=case_names(WINDOWED_CASES))
def test_output_shape_matches_lax(case):
    y = jax.eval_shape(lax_op(case), *case.inputs())
    assert y.shape == case.output_shape


@pytest.mark.parametrize(
    ("case", "mode", "expected"),
    [
        (pool("max_pool", (1, 4, 4, 1), 2, 2), "forward", 4 * (16 + 4)),
        (pool("max_pool", (1, 4, 4, 1), 2, 2), "forward_and_vjp", 2 * 4 * (16 + 4) + 2 * 4),
        (pool("avg_pool", (1, 4, 4, 1), 2, 2), "forward_and_vjp", 2 * 4 * (16 + 4)),
        (Case("maximum", (8,), arity=2), "forward_and_vjp", 2 * 4 * (3 * 8)),
    ],
)
def test_floor_bytes_count_each_array_once(case, mode, expected):
    assert case.floor_bytes(mode) == expected


@pytest.mark.parametrize("case", WINDOWED_CASES, ids=case_names(WINDOWED_CASES))
def test_oracle_agrees_with_lax(case):
    mode = case.modes[-1]
    if any(d > 1 for d in case.dilation):
        mode = "forward"  # lax has no reverse mode with window dilation
    result = run_case(case, mode, [JaxPeer("lax", lax_op, "cpu")], 0.0)
    row = result.rows["lax"]
    assert row.why_not is None
    assert not row.wrong


def test_every_public_function_is_compiled_for_a_target():
    names = {re.split("[ ,]", name)[0] for name in every_op.OPS}
    assert names == set(pools())


@pytest.mark.parametrize("case", POOL_CASES, ids=case_names(POOL_CASES))
def test_reference_matches_oracle_on_ties(case):
    rng = np.random.default_rng(0)
    # The reference, a chain of jnp.maximum, splits a tie of two evenly, but not of three.
    most = 3 if case.arity < 3 else 1000
    xs = [rng.integers(-2, most, case.shape) for _ in range(case.arity)]
    arguments, dy = [*xs, *case.inputs()[case.arity :]], rng.integers(-4, 5, case.output_shape)
    reference, pool = Reference(case, arguments, dy), pools()[case.op]
    for counts in (True, False):
        options = (
            {} if counts or not pool.takes("count_include_pad") else {"count_include_pad": False}
        )
        loops = case.bound(functools.partial(pool.meaning, **options))
        answer = loops(
            *(x[case.sample].astype(float) for x in xs),
            *(x[case.sample] for x in arguments[case.arity :]),
        )
        (y, *positions), dxs = reference.expected(counts)
        np.testing.assert_allclose(y, answer.y, rtol=1e-14)
        for indices in positions:
            np.testing.assert_array_equal(indices, answer.indices)
        for dx, want in zip(dxs, answer.cotangents(dy[case.sample]), strict=True):
            np.testing.assert_allclose(dx, want, rtol=1e-14, atol=1e-14)


def test_tensorflow_worker_needs_no_jax():
    stubs = "import sys; sys.modules |= {'jax': None, 'tensorflow': sys}"
    subprocess.run([sys.executable, "-c", f"{stubs}; import bench._tf_worker"], check=True)


@pytest.mark.parametrize("wrong", [0, 1])
def test_tensorflow_results_are_checked(monkeypatch, wrong):
    work = Work(pool("avg_pool", (1, 3, 1), 2, 2, "SAME"), "forward_and_vjp")
    outputs, dxs = work.reference.expected(count_include_pad=False)
    answer = {
        "compile_s": 1.0,
        "outputs": [(y + wrong).tolist() for y in outputs],
        "dxs": [dx.tolist() for dx in dxs],
        "count_include_pad": False,
    }
    peer = TensorFlowPeer("cpu", 2, None)
    monkeypatch.setattr(peer, "_ask", lambda do, **arguments: answer)
    assert peer.prepare(work).difference == wrong


def test_a_wrong_result_is_marked():
    def off_by_one(case):
        op = lax_op(case)
        return lambda x: op(x) + 1

    case = pool("max_pool", (1, 4, 1), 2, 2)
    row = run_case(case, "forward", [JaxPeer("off", off_by_one, "cpu")], 0.0).rows["off"]
    assert row.wrong
    assert row.difference == pytest.approx(1.0)


def test_failing_peer_reports_reason():
    class Failing:
        name = "failing"

        def prepare(self, work):
            raise ValueError("no such thing\nsecond line")

    case = pool("max_pool", (1, 4, 1), 2, 2)
    rows = run_case(case, "forward", [Failing(), AddOnePeer("cpu")], 0.0).rows
    assert rows["failing"].why_not == "ValueError: no such thing"
    assert rows["x+1"].timing is not None


def test_missing_tensorflow_is_skipped_with_reason(monkeypatch):
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    peer = TensorFlowPeer("cpu", 2, None)
    assert peer.version() is None
    with pytest.raises(Unsupported, match=PYTHON_VARIABLE):
        peer.prepare(Work(pool("max_pool", (1, 4, 1), 2, 2), "forward"))


def test_timing_alternates_between_peers():
    order = []
    first = timed_calls(lambda: order.append("first"))
    second = timed_calls(lambda: order.append("second"))
    timings = take_turns({"first": first, "second": second}, 0.0)
    assert timings["first"].samples > 0
    runs = [name for name, _ in itertools.groupby(order)]
    assert runs[:4] == ["first", "second", "first", "second"]


def test_a_call_longer_than_the_budget_is_timed_once():
    calls = []

    def slow(count):
        calls.append(count)
        return [10.0] * count

    assert take_turns({"slow": slow}, 0.0)["slow"] == Timing(10.0, 10.0, 10.0, 1)
    assert calls == [1, 1]


def make_conditions(memory):
    return {
        "date": "2020-01-01",
        "device": "cpu",
        "threads": 2,
        "memory": memory,
        "budget_s": 1.0,
        "load": 0.0,
        "machine": {
            "cpu": "a processor",
            "cores": 2,
            "cache_bytes": 1,
            "transparent_huge_pages": "madvise",
        },
        "versions": {"jax": "1"},
    }


def make_run(memory="default"):
    def row(ms, **fields):
        return Row(Timing(ms / 1e3, ms / 1e3, ms / 1e3, 5), difference=0.0, **fields)

    first, second = (pool("max_pool", (2, 8, 8, 1), window, 1) for window in (2, 3))
    return Run(
        "forward_and_vjp",
        make_conditions(memory),
        (
            CaseResult(first, 100, {"jaxpool": row(1.0), "lax": row(2.0), "copy": row(1.0)}),
            CaseResult(
                second,
                100,
                {"jaxpool": row(9.0), "lax": row(72.0, wrong=True), "copy": row(3.0)},
            ),
        ),
    )


def test_comparison_is_a_geometric_mean():
    comparison = report.compare(make_run().results, "lax")
    assert comparison is not None
    assert comparison.mean == pytest.approx(math.sqrt(2 * 8))
    assert comparison.worst == pytest.approx(2)
    assert comparison.slower == ()


def test_report_shows_floor_and_wrong_results():
    text = report.markdown(make_run())
    assert "| 72.0 ! |" in text
    assert "| ours / copy |" in text
    assert "| 8.00 | 3.00 |" in text
    assert "Wrong by more than rounding" in text


def test_result_file_round_trip_and_report(tmp_path, capsys):
    path, run = tmp_path / "run.json", make_run("kept")
    results.write(path, run.to_json())
    assert Run.from_json(results.read(path)) == run
    assert path.read_text().count("\n  {") == 2
    assert main(["--load", str(path)]) == 0
    assert report.markdown(run) in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.json")), ids=lambda path: path.stem)
def test_published_results_load(path, capsys):
    fields = results.read(path)
    assert fields["conditions"]["date"]
    assert main(["--load", str(path)]) == 0
    assert capsys.readouterr().out.count("\n| ") > 2


def test_json_output_matches_printed_report(tmp_path, capsys):
    options = ["--peer", "lax", "--budget", "0", "--json", str(tmp_path / "a.json")]
    modes = ["--mode", "forward", "--mode", "forward_and_vjp"]
    assert main(["--filter", SMALL[0].name, "--filter", "small", *options, *modes]) == 0
    printed = capsys.readouterr().out
    for mode in ("forward", "forward_and_vjp"):
        run = Run.from_json(results.read(tmp_path / f"a-{mode}.json"))
        assert report.markdown(run) in printed
        assert run.conditions["versions"]["jax"] == jax.__version__


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("^max", True),
        ("3.*2", True),
        ("max_pool(x, (3,", True),
        ("(3, 3", False),
        ("min|sum", False),
        ("[small]", True),
    ],
)
def test_filter_is_regex_or_literal_text(wanted, found):
    assert matches("max_pool(x, (3,2)) [small]", [wanted]) == found
    assert not matches("max_pool(x, (3,2)) [small]", [wanted, "min"])


def test_name_prefix_selects_cases():
    assert select(["max_pool(float32["])
    name = next(setting.name for setting in plain.chosen([]) if "(" in setting.name)
    assert plain.chosen([name[: name.index("(") + 1]])
