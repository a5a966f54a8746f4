"""`python -m jaxpool run`: the pools that jaxpool computes, the summary, and the comparisons of --check."""

import importlib
import json
import os
import pkgutil
import platform
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpool
from jaxpool._accelerate.bind import replacing_reductions
from jaxpool._accelerate.report import LaxReduction
from jaxpool._cli import _checked_replacer, run
from jaxpool._cli._on_import import call_after_import
from tests.cli.processes import JAXPOOL_RUN, run_python, write_script
from tests.support.later import later

TRAIN_STEPS = Path(__file__).parent / "scripts" / "train_steps.py"
LAST_BIT = "  sums and averages may differ from lax's in the last bit"


def test_script_without_jax_prints_note(tmp_path):
    assert run_python([*JAXPOOL_RUN, write_script(tmp_path, "print(1)")], tmp_path) == (
        0,
        "1\n",
        "jaxpool run: no pool of train.py was replaced: jax was not imported.\n",
    )


def test_success_raises_no_exception(tmp_path):
    """With PYTHONINSPECT, Python prints the traceback of a SystemExit, also of status 0."""
    words = [*JAXPOOL_RUN, "--quiet", write_script(tmp_path, "print(1)")]
    status, printed, said = run_python(words, tmp_path, stdin="", PYTHONINSPECT="1")
    assert (status, printed.splitlines()[0]) == (0, "1")
    assert "Traceback" not in said


def test_call_after_import(tmp_path, monkeypatch):
    write_script(tmp_path, "whole = True", "imported_late.py")
    monkeypatch.syspath_prepend(tmp_path)
    before, whole = list(sys.meta_path), []
    call_after_import("imported_late", lambda: whole.append(sys.modules["imported_late"].whole))
    assert importlib.util.find_spec("imported_late").loader.get_code("imported_late")
    assert whole == []
    module = importlib.import_module("imported_late")
    assert whole == [True]
    assert module.__loader__ is module.__spec__.loader
    assert "exec_module" not in vars(module.__loader__)
    call_after_import("imported_late", lambda: whole.append("at once"))
    assert whole == [True, "at once"]
    assert sys.meta_path == before


FIRST_IMPORTS = ["import jaxpool.testing", "from jaxpool import max_pool"]
for module in pkgutil.walk_packages(jaxpool.compat.__path__, "jaxpool.compat."):
    if "._" not in module.name:
        FIRST_IMPORTS.append(f"import {module.name}")


@pytest.mark.slow  # starts jax
@pytest.mark.parametrize("entry", FIRST_IMPORTS)
def test_script_importing_jaxpool_first_is_accelerated(entry, tmp_path):
    script = write_script(
        tmp_path,
        f"""
        {entry}
        import jax.numpy as jnp
        from jax import lax
        lax.reduce_window(jnp.zeros(9), -jnp.inf, lax.max, (3,), (2,), "VALID")
        """,
    )
    status, _, said = run_python([*JAXPOOL_RUN, script], tmp_path)
    assert status == 0
    assert "jaxpool run: computed 1 of 1 pools of train.py\n" in said


def make_report(*rows, compare_with_lax):
    report = run._ReductionsReport("train.py", compare_with_lax)
    report._reductions, report._why_nothing_replaced = list(rows), None
    report.kept_memory = True  # no hint, which depends on the page faults of the process
    report._replacer = _checked_replacer.CheckedReplacer(report._reductions.append)
    return report


def lines_of(report, capsys, quiet=False):
    report.write_report(os.getpid(), None, quiet)
    return capsys.readouterr().err.splitlines()


def test_differences_come_first_in_summary(capsys):
    """Thirty reductions; the last one differs from lax."""
    rows = [LaxReduction("max", "int8", (9,), (3,), (1,), (), f"{at}", None) for at in range(30)]
    met = make_report(*rows, compare_with_lax=True)
    comparison = _checked_replacer.Comparison
    met._replacer._comparisons = dict.fromkeys(rows, comparison("equal"))
    met._replacer._comparisons[rows[-1]] = comparison("no", differs=True)
    head, first, *others, last = lines_of(met, capsys)
    assert head.startswith("jaxpool run: computed 30 of 30 pools")
    assert first.startswith("  29: max")
    assert first.endswith("; --check: no")
    assert [row.split(":")[0] for row in others] == [f"  {at}" for at in range(19)]
    assert last == "  and 10 more, which --report FILE lists"
    assert lines_of(met, capsys, quiet=True) == [
        "jaxpool run: 1 of 30 pools of train.py differ from lax",
        first,
    ]
    for ending in (None, SystemExit(0)):
        with pytest.raises(SystemExit, match="1"):
            met.check_after_script(ending)
    met.check_after_script(SystemExit(3))  # keeps its own status
    met._replacer._comparisons.pop(rows[-1])
    assert lines_of(met, capsys, quiet=True) == []
    met.check_after_script(None)


