"""The documentation builds without warnings, every link has a target, and no page loads files from another host."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
LOADED_ATTRIBUTES = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """The links of a page, the files it loads, and the ids that links may target."""

    def __init__(self, text):
        super().__init__()
        self.links, self.fetched, self.ids = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs.get("id"), attrs.get("name")}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag == "link" and "canonical" not in attrs.get("rel", ""):
            self.fetched.append(attrs["href"])
        if attrs.get(LOADED_ATTRIBUTES.get(tag)):
            self.fetched.append(attrs[LOADED_ATTRIBUTES[tag]])


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
    pages = {path: Page(path.read_text()) for path in folder.rglob("*.html")}
    assert len(pages) > 30
    return folder, pages


def link_target(folder, page, link):
    """The file that a link in a page points to."""
    path = unquote(urlsplit(link).path)
    file = (folder / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()
    return page if not path else file / "index.html" if file.is_dir() else file


def test_links_have_targets(site):
    folder, pages = site
    start = folder / "index.html"
    assert link_target(folder, start, "tutorial/") in pages
    assert "install" in pages[start].ids
    broken = []
    for path, page in pages.items():
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            file = link_target(folder, path, link)
            anchor = unquote(parts.fragment)
            if not file.is_file() or (anchor and file in pages and anchor not in pages[file].ids):
                broken.append((str(path.relative_to(folder)), link))
    assert broken == []


def test_no_file_is_loaded_from_another_host(site):
    _, pages = site
    strangers = {link for page in pages.values() for link in page.fetched if urlsplit(link).netloc}
    assert strangers == set()


def test_the_reference_shows_signatures_and_examples(site):
    folder, _ = site
    text = (folder / "reference" / "windowed" / "index.html").read_text()
    assert 'id="jaxpool.max_pool"' in text
    assert "Examples:" in text
