"""Find the tests that execute a line of the library, for `tests.affected` and `tests.mutation`.

The command `COVERAGE_COMMAND` records them, with the time of each test (`tests/conftest.py`), in files of the source
tree. Pass `-m 'slow or not slow'` to include slow tests.
"""

import ast
import collections
import functools

from coverage import CoverageData

COVERAGE_COMMAND = "python -m coverage run -m pytest && python -m coverage combine"


class Reach:
    """The tests that execute a line, fastest first."""

    def __init__(self, tree):
        self.tree, self.data = tree, CoverageData(str(tree / ".coverage"))
        self.data.read()
        file = tree / ".coverage-seconds"
        lines = file.read_text().splitlines() if file.exists() else []
        timed = (line.split(" ", 1) for line in lines)
        self.seconds = {test: float(seconds) for seconds, test in timed}

    def tests(self, path, line):
        """Return the tests that execute the statement at `line`, else those of an enclosing statement or the module.

        Statements that run only on import have no tests of their own.
        """
        by_line = self._noted(path)
        for lines in (*enclosing_lines((self.tree / path).read_text(), line), by_line):
            found = set().union(*[by_line.get(each, ()) for each in lines]) - {""}
            if found:
                break
        quickest = sorted(found & self.seconds.keys(), key=lambda test: (self.seconds[test], test))
        turns = collections.Counter()
        order = []  # one case of each test function, then a second case of each, ...
        for test in quickest:
            function = test.split("[")[0]
            order.append((turns[function], self.seconds[test], test))
            turns[function] += 1
        return [test for _, _, test in sorted(order)]

    @functools.cache  # noqa: B019
    def _noted(self, path):
        noted = (self.tree / ".coverage").exists()
        return self.data.contexts_by_lineno(str(self.tree / path)) if noted else {}


def enclosing_lines(code, line):
    """Return the line ranges of the statements at `line`, and of their headers without bodies, shortest first."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
    whole = [range(node.lineno, node.end_lineno + 1) for node in nodes]
    bodies = [
        node.body[0].lineno if hasattr(node, "body") else node.end_lineno + 1 for node in nodes
    ]
    heads = [range(node.lineno, body) for node, body in zip(nodes, bodies, strict=True)]
    return sorted((each for each in [*heads, *whole] if line in each), key=len)
