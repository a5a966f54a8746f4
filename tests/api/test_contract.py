"""The public contract: names, argument order, defaults, and the sections of a docstring."""

import inspect
import pickle
import re
import subprocess
import sys

import pytest

import jaxpool
from tests.support import asked

NAMES = sorted(jaxpool.__all__)


def test_signatures_match_the_golden_file():
    """Signatures equal the golden file `signatures.txt`."""
    asked.signatures()
    assert jaxpool.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_type_annotations_are_complete(name):
    signature = inspect.signature(getattr(jaxpool, name))
    untyped = [n for n, p in signature.parameters.items() if p.annotation is p.empty]
    assert untyped == []
    assert signature.return_annotation is not signature.empty


def test_function_name_module_and_pickling():
    for name in set(jaxpool.__all__) - {"keep_memory"}:
        function = getattr(jaxpool, name)
        assert function.__name__ == name
        assert re.match(r"jaxpool\._(api|accelerate)\.", function.__module__)
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("name", NAMES)
def test_docstring_sections(name):
    text = inspect.getdoc(getattr(jaxpool, name))
    sections = re.findall(r"^(\w+):$", text, re.MULTILINE)
    expected = ["Args", "Returns", "Raises", "Example", "References"]
    assert [section for section in sections if section in expected] == expected
    assert re.search(rf">>> .*jaxpool\.{name}\(", text) or f"import {name}" in text
    # Functions without arguments have no gradient.
    if not inspect.signature(getattr(jaxpool, name)).parameters:
        return
    assert re.search(r"(?i)gradient", text)
    arguments = text.split("Args:")[1].split("Returns:")[0]
    for parameter in inspect.signature(getattr(jaxpool, name)).parameters:
        assert re.search(rf"^\s+\*?{parameter}\b.*:", arguments, re.MULTILINE), parameter


def test_docstrings_mention_autodiff_jvp():
    for name in NAMES:
        if "autodiff" in inspect.signature(getattr(jaxpool, name)).parameters:
            text = inspect.getdoc(getattr(jaxpool, name))
            assert re.search(r'"jvp"', text), name


def test_import_loads_no_optional_packages():
    extras = "flax haiku equinox keras torch tensorflow matplotlib sklearn optax tqdm hypothesis"
    code = (
        "import sys, jaxpool\n"
        f"found = [name for name in {extras.split()} if name in sys.modules]\n"
        "sys.exit(f'imported {found}' if found else 0)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


def test_subpackages_are_attributes_of_jaxpool():
    names = "jaxpool.compat, jaxpool.testing"
    code = f"import jaxpool; print(*[each.__name__ for each in ({names})], sep=', ')"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == names


def test_drop_in_modules_are_lazy_attributes():
    names = ["flax", "scipy", "torch", "torchvision"]
    code = f"""if True:
        import jaxpool
        for name in {names}:
            assert name in dir(jaxpool.compat) and name not in vars(jaxpool.compat)
            assert getattr(jaxpool.compat, name).__name__ == f"jaxpool.compat.{{name}}"
    """
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(f"`{name}`" in jaxpool.compat.__doc__ for name in names)


def test_unknown_drop_in_raises_attribute_error():
    with pytest.raises(AttributeError, match=r"'jaxpool\.compat' has no attribute 'nothing'"):
        jaxpool.compat.nothing  # noqa: B018


def test_help_works_without_optional_packages():
    code = (
        "import importlib.util, pydoc, sys; found = importlib.util.find_spec; "
        "importlib.util.find_spec = lambda name: None if name == 'hypothesis' else found(name); "
        "sys.modules['hypothesis'] = None; import jaxpool; pydoc.render_doc(jaxpool)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_dir_lists_only_public_names():
    code = "import jaxpool; print(*dir(jaxpool))"
    fresh = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert {*jaxpool.__all__, "compat", "testing"} <= set(fresh)
    assert not {"Any", "TYPE_CHECKING", "importlib", "sys"} & set(fresh)
    with pytest.raises(AttributeError, match="'jaxpool' has no attribute 'nothing'"):
        jaxpool.nothing  # noqa: B018
