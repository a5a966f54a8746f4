"""The built documentation in a headless browser: copied code, the search, and the layout on a phone."""

import doctest
import functools
import http.server
import inspect
import re
import threading
from urllib.parse import unquote

import pytest

import jaxpool
from jaxpool._arguments.calls import ARGUMENT_SYNONYMS
from tests.docs.test_pages import DOCS, ROOT
from tests.support.browser import ActionChains, By, WebDriverWait, open_browser, set_screen

pytestmark = pytest.mark.slow


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address(site):
    """The address of the site on a server in a thread. The search does not work in files."""
    handler = functools.partial(QuietHandler, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        set_screen(driver, 1366, "light")
        yield driver


def code_without_outputs(block):
    """The lines of a block as a user would type them, without prompts, outputs and empty lines."""
    language, text = block
    if text.startswith(">>>"):
        text = "".join(example.source for example in doctest.DocTestParser().get_examples(text))
    elif language == "console":
        text = text.replace("$ ", "")
    return list(filter(None, text.splitlines()))


@pytest.mark.parametrize(
    ("page", "source"),
    [
        ("gradient/", DOCS / "gradient.md"),
        ("tutorial/", DOCS / "tutorial.md"),
        ("explain/", DOCS / "explain.md"),
        ("contributing/", ROOT / "CONTRIBUTING.md"),
    ],
)
def test_copied_code_has_no_prompts_and_outputs(browser, address, page, source):
    browser.get(address + page)
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    ready = (By.CSS_SELECTOR, "pre button[data-md-type=copy], .md-code__button")
    buttons = WebDriverWait(browser, 10).until(lambda page: page.find_elements(*ready))
    blocks = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", source.read_text(encoding="utf-8"))
    assert len(buttons) == len(blocks) >= 1
    read = "navigator.clipboard.readText().then(arguments[0])"
    for button, block in zip(buttons, blocks, strict=True):
        ActionChains(browser).move_to_element(button).click().perform()
        copied = browser.execute_async_script(read)
        assert list(filter(None, copied.splitlines())) == code_without_outputs(block)


def search(page, query):
    """Type a query into the search box, and return the locations of each result, by pages."""
    script = """
const box = document.querySelector("[data-md-component=search-query]");
box.focus();
box.value = arguments[0];
box.dispatchEvent(new Event("keyup"));
"""
    links = """
const links = (item) => [...item.querySelectorAll("a.md-search-result__link")].map((link) => link.href);
return [...document.querySelectorAll(".md-search-result__item")].map(links);
"""
    for text in ("", query):  # without the first, results of the last query would be read
        page.execute_script(script, text)
        while bool(results := page.execute_script(links)) != bool(text):
            pass
    return [[unquote(link).split("/", 3)[3] for link in item] for item in results]


def expected_sections():
    """The section of the reference about each public name, argument and synonym, and about other words."""
    names = {name: f"#jaxpool.{name}" for name in jaxpool.__all__}
    taken = {p for name in names for p in inspect.signature(getattr(jaxpool, name)).parameters}
    arguments = {name: f"reference/arguments/#{name}" for name in taken}
    others = {
        word: arguments[ours[0]]
        for ours, theirs in reversed(ARGUMENT_SYNONYMS)
        for word in (*ours[1:], *theirs)
        if ours[0] in arguments
    }
    words = {
        "argmax": "#jaxpool.max_pool_with_argmax",
        "unpool": "#jaxpool.max_unpool",
        "median": "#jaxpool.median_pool",
        "gem": "#jaxpool.gem_pool",
        "softmax": "#jaxpool.softmax_pool",
        "fractional": "#jaxpool.fractional_max_pool",
        "roi": "#jaxpool.roi_align",
        "segment": "#jaxpool.segment_max",
        "max_pool2d": "#jaxpool.compat.torch.max_pool2d",
        "maximum_filter": "#jaxpool.compat.scipy.maximum_filter",
    }
    return words | others | arguments | names


def test_search_shows_the_reference_first(browser, address):
    """The first result is a page of the reference. The section about the word is in the first three results."""
    browser.get(address)
    sections = expected_sections()
    assert len(sections) > 120
    wrong = {}
    for word, section in sections.items():
        results = search(browser, word)[:3]
        found = any(
            re.search(rf"{re.escape(section)}(?!\w)", link) for item in results for link in item
        )
        if not found or not results[0][0].startswith("reference/"):
            wrong[word] = results
    assert wrong == {}


@pytest.mark.parametrize("page", ["", "tutorial/", "functions/", "reference/windowed/"])
def test_page_is_not_wider_than_a_phone(browser, address, page):
    set_screen(browser, 390, "light")
    browser.get(address + page)
    width = browser.execute_script("return document.documentElement.scrollWidth")
    set_screen(browser, 1366, "light")
    assert width <= 390
