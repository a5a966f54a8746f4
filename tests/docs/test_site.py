"""The documentation builds without warnings, such as of broken links, and no page loads files from another host."""

import re

import pytest

pytestmark = pytest.mark.slow
OTHER_HOST = re.compile(
    r"<(?:script|img|iframe|source|link(?! rel=\"?canonical))\b[^>]*\s(?:src|href)=[\"']?(?:https?:)?//"
)


def test_no_file_is_loaded_from_another_host(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 30
    assert [page for page in pages if OTHER_HOST.search(page.read_text(encoding="utf-8"))] == []


def test_site_has_what_html_refers_to(site):
    """The site has the HTML page of `explain`, shown in a frame, and the reference with signatures and examples."""
    explain = site / "explain" / "index.html"
    frame = re.search(r'<iframe src="([^"]+)"', explain.read_text(encoding="utf-8"))[1]
    assert (explain.parent / frame).is_file()
    text = (site / "reference" / "windowed" / "index.html").read_text(encoding="utf-8")
    assert 'id="jaxpool.max_pool"' in text
    assert "Examples:" in text
