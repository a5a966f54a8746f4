"""Two libraries in one process."""

import sys
import types

import numpy as np
import pytest

from bench import against
from bench._jax_peer import jaxpool_op
from bench.cases import CASES, select

SMALL = select(["small"])


def test_two_libraries_are_timed_alternately(capsys):
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


def test_unknown_revision(capsys):
    assert against.compare("no-such-revision", CASES[:1], "forward", "cpu", 0.0) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("op", ["max", "max_pool"])
def test_peer_uses_function_of_its_version(op):
    case = next(case for case in CASES if case.op == op)
    other = types.ModuleType("jaxpool")
    setattr(other, op, lambda *args, **options: "theirs")
    with against._in_place({"jaxpool": other}):
        assert jaxpool_op(case)(np.zeros(1)) == "theirs"
