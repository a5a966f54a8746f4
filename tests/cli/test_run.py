"""`python -m jaxpool run`: a program as `python` runs it, with its windowed reductions taken over."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxpool
from jaxpool.__main__ import main
from jaxpool._accelerate import both_ways
from jaxpool._accelerate.bind import handing_over

SCRIPTS = Path(__file__).parent / "scripts"
OURS = ["-m", "jaxpool", "run"]


def started(words, folder, **more):
    """What a Python with these words gives in a folder: exit status, standard output, standard error."""
    environment = os.environ | {"PYTHONPATH": str(Path(jaxpool.__file__).parents[1])} | more
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def written(folder, text, name="train.py"):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return str(path.relative_to(folder))


def as_python(words, folder):
    """Runs these words by Python and under `run`, which must give the same; returns what they gave."""
    plain, ours = started(words, folder), started([*OURS, "--quiet", *words], folder)
    assert ours == plain
    return plain


# None of these programs imports jax: a process takes a tenth of a second.


def test_names_arguments_and_paths_are_those_of_python(tmp_path):
    script = written(
        tmp_path,
        """
        import os, pickle, sys
        class Mine: pass
        pickle.loads(pickle.dumps(Mine()))
        assert sys.modules["__main__"].Mine is Mine
        print(__name__, __file__, sys.argv, sys.path[0], __spec__, __package__, __builtins__)
        print(sorted({*globals()} - {"__annotations__"}))  # which some Pythons make
        """,
        "inner/train.py",
    )
    status, printed, _ = as_python([script, "--help", "-m", "--quiet", "--", "3"], tmp_path)
    assert status == 0
    assert "'--help', '-m', '--quiet', '--', '3'" in printed
    assert printed.startswith("__main__")


def test_a_module_and_a_package(tmp_path):
    program = (
        "import sys\nprint(__name__, __file__, sys.argv, sys.path[0], __package__, __spec__.name)"
    )
    written(tmp_path, program, "package/train.py")
    written(tmp_path, program, "package/__main__.py")
    written(tmp_path, "print('imported once')", "package/__init__.py")
    for module in ("package.train", "package"):
        assert as_python(["-m", module, "--lr", "3"], tmp_path)[0] == 0
    status, _, said = started([*OURS, "-m", "package.absent"], tmp_path)
    assert (status, said.count("No module named package.absent")) == (1, 1)


@pytest.mark.parametrize(
    "ending",
    [
        "raise ValueError('mine')",
        "sys.exit(3)",
        "sys.exit('because')",
        "def f(): 1 / 0\ntry: f()\nexcept ZeroDivisionError: raise KeyError(1)",
        "def broken(:",
        "sys.excepthook = lambda *what: print(what[1], what[2].tb_lineno)\nraise OSError('hooked')",
    ],
)
def test_the_end_is_that_of_python(ending, tmp_path):
    script = written(tmp_path, f"import sys\n{ending}")
    as_python([script], tmp_path)


def test_an_interrupt_ends_it_as_python(tmp_path):
    script = written(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGINT)")
    status, _, said = as_python([script], tmp_path)
    assert status in (-signal.SIGINT, 130)
    assert "jaxpool" not in said


def test_a_program_without_jax_is_told_so(tmp_path):
    assert started([*OURS, written(tmp_path, "print(1)")], tmp_path) == (
        0,
        "1\n",
        "jaxpool run: nothing of train.py was taken over: jax was not imported.\n",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.py"], "the script must be a file that exists; got absent.py. A module is named after -m."),
        (["--chek", __file__], "there is no such option: --chek. Did you mean --check?"),
        (
            ["--report", "a.txt", __file__],
            "`--report` must be a file that ends in .json; got --report=a.txt.",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(words, message, capsys):
    assert main(["run", *words]) == 2
    assert capsys.readouterr().err == f"jaxpool run: {message}\n"


POOLS = """
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
print(jax.jit(jax.grad(pool))(x).ravel())
print(reduce_window(x, 1.0, lax.mul, (1, 2, 2, 1), (1, 1, 1, 1), "VALID").sum())
"""


def test_the_whole_process_is_taken_over_and_told(tmp_path):
    script = written(tmp_path, POOLS)
    plain = started([script], tmp_path)
    status, printed, said = started([*OURS, "--check", "--report", "met.json", script], tmp_path)
    assert (status, printed) == plain[:2]
    lines = said.splitlines()
    assert lines[0] == "jaxpool run: 2 of 3 windowed reductions of train.py taken over"
    assert "(in_a_thread.<locals>.<lambda>): sum of float64[1, 4, 6, 1]" in lines[1]
    assert "(pool): max of float64[1, 4, 6, 1]" in lines[2]
    assert [line.endswith("taken over; --check: equal") for line in lines[1:]] == [
        True,
        True,
        False,
    ]
    assert "left to lax (the reduction is no max, min or sum of two numbers)" in lines[3]
    data = json.loads((tmp_path / "met.json").read_text())
    assert [row["taken_over"] for row in data["reductions"]] == [True, True, False]
    assert [row.get("check") for row in data["reductions"]] == ["equal", "equal", None]
    assert data["script"] == script


@pytest.mark.slow  # each starts jax
def test_switched_off_it_is_the_plain_program(tmp_path):
    script = written(tmp_path, f"{POOLS}\nimport jaxpool\nprint(jaxpool.accelerate(pool) is pool)")
    status, printed, said = started([*OURS, script], tmp_path, JAXPOOL_DISABLE="1")
    assert said == "jaxpool run: nothing of train.py was taken over: JAXPOOL_DISABLE is set.\n"
    assert (status, printed.splitlines()[-1]) == (0, "True")


@pytest.mark.slow  # each starts jax twice
@pytest.mark.parametrize("name", ["flax", "equinox", "keras"])
def test_a_training_gives_what_it_gave(name, tmp_path):
    pytest.importorskip(name)
    words = [str(SCRIPTS / f"{name}_step.py"), "4", "24"]
    plain = started(words, tmp_path)
    status, printed, said = started([*OURS, "--check", *words], tmp_path)
    assert (plain[0], status) == (0, 0)
    losses = [np.asarray(text.split(), float) for text in (plain[1], printed)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
    summary = said[said.index("jaxpool run") :].splitlines()
    taken, met = summary[0].split()[2:5:2]
    assert int(taken) == int(met) == len(summary) - 1 >= 2
    assert all(line.endswith("--check: equal") for line in summary[1:])


# What --check compares.


def first_call(pool, x):
    """A pool run under --check, and what was found of it."""
    found = []
    checked = both_ways.BothWays(found.append)
    jaxpool.accelerate(pool)  # puts the dispatcher in its place
    with handing_over(checked):
        jax.block_until_ready(jax.jit(pool)(x))
    checked.compare()
    return checked, [checked.found(each).said for each in found]


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (3,), (2,), "VALID")


def test_both_ways_are_equal_where_they_are():
    checked, found = first_call(max_pool, jnp.arange(9.0) % 4)
    assert (checked.differs, found) == (False, ["equal"])


@pytest.mark.parametrize("ties", ["last", "split"])
def test_a_cotangent_that_goes_elsewhere_is_found(ties, monkeypatch):
    real = both_ways.Handover.take_over

    def wrong(self, kind, aval, args, params):
        real(self, kind, aval, args, params)
        return jaxpool.max_pool(args[0][:, None], 3, 2, ties=ties, axes=(0,), autodiff="jvp")[:, 0]

    monkeypatch.setattr(both_ways.Handover, "take_over", wrong)
    checked, (found,) = first_call(max_pool, jnp.zeros(9))
    assert checked.differs
    assert found.startswith("cotangent differs at ")


def test_a_value_that_is_another_is_found(monkeypatch):
    real = both_ways.Handover.take_over
    monkeypatch.setattr(
        both_ways.Handover, "take_over", lambda *args: real(*args) + jnp.array([0, 0, 0, 1.0])
    )
    _, (found,) = first_call(max_pool, jnp.arange(9.0))
    assert found == "value differs at 1 of 4 elements, by 1"


def traced(pool, x):
    """A pool traced for the type of x under --check, and what was found of it."""
    found = []
    checked = both_ways.BothWays(found.append)
    jaxpool.accelerate(pool)
    with handing_over(checked):
        jax.eval_shape(pool, x)
    checked.compare()
    return [checked.found(each).said for each in found]


def test_what_is_traced_and_never_run_is_not_compared():
    said = "not compared, for it was traced and did not run"
    assert traced(max_pool, jnp.arange(9.0)) == [said]


def test_a_symbolic_shape_is_not_compared_and_said_to_be_the_reason():
    (size,) = jax.export.symbolic_shape("n")
    x = jax.ShapeDtypeStruct((size, 9), jnp.float32)

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 2), "VALID")

    assert traced(pool, x) == ["not compared, for its shape is symbolic"]


def test_an_array_of_several_processes_is_not_compared_and_said_to_be_the_reason(monkeypatch):
    monkeypatch.setattr(type(jnp.zeros(1)), "is_fully_addressable", False)
    checked, found = first_call(max_pool, jnp.arange(9.0))
    said = "not compared, for its array lies on several processes"
    assert (checked.differs, found) == (False, [said])


def sum_pool(x):
    zero = np.zeros((), x.dtype)
    return lax.reduce_window(x, zero, lax.add, (16, 16), (1, 1), "SAME")


def sum_from_one(x):
    return lax.reduce_window(x, np.ones((), x.dtype), lax.add, (3, 3), (1, 1), "VALID")


def noise(shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_sum_of_narrow_floats_that_is_another_is_found(dtype, monkeypatch):
    real = both_ways.Handover.take_over
    monkeypatch.setattr(both_ways.Handover, "take_over", lambda *args: 0 * real(*args))
    checked, (found,) = first_call(sum_pool, noise((16, 24), dtype))
    assert checked.differs
    assert found.startswith("value differs at 384 of 384 elements")


def test_a_cotangent_of_narrow_floats_that_is_another_is_found(monkeypatch):
    real = both_ways.Handover.take_over

    def wrong(*args):
        y = real(*args)
        return y / 2 + lax.stop_gradient(y / 2)

    monkeypatch.setattr(both_ways.Handover, "take_over", wrong)
    _, (found,) = first_call(sum_pool, noise((16, 24), "bfloat16"))
    assert found.startswith("cotangent differs at 384 of 384 elements")


@pytest.mark.parametrize("pool", [sum_pool, sum_from_one, max_pool])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_right_pools_of_floats_are_equal(pool, dtype):
    x = noise((27,) if pool is max_pool else (16, 24), dtype)
    assert first_call(pool, x)[1] == ["equal"]


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_a_sum_that_is_not_finite_must_be_the_same(value, monkeypatch):
    x = jnp.zeros((4, 4)).at[0, 0].set(value)
    assert first_call(sum_from_one, x)[1] == ["equal"]
    real = both_ways.Handover.take_over
    monkeypatch.setattr(both_ways.Handover, "take_over", lambda *args: jnp.nan_to_num(real(*args)))
    _, (found,) = first_call(sum_from_one, x)
    assert found.startswith("value differs at 1 of 4 elements")


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_cotangents_are_compared_where_the_maximum_is_finite(value, monkeypatch):
    some, every = jnp.zeros(9).at[0].set(value), jnp.full(9, value)
    assert first_call(max_pool, some)[1] == [
        "equal; cotangents were compared of 3 of 4 windows, for NaN or infinity in the others"
    ]
    assert first_call(max_pool, every)[1] == [
        "equal in value; the cotangent was not compared, for NaN or infinity"
    ]
    real = both_ways.Handover.take_over
    monkeypatch.setattr(
        both_ways.Handover, "take_over", lambda *args: lax.stop_gradient(real(*args))
    )
    checked, (found,) = first_call(max_pool, some)
    assert checked.differs
    assert found.startswith("cotangent differs at 3 of 9 elements")


@pytest.mark.parametrize("transform", [jax.vmap, jax.checkpoint, lambda f: lambda x: lax.map(f, x)])
def test_calls_inside_transformations_are_compared(transform):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 9)), jnp.float32)
    pool = transform(
        lambda x: lax.reduce_window(x, 0.0, lax.add, (3,) * x.ndim, (1,) * x.ndim, "SAME")
    )
    checked, found = first_call(jax.grad(lambda x: (pool(x) ** 2).sum()), x)
    assert not checked.differs
    assert set(found) == {"equal"}