@pytest.mark.parametrize(
    ("kind", "reason", "told"), [("sum", None, 1), ("sum", "why", 0), ("max", None, 0)]
)
def test_last_bit_note_appears_once(kind, reason, told, capsys):
    row = LaxReduction(kind, "float32", (9,), (3,), (1,), (), "here", reason)
    lines = lines_of(make_report(row, row, compare_with_lax=False), capsys)
    assert lines.count(LAST_BIT) == told
    assert len(lines) == 3 + told


# Bytes of page faults, of the peak, and seconds of CPU time in the program and in the system
@pytest.mark.parametrize(
    ("fault_bytes", "peak_bytes", "user_time", "system_time", "suggests"),
    [(7e9, 1e9, 3.0, 1.0, True), (2e9, 1e9, 3.0, 1.0, False), (7e9, 1e9, 99.0, 1.0, False)],
)
def test_keep_memory_is_suggested_for_page_faults(
    fault_bytes, peak_bytes, user_time, system_time, suggests, capsys, monkeypatch
):
    resource = pytest.importorskip("resource")
    usage = types.SimpleNamespace(
        ru_minflt=fault_bytes / resource.getpagesize(),
        ru_maxrss=peak_bytes / 1024,
        ru_utime=user_time,
        ru_stime=system_time,
    )
    monkeypatch.setattr(resource, "getrusage", lambda who: usage)
    monkeypatch.setattr(run, "load_glibc_if_in_use", object)
    row = LaxReduction("max", "float32", (9,), (3,), (1,), (), "here", None)
    report = make_report(row, compare_with_lax=False)
    report.kept_memory = None
    *_, last = lines_of(report, capsys)
    said = (
        "  page faults: 7.0 GB, with 1.0 GB of memory at the peak, and 25% of CPU time in the system: "
        "--keep-memory avoids those of new arrays (docs/memory.md)"
    )
    assert (last == said) == suggests
    monkeypatch.setattr(run, "load_glibc_if_in_use", lambda: None)  # macOS, or another allocator
    assert said not in lines_of(report, capsys)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="glibc's allocator alone has the setting"
)
@pytest.mark.parametrize("options", [["--keep-memory"], later([])])
def test_keep_memory_is_called_before_the_script(options, tmp_path):
    """A later call, after jax has started threads, repeats the result of the first or changes nothing."""
    script = write_script(
        tmp_path,
        """
        import warnings
        import jax, jax.numpy as jnp, jaxpool
        (jnp.ones(1 << 20) + 1).block_until_ready()
        warnings.simplefilter("ignore")
        print(jaxpool.keep_memory())
        """,
    )
    _, printed, _ = run_python([*JAXPOOL_RUN, *options, script], tmp_path, JAX_PLATFORMS="cpu")
    assert printed == f"{bool(options)}\n"


@pytest.mark.slow  # starts jax twice, and depends on what other programs take of the CPU
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="glibc's allocator alone has the setting"
)
def test_keep_memory_option(tmp_path):
    script = write_script(
        tmp_path,
        """
        import jax, jax.numpy as jnp
        from jax import lax
        pool = jax.jit(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), "SAME"))
        for _ in range(40):
            pool(jnp.ones(1 << 24)).block_until_ready()
        """,
    )
    suggestion = "--keep-memory avoids those of new arrays (docs/memory.md)\n"
    for options, suggests in (([], True), (["--keep-memory"], False)):
        status, _, said = run_python(
            [*JAXPOOL_RUN, *options, script], tmp_path, JAX_PLATFORMS="cpu"
        )
        assert (status, said.endswith(suggestion)) == (0, suggests)
        assert "computed 1 of 1 pools of train.py\n" in said


