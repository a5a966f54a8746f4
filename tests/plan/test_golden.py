"""The current plans equal those in golden.txt and drawn.txt."""

import difflib
import re

import pytest

from tests.plan import drawn, golden
from tests.support.later import later


@pytest.mark.parametrize("plans", [drawn, later(golden)])
def test_plans_are_unchanged(plans):
    """After an intended change, run `python -m tests.plan.golden` and review the diff."""
    before, now = [
        # jax 0.10 and 0.12 trace the indexing of boxes to different numbers of gathers.
        [re.sub(r"\d+ gather", "gather", line) for line in lines]
        for lines in (plans.PATH.read_text(encoding="utf-8").splitlines(), plans.lines())
    ]
    assert list(difflib.unified_diff(before, now, plans.PATH.name, "now", lineterm="", n=1)) == []
