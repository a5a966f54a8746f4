"""The cases of the benchmark suite: names, filters, bytes, the oracle, and every peer on small cases."""

import functools
import os
import re
import sys

import jax
import numpy as np
import pytest
from jax import numpy as jnp

pytest.importorskip("flax", reason="the nets of the benchmark suite are written in Flax")

import jaxpool
from bench import plain, train_steps
from bench._case import ARGMAX, MODES, TRAIN_STEP
from bench._jax_peer import AddOnePeer, JaxPeer, jaxpool_op, lax_op
from bench._tf_peer import PYTHON_VARIABLE, TensorFlowPeer
from bench._torch_peer import TorchPeer
from bench.cases import CASES, Case, adaptive, matches, over, pool, select, unpool
from bench.oracle import Reference
from bench.peers import peers
from bench.results import OURS, RIVALS
from bench.run import Work, run_case
from jaxpool._cli._plan import trace_plans
from jaxpool.testing import pools

SMALL = select(["small"])
POOL_CASES = [case for case in SMALL if case.op != TRAIN_STEP]
TRAIN_STEPS = [case for case in SMALL if case.op == TRAIN_STEP]
PEERS = {peer.name: peer for peer in peers(RIVALS, device="cpu", threads=2)}
# Regular expression of the cases and modes that each peer does not support.
UNSUPPORTED = {
    OURS: "no such case",
    "lax": r"adaptive|argmax|unpool|dilation.*vjp",
    "torch": r"^avg.*dilation",
    "torch-channels-last": r"^(maximum|minimum|cummax)|^avg.*dilation",
    "torch-compile": "",
    "tensorflow": r"adaptive|unpool|cummax|argmax.*vjp|sum_pool|dilation",
}


def case_names(cases):
    return [case.name for case in cases]


def test_case_names_are_unique():
    assert len(set(case_names(CASES))) == len(CASES)


def test_every_op_and_net_has_a_small_case():
    assert {case.op for case in SMALL} == {case.op for case in CASES}
    assert {case.net for case in TRAIN_STEPS} == set(train_steps.NETS)


def test_selection_by_name_and_tags():
    chosen = select(["^max_pool", "(3, 3)", "table"])
    assert chosen
    assert all(case.op == "max_pool" and "table" in case.tags for case in chosen)
    assert not set(select()) & set(SMALL)
    assert SMALL[0] in select([SMALL[0].name, "small"])
    assert CASES[0] in select([CASES[0].name])
    name = next(setting.name for setting in plain.chosen([]) if "(" in setting.name)
    assert plain.chosen([name[: name.index("(") + 1]])


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("^max.*3.*2", True), ("max_pool(x, (3,", True), ("(3, 3", False), ("min|sum", False)],
)
def test_filter_is_regex_or_literal_text(wanted, found):
    assert matches("max_pool(x, (3,2)) [small]", [wanted]) == found
    assert not matches("max_pool(x, (3,2)) [small]", [wanted, "min"])


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


@pytest.mark.parametrize(
    ("case", "forward", "both"),
    [
        (pool("avg_pool", (1, 4, 4, 1), 2, 2), 4 * 20, 8 * 20),
        (Case("maximum", (8,), arity=2), 4 * 24, 8 * 24),
        (adaptive("adaptive_avg_pool", (1, 16, 16, 1), 4), 4 * 272, 8 * 272),
        # positions have 4 bytes each
        (pool(ARGMAX, (1, 4, 4, 1), 2, 2), 4 * (16 + 4 + 4), 8 * (16 + 4) + 4 * 4),
        (unpool((1, 2, 2, 1), 2), 4 * (4 + 16 + 4), 8 * (4 + 16) + 4 * 4),
        (over("max", (1, 4, 2, 1), (1, 2)), 4 * 9, 8 * 9),
    ],
)
def test_floor_bytes_count_each_array_once(case, forward, both):
    assert [case.floor_bytes(mode) for mode in MODES] == [forward, both]


def test_unpool_positions_are_valid_pool_indices():
    case = unpool((2, 4, 3, 5), 2)
    x, positions = case.inputs()
    filled = jaxpool.max_unpool(jnp.abs(x), positions, case.output)
    _, indices = jaxpool.max_pool_with_argmax(filled, case.window, case.strides)
    assert np.array_equal(indices, positions)
    # Positions vary inside the windows.
    assert len(np.unique(positions)) > 24


# The oracle


@pytest.mark.parametrize("case", POOL_CASES, ids=case_names(POOL_CASES))
def test_reference_matches_oracle_on_ties(case):
    rng = np.random.default_rng(0)
    # The reference, a chain of jnp.maximum, splits a tie of two evenly, but not of three.
    most = 3 if case.arity < 3 else 1000
    xs = [rng.integers(-2, most, case.shape) for _ in range(case.arity)]
    arguments, dy = [*xs, *case.inputs()[case.arity :]], rng.integers(-4, 5, case.output_shape)
    reference, pool = Reference(case, arguments, dy), pools()[case.op]
    for counts in (True, False):
        options = {"count_include_pad": counts} if pool.takes("count_include_pad") else {}
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


