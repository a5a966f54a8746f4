"""Mutation testing: change one expression of the library at a time, and check that a test fails.

    python -m tests.mutation ROOM [--sample 100] [--seed 0] [--seconds 900]

draws mutations of a package (cosmic-ray: other numbers, comparisons, signs, negated conditions) and applies each to a
copy of the source tree. `plugin.py` runs up to a minute of the tests that testmon selects for the changed function,
until one fails. The command prints the mutations that no test notices. A mutation whose tests take longer than
`--seconds` may have an endless loop. The command counts such mutations separately.

Run `python -m pytest --testmon` in the tree first, to record the tests that execute a function. Add
`-m 'slow or not slow'` to include slow tests. The package `_shards` needs several devices, for both commands:

    FLAGS=$(python -c 'from tests.support.compilation import FLAGS; print(FLAGS)')
    export XLA_FLAGS="$FLAGS --xla_force_host_platform_device_count=8"
"""

import argparse
import ast
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cosmic_ray import mutating, plugins
from cosmic_ray.commands import execute, init
from cosmic_ray.config import ConfigDict
from cosmic_ray.work_db import WorkDB, use_db

TREE = Path(__file__).parents[2]
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "", "-p", "no:cacheprovider"]
SELECT = ["-p", "tests.mutation.plugin", "--testmon-forceselect", "--testmon-nocollect"]
ENVIRONMENT = {
    "HYPOTHESIS_PROFILE": "unshrunk",
    "JAX_COMPILATION_CACHE_DIR": str(TREE / ".jax_cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
# `tuning.py` has measured thresholds: another value selects another kernel with the same results.
LEFT_OUT = ("tuning.py",)
# The operators of cosmic-ray whose mutations are hard to notice
OPERATORS = re.compile(
    r"core/(AddNot|NumberReplacer|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceBreakWithContinue"
    r"|ReplaceContinueWithBreak|ReplaceFalseWithTrue|ReplaceTrueWithFalse|ZeroIterationForLoop"
    r"|ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_GtE|LtE_Gt|Gt_LtE|GtE_Lt"
    r"|Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is)"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_FloorDiv|FloorDiv_Mul|Mod_FloorDiv|Div_Mul"
    r"|Pow_Mul|BitAnd_BitOr|BitOr_BitAnd|LShift_RShift|RShift_LShift)"
    r"|ReplaceUnaryOperator_Delete_(Not|USub|Invert))"
)


def effective_code(code):
    """Return code in a form without annotations, sizes of caches and zip's check of lengths, which change no result."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        for field in {"annotation", "returns"} & {*node._fields}:
            setattr(node, field, None)
        if isinstance(node, ast.Call):
            node.keywords = [
                each for each in node.keywords if each.arg not in ("strict", "maxsize")
            ]
    return ast.dump(tree)


def draw_mutations(work_db, paths, chance, sample):
    """Fill a session of cosmic-ray with a sample of different mutations of the modules."""
    init(paths, work_db, {})
    items = [
        each for each in work_db.work_items if OPERATORS.fullmatch(each.mutations[0].operator_name)
    ]
    items.sort(key=lambda each: str(each.mutations))  # the session has no order
    chance.shuffle(items)
    seen, drawn = {effective_code(path.read_text(encoding="utf-8")) for path in paths}, []
    for item in items:
        (mutation,) = item.mutations
        operator = plugins.get_operator(mutation.operator_name)()
        code = mutation.module_path.read_text(encoding="utf-8")
        try:
            dump = effective_code(mutating.mutate_code(code, operator, mutation.occurrence))
        except SyntaxError:  # cosmic-ray takes the bare * of arguments for a product
            continue
        if dump not in seen:
            seen.add(dump)
            drawn.append(item)
        if len(drawn) == sample:
            break
    work_db.clear()
    work_db.add_work_items(drawn)


def run_mutations(room, sample, seed, seconds):
    """Run the tests of a sample of mutations in the current folder, a copy of the tree."""
    paths = [path for path in Path(f"jaxpool/_{room}").rglob("*.py") if path.name not in LEFT_OUT]
    config = {"test-command": shlex.join([*PYTEST, *SELECT])}
    config |= {"timeout": seconds, "distributor": {"name": "local"}}
    with use_db("mutations.sqlite", WorkDB.Mode.create) as work_db:
        draw_mutations(work_db, sorted(paths), random.Random(seed), sample)
        execute(work_db, ConfigDict(config))
        results = [result for _, result in work_db.completed_work_items]
    survivors = [result for result in results if not result.is_killed]
    for result in survivors:
        print(result.diff, flush=True)
    killers = {
        test
        for each in results
        for test in re.findall(r"^FAILED (.+?)(?: - |$)", each.output, re.M)
    }
    if killers:  # they must pass without a mutation
        subprocess.run([*PYTEST, *sorted(killers)], check=True)
    late = sum(result.output == "timeout" for result in results)
    count = len(results) - len(survivors) - late
    print(
        f"{room}, seed {seed}: {count} of {len(results)} noticed by {len(killers)} tests, {late} took too long"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("room", choices=sorted(p.name[1:] for p in TREE.glob("jaxpool/_[a-z]*/")))
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=900.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "site")
        copy = shutil.copytree(TREE, Path(folder).resolve() / "tree", ignore=ignored)
        os.chdir(copy)
        os.environ |= ENVIRONMENT | {"PYTHONPATH": str(copy)}
        run_mutations(given.room, given.sample, given.seed, given.seconds)
