"""Which tests reach a line of the library: for `tests.affected` and `tests.mutation`.

`NOTING` notes them in the tree, and how long each took (`tests/conftest.py`); with `-m 'slow or not slow'` also the
slow ones.
"""

import ast
import collections
import functools

from coverage import CoverageData

NOTING = "python -m coverage run -m pytest && python -m coverage combine"


class Reach:
    """Which tests reach a line, the quickest first."""

    def __init__(self, tree):
        self.tree, self.data = tree, CoverageData(str(tree / ".coverage"))
        self.data.read()
        file = tree / ".coverage-seconds"
        lines = file.read_text().splitlines() if file.exists() else []
        timed = (line.split(" ", 1) for line in lines)
        self.seconds = {test: float(seconds) for seconds, test in timed}

    def tests(self, path, line):
        """Those of the statement at `line`; of one that runs on import, those of its class or of the module."""
        by_line = self._noted(path)
        for lines in (*around((self.tree / path).read_text(), line), by_line):
            found = set().union(*[by_line.get(each, ()) for each in lines]) - {""}
            if found:
                break
        quickest = sorted(found & self.seconds.keys(), key=lambda test: (self.seconds[test], test))
        turns = collections.Counter()
        order = []  # of each function one case, then of each another
        for test in quickest:
            function = test.split("[")[0]
            order.append((turns[function], self.seconds[test], test))
            turns[function] += 1
        return [test for _, _, test in sorted(order)]

    @functools.cache  # noqa: B019
    def _noted(self, path):
        noted = (self.tree / ".coverage").exists()
        return self.data.contexts_by_lineno(str(self.tree / path)) if noted else {}


def around(code, line):
    """The lines of the innermost statement at `line` without those in it, then of all that it stands in."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
    whole = [range(node.lineno, node.end_lineno + 1) for node in nodes]
    bodies = [
        node.body[0].lineno if hasattr(node, "body") else node.end_lineno + 1 for node in nodes
    ]
    heads = [range(node.lineno, body) for node, body in zip(nodes, bodies, strict=True)]
    return sorted((each for each in [*heads, *whole] if line in each), key=len)
