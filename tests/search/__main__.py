"""`python -m tests.search`: draw cases until there are enough, and record those that fail."""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import pathlib
import sys
import time

os.environ.setdefault("XLA_FLAGS", "")

from tests.search.rounds import search

RECORDED_FAILURES = pathlib.Path(__file__).with_name("kept.txt")
PROGRAMS_PER_ROUND = 40  # programs between two clearings of jax's caches


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
                job = (following, PROGRAMS_PER_ROUND, following % 4 == 3)
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
        with RECORDED_FAILURES.open("a") as file:
            file.writelines(f"{failure}\n" for failure in failures)
        path = RECORDED_FAILURES.relative_to(RECORDED_FAILURES.parents[2])
        print(f"FAILED {len(failures)}, kept in {path}, to be committed with the fix:")
        print("  python -m pytest -m 'slow or not slow' tests/search -k stays_mended")
    else:
        print(f"no failure in {total.total():,} cases, by function and platform")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
