"""Checks that a public function has everything it needs. Each raises an error with the file where something is missing.

`docs/architecture.md` lists exactly these files, in the same order ("To add a pool").
"""

import ast
import inspect
import re
from pathlib import Path

import pytest

import jaxpool
from jaxpool.testing import pools
from tests.docs import written
from tests.support import bad_calls
from tests.test_rooms import PACKAGES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MAX_LINES = 45  # lines
# Modules in rooms before `_api` that name public functions, in hints of messages and in the text of `accelerate`.
ALLOWED_NAMES = {
    "_accelerate/accelerate.py": {"accelerated"},
    "_arguments/calls.py": {"accelerated", "adaptive_max_pool", "max_pool"},
    "_arguments/other_names.py": {"dilate", "erode"},
}
KINDS = {"max", "min"}  # values of `kind` in kernels and ops, which are also function names


def public_names():
    """`jaxpool/_public.py` names exactly the functions decorated with `@public`."""
    modules = sorted((Path(jaxpool.__file__).parent / "_api").glob("*.py"))
    assert modules  # of the tested package, which may be installed elsewhere
    for path in modules:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            marked = isinstance(node, ast.FunctionDef) and any(
                isinstance(each, ast.Name) and each.id == "public" for each in node.decorator_list
            )
            if marked and node.name not in jaxpool.__all__:
                raise AssertionError(f"name {node.name} of {path.name} in jaxpool/_public.py")
    for name in jaxpool.__all__:
        function = getattr(jaxpool, name)
        if not inspect.signature(function).parameters:
            continue
        try:
            function(an_argument_that_none_has=0)
        except TypeError as error:
            if str(error).startswith(f"jaxpool.{name}: "):
                continue
        raise AssertionError(f"put @public above {name}, which jaxpool/_public.py names")


def records():
    """Every function has a record with an oracle."""
    try:
        pools()
    except LookupError as error:
        raise AssertionError(str(error)) from None


def signatures():
    """The stub has the current signatures and docstrings."""
    check_written(written.STUB, "def {}(", written.written_stub)


def functions():
    """The page of all functions has the current summaries."""
    check_written(written.FUNCTIONS, "| [`{}`](", written.written_functions)


def check_written(path, start, write):
    """Raise unless a written file is current; it has a line with the given start for each function."""
    text = path.read_text(encoding="utf-8")
    if any("\n" + start.format(name) not in text for name in jaxpool.__all__) or text != write():
        raise AssertionError(f"{path} differs: `python -m tests.docs.written` writes it anew")


def malformed_calls():
    """Every function except `keep_memory`, which takes no argument, has a malformed call in the table."""
    calls = "\n".join(call for call, _ in bad_calls.read())
    for name in jaxpool.__all__:
        if name != "keep_memory" and not re.search(rf"(?<![.\w]){re.escape(name)}\(", calls):
            raise AssertionError(f"tests/api/bad_calls.txt has no malformed call of {name}")


def readme():
    """README names every function."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in jaxpool.__all__:
        if f"`{name}`" not in text and f"`{name}()`" not in text:
            raise AssertionError(f"README.md does not name {name}")


CHECKS = {
    "jaxpool/_public.py": public_names,
    "jaxpool/testing/oracle": records,
    "jaxpool/__init__.pyi": signatures,
    "docs/functions.md": functions,
    "tests/api/bad_calls.txt": malformed_calls,
    "README.md": readme,
}


def guide_section():
    return re.search(r"(?ms)^## To add a pool\n.*?(?=^## )", TEXT)[0]


@pytest.mark.parametrize("file", CHECKS)
def test_required_files_are_complete(file):
    CHECKS[file]()


def test_guide_lists_required_files_in_order():
    listed = re.findall(r"(?m)^\d\. `([^`]+)`", guide_section())
    assert listed == ["jaxpool/_api", *CHECKS]
    assert len(guide_section().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("file", CHECKS)
def test_missing_entry_error_names_file(file, monkeypatch):
    names = [*jaxpool.__all__, "unheard_of_pool"]
    monkeypatch.setattr(jaxpool, "unheard_of_pool", lambda x: x, raising=False)
    monkeypatch.setattr(jaxpool, "__all__", names)
    with pytest.raises(AssertionError, match=re.escape(file)):
        CHECKS[file]()


def test_public_function_without_name_is_reported(monkeypatch):
    monkeypatch.setattr(jaxpool, "__all__", ["avg_pool"])
    with pytest.raises(AssertionError, match="name adaptive_max_pool of"):
        public_names()


def public_names_in(path):
    """Public functions that a module imports, reads from `jaxpool`, or names in a string other than a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
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
