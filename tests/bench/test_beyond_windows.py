"""The benchmark suite beyond windowed pools: ops with positions, adaptive pools, whole axes, train steps."""

import importlib.util
import os
import re

import jax
import numpy as np
import pytest
from jax import numpy as jnp

pytest.importorskip("flax", reason="the nets of the benchmark suite are written in Flax")

import jaxpool
from bench import report, train_steps
from bench.__main__ import main
from bench._case import ARGMAX, CUMMAX, UNPOOL
from bench._jax_peer import jaxpool_op, outputs_of
from bench._peer import Work
from bench._tf_peer import PYTHON_VARIABLE
from bench.cases import MODES, adaptive, over, pool, select, unpool
from bench.nets import LAX_POOLS
from bench.peers import peers
from bench.results import OURS, RIVALS, CaseResult, Row, Run
from bench.run import run_case
from bench.timing import Timing

NEW_CASES = select(["small", "adaptive|argmax|whole axes"])
TRAIN_STEPS = select(["small", "train"])
# A train step takes seconds to compile: the quick run has only overlapping windows.
QUICK_TRAIN_STEPS = [
    pytest.param(case, marks=[pytest.mark.slow] * (case.net != "ResNetStem"))
    for case in TRAIN_STEPS
]
# Regular expression of the cases and modes that each peer does not support.
MATCHES_NOTHING = "(?!)"
UNSUPPORTED = {
    "jaxpool": MATCHES_NOTHING,
    "lax": r"\(5, 5\)|argmax|unpool",
    "torch": MATCHES_NOTHING,
    "torch-channels-last": "cummax",
    "tensorflow": "adaptive|unpool|cummax|argmax.*vjp",
}
# A forward run would compile half of the other program again, so only peers that do not compile have it.
PEER_MODES = [
    (n, m) for n in UNSUPPORTED for m in MODES if m != "forward" or n not in ("jaxpool", "lax")
]


def case_names(cases):
    return [case.name for case in cases]


def _installed(name):
    if name == "tensorflow":
        return PYTHON_VARIABLE in os.environ
    return not name.startswith("torch") or importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def installed_peers():
    """Every installed peer, by name."""
    made = peers(RIVALS, device="cpu", threads=2, tensorflow_python=None)
    yield {peer.name: peer for peer in made if _installed(peer.name)}
    for peer in made:
        peer.close()


def make_row(**fields):
    return Row(Timing(1.0, 1.0, 1.0, 1), **fields)


def test_every_new_op_and_net_has_small_case():
    assert {case.op for case in NEW_CASES} == {
        "adaptive_max_pool",
        "adaptive_avg_pool",
        ARGMAX,
        UNPOOL,
        CUMMAX,
        "max",
    }
    assert {case.net for case in TRAIN_STEPS} == set(train_steps.NETS)


@pytest.mark.parametrize(("name", "mode"), PEER_MODES)
@pytest.mark.parametrize("case", NEW_CASES, ids=case_names(NEW_CASES))
def test_peer_matches_oracle_or_reports_unsupported(installed_peers, name, case, mode):
    if name not in installed_peers:
        pytest.skip(f"{name} is not installed")
    row = run_case(case, mode, [installed_peers[name]], 0.0).rows[name]
    if re.search(UNSUPPORTED[name], f"{case.name}, {mode}"):
        assert row.timing is None
        assert row.why_not.startswith(
            ("lax has no", "TensorFlow has no", "elementwise and running", "no torch call is")
        )
    else:
        assert row.why_not is None
        assert not row.wrong


@pytest.mark.parametrize("case", NEW_CASES, ids=case_names(NEW_CASES))
def test_output_shape_matches_jaxpool(case):
    y, *positions = outputs_of(jax.eval_shape(jaxpool_op(case), *case.inputs()))
    assert y.shape == case.output_shape
    assert [p.shape for p in positions] == [case.output_shape] * (case.op == ARGMAX)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (
            adaptive("adaptive_max_pool", (8, 64, 64, 3), 5),
            "adaptive_max_pool(float32[8,64,64,3], (5, 5))",
        ),
        (unpool((2, 4, 3, 3), 2), "max_unpool(float32[2,4,3,3], int32[2,4,3,3], (8, 6))"),
        (
            over("max", (2, 5, 6, 3), (1, 2)),
            "max(float32[2,5,6,3], (1, 2), keepdims=True, ties='split')",
        ),
        (over("cummax", (2, 9, 3), (1,)), "cummax(float32[2,9,3], 1)"),
    ],
)
def test_case_names_contain_sizes_and_axes(case, name):
    assert case.name == name


@pytest.mark.parametrize(
    ("case", "forward", "both"),
    [
        # x and y; for both passes, twice that and an index per window of 4x4, 14x14 or 56x56 elements
        (adaptive("adaptive_avg_pool", (1, 16, 16, 1), 4), 4 * 272, 8 * 272),
        (adaptive("adaptive_max_pool", (1, 16, 16, 1), 4), 4 * 272, 8 * 272 + 2 * 16),
        (adaptive("adaptive_max_pool", (1, 64, 64, 1), 5), 4 * 4121, 8 * 4121 + 2 * 25),
        (adaptive("adaptive_max_pool", (1, 56, 56, 1), 1), 4 * 3137, 8 * 3137 + 2 * 2),
        # positions have 4 bytes each
        (pool(ARGMAX, (1, 4, 4, 1), 2, 2), 4 * (16 + 4 + 4), 8 * (16 + 4) + 2 * 4 + 4 * 4),
        (unpool((1, 2, 2, 1), 2), 4 * (4 + 4 + 16), 8 * (4 + 4 + 16)),
        (over("cummax", (1, 8, 1), (1,)), 4 * 16, 8 * 16),
        (over("max", (1, 4, 2, 1), (1, 2)), 4 * 9, 8 * 9),
    ],
)
def test_floor_bytes_count_each_array_once(case, forward, both):
    assert [case.floor_bytes(mode) for mode in MODES] == [forward, both]


