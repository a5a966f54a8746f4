"""Changes a line of the library and sees whether a test of its package fails; again and again.

    python -m tests.mutation ROOM [--sample 100] [--seed 0]

draws changes that cosmic-ray knows (other numbers, comparisons, signs, conditions turned round), makes each in a
copy of the tree and runs the tests of that room until one fails. What no test has noticed is printed. A change that
takes ten times the processor time of the tests counts as noticed.
"""

import argparse
import ast
import contextlib
import difflib
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from cosmic_ray import mutating, plugins
from cosmic_ray.ast import get_ast

TREE = Path(__file__).parents[2]
MESSAGES = ["tests/api/test_bad_calls.py", "tests/api/test_adaptive_messages.py"]
ROOMS = {  # modules, and the tests that are run
    "geometry": (["_geometry"], ["tests/geometry", *MESSAGES]),
    "plan": (["_plan"], ["tests/plan"]),
}
SAMPLE = 100
# `tuning.py` holds numbers that were measured: another chooses another form, of the same results.
LEFT_OUT = ("tuning.py",)
CHANGES = {  # of cosmic-ray's, those that are hard to notice
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


class Bare(ast.NodeTransformer):
    """Without what changes no result: annotations, how many results a cache holds, and zip's check."""

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


def meaning(code):
    return ast.dump(Bare().visit(ast.parse(code)))


def mutants(path):
    """Each change of a module, as its new text."""
    code = path.read_text()
    seen, tree = {meaning(code)}, get_ast(code)
    for name in OPERATORS:
        operator = plugins.get_operator(name)()
        count = sum(sum(1 for _ in operator.mutation_positions(node)) for node in walk(tree))
        for occurrence in range(count):
            new = mutating.mutate_code(code, operator, occurrence)
            with contextlib.suppress(SyntaxError):  # the bare * of arguments is no product
                means = meaning(new)
                if means not in seen:
                    seen.add(means)
                    yield new


def walk(node):
    yield node
    for child in getattr(node, "children", ()):
        yield from walk(child)


def noticed(copy, tests, seconds):
    """Whether a test fails, in a process that has what all tests import but not the library; and its seconds."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        silence = os.open(copy.parent / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.chdir(copy)
        sys.path[:] = [str(copy), *[each for each in sys.path if each not in ("", str(TREE))]]
        for name in ("tests", "tests.mutation"):
            del sys.modules[name]
        sys.dont_write_bytecode = True
        code = 1
        try:
            code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    return status != 0, used.ru_utime + used.ru_stime


def tried(room, sample, seed):
    packages, tests = ROOMS[room]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve() / "tree"
        shutil.copytree(TREE, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "docs"))
        failed, seconds = noticed(copy, tests, resource.RLIM_INFINITY)
        assert not failed, (copy.parent / "said").read_text()[-2000:]
        paths = sorted(
            path for name in packages for path in (copy / "jaxpool").glob(f"{name}/**/*.py")
        )
        paths += [copy / "jaxpool" / name for name in packages if name.endswith(".py")]
        every = [
            (path, new) for path in paths if path.name not in LEFT_OUT for new in mutants(path)
        ]
        drawn = random.Random(seed).sample(every, min(sample, len(every)))
        print(
            f"{room}: {len(drawn)} of {len(every)} changes; the tests take {seconds:.1f} s",
            flush=True,
        )
        survivors = 0
        for path, new in drawn:
            old = path.read_text()
            path.write_text(new)
            killed, _ = noticed(copy, tests, int(10 * seconds) + 10)
            path.write_text(old)
            if not killed:
                survivors += 1
                lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
                changed = [line for line in lines if line[:3] not in ("---", "+++")]
                print(path.relative_to(copy), *changed, sep="\n  ", flush=True)
    print(f"{room}: {len(drawn) - survivors} of {len(drawn)} noticed, by {' '.join(tests)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--sample", type=int, default=SAMPLE)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ["HYPOTHESIS_PROFILE"] = "unshrunk"
    import jax  # noqa: F401
    import pytest

    tried(given.room, given.sample, given.seed)
