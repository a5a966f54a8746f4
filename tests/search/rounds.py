"""One round of the search, in a separate process."""

from __future__ import annotations

import collections

import jax
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.search.run import check
from tests.search.specs import Spec, specs


def search(start: int, programs: int, x64: bool) -> tuple[collections.Counter[str], str | None]:
    """Count the cases of one seed by function and platform, and return the smallest failing case or None."""
    tried: collections.Counter[str] = collections.Counter()
    last: list[tuple[Spec, int]] = []

    @seed(start)
    @settings(
        max_examples=programs,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(specs(), st.integers(0, 2**32 - 1))
    def each(spec: Spec, numbers: int) -> None:
        last[:] = [(spec, numbers)]
        count = check(spec, numbers)
        tried[f"{spec.function} {spec.platform}"] += count

    jax.clear_caches()
    with jax.enable_x64(x64):
        try:
            each()
        except Exception as error:  # hypothesis runs the shrunk case last
            spec, numbers = last[0]
            first = str(error).strip().splitlines()[:1]
            return tried, f"{numbers} {spec.text()}  # {type(error).__name__}: {first}"
    return tried, None
