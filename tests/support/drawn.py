"""Shared by property tests: number of examples, and more values for one drawn case."""

import dataclasses
import os

import numpy as np
from hypothesis import settings

from jaxpool.testing import draw_values

SEARCH = os.environ.get("HYPOTHESIS_PROFILE") == "search"


def examples(count):
    """Return settings with at most `count` examples, or twenty times that in a search."""
    return settings(max_examples=count * (20 if SEARCH else 1))


def with_new_values(case, values=("ties", "normal"), rounds=2):
    """Yield `case` with other arrays of the same shapes, so that one compiled program sees many values."""
    rng = np.random.default_rng(int(np.abs(case.x.size * 7919 + case.window().taps_per_window)))
    for _ in range(rounds):
        for kind in values:
            x = draw_values(rng, case.x.shape, case.x.dtype, kind, greatest=case.kind == "min")
            dy = case.dy
            if dy is not None:
                dy = draw_values(rng, dy.shape, dy.dtype, "ties" if kind == "ties" else "normal")
            yield dataclasses.replace(case, x=x, dy=dy)
