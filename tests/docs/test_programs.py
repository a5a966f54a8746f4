"""Every ```python block of a page runs: sessions as doctests, all other blocks as programs in this file."""

import ast
import re

import numpy as np
import pytest

from tests.docs.test_pages import PAGES, ROOT

REQUIRED_LIBRARIES = {"jax", "jaxpool", "numpy", "os"}


def python_blocks(page):
    """The text of each ```python block."""
    return re.findall(
        r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def imported_libraries(program):
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]
            if node.module == "jaxpool.compat":  # these modules need the library of the same name
                yield from {alias.name for alias in node.names} & {"haiku", "equinox"}
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


PROGRAMS = {
    f"{page.relative_to(ROOT)} {number}": program
    for page in PAGES
    for number, program in enumerate(python_blocks(page))
    if not program.startswith(">>>")
}


def test_each_library_has_programs():
    """Per library: wrap a training step, put a pool into a `Sequential`, train."""
    pages = ("/bring-your-model.md", "/train-a-model.md")
    programs = [text for page in pages for name, text in PROGRAMS.items() if page in name]
    libraries = [
        set(imported_libraries(text)) - REQUIRED_LIBRARIES - {"optax", "sklearn", "functools"}
        for text in programs
    ]
    assert libraries == [{"flax"}, {"flax"}, {"haiku"}, {"equinox"}, {"keras"}] * 3


def test_blocks_are_doctests_or_programs():
    for page in PAGES:
        for block in python_blocks(page):
            inside = block.count("\n>>> ")
            assert block.startswith(">>> ") or not inside, page
            # A doctest ends at an empty line. Without it, the closing fence would count as expected output.
            assert not block.startswith(">>> ") or block.endswith("\n\n"), page


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_runs(name, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.chdir(tmp_path)
    for library in set(imported_libraries(PROGRAMS[name])) - REQUIRED_LIBRARIES:
        pytest.importorskip(library)
    scope = {"__name__": "__main__"}
    exec(compile(PROGRAMS[name], name, "exec"), scope)
    if name.startswith("README.md"):  # comments are the output
        comments = [line[2:] for line in PROGRAMS[name].splitlines() if line.startswith("# ")]
        assert capsys.readouterr().out.splitlines() == comments
    if "losses" in scope:  # training reduces the loss
        assert np.isfinite(scope["losses"]).all()
        assert scope["losses"][-1] < scope["losses"][0]
