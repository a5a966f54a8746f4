"""The built documentation in a headless browser: copied code, the search, and the layout on a phone."""

import functools
import http.server
import inspect
import threading

import pytest

import jaxpool
from jaxpool._arguments.calls import ARGUMENT_SYNONYMS
from tests.support.browser import By, WebDriverWait, open_browser, set_screen

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
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver
