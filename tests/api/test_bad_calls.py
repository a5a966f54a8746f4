"""Malformed calls of every public function, drop-in and command, with exactly what is said of each.

The table is `bad_calls.txt`. Nothing is compiled: whatever is wrong is said before tracing.
"""

import re

import pytest

import jaxpool
from tests.support.bad_calls import read, said

ROWS = read()


@pytest.mark.parametrize(("call", "message"), ROWS, ids=[call for call, _ in ROWS])
def test_what_is_said(call, message):
    assert said(call) == message


def test_every_function_is_in_the_table():
    calls = "\n".join(call for call, _ in ROWS)
    names = jaxpool.__all__
    missing = [name for name in names if not re.search(rf"(?<![.\w]){re.escape(name)}\(", calls)]
    assert missing == ["keep_memory"]  # it takes no argument
    assert len(ROWS) >= 300
