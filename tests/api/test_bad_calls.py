"""Malformed calls of every public function, drop-in and command, with their exact messages.

The calls are listed in `bad_calls.txt`. Nothing is compiled, because invalid arguments raise before tracing.
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
