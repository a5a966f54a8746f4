"""`python -m tests.search`: draws cases until there are enough, and keeps what fails."""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import pathlib
import sys
import time

os.environ.setdefault("XLA_FLAGS", "")

import jax
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.search.run import check
from tests.search.specs import Spec, specs

KEPT = pathlib.Path(__file__).with_name("kept.txt")
ROUND = 40  # programs between two clearings of what jax keeps


def search(start: int, programs: int, x64: bool) -> tuple[collections.Counter[str], str | None]:
    """Cases tried by function and platform from one seed, and the least case that fails."""
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
        except Exception as error:  # the last one tried is the one it shrank to
            spec, numbers = last[0]
            first = str(error).strip().splitlines()[:1]
            return tried, f"{numbers} {spec.text()}  # {type(error).__name__}: {first}"
    return tried, None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.search", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="arrays to try")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    total: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    begun = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(options.workers, maxtasksperchild=5) as pool:
        following, waiting = options.seed, []
        while total.total() < options.cases and len(failures) < 20:
            while len(waiting) < 2 * options.workers:
                job = (following, ROUND, following % 4 == 3)
                waiting.append((following, pool.apply_async(search, job)))
                following += 1
            number, found = waiting.pop(0)
            tried, failure = found.get()
            total += tried
            said = f"seed {number}: {total.total():,} cases, {time.monotonic() - begun:.0f} s"
            print(said + (f"; FAILS {failure}" if failure else ""), flush=True)
            if failure:
                failures.append(failure)
        pool.terminate()
    for name, count in sorted(total.items()):
        print(f"{count:10,}  {name}")
    if failures:
        with KEPT.open("a") as file:
            file.writelines(f"{failure}\n" for failure in failures)
        print(f"{len(failures)} failures, kept in {KEPT.name}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
