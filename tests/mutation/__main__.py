"""Mutation testing: change one line of the library at a time, and check that a test fails.

    python -m tests.mutation ROOM [--sample 100] [--seed 0]

draws mutations of cosmic-ray (other numbers, comparisons, signs, negated conditions) and applies each to a copy of the
source tree. It runs tests until one fails: first a few of the package, then those that execute the changed line,
fastest first. The command prints the mutations that no test notices. A mutation that exceeds a limit of processor time
counts as noticed.

Run `coverage run -m pytest` and `coverage combine` in the tree first, to record the tests that execute a line.
"""

import argparse
import ast
import contextlib
import difflib
import itertools
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from cosmic_ray import mutating, plugins
from cosmic_ray.ast import get_ast

from tests.support.reach import Reach

TREE = Path(__file__).parents[2]
MESSAGES = ["tests/api/test_bad_calls.py", "tests/api/test_messages.py"]
ROOMS = {  # package, and its fast tests, which run first
    "accelerate": ["tests/accelerate/test_numbers.py", "tests/accelerate/test_functions.py"],
    "api": [],
    "arguments": MESSAGES,
    "geometry": ["tests/geometry", *MESSAGES],
    "kernels": [],
    "ops": [],
    "plan": ["tests/plan"],
    "shards": [],
}
SAMPLE = 100
CACHE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
FIRST, MOST = 12, 80  # numbers of tests per changed line
SECONDS = 300  # of processor time, in addition to ten times that of the package's tests
# `tuning.py` has measured thresholds: another value selects another kernel with the same results.
LEFT_OUT = ("tuning.py",)
CHANGES = {  # the operators of cosmic-ray whose mutations are hard to notice
    "": "AddNot NumberReplacer ReplaceAndWithOr ReplaceOrWithAnd ReplaceBreakWithContinue"
    " ReplaceContinueWithBreak ReplaceFalseWithTrue ReplaceTrueWithFalse ZeroIterationForLoop",
    "ReplaceComparisonOperator_": "Lt_LtE LtE_Lt Gt_GtE GtE_Gt Lt_GtE LtE_Gt Gt_LtE GtE_Lt"
    " Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is",
    "ReplaceBinaryOperator_": "Add_Sub Sub_Add Mul_FloorDiv FloorDiv_Mul Mod_FloorDiv Div_Mul"
    " Pow_Mul BitAnd_BitOr BitOr_BitAnd LShift_RShift RShift_LShift",
    "ReplaceUnaryOperator_": "Delete_Not Delete_USub Delete_Invert",
}
OPERATORS = [
    f"core/{kind}{change}" for kind, changes in CHANGES.items() for change in changes.split()
]


class EffectFreeCodeRemover(ast.NodeTransformer):
    """Remove code without effect on results: annotations, sizes of caches, and zip's check of lengths."""

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_FunctionDef(self, node):
        node.returns = None
        caches = ("lru_cache", "functools.lru_cache")
        node.decorator_list = [
            each for each in node.decorator_list if ast.unparse(each).split("(")[0] not in caches
        ]
        return self.generic_visit(node)

    def visit_Call(self, node):
        node.keywords = [each for each in node.keywords if each.arg != "strict"]
        return self.generic_visit(node)

    def visit_AnnAssign(self, node):
        node.annotation = ast.Constant(0)
        return self.generic_visit(node)


def normalized_dump(code):
    return ast.dump(EffectFreeCodeRemover().visit(ast.parse(code)))


def mutants(paths, chance):
    """Yield mutations of the modules in random order, as path and new text."""
    places = []
    for path, name in itertools.product(paths, OPERATORS):
        operator, tree = plugins.get_operator(name)(), get_ast(path.read_text())
        count = sum(sum(1 for _ in operator.mutation_positions(node)) for node in walk(tree))
        places += [(path, operator, occurrence) for occurrence in range(count)]
    chance.shuffle(places)
    seen = {(path, normalized_dump(path.read_text())) for path in paths}
    for path, operator, occurrence in places:
        new = mutating.mutate_code(path.read_text(), operator, occurrence)
        with contextlib.suppress(
            SyntaxError
        ):  # cosmic-ray takes the bare * of arguments for a product
            means = path, normalized_dump(new)
            if means not in seen:
                seen.add(means)
                yield path, new


