"""Rules checked by reading the sources: only plans make choices, and every threshold has a documented reason."""

import ast
import dataclasses
import importlib
import re
import tokenize
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
    return [(str(path.relative_to(PACKAGE / room)), ast.parse(path.read_text())) for path in files]


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


class TestKernels:
    def test_kernels_read_no_thresholds(self):
        for file, tree in parse_modules("_kernels"):
            for whole, name in imports(tree):
                assert not whole.startswith("jaxpool._plan.tuning"), file
                assert name not in ("TUNING", "LIMITS", "Tuning", "Limits", "tuning"), file
            assert attributes(tree) & {*THRESHOLD_TYPES, "tuning", "thresholds"} == set(), file

    def test_kernels_define_no_thresholds(self):
        found = {
            (file, text)
            for file, tree in parse_modules("_kernels")
            for text in numeric_expressions(tree)
        }
        assert found == set(ALLOWED_NUMBERS)


def platforms_named(tree):
    """Yield line and name of each mention of a platform, or of the table of all thresholds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in JAX_PLATFORMS:
            yield node.lineno, node.value
        elif isinstance(node, ast.Name) and node.id == "TUNING":
            yield node.lineno, node.id


class TestPlatforms:
    def test_platforms_are_named_only_in_plans(self):
        """Only plans depend on the platform. `op.py` translates jax's platform names at lowering."""
        found = {
            (str(path.relative_to(PACKAGE)), name)
            for path in PACKAGE.rglob("*.py")
            if path.parent != PACKAGE / "_plan"
            for _, name in platforms_named(ast.parse(path.read_text()))
        }
        assert found == {
            *(("_ops/op.py", name) for name in JAX_PLATFORMS),
            ("_cli/_devices.py", "cpu"),  # the devices of this host
        }


class TestThresholds:
    def test_every_threshold_is_read(self):
        rooms = parse_modules("_plan") + parse_modules("_ops")
        read = [attributes(tree) for file, tree in rooms if file != "tuning.py"]
        assert set(THRESHOLD_TYPES) - set().union(*read) == set()

    @pytest.mark.parametrize("field", THRESHOLD_TYPES)
    def test_every_threshold_is_documented(self, field):
        comments, headings = threshold_docs()
        unit = "" if THRESHOLD_TYPES[field] is bool else r"\w.*: "
        assert re.fullmatch(rf"# {unit}\w.*", comments[field]), comments[field]
        written = re.findall(r"^## (.+)$", NOTES.read_text(), re.MULTILINE)
        assert headings[field] in written

    def test_every_platform_has_thresholds(self):
        assert set(tuning.TUNING) == {*PLATFORMS, "portable"}


def threshold_docs():
    """Return the comment of each threshold, and the NOTES heading that precedes it."""
    path = Path(tuning.__file__)
    with path.open("rb") as file:
        tokens = [
            each for each in tokenize.tokenize(file.readline) if each.type == tokenize.COMMENT
        ]
    comments, headings, previous_line = {}, {}, 0
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", None) in THRESHOLD_TYPES:
            above = [each.string for each in tokens if each.start[0] <= node.end_lineno]
            own = [
                each.string for each in tokens if previous_line < each.start[0] <= node.end_lineno
            ]
            own = [line for line in own if not line.startswith("# NOTES: ")]
            comments[node.target.id] = "# " + " ".join(line.removeprefix("# ") for line in own)
            previous_line = node.end_lineno
            noted = [line for line in above if line.startswith("# NOTES: ")]
            headings[node.target.id] = noted[-1].removeprefix("# NOTES: ") if noted else None
    return comments, headings


class TestPlans:
    def test_plan_modules_do_not_import_jax(self):
        """Modules of the library that they import do not import jax, either."""
        seen, left = (
            set(),
            [f"{room}.{f}" for room in ("_geometry", "_plan") for f, _ in parse_modules(room)],
        )
        left = [
            name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in left
        ]
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            path = PACKAGE / f"{name.replace('.', '/')}.py"
            path = path if path.exists() else path.with_suffix("") / "__init__.py"
            for whole, _ in imports(ast.parse(path.read_text())):
                assert whole.split(".")[0] not in ("jax", "jaxlib"), name
                parts = whole.split(".")[1:] if whole.startswith("jaxpool.") else []
                for known in (parts, parts[:-1]):
                    inside = PACKAGE.joinpath(*known)
                    if known and (inside.with_suffix(".py").exists() or inside.is_dir()):
                        left.append(".".join(known))

    def test_plan_dataclasses_are_frozen(self):
        for file, _ in parse_modules("_plan"):
            name = "jaxpool._plan." + file.removesuffix(".py")
            for found in vars(importlib.import_module(name)).values():
                if isinstance(found, type) and dataclasses.is_dataclass(found):
                    assert found.__dataclass_params__.frozen, found

    @pytest.mark.parametrize("platform", PLATFORMS)
    def test_plans_are_cached_and_hashable(self, platform):
        def problem():
            window = make_window((2, 23, 22, 16), (5, 3), (2, 1), "SAME")
            return Problem(window, (2, 23, 22, 16), "bfloat16", platform)

        for make in (plan_max, plan_one_pass, plan_sum):
            plan = make(problem())
            assert make(problem()) is plan
            assert hash(plan) == hash(dataclasses.replace(plan))
            assert dataclasses.replace(plan) == plan