def test_a_wrong_result_is_marked():
    def off_by_one(case):
        op = lax_op(case)
        return lambda x: op(x) + 1

    case = pool("max_pool", (1, 4, 1), 2, 2)
    row = run_case(case, "forward", [JaxPeer("off", off_by_one, "cpu")], 0.0).peers["off"]
    assert row.wrong
    assert row.difference == pytest.approx(1.0)


def test_wrong_positions_are_marked():
    work = Work(pool(ARGMAX, (1, 4, 4, 1), 2, 2), "forward")
    (y, positions), _ = work.reference.expected()
    assert work.reference.check((y, positions)) == {"difference": 0, "wrong": False}
    assert work.reference.check((y, positions + 1)) == {"difference": 1, "wrong": True}


# Peers


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("case", POOL_CASES, ids=case_names(POOL_CASES))
def test_peer_matches_oracle_or_reports_unsupported(name, case, monkeypatch):
    # The default of TensorFlow on a CPU without AVX-512
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    library = name.partition("-")[0]
    if library == "torch":
        pytest.importorskip(library)
    if library == "tensorflow" and PYTHON_VARIABLE not in os.environ:
        pytest.skip(f"{PYTHON_VARIABLE} is not set")
    # A forward run would compile half of the other program again, so only peers that do not compile have it.
    for mode in case.modes[-1:] if name in (OURS, "lax") else case.modes:
        row = run_case(case, mode, [PEERS[name]], 0.0).peers[name]
        if re.search(UNSUPPORTED[name], f"{case.name}, {mode}"):
            assert row.timing is None
            assert row.why_not
        else:
            assert row.why_not is None
            assert not row.wrong


def test_missing_library_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    rivals = [PEERS["torch"], TensorFlowPeer("cpu", 2, None)]
    rows = run_case(SMALL[0], "forward", rivals, 0.0).peers
    assert rows["torch"].why_not == "torch is not installed"
    assert PYTHON_VARIABLE in rows["tensorflow"].why_not


def test_compiled_torch_runs_the_compiled_op(monkeypatch):
    torch = pytest.importorskip("torch")
    compiled = []

    def compile_op(op, dynamic):
        compiled.append(op)
        return op

    monkeypatch.setattr(torch, "compile", compile_op)
    peer = TorchPeer("torch-compile", "cpu", 2, channels_last=False, compiles=True)
    monkeypatch.setattr(peer, "_torch", lambda: torch)
    row = run_case(SMALL[0], "forward_and_vjp", [peer], 0.0).peers["torch-compile"]
    assert len(compiled) == 1
    assert row.timing
    assert not row.wrong


def test_tensorflow_process_needs_no_jax(tmp_path, monkeypatch, capfd):
    (tmp_path / "jax.py").write_text("raise ImportError")
    (tmp_path / "tensorflow.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    peer = TensorFlowPeer("cpu", 2, sys.executable)
    why_not = run_case(SMALL[0], "forward", [peer], 0.0).peers["tensorflow"].why_not
    assert why_not == "RuntimeError: the TensorFlow process ended with 1"
    assert "AttributeError" in capfd.readouterr().err
    assert peer.version() is None


def test_failing_peer_reports_reason():
    class Failing:
        name = "failing"

        def prepare(self, work):
            raise ValueError("no such thing\nsecond line")

    case = pool("max_pool", (1, 4, 1), 2, 2)
    rows = run_case(case, "forward", [Failing(), AddOnePeer("cpu")], 0.0).peers
    assert rows["failing"].why_not == "ValueError: no such thing"
    assert rows["x+1"].timing is not None


# Train steps


@pytest.mark.parametrize(  # seconds to compile: the quick run has only overlapping windows
    "case",
    [
        pytest.param(case, marks=[pytest.mark.slow] * (case.net != "ResNetStem"))
        for case in TRAIN_STEPS
    ],
    ids=case_names(TRAIN_STEPS),
)
def test_train_step_matches_across_peers(case):
    rivals = [PEERS[name] for name in (OURS, "lax", "accelerate")]
    rows = run_case(case, "forward_and_vjp", rivals, 0.0).peers
    assert [row.why_not for row in rows.values()] == [None] * 3
    assert not any(row.wrong for row in rows.values())
    assert all(row.compile_s and row.peak_bytes for row in rows.values())


@pytest.mark.slow
def test_train_step_without_unpool_gradient_is_wrong(monkeypatch):
    def without_gradient(x, *arguments, unpool=jaxpool.max_unpool):
        return unpool(jax.lax.stop_gradient(x), *arguments)

    monkeypatch.setattr(jaxpool, "max_unpool", without_gradient)
    (case,) = (case for case in TRAIN_STEPS if case.net == "UNet")
    assert run_case(case, "forward_and_vjp", [PEERS[OURS]], 0.0).peers[OURS].wrong


@pytest.mark.parametrize("net", ["LeNet", pytest.param("UNet", marks=pytest.mark.slow)])
def test_accelerated_train_step_has_no_select_and_scatter(net):
    (case,) = (case for case in TRAIN_STEPS if case.net == net)
    for name in ("lax", "accelerate", "jaxpool"):
        lowered = jax.jit(train_steps.step_of(case, name)).lower(*train_steps.shapes(case))
        assert ("select_and_scatter" in lowered.as_text()) == (name == "lax")
