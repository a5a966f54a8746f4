"""Malformed calls of every public function, drop-in and command, with exactly what is said of each.

The table is `bad_calls.txt`. Nothing is compiled: whatever is wrong is said before tracing.
"""

import pytest

from tests.support import asked
from tests.support.bad_calls import read, said

ROWS = read()


@pytest.mark.parametrize(("call", "message"), ROWS, ids=[call for call, _ in ROWS])
def test_what_is_said(call, message):
    assert said(call) == message


def test_every_function_is_in_the_table():
    asked.malformed_calls()
    assert len(ROWS) >= 300