@pytest.mark.parametrize(
    ("why_nothing_replaced", "head"),
    [
        (
            None,
            "train.py traced no windowed max, min or sum; "
            "pools by reshape, adaptive and global pools are not replaced.",
        ),
        ("JAXPOOL_DISABLE is set", "no pool of train.py was replaced: JAXPOOL_DISABLE is set."),
    ],
)
def test_memory_line_without_reductions(why_nothing_replaced, head, capsys, monkeypatch):
    report = make_report(compare_with_lax=False)
    report._why_nothing_replaced, report.kept_memory = why_nothing_replaced, False
    effect = "  --keep-memory: keep_memory() returned False, and changed nothing"
    assert lines_of(report, capsys) == [f"jaxpool run: {head}", effect]
    monkeypatch.setattr(run, "_memory_lines", lambda kept_memory: ["the hint"])
    assert lines_of(report, capsys) == [f"jaxpool run: {head}", "the hint"]
    assert lines_of(report, capsys, quiet=True) == []


POOLS_SCRIPT = """
import os, threading
os.environ["JAX_ENABLE_X64"] = "1"  # jax reads it when it is imported
import jax
import jax.numpy as jnp
from jax.lax import reduce_window, max, add
import jax.lax as lax

assert jnp.zeros(1).dtype == "float64"
x = jnp.arange(24.0).reshape(1, 4, 6, 1) % 7

def pool(x):
    return reduce_window(x, -jnp.inf, max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID").sum()

def in_a_thread():
    print(jax.jit(lambda x: reduce_window(x, 0.0, add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"))(x).sum())

thread = threading.Thread(target=in_a_thread)
thread.start()
thread.join()
print(jax.jit(jax.grad(pool))(x).sum())
print(reduce_window(x, 1.0, lax.mul, (1, 2, 2, 1), (1, 1, 1, 1), "VALID").sum())
"""


def test_reductions_of_whole_process_are_replaced(tmp_path):
    script = write_script(tmp_path, POOLS_SCRIPT)
    words = [*JAXPOOL_RUN, "--check", "--report", "met.json", script]
    status, printed, said = run_python(words, tmp_path)
    assert (status, printed) == (0, "419.0\n15.0\n1020.0\n")
    *lines, note = said.splitlines()
    assert note == LAST_BIT
    assert lines[0] == "jaxpool run: computed 2 of 3 pools of train.py"
    assert "(in_a_thread.<locals>.<lambda>): sum of float64[1, 4, 6, 1]" in lines[1]
    assert "(pool): max of float64[1, 4, 6, 1]" in lines[2]
    assert all(line.endswith("by jaxpool; --check: equal") for line in lines[1:3])
    assert "left to lax (the reduction is no max, min or sum of two numbers)" in lines[3]
    report = json.loads((tmp_path / "met.json").read_text(encoding="utf-8"))
    assert (report["script"], report["why_nothing"]) == (script, None)
    assert [row["taken_over"] for row in report["reductions"]] == [True, True, False]
    assert [row.get("check") for row in report["reductions"]] == ["equal", "equal", None]


@pytest.mark.slow  # starts jax
def test_disable_variable_leaves_program_unchanged(tmp_path):
    script = write_script(
        tmp_path, f"{POOLS_SCRIPT}\nimport jaxpool\nprint(jaxpool.accelerate(pool) is pool)"
    )
    status, printed, said = run_python([*JAXPOOL_RUN, script], tmp_path, JAXPOOL_DISABLE="1")
    assert said == "jaxpool run: no pool of train.py was replaced: JAXPOOL_DISABLE is set.\n"
    assert (status, printed.splitlines()[-1]) == (0, "True")


@pytest.mark.slow  # starts jax twice
@pytest.mark.parametrize("name", ["flax", "equinox", "keras"])
def test_training_losses_are_unchanged(name, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # without it Keras needs TensorFlow
    pytest.importorskip(name)
    words = [str(TRAIN_STEPS), name, "4", "24"]
    plain = run_python(words, tmp_path)
    status, printed, said = run_python([*JAXPOOL_RUN, "--check", *words], tmp_path)
    assert (plain[0], status) == (0, 0)
    losses = [np.asarray(text.split(), float) for text in (plain[1], printed)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
    summary = said[said.index("jaxpool run") :].splitlines()
    summary = [line for line in summary if line != LAST_BIT]
    taken, met = summary[0].split()[3:6:2]
    assert int(taken) == int(met) == len(summary) - 1 >= 2
    assert all(line.endswith("--check: equal") for line in summary[1:])


# Comparisons of --check


def run_checked(pool, x, evaluate=lambda pool, x: jax.jit(pool)(x).block_until_ready()):
    """Run a pool under --check. Return whether anything differs from lax, and the comparisons in words."""
    calls = []
    checked = _checked_replacer.CheckedReplacer(calls.append)
    jaxpool.accelerate(pool)  # installs the dispatcher
    with replacing_reductions(checked):
        evaluate(pool, x)
    checked.compare_copied_calls()
    return checked.any_differs, [checked.get_comparison(each).sentence for each in calls]


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (3,), (2,), "VALID")


def row_max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 2), "VALID")


