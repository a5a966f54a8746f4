"""Rules checked by reading the sources: only plans make choices, and every threshold has a documented reason."""

import ast
import dataclasses
import importlib
import re
import sys
from pathlib import Path

import pytest

import jaxpool
from jaxpool._geometry.window import make_window
from jaxpool._plan import tuning
from jaxpool._plan.max_pool import plan_max, plan_one_pass
from jaxpool._plan.problem import PLATFORMS, Problem
from jaxpool._plan.sum_pool import plan_sum

PACKAGE = Path(jaxpool.__file__).parent
NOTES = Path(__file__).parents[2] / "bench" / "NOTES.md"
THRESHOLD_TYPES = {  # type of each threshold by name
    field.name: field.type
    for thresholds in (tuning.Limits, tuning.Tuning)
    for field in dataclasses.fields(thresholds)
}
JAX_PLATFORMS = {"cpu", "gpu", "tpu", "cuda", "rocm"}
# Numbers in kernels that are not thresholds, and their meaning.
ALLOWED_NUMBERS = {
    ("dtypes.py", "bits == np.uint8(255)"): "the NaN of an 8-bit float without a sign",
    ("bits.py", "BITS_PER_BYTE = 8"): "bits of a word",
    ("split_ties.py", "BITS_PER_WORD = 32"): "bits of the widest word",
    ("segments.py", "segment_ids.dtype.itemsize < 4"): "ids are widened to 32 bits",
    ("box_mean.py", "SAMPLE_POINTS_PER_PIXEL = 6"): "samples that can meet: a bound of geometry",
    ("dtypes.py", "jnp.dtype(dtype).itemsize < 4"): "bytes of float32",
    ("positions.py", "jnp.dtype(indices.dtype).itemsize < 4"): "bytes of int32",
}


def parse_modules(room):
    """Return path and syntax tree of each file of the package `room`."""
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files
    return [
        (str(path.relative_to(PACKAGE / room)), ast.parse(path.read_text(encoding="utf-8")))
        for path in files
    ]


def imports(tree):
    """Yield each import of a module, as the full name and the imported name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, alias.name) for alias in node.names)


def attributes(tree):
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def has_large_number(tree):
    """Return True if the code has a number above 2. Numbers up to 2 are too common to be thresholds."""
    found = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return any(isinstance(value, (int, float)) and abs(value) > 2 for value in found)


def numeric_expressions(tree):
    """Yield assignments outside functions, comparisons and argument defaults that contain a number."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            some = [each for each in node.body if isinstance(each, (ast.Assign, ast.AnnAssign))]
        elif isinstance(node, (ast.FunctionDef, ast.Lambda)):
            some = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        else:
            some = [node] if isinstance(node, (ast.Compare, ast.match_case)) else []
        yield from (ast.unparse(each) for each in some if has_large_number(each))


def test_kernels_read_no_thresholds():
    for file, tree in parse_modules("_kernels"):
        for whole, name in imports(tree):
            assert not whole.startswith("jaxpool._plan.tuning"), file
            assert name not in ("TUNING", "LIMITS", "Tuning", "Limits", "tuning"), file
        assert attributes(tree) & {*THRESHOLD_TYPES, "tuning"} == set(), file


def test_kernels_make_no_choices():
    """Kernels import plans, and of the functions in `_plan` only those that choose between no implementations."""
    found = set()
    for _, tree in parse_modules("_kernels"):
        for whole, name in imports(tree):
            if whole.startswith("jaxpool._plan."):
                imported = getattr(importlib.import_module(whole.rpartition(".")[0]), name)
                found |= {name} if callable(imported) and name.islower() else set()
    of_shapes = {"group_axes", "new_axes", "split_shape"}
    assert found <= {*of_shapes, "is_constant_table", "plan_partial_sums", "position_of_rank"}


def test_only_plans_compare_with_thresholds():
    """Ops read only the thresholds of a platform that are True or False."""
    numbers = {name for name, kind in THRESHOLD_TYPES.items() if kind is not bool}
    for room in ("_ops", "_shards", "_api"):
        for file, tree in parse_modules(room):
            assert attributes(tree) & numbers == set(), file


def test_kernels_define_no_thresholds():
    modules = parse_modules("_kernels")
    found = {(file, text) for file, tree in modules for text in numeric_expressions(tree)}
    assert found == set(ALLOWED_NUMBERS)


def platforms_named(tree):
    """Yield each mention of a platform, or of the table of all thresholds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in JAX_PLATFORMS:
            yield node.value
        elif isinstance(node, ast.Name) and node.id == "TUNING":
            yield node.id


def test_platforms_are_named_only_in_plans():
    """Only plans depend on the platform. `primitives.py` translates jax's platform names at lowering."""
    modules = [each for each in parse_modules(".") if not each[0].startswith("_plan/")]
    found = {(file, name) for file, tree in modules for name in platforms_named(tree)}
    devices_of_this_host = ("_cli/_devices.py", "cpu")
    assert found == {
        *(("_ops/primitives.py", name) for name in JAX_PLATFORMS),
        devices_of_this_host,
    }


def test_every_threshold_is_read():
    rooms = parse_modules("_plan") + parse_modules("_ops")
    read = [attributes(tree) for file, tree in rooms if file != "tuning.py"]
    assert set(THRESHOLD_TYPES) - set().union(*read) == set()


def threshold_docs():
    """Return the comment of each threshold, and the NOTES heading that precedes it."""
    pattern = r"^    (?:# NOTES: (.+)|(\w+): [^#\n]*# (.+))$"
    comments, headings, heading = {}, {}, None
    for found in re.finditer(
        pattern, Path(tuning.__file__).read_text(encoding="utf-8"), re.MULTILINE
    ):
        if found[1]:
            heading = found[1]
        else:
            comments[found[2]], headings[found[2]] = found[3], heading
    return comments, headings


def test_every_threshold_is_documented():
    comments, headings = threshold_docs()
    written = re.findall(r"^## (.+)$", NOTES.read_text(encoding="utf-8"), re.MULTILINE)
    for field, kind in THRESHOLD_TYPES.items():
        unit = "" if kind is bool else r"\w.*: "
        assert re.fullmatch(rf"{unit}\w.*", comments[field]), field
        assert headings[field] in written, field


def test_plan_modules_do_not_import_jax():
    """Modules of the library that they import do not import jax, either."""
    left = [f"jaxpool._plan.{file.removesuffix('.py')}" for file, _ in parse_modules("_plan")]
    seen = set(left)
    while left:
        name = left.pop()
        path = Path(importlib.import_module(name).__file__)
        for whole, _ in imports(ast.parse(path.read_text(encoding="utf-8"))):
            assert whole.split(".")[0] not in ("jax", "jaxlib"), name
            module = whole if whole in sys.modules else whole.rpartition(".")[0]
            if module.startswith("jaxpool.") and module not in seen:
                seen.add(module)
                left.append(module)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_plans_are_cached_and_hashable(platform):
    def problem():
        window = make_window((2, 23, 22, 16), (5, 3), (2, 1), "SAME")
        return Problem((2, 23, 22, 16), "bfloat16", platform, window)

    for make in (plan_max, plan_one_pass, plan_sum):
        plan = make(problem())
        assert make(problem()) is plan
        assert hash(plan) == hash(dataclasses.replace(plan))
        assert dataclasses.replace(plan) == plan
