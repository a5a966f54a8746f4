"""What `docs/architecture.md` says is needed to add a pool is what the tests ask for: no more, in the same order."""

import functools
import re
from pathlib import Path

import pytest

import jaxpool
from jaxpool.testing import oracle
from tests.support.asked import ASKED

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
SCREEN = 45  # lines
FILES = 8  # that hold the name of a function, documentation aside
# Names that other libraries have too, and functions by which tests of all pools speak.
WIDELY_NAMED = """
accelerate accelerated adaptive_avg_pool adaptive_max_pool adaptive_max_pool_with_argmax avg_pool cummax cummin dilate
erode fmax fmin fractional_max_pool global_avg_pool global_max_pool keep_memory logsumexp_pool lp_pool max max_pool
max_pool_with_argmax max_unpool maximum maxout min min_pool minimum plan_of rank_pool roi_align roi_max_pool
segment_max segment_min segment_sum sharded softmax_pool spatial_pyramid_pool sum_pool
"""


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


def test_a_function_that_is_named_and_not_marked_is_named(monkeypatch):
    monkeypatch.setattr(jaxpool, "max_pool", lambda x: x)
    with pytest.raises(AssertionError, match="put @public above max_pool"):
        ASKED["jaxpool/_public.py"]()


def test_a_record_that_its_module_hides_is_named(monkeypatch):
    monkeypatch.setattr(oracle.windowed, "__all__", [])
    with pytest.raises(AssertionError, match="`__all__` of"):
        ASKED["jaxpool/testing/oracle"]()


@functools.cache
def words_of_files():
    """The words of each file that is committed, as `git grep -w` sees them, without documentation and drawn cases."""
    if not (ROOT / "mkdocs.yml").exists():
        pytest.skip("the tests lie beside no source tree")
    folders = [ROOT / name for name in ("jaxpool", "tests", "bench", "examples", ".ci")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    files += [path for path in ROOT.glob("[!.]*") if path.is_file()]
    documentation = {ROOT / "README.md", ROOT / "CHANGELOG.md"}
    left_out = documentation | {
        ROOT / "tests/search/kept.txt"
    }  # cases that failed once, as they were drawn
    texts = [path for path in files if "__pycache__" not in path.parts and path not in left_out]
    return {path: set(re.findall(rb"\w+", path.read_bytes())) for path in texts}


@pytest.mark.parametrize(
    "name", [name for name in jaxpool.__all__ if name not in WIDELY_NAMED.split()]
)
def test_a_name_stands_in_few_files(name):
    """As `git grep -lw NAME -- ':!docs' ':!README.md' ':!CHANGELOG.md'` counts them."""
    files = [path for path, words in words_of_files().items() if name.encode() in words]
    assert len(files) <= FILES, sorted(str(path.relative_to(ROOT)) for path in files)
