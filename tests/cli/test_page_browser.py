"""The page of `explain` in a headless browser: controls, clicks, keys, layout and displayed numbers.

The tests need the package `selenium`, and chromium with its driver on the path (Debian's packages `chromium` and
`chromium-driver`), and skip otherwise.
200 random choices: `python -m pytest -m slow tests/cli/test_page_browser.py`.
"""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxpool.__main__ import main
from tests.cli.test_explain import STRIDE_1, STRIDE_2
from tests.cli.test_page import assert_same_numbers, page_data, random_choice, route_key

webdriver = pytest.importorskip("selenium.webdriver")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
DRIVER = shutil.which("chromedriver")
if BROWSER is None or DRIVER is None:
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

FLAGS = ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "no-first-run")
FLAGS += ("disable-background-networking", "disable-component-update", "disable-sync")
DESKTOP, PHONE = (1200, 1600, False), (390, 844, True)
READ_NUMBERS_JS = """
return [...document.querySelectorAll(`#${arguments[0]} td[data-at]`)].map((cell) => cell.dataset.value);
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    profile = tmp_path_factory.mktemp("profile")
    for word in FLAGS:
        options.add_argument(f"--{word}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def write_page(folder, *words):
    path = folder / "page.html"
    assert main(["explain", *words, "--html", str(path)]) == 0
    return path.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("page"))


@pytest.fixture
def page(browser, address):
    yield open_page(browser, address, DESKTOP)
    said = [entry["message"] for entry in browser.get_log("browser")]
    assert said == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def open_page(browser, address, screen, scheme="light"):
    width, height, mobile = screen
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(address)
    WebDriverWait(browser, 60).until(lambda page: page.find_elements(By.CSS_SELECTOR, "#input td"))
    return browser


def cell(page, panel, row, column):
    where = f'#{panel} td[data-row="{row}"][data-col="{column}"]'
    return page.find_element(By.CSS_SELECTOR, where)


def cells_of_class(page, panel, name):
    """The (row, column) of each cell of class `name`."""
    cells = page.find_elements(By.CSS_SELECTOR, f"#{panel} td.{name}")
    return [
        (int(c.get_dom_attribute("data-row")), int(c.get_dom_attribute("data-col"))) for c in cells
    ]


def grid_text(page, panel):
    rows = page.find_elements(By.CSS_SELECTOR, f"#{panel} tr")
    return "\n".join(row.text for row in rows if row.text)


def element_text(page, name):
    return page.find_element(By.ID, name).text


def choose(page, name, value):
    Select(page.find_element(By.ID, name)).select_by_value(value)


def press_keys(page, *keys):
    ActionChains(page).send_keys(*keys).perform()


def test_worked_examples(page):
    assert grid_text(page, "gradient") == STRIDE_2
    assert grid_text(page, "output") == "4 6 8\n8 8 9\n10 6 8"
    choose(page, "strides", "1x1")
    assert grid_text(page, "gradient") == STRIDE_1
    assert element_text(page, "call") == "jaxpool.max_pool(x, (2, 2), (1, 1), axes=(0, 1))"


def test_clicked_output_shows_window_and_receiver(page):
    cell(page, "output", 1, 2).click()
    assert (
        cells_of_class(page, "input", "on")
        == cells_of_class(page, "gradient", "reached")
        == [(2, 4)]
    )
    frame = page.find_element(By.CSS_SELECTOR, "#input .window").rect
    first, last = cell(page, "input", 2, 4).rect, cell(page, "input", 3, 5).rect
    assert abs(frame["x"] - first["x"]) <= 4
    assert abs(frame["y"] - first["y"]) <= 4
    assert abs(frame["x"] + frame["width"] - last["x"] - last["width"]) <= 4
    assert abs(frame["y"] + frame["height"] - last["y"] - last["height"]) <= 4
    assert element_text(page, "detail") == (
        "y(1, 2) = 9, the maximum of 4 numbers of x.\n"
        "Its cotangent dy(1, 2) = 1 goes back to dx(2, 4)."
    )


def test_hovered_input_shows_windows_and_gradient_sum(page):
    choose(page, "strides", "1x1")
    cell(page, "output", 0, 0).click()
    ActionChains(page).move_to_element(cell(page, "input", 2, 4)).perform()
    assert cells_of_class(page, "output", "on") == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert len(page.find_elements(By.CSS_SELECTOR, "#input .window")) == 4
    assert element_text(page, "detail") == (
        "x(2, 4) = 9, in 4 windows: y(1, 3), y(1, 4), y(2, 3), y(2, 4).\n"
        "dx(2, 4) = 1 + 1 + 1 + 1 = 4, from dy(1, 3), dy(1, 4), dy(2, 3), dy(2, 4)."
    )
    ActionChains(page).move_to_element(page.find_element(By.TAG_NAME, "h1")).perform()
    assert element_text(page, "detail").startswith("y(0, 0) = 4")  # the clicked cell stays selected


def test_avg_shares_exclude_padding(page):
    choose(page, "op", "avg_pool")
    choose(page, "padding", "SAME")
    choose(page, "window_shape", "3x3")
    choose(page, "count_include_pad", "no")
    cell(page, "output", 2, 2).click()
    assert element_text(page, "detail").endswith(
        "goes back 1/4 of it to each of dx(4, 4), dx(4, 5), dx(5, 4), dx(5, 5)."
    )
    choose(page, "count_include_pad", "yes")
    assert "1/9 of it to each of dx(4, 4)" in element_text(page, "detail")
    cell(page, "gradient", 5, 5).click()
    assert element_text(page, "detail").endswith("dx(5, 5) = 1/9 · 1 = 0.11111111, from dy(2, 2).")
    choose(page, "strides", "1x1")
    assert "\ndx(5, 5) = 1/9 · (1 + 1 + 1 + 1) = 0.44444445, from" in element_text(page, "detail")


def test_keyboard_navigation(page):
    cell(page, "output", 0, 0).click()
    press_keys(page, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert element_text(page, "detail").startswith("y(1, 1) = 8")
    press_keys(page, Keys.END, Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ARROW_UP)
    assert element_text(page, "detail").startswith("y(0, 2) = 8")
    press_keys(page, Keys.HOME, "+", "+", "-")
    assert element_text(page, "detail").endswith("dy(0, 0) = 2 goes back to dx(1, 0).")
    assert page.switch_to.active_element == cell(page, "output", 0, 0)
    press_keys(page, Keys.TAB)  # to the next grid
    assert page.switch_to.active_element == cell(page, "gradient", 0, 0)
    press_keys(page, "+")  # an input has no number to change
    assert element_text(page, "detail").startswith("x(0, 0) = 1, in 1 window: y(0, 0).")


def test_tab_reaches_named_grids_and_controls(page):
    script = """