def sum_pool(x):
    zero = np.zeros((), x.dtype)
    return lax.reduce_window(x, zero, lax.add, (16, 16), (1, 1), "SAME")


def sum_from_one(x):
    return lax.reduce_window(x, np.ones((), x.dtype), lax.add, (3, 3), (1, 1), "VALID")


def noise(dtype):
    return jnp.asarray(np.random.default_rng(0).normal(size=(16, 24)), dtype)


RANGE, ALL_INFINITE = np.arange(9.0), np.full(9, -np.inf)
ONE_NAN = np.where(RANGE == 0, np.nan, 0.0)
ONE_INFINITE = np.where(np.arange(16) == 0, np.inf, 0.0).reshape(4, 4)


@pytest.mark.parametrize(
    ("pool", "x", "change", "comparison"),
    [
        (max_pool, RANGE % 4, None, "equal"),
        (sum_pool, noise("bfloat16"), None, "equal"),
        (sum_from_one, noise("float32"), None, "equal"),
        (sum_from_one, noise("bfloat16"), None, "equal"),
        (sum_from_one, ONE_INFINITE, None, "equal"),
        (
            max_pool,
            ONE_NAN,
            None,
            "equal; cotangents were compared of 3 of 4 windows, for NaN or infinity in the others",
        ),
        (
            max_pool,
            ALL_INFINITE,
            None,
            "equal in value; the cotangent was not compared, for NaN or infinity",
        ),
        (
            max_pool,
            RANGE,
            lambda y: y + jnp.array([0, 0, 0, 1.0]),
            "value differs at 1 of 4 elements, by 1",
        ),
        (sum_pool, noise("bfloat16"), lambda y: 0 * y, "value differs at 384 of 384 elements, by "),
        (
            sum_pool,
            noise("bfloat16"),
            lambda y: y / 2 + lax.stop_gradient(y / 2),
            "cotangent differs at 384 of 384 elements, by ",
        ),
        (sum_from_one, ONE_INFINITE, jnp.nan_to_num, "value differs at 1 of 4 elements, by "),
        (max_pool, ONE_NAN, lax.stop_gradient, "cotangent differs at 3 of 9 elements, by "),
    ],
)
def test_check(pool, x, change, comparison, monkeypatch):
    """`change` makes the replacement of the reduction wrong."""
    replacer = _checked_replacer.ReductionReplacer
    if change is not None:
        right = replacer.replace_reduction
        monkeypatch.setattr(replacer, "replace_reduction", lambda *args: change(right(*args)))
    differs, (said,) = run_checked(pool, jnp.asarray(x))
    assert said.startswith(comparison)
    assert differs == (change is not None)
    assert said == comparison or differs


def test_check_skips_calls_without_values(monkeypatch):
    """Calls that are traced only, that have symbolic shapes, and arrays of several processes."""
    said = run_checked(max_pool, jnp.arange(9.0), jax.eval_shape)
    assert said == (False, ["not compared, for it was traced and did not run"])

    x = jax.ShapeDtypeStruct((*jax.export.symbolic_shape("n"), 9), jnp.float32)
    said = run_checked(row_max_pool, x, jax.eval_shape)
    assert said == (False, ["not compared, for its shape is symbolic"])

    monkeypatch.setattr(type(jnp.zeros(1)), "is_fully_addressable", False)
    said = run_checked(max_pool, jnp.arange(9.0))
    assert said == (False, ["not compared, for its array lies on several processes"])


@pytest.mark.parametrize("transform", [jax.vmap, jax.checkpoint, lambda f: lambda x: lax.map(f, x)])
def test_check_compares_calls_inside_transforms(transform):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 9)), jnp.float32)
    pool = transform(
        lambda x: lax.reduce_window(x, 0.0, lax.add, (3,) * x.ndim, (1,) * x.ndim, "SAME")
    )
    differs, said = run_checked(jax.grad(lambda x: (pool(x) ** 2).sum()), x)
    assert not differs
    assert set(said) == {"equal"}