def test_wrong_positions_are_marked():
    case = pool(ARGMAX, (1, 4, 4, 1), 2, 2)
    work = Work(case, "forward")
    (y, positions), _ = work.reference.expected()
    assert work.reference.difference((y, positions)) == 0
    assert work.reference.difference((y, positions + 1)) == 1 > work.reference.tolerance(False)


def test_unpool_positions_are_valid_pool_indices():
    case = unpool((2, 4, 3, 5), 2)
    x, positions = case.inputs()
    filled = jaxpool.max_unpool(jnp.abs(x), positions, case.output)
    _, indices = jaxpool.max_pool_with_argmax(filled, case.window, case.strides)
    assert np.array_equal(indices, positions)
    # Positions vary inside the windows.
    assert len(np.unique(positions)) > 24


def test_lax_pools_match_jaxpool():
    x = np.random.default_rng(0).integers(-2, 3, (2, 4, 6, 3)).astype(np.float32)  # with ties
    y, positions = LAX_POOLS.max_pool_with_argmax(x, (2, 2), (2, 2))
    for ours, theirs in zip(
        jaxpool.max_pool_with_argmax(x, (2, 2), (2, 2)), (y, positions), strict=True
    ):
        assert np.array_equal(ours, theirs)
    assert np.array_equal(
        LAX_POOLS.max_unpool(y, positions, (4, 6)), jaxpool.max_unpool(y, positions, (4, 6))
    )


@pytest.mark.parametrize("case", QUICK_TRAIN_STEPS, ids=case_names(TRAIN_STEPS))
def test_train_step_matches_across_peers(installed_peers, case):
    rivals = [installed_peers[name] for name in (OURS, "lax", "accelerate")]
    rows = run_case(case, "forward_and_vjp", rivals, 0.0).rows
    assert [row.why_not for row in rows.values()] == [None] * 3
    assert not any(row.wrong for row in rows.values())
    assert all(row.compile_s and row.peak_bytes for row in rows.values())


@pytest.mark.slow
def test_train_step_without_unpool_gradient_is_wrong(installed_peers, monkeypatch):
    def without_gradient(x, *arguments, unpool=jaxpool.max_unpool):
        return unpool(jax.lax.stop_gradient(x), *arguments)

    monkeypatch.setattr(jaxpool, "max_unpool", without_gradient)
    (case,) = (case for case in TRAIN_STEPS if case.net == "UNet")
    assert run_case(case, "forward_and_vjp", [installed_peers[OURS]], 0.0).rows[OURS].wrong


@pytest.mark.parametrize("net", ["LeNet", pytest.param("UNet", marks=pytest.mark.slow)])
def test_accelerated_train_step_has_no_select_and_scatter(net):
    (case,) = (case for case in TRAIN_STEPS if case.net == net)
    arguments = jax.eval_shape(lambda: train_steps._arguments(Work(case, "forward_and_vjp")))
    scatters = {
        name: "select_and_scatter"
        in jax.jit(train_steps.step_of(case, name)).lower(*arguments).as_text()
        for name in ("lax", "accelerate", "jaxpool")
    }
    assert scatters == {"lax": True, "accelerate": False, "jaxpool": False}


def test_unet_labels_are_per_pixel():
    (case,) = (case for case in TRAIN_STEPS if case.net == "UNet")
    work = Work(case, "forward_and_vjp")
    _, images, labels = jax.eval_shape(lambda: train_steps._arguments(work))
    assert labels.shape == images.shape[:3]


def test_accelerate_runs_only_train_steps(installed_peers):
    case = pool("max_pool", (1, 4, 1), 2, 2)
    row = run_case(case, "forward", [installed_peers["accelerate"]], 0.0).rows["accelerate"]
    assert row.why_not == "accelerate is timed on whole train steps"


def test_report_shows_accelerate_for_train_steps_only():
    def result(case, **rows):
        return CaseResult(case, 0, {"jaxpool": make_row(), "lax": make_row(), **rows})

    window = result(
        pool("max_pool", (1, 4, 1), 2, 2),
        accelerate=Row(why_not="whole train steps"),
        torch=Row(why_not="torch is away"),
    )
    step = result(
        TRAIN_STEPS[0],
        accelerate=Row(Timing(0.5, 0.5, 0.5, 1), compile_s=1.0),
        torch=Row(why_not="no whole steps"),
    )
    failed = result(TRAIN_STEPS[1], accelerate=Row(why_not="it failed"))
    machine = {"cpu": "", "cores": 2, "cache_bytes": None, "transparent_huge_pages": ""}
    conditions = {
        "date": "",
        "device": "cpu",
        "threads": 2,
        "memory": "default",
        "load": 0,
        "machine": machine,
        "versions": {},
    }
    text = report.markdown(Run("forward_and_vjp", conditions, (window, step, failed)))
    windows, _, steps = text.partition("### Train steps")
    assert "accelerate" not in windows
    assert "| lax / accelerate |" in steps
    assert "| 1000 | 1000 | 500 | 1.00 | 2.00 |" in steps
    assert "compile, s: accelerate" in steps
    assert text.endswith(
        "Not run:\n\n- torch: torch is away (max_pool(float32[1,4,1], (2,), (2,)))\n"
        f"- accelerate: it failed ({TRAIN_STEPS[1].name})\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "0"], "argument --threads: must be at least 1"),
    ],
)
def test_invalid_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err
