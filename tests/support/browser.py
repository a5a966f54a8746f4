"""A headless browser for tests of pages.

It needs the package `selenium`, and chromium with its driver on the path (Debian's packages `chromium` and
`chromium-driver`). Without them, the import of this module skips the test file.
"""

import contextlib
import shutil

import pytest

webdriver = pytest.importorskip("selenium.webdriver")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
DRIVER = shutil.which("chromedriver")
if BROWSER is None or DRIVER is None:
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)

from selenium.webdriver.common.action_chains import ActionChains as ActionChains  # noqa: E402
from selenium.webdriver.common.by import By as By  # noqa: E402
from selenium.webdriver.common.keys import Keys as Keys  # noqa: E402
from selenium.webdriver.support.ui import Select as Select  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait as WebDriverWait  # noqa: E402

FLAGS = ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "no-first-run")
FLAGS += (
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "disable-quic",
)


@contextlib.contextmanager
def open_browser(profile):
    """Yield a driver of selenium with a new profile folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for word in (*FLAGS, f"user-data-dir={profile}"):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def set_screen(driver, width, scheme):
    """Emulate a screen of a width in pixels, with the "light" or the "dark" scheme."""
    size = {"width": width, "height": 1600, "deviceScaleFactor": 1, "mobile": width < 400}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