const active = document.activeElement, panel = active.closest("section");
const named = active.getAttribute("aria-label") || active.labels?.[0]?.textContent.trim() || active.textContent.trim();
return [active === document.body ? "body" : panel ? panel.id : active.id, Boolean(named)];
"""
    seen = {}
    for _ in range(40):
        press_keys(page, Keys.TAB)
        where, named = page.execute_script(script)
        if where == "body" or where in seen:
            break
        seen[where] = named
    expected = {"op", "array", "window_shape", "strides", "padding", "ties", "ceil_mode"}
    assert expected | {"input", "output", "gradient", "cotangent"} <= set(seen)
    assert all(seen.values())


def test_change_cotangent_in_box(page):
    cell(page, "output", 0, 0).click()
    box = page.find_element(By.CSS_SELECTOR, "#edit input")
    box.clear()
    box.send_keys("2.5" + Keys.ENTER)
    assert cell(page, "cotangent", 0, 0).text == "2.5"
    assert grid_text(page, "gradient") == STRIDE_2.replace("1", "2.5", 1)
    choose(page, "ties", "last")  # the cotangent stays as long as the output has the same size
    assert cell(page, "cotangent", 0, 0).text == "2.5"
    choose(page, "strides", "1x1")
    assert cell(page, "cotangent", 0, 0).text == "1"


def test_errors_appear_and_clear(page):
    choose(page, "array", "ties")
    choose(page, "window_dilation", "2x2")
    choose(page, "window_shape", "3x3")
    assert element_text(page, "refusal").startswith(
        "jaxpool.max_pool: `window_shape` must be at most"
    )
    assert not page.find_element(By.ID, "call").is_displayed()
    choose(page, "window_dilation", "1x1")
    choose(page, "window_shape", "2x2")
    assert not page.find_element(By.ID, "refusal").is_displayed()
    choose(page, "ties", "last")
    assert grid_text(page, "gradient") == "0 0 0 0\n0 1 0 1\n0 0 0 0\n0 1 0 1"


def test_unpool_and_dilation(page):
    choose(page, "op", "max_unpool")
    cell(page, "output", 1, 0).click()
    assert element_text(page, "detail") == (
        "x(1, 0) = 4, the result of 1 number of y.\n"
        "Its cotangent dx(1, 0) = 1 goes back to dy(0, 0)."
    )
    cell(page, "input", 2, 2).click()
    assert element_text(page, "detail").startswith("y(2, 2) = 8, in 1 output: x(5, 5).")
    choose(page, "op", "max_pool")
    choose(page, "window_dilation", "2x2")
    cell(page, "output", 0, 0).click()
    assert cells_of_class(page, "input", "tap") == [(0, 0), (0, 2), (2, 0), (2, 2)]


def test_function_without_windows(browser, tmp_path):
    words = ["--op", "segment_max", "--array", "1 9; 4 2; 5 9", "--set", "segment_ids=[0, 1, 0]"]
    page = open_page(browser, write_page(tmp_path, *words, "--cotangent", "2"), DESKTOP)
    assert grid_text(page, "output") == "5 9\n4 2"
    assert grid_text(page, "gradient") == "0 1\n2 2\n2 1"
    cell(page, "output", 0, 1).click()
    assert element_text(page, "detail") == (
        "y(0, 1) = 9, the result of 2 numbers of x.\n"
        "Its cotangent dy(0, 1) = 2 goes back 1/2 of it to each of dx(0, 1), dx(2, 1)."
    )
    choose(page, "op", "rank_pool")
    choose(page, "rank", "-1")
    assert grid_text(page, "output") == "9"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_layout(browser, address, scheme, tmp_path):
    page = open_page(browser, address, PHONE, scheme)
    assert page.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]
    assert cell(page, "output", 0, 0).rect["width"] >= 28
    offset = cell(page, "input", 0, 0).rect["y"] - cell(page, "output", 0, 0).rect["y"]
    assert abs(offset) < 2
    cell(page, "output", 2, 2).click()
    assert page.find_element(By.ID, "detail").rect["y"] > 0
    picture = tmp_path / "phone.png"
    assert page.save_screenshot(str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    for panel in ("input", "gradient"):  # the text at the bottom does not hide the focused cell
        page.execute_script("arguments[0].focus()", cell(page, panel, 5, 5))
        script = """
