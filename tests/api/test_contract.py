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


def test_arguments_their_order_and_defaults():
    """Signatures equal the golden file `signatures.txt`."""
    asked.signatures()
    assert jaxpool.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_and_the_result_are_typed(name):
    signature = inspect.signature(getattr(jaxpool, name))
    untyped = [n for n, p in signature.parameters.items() if p.annotation is p.empty]
    assert untyped == []
    assert signature.return_annotation is not signature.empty


def test_functions_keep_name_and_module_and_are_pickled_by_name():
    for name in set(jaxpool.__all__) - {"keep_memory"}:
        function = getattr(jaxpool, name)
        assert function.__name__ == name
        assert re.match(r"jaxpool\._(api|accelerate)\.", function.__module__)
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_tells_arguments_result_errors_an_example_and_its_source(name):
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


def test_where_forward_mode_needs_an_argument_the_docstring_says_which():
    for name in NAMES:
        if "autodiff" in inspect.signature(getattr(jaxpool, name)).parameters:
            text = inspect.getdoc(getattr(jaxpool, name))
            assert re.search(r'"jvp"', text), name


def test_import_needs_jax_and_numpy_alone():
    extras = "flax haiku equinox keras torch tensorflow matplotlib sklearn optax tqdm hypothesis"
    code = (
        "import sys, jaxpool\n"
        f"found = [name for name in {extras.split()} if name in sys.modules]\n"
        "sys.exit(f'imported {found}' if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_packages_below_are_found_without_an_import_of_their_own():
    names = "jaxpool.compat, jaxpool.testing"
    code = f"import jaxpool; print(*[each.__name__ for each in ({names})], sep=', ')"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == names


def test_a_drop_in_is_an_attribute_before_anything_imported_it():
    names = ["flax", "scipy", "torch", "torchvision"]
    code = f"""if True:
        import jaxpool
        for name in {names}:
            assert name in dir(jaxpool.compat) and name not in vars(jaxpool.compat)
            assert getattr(jaxpool.compat, name).__name__ == f"jaxpool.compat.{{name}}"
    """
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(f"`{name}`" in jaxpool.compat.__doc__ for name in names)


def test_no_drop_in_is_made_up():
    with pytest.raises(AttributeError, match=r"'jaxpool\.compat' has no attribute 'nothing'"):
        jaxpool.compat.nothing  # noqa: B018


def test_help_needs_no_extra():
    code = (
        "import importlib.util, pydoc, sys; found = importlib.util.find_spec; "
        "importlib.util.find_spec = lambda name: None if name == 'hypothesis' else found(name); "
        "sys.modules['hypothesis'] = None; import jaxpool; pydoc.render_doc(jaxpool)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_lists_its_names_and_has_no_others():
    code = "import jaxpool; print(*dir(jaxpool))"
    fresh = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert {*jaxpool.__all__, "compat", "testing"} <= set(fresh)
    assert not {"Any", "TYPE_CHECKING", "importlib", "sys"} & set(fresh)
    with pytest.raises(AttributeError, match="'jaxpool' has no attribute 'nothing'"):
        jaxpool.nothing  # noqa: B018
