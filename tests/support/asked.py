"""Checks that a public function has everything it needs. Each raises an error with the file where something is missing.

`docs/architecture.md` lists the same files in the same order ("To add a pool"): `tests/docs/test_adding.py`.

    python -m tests.support.asked

rewrites `tests/api/signatures.txt`.
"""

import ast
import inspect
import re
from pathlib import Path

import jaxpool
from jaxpool.testing import pools
from tests.support import bad_calls

ROOT = Path(__file__).parents[2]
SIGNATURES = ROOT / "tests" / "api" / "signatures.txt"


def public_names():
    """`jaxpool/_public.py` names exactly the functions decorated with `@public`."""
    modules = sorted((Path(jaxpool.__file__).parent / "_api").glob("*.py"))
    assert modules  # of the tested package, which may be installed elsewhere
    for path in modules:
        for node in ast.parse(path.read_text()).body:
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


def signature(name):
    """Return the signature of a public function without type annotations."""
    known = inspect.signature(getattr(jaxpool, name))
    bare = [each.replace(annotation=each.empty) for each in known.parameters.values()]
    return str(known.replace(parameters=bare, return_annotation=known.empty))


def written_signatures():
    """Return the current text of the golden file."""
    return "".join(f"{name}{signature(name)}\n" for name in sorted(jaxpool.__all__))


def signatures():
    """The golden file has the current signatures."""
    if SIGNATURES.read_text() != written_signatures():
        raise AssertionError(
            "tests/api/signatures.txt differs: `python -m tests.support.asked` writes it anew"
        )


def malformed_calls():
    """Every function except `keep_memory`, which takes no argument, has a malformed call in the table."""
    calls = "\n".join(call for call, _ in bad_calls.read())
    for name in jaxpool.__all__:
        if name != "keep_memory" and not re.search(rf"(?<![.\w]){re.escape(name)}\(", calls):
            raise AssertionError(f"tests/api/bad_calls.txt has no malformed call of {name}")


def readme():
    """README names every function."""
    text = (ROOT / "README.md").read_text()
    for name in jaxpool.__all__:
        if f"`{name}`" not in text and f"`{name}()`" not in text:
            raise AssertionError(f"README.md does not name {name}")


CHECKS = {
    "jaxpool/_public.py": public_names,
    "jaxpool/testing/oracle": records,
    "tests/api/signatures.txt": signatures,
    "tests/api/bad_calls.txt": malformed_calls,
    "README.md": readme,
}

if __name__ == "__main__":
    SIGNATURES.write_text(written_signatures())
