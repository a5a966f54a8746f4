"""The timer of the benchmark suite, its report, its files and its command."""

import dataclasses
import itertools
import math
import time
from pathlib import Path

import jax
import pytest
from jax import numpy as jnp
from jax.profiler import ProfileData

from bench import conditions, report, results
from bench.__main__ import main
from bench._jax_peer import calls_of
from bench.cases import select
from bench.device_time import busy_seconds, device_seconds
from bench.results import CaseResult, Row, Run
from bench.run import timed_rows
from bench.timing import Timing, take_turns, timed_calls

PUBLISHED = Path(report.__file__).parent / "results"


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


PROFILE = """
planes {
  name: "/device:GPU:0"
  lines { name: "Stream #1" timestamp_ns: 5000
    events { metadata_id: 1 offset_ps: 0 duration_ps: 2000000 }
    events { metadata_id: 1 offset_ps: 6000000 duration_ps: 1000000 } }
  lines { name: "Stream #2" timestamp_ns: 5000
    events { metadata_id: 1 offset_ps: 1000000 duration_ps: 2000000 } }
  event_metadata { key: 1 value { id: 1 name: "loop_fusion" } } }
planes {
  name: "/host:CPU"
  lines { timestamp_ns: 0 events { metadata_id: 1 duration_ps: 90000000 } }
  event_metadata { key: 1 value { id: 1 name: "launch" } } }
"""


def test_device_time_counts_simultaneous_kernels_once():
    profile = ProfileData.from_text_proto(PROFILE)
    assert busy_seconds(profile, "/device:GPU:0") == pytest.approx(4e-6)


def test_device_time_of_a_profile_of_this_machine():
    program = jax.jit(lambda x: x @ x).lower(jnp.ones((200, 200))).compile()
    busy_s = {}
    for plane in ("/host:CPU", "/device:GPU:0"):
        start = time.perf_counter()
        busy_s[plane] = device_seconds(lambda: calls_of(program, jnp.ones((200, 200)))(1), plane)
        assert busy_s[plane] <= time.perf_counter() - start
    assert busy_s["/host:CPU"] > 0
    assert busy_s["/device:GPU:0"] == 0


def test_rows_of_accelerators_have_device_time_per_call(monkeypatch):
    monkeypatch.setattr(
        "bench.run.device_seconds", lambda call, plane: {"/device:GPU:0": 5.0}[plane]
    )
    prepared = {"jaxpool": (timed_calls(lambda: None), Row())}
    assert timed_rows(prepared, 0.0, "gpu")["jaxpool"].device_s == 0.5  # of ten calls
    assert timed_rows(prepared, 0.0)["jaxpool"].device_s is None


def row(ms, **fields):
    return Row(Timing(ms / 1e3, ms / 1e3, ms / 1e3, 5), difference=0.0, **fields)


CONDITIONS = conditions.describe("cpu", 2, 1.0)
FIRST, SECOND = "max_pool(float32[2,8], (2,))", "max_pool(float32[2,8], (3,))"
STEP = "bench.train_steps:first_step('LeNet', float32[2,8,8,1])"
ABSENT = {"torch": Row(why_not="torch is away")}
RUN = Run(
    "forward_and_vjp",
    CONDITIONS,
    (
        CaseResult(FIRST, {"jaxpool": row(1), "lax": row(2), "copy": row(1)} | ABSENT),
        CaseResult(
            SECOND, {"jaxpool": row(9), "lax": row(72, wrong=True), "copy": row(3)} | ABSENT
        ),
        CaseResult(STEP, {"jaxpool": row(5), "lax": row(5), "accelerate": row(2.5)}),
    ),
)


def test_comparison_is_a_geometric_mean():
    ratios = report.speedups(report.groups(RUN)["max pools"], "lax")
    assert ratios == pytest.approx({FIRST: 2, SECOND: 8})
    assert report.mean(ratios) == pytest.approx(math.sqrt(2 * 8))
    assert report.summary(RUN.rows, "jaxpool", "lax").endswith(f"\n  0.50 {FIRST}\n  0.12 {SECOND}")


def test_report_has_ratios_wrong_results_and_reasons():
    text = report.markdown(RUN)
    assert f"| {SECOND} | 9.00 | 72.0 ! | 3.00 | - | 8.00 | - | 3.00 |" in text
    assert f"| {STEP} | 5.00 | 5.00 | - | 2.50 | 1.00 | 2.00 | - |" in text
    assert f"| {FIRST} | torch | torch is away |" in text
    assert text.endswith(f"Wrong by more than rounding:\n\n- {SECOND}: lax\n")
    without_step = report.markdown(dataclasses.replace(RUN, rows=RUN.rows[:2]))
    assert "lax / accelerate" not in without_step


def test_times_below_100_us_on_a_gpu_are_marked():
    first = CaseResult(FIRST, {"jaxpool": row(0.09), "lax": row(0.11)})
    run = dataclasses.replace(RUN, rows=(first,))
    assert "?" not in report.markdown(run)
    text = report.markdown(dataclasses.replace(run, conditions={**CONDITIONS, "device": "gpu"}))
    assert f"| {FIRST} | 0.090 ? | 0.110 | 1.22 |" in text
    assert "is unreliable" in text


def test_result_file_round_trip_and_report(tmp_path, capsys):
    path = tmp_path / "run.json"
    results.write(path, RUN.to_json())
    assert Run.from_json(results.read(path)) == RUN
    assert path.read_text(encoding="utf-8").count("\n  {") == 3
    assert main(["--load", str(path)]) == 0
    assert report.markdown(RUN) in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.json")), ids=lambda path: path.stem)
def test_published_results_load(path, capsys):
    fields = results.read(path)
    assert fields["conditions"]["date"]
    assert main(["--load", str(path)]) == 0
    assert capsys.readouterr().out.count("\n| ") > 2


def test_json_output_matches_printed_report(tmp_path, capsys):
    name = select(["small"])[0].name
    options = ["--peer", "lax", "--budget", "0", "--json", str(tmp_path / "a.json")]
    assert main(["--filter", name, "--filter", "small", "--mode", "forward", *options]) == 0
    run = Run.from_json(results.read(tmp_path / "a.json"))
    assert report.markdown(run) in capsys.readouterr().out
    assert (run.mode, run.conditions["versions"]["jax"]) == ("forward", jax.__version__)
