"""The current plans equal those in golden.txt and drawn.txt."""

import difflib

import pytest

from tests.plan import drawn, golden


@pytest.mark.slow
@pytest.mark.ci
def test_golden_plans_are_unchanged():
    """After an intended change, run `python -m tests.plan.golden` and review the diff."""
    before, now = golden.PATH.read_text().splitlines(), golden.lines()
    assert list(difflib.unified_diff(before, now, "golden.txt", "now", lineterm="", n=1)) == []


def test_random_plans_are_unchanged():
    """After an intended change, run `python -m tests.plan.golden` and review the diff."""
    before, now = drawn.PATH.read_text().splitlines(), drawn.lines()
    assert list(difflib.unified_diff(before, now, "drawn.txt", "now", lineterm="", n=0)) == []
