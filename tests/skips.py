"""Find the tests that every run skipped: `python -m tests.skips FILE`.

With JAXPOOL_OUTCOMES=FILE in the environment, each run of pytest appends the tests that it ran or skipped to FILE, with
the reason of a skip. Different runs may have different packages installed. The command prints the tests that every run
skipped, and exits with 1 if there is any.
"""

import argparse
import os
import pathlib
import sys


def pytest_runtest_logreport(report):
    """Record a test as skipped or run, or a module as skipped. An expected failure counts as run."""
    path = os.environ.get("JAXPOOL_OUTCOMES")
    if not path:
        return
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped:
        *_, reason = report.longrepr
        line = f"skipped\t{report.nodeid}\t{' '.join(reason.split())}\n"
    elif getattr(report, "when", None) == "call":
        line = f"run\t{report.nodeid}\t\n"
    else:
        return
    with open(path, "a", encoding="utf-8") as file:
        file.write(line)


pytest_collectreport = pytest_runtest_logreport


def never_run(lines):
    """Return the tests and modules that were skipped and never run, with their reasons."""
    skipped, run = {}, set()
    for line in lines:
        outcome, test, reason = line.rstrip("\n").split("\t")
        if outcome == "skipped":
            skipped[test] = reason
        else:
            run |= {test, test.partition("::")[0]}
    return {test: reason for test, reason in skipped.items() if test not in run}


def main(words=None):
    """Print the tests that every run skipped; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.skips", description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument(
        "--names", action="store_true", help="print names alone, as pytest takes them: @FILE"
    )
    options = parser.parse_args(words)
    found = never_run(options.file.read_text(encoding="utf-8").splitlines())
    for test, reason in sorted(found.items()):
        print(test if options.names else f"{test}: {reason}")
    return int(bool(found) and not options.names)


if __name__ == "__main__":
    sys.exit(main())
