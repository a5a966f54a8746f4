"""Type checkers see the types of the public functions through the stub. `test_adding.py` compares its text."""

import re
import subprocess
import sys

import pytest

import jaxpool

pytestmark = pytest.mark.slow
# Wrong calls have a comment with the start of mypy's error.
PROGRAM = """
from typing import assert_type

import jax
import jax.numpy as jnp

import jaxpool
import jaxpool.compat.scipy
from jaxpool import *
from jaxpool.compat import torch


def step(w: jax.Array, rate: float = 0.1) -> jax.Array:
    return w * rate


x = jnp.ones((2, 4, 4, 1))
assert_type(jaxpool.max_pool(x, (2, 2), 2, padding="SAME", ties="split"), jax.Array)
assert_type(avg_pool(x, (2, 2)), jax.Array)
assert_type(max_pool_with_argmax(x, (2, 2)), tuple[jax.Array, jax.Array])
assert_type(jaxpool.accelerate(step)(x, rate=0.2), jax.Array)
assert_type(jaxpool.sharded(jaxpool.max_pool)(x, (2, 2)), jax.Array)
jaxpool.plan_of(step)(x)[0].size  # error: "PoolPlan" has no attribute "size"
assert_type(jaxpool.keep_memory(), bool)
assert_type(jaxpool.__version__, str)
assert_type(torch.MaxPool2d(2)(x), str)  # error: Expression is of type
assert_type(jaxpool.testing.pools()["max_pool"].name, str)
jaxpool.compat.scipy.maximum_filter(x, 3)
jaxpool.max_pool(x, (2, 2), stride=2)  # error: Unexpected keyword argument "stride"
jaxpool.max_pool(x, (2, 2), ties="random")  # error: Argument "ties" to "max_pool" has incompatible type
jaxpool.accelerate(step)(x, rate="high")  # error: Argument "rate" to "step" has incompatible type
jaxpool.average_pool(x)  # error: Module has no attribute "average_pool"
"""


def mypy(folder, program):
    """The errors and notes of mypy about a program, by line."""
    pytest.importorskip("mypy")
    path = folder / "program.py"
    path.write_text(program)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "",
        "--cache-dir",
        "cache",
    ]
    done = subprocess.run([*command, path], cwd=folder, capture_output=True, text=True)
    found = re.findall(r"^program\.py:(\d+): (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return [(int(line), text) for line, text in found]


def test_errors_of_a_program(tmp_path):
    lines = PROGRAM.splitlines()
    found = [each for each in mypy(tmp_path, PROGRAM) if "error: " in each[1]]
    expected = [number for number, line in enumerate(lines, 1) if "# error: " in line]
    assert [number for number, _ in found] == expected, found
    for number, text in found:
        assert text.startswith(lines[number - 1].partition("# ")[2])


def test_types_of_decorated_functions(tmp_path):
    """The type in the stub is the type of the function that the package imports at run time."""
    names = sorted(
        {*jaxpool.__all__} - {"keep_memory"}
    )  # a cached function, with a type of its own
    pairs = [f"reveal_type(jaxpool.{name})\nreveal_type(_public.{name})\n" for name in names]
    notes = mypy(tmp_path, "import jaxpool\nfrom jaxpool import _public\n" + "".join(pairs))
    types = [
        re.sub(r"\b[FR]\b", "T", text) for _, text in notes
    ]  # `@public` renames type variables
    assert len(types) == 2 * len(names)
    for name, stub, function in zip(names, types[::2], types[1::2], strict=True):
        assert stub.startswith("note: Revealed type is "), stub
        assert stub == function, name
