"""Shared by property tests: number of examples, more values for one drawn case, and comparison with the oracle."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import settings

from jaxpool.testing import assert_close, draw_values

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


def run(function, case, *xs, **options):
    """Compute value and cotangents in one program."""

    def program(dy, *xs):
        y, back = jax.vjp(lambda *xs: function(*xs, **options), *xs)
        return y, back(dy)

    if case.dy is None:
        return jax.jit(lambda *xs: function(*xs, **options))(*xs), None
    return jax.jit(program)(case.dy, *xs)


def assert_matches_oracle(found, answer, dy, rtol=1e-5, largest=0.0):
    """Assert that value and cotangents equal the oracle's, up to rounding of sums whose summands reach `largest`."""
    bound = 1e-6 * np.maximum(np.abs(answer.y.astype(float)), largest)
    assert_close(found[0], answer.y, bound, "value")
    if dy is None:
        return
    spread = answer.exact_cotangents(dy, absolute=True)
    for dx, want, size in zip(found[1], answer.cotangents(dy), spread, strict=True):
        eps = float(jnp.finfo(want.dtype).eps)
        assert_close(
            dx, want, rtol * size + 2 * eps * np.abs(want.astype(float)) + 1e-30, "cotangent"
        )
