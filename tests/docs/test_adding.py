"""`docs/architecture.md` lists exactly the files that tests require for a new pool, in the same order."""

import ast
import re
from pathlib import Path

import pytest

import jaxpool
from tests.support.asked import CHECKS
from tests.test_rooms import PACKAGES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
MAX_LINES = 45  # lines
# Modules in rooms before `_api` that name public functions, in hints of messages and in the text of `accelerate`.
ALLOWED_NAMES = {
    "_accelerate/accelerate.py": {"accelerated"},
    "_arguments/calls.py": {"accelerated", "adaptive_max_pool", "max_pool"},
}
KINDS = {"max", "min"}  # values of `kind` in kernels and ops, which are also function names


def guide_section():
    return re.search(r"(?ms)^## To add a pool\n.*?(?=^## )", TEXT)[0]


@pytest.mark.parametrize("file", CHECKS)
def test_required_files_are_complete(file):
    CHECKS[file]()


def test_guide_lists_required_files_in_order():
    listed = re.findall(r"(?m)^\d\. `([^`]+)`", guide_section())
    assert listed == ["jaxpool/_api", *CHECKS]
    assert len(guide_section().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("file", [file for file in CHECKS if file != "jaxpool/_public.py"])
def test_missing_entry_error_names_file(file, monkeypatch):
    names = [*jaxpool.__all__, "unheard_of_pool"]
    monkeypatch.setattr(jaxpool, "unheard_of_pool", lambda x: x, raising=False)
    monkeypatch.setattr(jaxpool, "__all__", names)
    with pytest.raises(AssertionError, match=re.escape(file)):
        CHECKS[file]()


@pytest.mark.parametrize(
    ("owner", "name", "value", "file", "message"),
    [
        (jaxpool, "__all__", ["avg_pool"], "jaxpool/_public.py", "name adaptive_max_pool of"),
        (jaxpool, "max_pool", lambda x: x, "jaxpool/_public.py", "put @public above max_pool"),
    ],
)
def test_incomplete_entry_error_says_what_is_missing(
    owner, name, value, file, message, monkeypatch
):
    monkeypatch.setattr(owner, name, value)
    with pytest.raises(AssertionError, match=message):
        CHECKS[file]()


def public_names_in(path):
    """Public functions that a module imports, reads from `jaxpool`, or names in a string other than a docstring."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and re.match(r"jaxpool(\._api|$)", node.module):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "jaxpool":
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            names |= {node.value} - KINDS if isinstance(node.value, str) else set()
    return names & {*jaxpool.__all__}


@pytest.mark.parametrize("room", [*PACKAGES[: PACKAGES.index("_api")], "testing"])
def test_package_names_no_public_function(room):
    """A new pool is an entry in `_api` and in the files above, so no table of another room may name it."""
    package = Path(jaxpool.__file__).parent
    modules = [path for path in (package / room).rglob("*.py") if path.parent.name != "oracle"]
    assert modules
    naming = {str(path.relative_to(package)): public_names_in(path) for path in modules}
    expected = {file: names for file, names in ALLOWED_NAMES.items() if file.startswith(f"{room}/")}
    assert {file: names for file, names in naming.items() if names} == expected
