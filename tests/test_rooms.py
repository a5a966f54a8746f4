"""Layering of the packages: each imports only from packages before it, and few modules take part in one call."""

import ast
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxpool

PACKAGES = [
    "_arguments",
    "_geometry",
    "_plan",
    "_kernels",
    "_ops",
    "_shards",
    "_accelerate",
    "_api",
]
ENTRY_POINTS = [
    "compat",
    "testing",
    "_cli",
]  # each after all rooms; `_cli` reads the records of testing
MAX_LINES = 500  # lines; a longer module is usually about two things
PACKAGE = Path(jaxpool.__file__).parent


def imported_modules(path):
    """Yield the modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def imports_of(room):
    """Return pairs of a file of the package `room` and a module that it imports."""
    files = sorted((PACKAGE / room).rglob("*.py"))
    assert files
    return [
        (str(path.relative_to(PACKAGE)), name) for path in files for name in imported_modules(path)
    ]


@pytest.mark.parametrize("room", PACKAGES + ENTRY_POINTS)
def test_packages_import_only_earlier_packages(room):
    before = PACKAGES[: PACKAGES.index(room)] if room in PACKAGES else PACKAGES
    before = [*before, *["testing"] * (room == "_cli")]
    imports = [(file, name.split(".")) for file, name in imports_of(room)]
    inside = [(file, parts[1]) for file, parts in imports if parts[0] == "jaxpool" and parts[1:]]
    assert [pair for pair in inside if pair[1] not in [*before, room]] == []


@pytest.mark.parametrize(
    "room", ["_arguments", "_geometry", "_plan", "_kernels", "_ops", "_shards", "_accelerate"]
)
def test_internal_packages_do_not_import_jaxpool(room):
    assert [file for file, name in imports_of(room) if name == "jaxpool"] == []


def test_oracle_shares_no_code_with_library():
    """No test would notice an error in shared code. Only error messages, and signatures in `_record`, are shared."""
    imports = {(file, name) for file, name in imports_of("testing") if name.startswith("jaxpool")}
    shared = {(file, name) for file, name in imports if not name.startswith("jaxpool.testing")}
    assert shared == {
        ("testing/_check.py", "jaxpool._arguments.errors"),
        ("testing/_record.py", "jaxpool"),
    }


def test_module_length():
    lengths = {
        str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    assert {file: lines for file, lines in lengths.items() if lines > MAX_LINES} == {}


@pytest.mark.parametrize(
    ("name", "most"), [("max_pool", 18), ("avg_pool", 18), ("logsumexp_pool", 23)]
)
def test_gradient_uses_few_modules(name, most):
    """A reader of one function opens these files. The shape is one that no other test uses, so no plan is cached."""
    files = set()

    def note_file(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            files.add(frame.f_code.co_filename)

    pool = getattr(jaxpool, name)  # imports modules, which are not counted
    gradient = jax.jit(jax.grad(lambda x: pool(x, (3, 3)).sum()))
    sys.setprofile(note_file)
    try:
        gradient.lower(jnp.ones((2, 9, 11, 3)))
    finally:
        sys.setprofile(None)
    assert 10 < len(files) <= most, sorted(files)


def test_no_import_cycles():
    """Imports for type checking alone count, too."""
    left = {}
    for room in PACKAGES:
        for file, name in imports_of(room):
            module = f"jaxpool.{file.removesuffix('.py').replace('/', '.')}"
            left.setdefault(module, set()).add(name)
    while ready := {module for module, needs in left.items() if not needs & left.keys()}:
        left = {module: needs for module, needs in left.items() if module not in ready}
    assert sorted(left) == []
