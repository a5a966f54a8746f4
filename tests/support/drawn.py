"""Shared by property tests: number of examples."""

import os

from hypothesis import settings

SEARCH = os.environ.get("HYPOTHESIS_PROFILE") == "search"


def examples(count):
    """Return settings with at most `count` examples, or twenty times that in a search."""
    return settings(max_examples=count * (20 if SEARCH else 1))