def walk(node):
    yield node
    for child in getattr(node, "children", ()):
        yield from walk(child)


def split_tests(tests):
    """Split tests into a few from at most three modules, because imports are slow, and further tests."""
    modules = list(dict.fromkeys(test.split("::")[0] for test in tests))[:3]
    first = [test for test in tests if test.startswith(tuple(modules))][:FIRST]
    return first, [test for test in tests if test not in first][:MOST]


class FirstFailure:
    """Write the first failing test to a file."""

    def __init__(self, path):
        self.path = path

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.path.read_text():
            self.path.write_text(report.nodeid)


def failing(copy, tests, seconds):
    """Run tests in a forked process that has not imported the library; return the failing test, if any, and seconds."""
    failed = copy.parent / "failed"
    failed.write_text("")
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        silence = os.open(copy.parent / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.chdir(copy)
        os.environ["PYTHONPATH"] = str(copy)
        sys.path[:] = [str(copy), *[each for each in sys.path if each not in ("", str(TREE))]]
        for name in ("tests", "tests.mutation"):
            del sys.modules[name]
        sys.dont_write_bytecode = seconds != resource.RLIM_INFINITY
        code = 1
        try:
            arguments = ["-x", "-q", "-p", "no:cacheprovider", *tests]
            code = pytest.main(arguments, plugins=[FirstFailure(failed)])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    return (failed.read_text() or "?") if status else None, used.ru_utime + used.ru_stime


def changed_lines(old, new):
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[:3] not in ("---", "+++")]


def run_mutants(room, sample, seed):
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve() / "tree"
        shutil.copytree(TREE, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "site"))
        own = ROOMS[room]
        failed, seconds = failing(copy, own or ["--co"], resource.RLIM_INFINITY)
        assert not failed, (copy.parent / "said").read_text()[-2000:]
        paths = sorted((copy / f"jaxpool/_{room}").glob("**/*.py"))
        paths = [path for path in paths if path.name not in LEFT_OUT]
        drawn = [*itertools.islice(mutants(paths, random.Random(seed)), sample)]
        print(f"{room}: {len(drawn)} changes; {seconds:.1f} s of tests first", flush=True)
        reach = Reach(TREE)
        survivors, killers = 0, set()
        for number, (path, new) in enumerate(drawn, 1):
            print(f"{room}: {number}", end="\r", file=sys.stderr, flush=True)
            old, name, modified = path.read_text(), path.relative_to(copy), path.stat().st_mtime
            changed = changed_lines(old, new)
            line = int(re.search(r"\d+", changed[0]).group())
            path.write_text(new)
            limit = int(10 * seconds) + SECONDS
            reaching = reach.tests(name, line)
            for tests in (own, *split_tests(reaching)):
                marked = "not slow" if tests is own else ""
                killer = failing(copy, ["-m", marked, *tests], limit)[0] if tests else None
                if killer:
                    killers.add(killer)
                    break
            else:
                survivors += 1
                print(name, *changed, sep="\n  ", flush=True)
            path.write_text(old)
            os.utime(path, (modified, modified))  # keeps the cached bytecode valid
        killers = sorted(each for each in killers if "::" in each)
        failed = failing(copy, ["-m", "", *killers], resource.RLIM_INFINITY)[0] if killers else None
        said = (copy.parent / "said").read_text()[-2000:]
        assert not failed, f"fails without a change: {failed}: {said}"
    print(
        f"{room}: {len(drawn) - survivors} of {len(drawn)} noticed, seed {seed}, by {len(killers)} tests"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--sample", type=int, default=SAMPLE)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ["HYPOTHESIS_PROFILE"] = "unshrunk"
    os.environ |= CACHE | {"JAX_COMPILATION_CACHE_DIR": str(TREE / ".jax_cache")}
    import jax  # noqa: F401
    import pytest

    run_mutants(given.room, given.sample, given.seed)
