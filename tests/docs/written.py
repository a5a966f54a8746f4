"""Files written from the public functions: docs/functions.md and the stub `jaxpool/__init__.pyi`.

    python -m tests.docs.written

writes them. In the stub, editors find signatures, and docstrings without placeholders.
"""

import ast
import builtins
import inspect
from pathlib import Path

import jaxpool
from tests.docs.test_pages import DOCS, load_script

STUB = Path(jaxpool.__file__).with_suffix(".pyi")
FUNCTIONS = DOCS / "functions.md"
HEADER = '''"""Signatures and docstrings of the public functions, for editors and type checkers.

Written by `python -m tests.docs.written`. The comment above a function names the file that defines it.
"""
'''


def source_file(function):
    return Path(function.__code__.co_filename)


def definitions(function):
    """The definition of a function, or its overloads, each with its lines up to the docstring and the names it uses."""
    text = source_file(function).read_text(encoding="utf-8")
    trees = [each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef)]
    trees = [each for each in trees if each.name == function.__name__]
    found = []
    for tree in trees[:-1] or trees:
        is_overload = len(trees) > 1
        arguments = [each for each in ast.walk(tree.args) if isinstance(each, ast.arg)]
        annotations = filter(None, [tree.returns, *(each.annotation for each in arguments)])
        nodes = [node for annotation in annotations for node in ast.walk(annotation)]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        body = tree.body[0]
        lines = text.splitlines()[tree.lineno - 1 : max(tree.lineno, body.lineno - 1)]
        lines = (
            ["@overload", *(line.removesuffix(" ...") for line in lines)] if is_overload else lines
        )
        found.append((lines, names | {"overload"} if is_overload else names))
    return found


def names_used(function):
    return set().union(*(names for _, names in definitions(function)))


def import_of(name, function):
    """The statement that imports a name of an annotation, or None for a builtin."""
    for node in ast.parse(source_file(function).read_text(encoding="utf-8")).body:
        for alias in getattr(node, "names", []):
            if name == (alias.asname or alias.name):
                start = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
                return f"{start}import {ast.unparse(alias)}"
    return None if hasattr(builtins, name) else f"from {function.__module__} import {name}"


def written_function(name):
    """The definition of a public function, with its complete docstring as body."""
    function = inspect.unwrap(getattr(jaxpool, name))
    docstring = inspect.getdoc(getattr(jaxpool, name)).replace("\\", "\\\\")
    assert '"""' not in docstring
    body = "\n".join(f"    {line}".rstrip() for line in f'"""{docstring}\n"""'.splitlines())
    comment = f"# {function.__module__.replace('.', '/')}.py"
    return "\n".join(
        [comment, *(line for lines, _ in definitions(function) for line in [*lines, body])]
    )


def written_stub():
    """The current text of the stub."""
    names = sorted(jaxpool.__all__)
    functions = [inspect.unwrap(getattr(jaxpool, name)) for name in names]
    used = {(name, import_of(name, each)) for each in functions for name in names_used(each)}
    assert len(used) == len(dict(used)), "a name has two meanings in annotations"
    modules = "from jaxpool import compat as compat, testing as testing"
    imports = [*sorted({text for _, text in used if text}), modules]
    exported = ["__version__: str", "__all__ = [", *(f'    "{name}",' for name in names), "]"]
    parts = [
        HEADER.rstrip(),
        "\n".join(imports),
        "\n".join(exported),
        *map(written_function, names),
    ]
    return "\n\n".join(parts) + "\n"


def written_functions():
    """The current text of the page with all functions."""
    return load_script(DOCS / "hooks.py").functions()


if __name__ == "__main__":
    STUB.write_text(written_stub(), encoding="utf-8")
    FUNCTIONS.write_text(written_functions(), encoding="utf-8")