const box = arguments[0].getBoundingClientRect();
return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) === arguments[0];
"""
        assert page.execute_script(script, cell(page, panel, 5, 5))
    page = open_page(
        browser,
        write_page(tmp_path, "--array", " ".join("1" * 20) + ";" + " ".join("2" * 20)),
        PHONE,
    )
    assert len(page.find_elements(By.CSS_SELECTOR, "#output td")) == 10
    assert page.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrast(browser, address, scheme):
    """WCAG 2 requires a contrast of 4.5 to 1 for text."""
    page = open_page(browser, address, DESKTOP, scheme)
    script = """
const texts = "h1, header p, label, td, .key, #detail p, footer p, code";
const colour = (element) => getComputedStyle(element).backgroundColor;
return [...document.querySelectorAll(texts)].map((element) => {
  let behind = element;
  while (colour(behind) === "rgba(0, 0, 0, 0)" && behind.parentElement) behind = behind.parentElement;
  return [getComputedStyle(element).color, colour(behind)];
});
"""

    def luminance(colour):
        rgb = np.array([int(part) for part in colour[4:-1].split(",")]) / 255
        linear = np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722] + 0.05

    pairs = {tuple(pair) for pair in page.execute_script(script)}
    assert len(pairs) >= 4
    for front, behind in pairs:
        a, b = luminance(front), luminance(behind)
        assert max(a, b) / min(a, b) >= 4.5, (front, behind)


@pytest.mark.parametrize("count", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_random_choices(page, address, count):
    """The displayed numbers and marked cells are those that `test_page.py` compares with the library."""
    data, rng = page_data(Path(address.removeprefix("file://")).read_text()), random.Random(count)
    for _ in range(count):
        chosen = random_choice(data, rng)
        for name, text in chosen.items():
            choose(page, name, text)
        found = data["routes"][route_key(data, chosen)]
        assert element_text(page, "refusal") == found.get("refusal", "")
        if "refusal" in found:
            continue
        assert element_text(page, "call") == found["call"]
        assert_same_numbers(
            page.execute_script(READ_NUMBERS_JS, "output"), found["output"]["values"]
        )
        output = rng.randrange(len(found["links"]))
        cell(page, "output", *divmod(output, found["output"]["cols"])).click()
        columns = found["input"]["cols"]
        receivers = [divmod(at, columns) for at, share in found["links"][output] if share != 0]
        for panel, mark in (("input", "on"), ("gradient", "reached")):
            assert cells_of_class(page, panel, mark) == receivers, chosen
        dx = np.zeros(len(found["input"]["values"]))
        for at, share in (link for links in found["links"] for link in links):
            dx[at] += float(share)
        assert_same_numbers(page.execute_script(READ_NUMBERS_JS, "gradient"), dx)
        source = rng.randrange(len(dx))
        cell(page, "gradient", *divmod(source, columns)).click()
        senders = [
            n
            for n, links in enumerate(found["links"])
            if any(at == source and share != 0 for at, share in links)
        ]
        positions = [divmod(sender, found["output"]["cols"]) for sender in senders]
        assert cells_of_class(page, "cotangent", "reached") == positions, chosen
