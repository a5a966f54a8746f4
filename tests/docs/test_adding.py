"""What `docs/architecture.md` says is needed to add a pool is what the tests ask for, in the same order."""

import re
from pathlib import Path

import pytest

import jaxpool
from tests.support.asked import ASKED

TEXT = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
SCREEN = 45  # lines


def section():
    return re.search(r"(?ms)^## To add a pool\n.*?(?=^## )", TEXT)[0]


@pytest.mark.parametrize("file", ASKED)
def test_nothing_is_missing(file):
    ASKED[file]()


def test_the_page_lists_what_is_asked_for_in_its_order():
    listed = re.findall(r"(?m)^\d\. `([^`]+)`", section())
    assert listed == ["jaxpool/_api", *ASKED]
    assert len(section().splitlines()) <= SCREEN


@pytest.mark.parametrize("file", [file for file in ASKED if file != "jaxpool/_public.py"])
def test_an_omission_is_named_with_its_file(file, monkeypatch):
    names = [*jaxpool.__all__, "unheard_of_pool"]
    monkeypatch.setattr(jaxpool, "unheard_of_pool", lambda x: x, raising=False)
    monkeypatch.setattr(jaxpool, "__all__", names)
    with pytest.raises(AssertionError, match=re.escape(file)):
        ASKED[file]()


def test_a_function_that_no_name_leads_to_is_named(monkeypatch):
    known = [name for name in jaxpool.__all__ if name != "max_pool"]
    monkeypatch.setattr(jaxpool, "__all__", known)
    with pytest.raises(AssertionError, match=r"name max_pool of max_pool.py in jaxpool/_public.py"):
        ASKED["jaxpool/_public.py"]()
