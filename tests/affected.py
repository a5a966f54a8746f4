"""Run the tests that execute changed lines.

    python -m tests.affected [FILE ...] [--since REVISION] [-- OPTIONS OF PYTEST]

Without FILE, the changed lines are those of `git diff` since REVISION (default: the last commit). With FILE, every line
of it counts as changed. A line of the library selects the tests that executed it in the last run under coverage:

    python -m coverage run -m pytest && python -m coverage combine

A library file without coverage data selects the tests in the folder of its package. A test, a benchmark or a page of
documentation selects its own tests.
"""

import argparse
import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.reach import COVERAGE_COMMAND, Reach

TREE = Path(__file__).parents[1]


def git(*arguments):
    return subprocess.check_output(["git", *arguments], cwd=TREE, text=True)


def all_lines(file):
    """Return the line numbers of a file, an empty range if it does not exist."""
    path = TREE / file
    return range(1, len(path.read_text().splitlines()) + 1) if path.exists() else range(0)


def changed_lines(since):
    """Map each file that differs from a revision to its changed lines, numbered as in that revision."""
    found, file = {}, ""
    for line in git("diff", "--unified=0", "--no-renames", since).splitlines():
        if line.startswith("--- a/"):
            found[file := line[6:]] = []
        elif line.startswith("+++ b/") and line[6:] != file:  # a new file
            found[line[6:]] = all_lines(line[6:])
        elif hunk := re.match(r"@@ -(\d+)(?:,(\d+))? ", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found.get(file, []).extend(range(first, first + max(count, 1)))
    return found | {
        file: all_lines(file) for file in git("ls-files", "-o", "--exclude-standard").splitlines()
    }


def files_importing(name, files):
    """Yield the test files that import a shared helper module, directly or through other helpers."""
    for path in files:
        lines = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
        ]
        names = {
            each
            for node in lines
            for each in (node.module.split(".")[-1], *(a.name for a in node.names))
        }
        if name in names and path.name.startswith("test_"):
            yield path
        elif name in names:
            yield from files_importing(path.stem, [each for each in files if each != path])


def tests_of_file(file):
    """Return the tests of a file outside the library, or of a library file without coverage data."""
    path = Path(file)
    if path.name.startswith("test_"):
        return {file} if (TREE / file).exists() else set()
    if path.parts[0] == "tests" and path.suffix == ".py":
        files = sorted((TREE / "tests").rglob("*.py"))
        return {str(each.relative_to(TREE)) for each in files_importing(path.stem, files)}
    if path.parts[0] == "tests":
        return {str(path.parent)}
    rooms = [part.lstrip("_") for part in path.parts[1::-1]]
    folders = ["docs"] if path.suffix == ".md" or path.parts[0] == "docs" else rooms
    return {f"tests/{each}" for each in folders if (TREE / "tests" / each).is_dir()}


def affected(lines_of, reach):
    """Return the tests of changed lines, and the library files without coverage data."""
    tests, unknown = {}, []
    for file, lines in lines_of.items():
        found = []
        if file.startswith("jaxpool/") and (TREE / file).exists():
            found = [*itertools.chain(*(reach.tests(file, line) for line in lines))]
            unknown += [file] * (not found)
        tests |= dict.fromkeys(found or sorted(tests_of_file(file)))
    return [*tests], unknown


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m tests.affected", description=__doc__.splitlines()[0]
    )
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--since", default="HEAD", metavar="REVISION")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    given, options = parser.parse_args(arguments[:end]), arguments[end + 1 :]
    lines_of = {file: all_lines(file) for file in given.files} or changed_lines(given.since)
    tests, unknown = affected(lines_of, Reach(TREE))
    if unknown:
        print(
            f"Nothing is noted of {', '.join(unknown)}. Which tests reach what, this notes: {COVERAGE_COMMAND}"
        )
    if not tests:
        print("no test reaches what has changed")
        return 0
    return pytest.main([*options, *tests])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
