"""Find the tests that every run skipped: `python -m tests.skips FILE`.

With JAXPOOL_OUTCOMES=FILE in the environment, each run of pytest appends to FILE the tests that it ran and those that
it skipped, with the reason. Different runs may have different packages installed. The command prints the tests that no
run has run, and exits with 1 if there is one.
"""

import argparse
import os
import pathlib
import sys


def pytest_runtest_logreport(report):
    """Note a test that was skipped or run, or a module skipped as a whole. An expected failure was run."""
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
    with open(path, "a") as file:
        file.write(line)


pytest_collectreport = pytest_runtest_logreport


def never_run(lines):
    """Return the skipped tests and modules of which no run is noted, with their reasons."""
    skipped, run = {}, set()
    for line in lines:
        outcome, test, reason = line.rstrip("\n").split("\t")
        if outcome == "skipped":
            skipped[test] = reason
        else:
            run |= {test, test.partition("::")[0]}
    return {test: reason for test, reason in skipped.items() if test not in run}


def main(words=None):
    """Print the tests that no run has run; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.skips", description=__doc__)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument(
        "--names", action="store_true", help="print names alone, as pytest takes them: @FILE"
    )
    options = parser.parse_args(words)
    found = never_run(options.file.read_text().splitlines())
    for test, reason in sorted(found.items()):
        print(test if options.names else f"{test}: {reason}")
    return int(bool(found) and not options.names)


if __name__ == "__main__":
    sys.exit(main())
