"""The documentation builds without warnings, such as of broken links, and no page loads files from another host."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
OTHER_HOST = re.compile(
    r"<(?:script|img|iframe|source|link(?! rel=\"?canonical))\b[^>]*\s(?:src|href)=[\"']?(?:https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_no_file_is_loaded_from_another_host(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 30
    assert [page for page in pages if OTHER_HOST.search(page.read_text())] == []


def test_site_has_what_html_refers_to(site):
    """The site has the HTML page of `explain`, shown in a frame, and the reference with signatures and examples."""
    explain = site / "explain" / "index.html"
    frame = re.search(r'<iframe src="([^"]+)"', explain.read_text())[1]
    assert (explain.parent / frame).is_file()
    text = (site / "reference" / "windowed" / "index.html").read_text()
    assert 'id="jaxpool.max_pool"' in text
    assert "Examples:" in text
