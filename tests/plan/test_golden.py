"""What is planned is what golden.txt and drawn.txt say."""

import difflib

import pytest

from tests.plan import drawn, golden


@pytest.mark.slow
@pytest.mark.ci
def test_no_choice_has_changed():
    """Where one should: `python -m tests.plan.golden`, and read the difference."""
    before, now = golden.PATH.read_text().splitlines(), golden.lines()
    assert list(difflib.unified_diff(before, now, "golden.txt", "now", lineterm="", n=1)) == []


def test_nor_for_problems_drawn_at_random():
    """Where one should: as above."""
    before, now = drawn.PATH.read_text().splitlines(), drawn.lines()
    assert list(difflib.unified_diff(before, now, "drawn.txt", "now", lineterm="", n=0)) == []
