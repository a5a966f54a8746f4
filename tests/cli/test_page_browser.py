"""The page of `explain` in a headless browser: clicks, keys, layout and displayed numbers.

The tests need the package `selenium`, and chromium with its driver on the path (Debian's packages `chromium` and
`chromium-driver`), and skip otherwise.
200 random settings: `python -m pytest -m slow tests/cli/test_page_browser.py`.
"""

import json
import random
import shutil

import numpy as np
import pytest

from jaxpool.__main__ import main
from tests.cli.random_settings import (
    array_text,
    assert_close,
    expected_route,
    random_case,
    settings_json,
)
from tests.cli.test_explain_command import STRIDE_1, STRIDE_2

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
from selenium.webdriver.support.ui import Select  # noqa: E402

FLAGS = ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "no-first-run")
# The browser makes no connections of its own.
FLAGS += (
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "disable-quic",
)
DESKTOP, PHONE = (1200, 1600, False), (390, 844, True)
# Sets every control from settings, an array and a cotangent, with `input` events.
SET_CONTROLS_JS = """
const { settings, array, dy } = JSON.parse(arguments[0]);
const set = (id, value) => { document.getElementById(id).value = value ?? ""; };
for (const name of ["op", "ties", "p", "rank", "divisor"]) set(name, settings[name]);
for (const name of ["ceil_mode", "count_include_pad"]) document.getElementById(name).checked = settings[name];
const pairs = ["window", "strides", "window_dilation", "output_shape"];
for (const name of pairs) settings[name].forEach((n, i) => set(`${name}-${i}`, n));
const given = Array.isArray(settings.padding);
set("padding", given ? "explicit" : settings.padding);
if (given) settings.padding.forEach((pair, i) => pair.forEach((n, j) => set(`padding-${i}-${j}`, n)));
set("array", array);
set("dy", dy);
document.getElementById("op").dispatchEvent(new Event("input", { bubbles: true }));
"""
LARGE_ARRAY_JS = """
const box = document.getElementById("array");
box.value = Array(20).fill([...Array(20).keys()].join(" ")).join(";");
box.dispatchEvent(new Event("input", { bubbles: true }));
"""
READ_PAGE_JS = """
const numbers = (id) => [...document.querySelectorAll(`#${id} tr`)].map((row) =>
  [...row.querySelectorAll("td[data-at]")].map((cell) => cell.dataset.value)).filter((row) => row.length);
const refusal = document.getElementById("refusal");
return refusal.hidden ? { output: numbers("output"), gradient: numbers("gradient") } : { refused: refusal.textContent };
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


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    assert main(["explain", "--html", str(path)]) == 0
    return path.as_uri()


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


def fill(page, name, value):
    box = page.find_element(By.ID, name)
    box.clear()
    box.send_keys(value)


def press_keys(page, *keys):
    ActionChains(page).send_keys(*keys).perform()


def test_worked_examples(page):
    assert grid_text(page, "gradient") == STRIDE_2
    assert grid_text(page, "output") == "4 6 8\n8 8 9\n10 6 8"
    fill(page, "strides-0", "1")
    fill(page, "strides-1", "1")
    assert grid_text(page, "gradient") == STRIDE_1
    assert element_text(page, "call") == "jaxpool.max_pool(x, (2, 2), (1, 1), axes=(0, 1))"


def test_clicked_output_shows_window_and_cotangent_path(page):
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
    paths = page.find_elements(By.CSS_SELECTOR, "#paths g path")
    assert [path.get_dom_attribute("class") for path in paths] == ["forward", "backward"]


def test_hovered_input_shows_windows_and_gradient_sum(page):
    fill(page, "strides-0", "1")
    fill(page, "strides-1", "1")
    fill(page, "dy", "0.5")
    cell(page, "output", 0, 0).click()
    ActionChains(page).move_to_element(cell(page, "input", 2, 4)).perform()
    assert cells_of_class(page, "output", "on") == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert len(page.find_elements(By.CSS_SELECTOR, "#input .window")) == 4
    assert element_text(page, "detail") == (
        "x(2, 4) = 9, in 4 windows: y(1, 3), y(1, 4), y(2, 3), y(2, 4).\n"
        "dx(2, 4) = 0.5 + 0.5 + 0.5 + 0.5 = 2, from dy(1, 3), dy(1, 4), dy(2, 3), dy(2, 4)."
    )
    ActionChains(page).move_to_element(page.find_element(By.TAG_NAME, "h1")).perform()
    assert element_text(page, "detail").startswith("y(0, 0) = 4")  # the clicked cell stays selected


def test_avg_shares_exclude_padding(page):
    choose(page, "op", "avg")
    choose(page, "padding", "SAME")
    fill(page, "window-0", "3")
    page.find_element(By.ID, "count_include_pad").click()
    cell(page, "output", 2, 0).click()
    assert element_text(page, "detail").endswith(
        "goes back 1/4 of it to each of dx(4, 0), dx(4, 1), dx(5, 0), dx(5, 1)."
    )
    page.find_element(By.ID, "count_include_pad").click()
    assert "1/6 of it to each of dx(4, 0)" in element_text(page, "detail")
    cell(page, "gradient", 5, 5).click()
    assert element_text(page, "detail").endswith("dx(5, 5) = 1/6 · 1 = 0.16666667, from dy(2, 2).")
    fill(page, "strides-0", "1")
    cell(page, "gradient", 3, 4).click()
    assert (
        "\ndx(3, 4) = 1/6 · (1 + 1 + 1) = 0.5, from dy(2, 2), dy(3, 2), dy(4, 2)."
        in element_text(page, "detail")
    )


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
    press_keys(page, "+")
    assert element_text(page, "detail").startswith("x(0, 0) = 2, in 1 window: y(0, 0).")


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
    expected = {"op", "window-0", "strides-1", "padding", "ties", "ceil_mode", "array", "dy"}
    assert expected | {"input", "output", "gradient", "cotangent"} <= set(seen)
    assert all(seen.values())


def test_edit_number_in_place(page):
    cell(page, "input", 0, 0).click()
    box = page.find_element(By.CSS_SELECTOR, "#edit input")
    box.clear()
    box.send_keys("nan" + Keys.ENTER)
    assert cell(page, "output", 0, 0).text == "nan"
    assert grid_text(page, "gradient").startswith("1 0")


def test_errors_appear_and_clear(page):
    fill(page, "window-0", "7")
    assert element_text(page, "refusal") == (
        "The window spans 7 rows, more than the padded input has: 6. Use a smaller window or more padding."
    )
    assert not page.find_element(By.ID, "call").is_displayed()
    fill(page, "window-0", "")
    assert element_text(page, "refusal") == "Window rows must be a whole number from 1 to 400."
    fill(page, "window-0", "2")
    assert not page.find_element(By.ID, "refusal").is_displayed()
    fill(page, "array", "1 2; 3 four")
    assert element_text(page, "refusal").startswith(
        "The array must be rows of equally many numbers"
    )
    page.find_element(By.CSS_SELECTOR, "[data-preset=ties]").click()
    choose(page, "ties", "last")
    assert grid_text(page, "gradient") == "0 0 0 0\n0 1 0 1\n0 0 0 0\n0 1 0 1"


def test_unpool_and_dilation(page):
    choose(page, "op", "unpool")
    cell(page, "output", 1, 0).click()
    assert element_text(page, "detail") == (
        "x(1, 0) = 4, put back where it was.\nIts cotangent dx(1, 0) = 1 goes back to dy(0, 0)."
    )
    cell(page, "input", 2, 2).click()
    assert "from (5, 5) of the array, index 35." in element_text(page, "detail")
    choose(page, "op", "max")
    for axis in "01":
        fill(page, f"window_dilation-{axis}", "2")
    cell(page, "output", 0, 0).click()
    assert cells_of_class(page, "input", "tap") == [(0, 0), (0, 2), (2, 0), (2, 2)]


def test_rank_range_with_padding(page):
    choose(page, "op", "rank")
    fill(page, "rank", "-1")
    assert grid_text(page, "gradient") == STRIDE_2
    choose(page, "padding", "SAME")
    fill(page, "window-0", "3")
    assert element_text(page, "detail").startswith(
        "y(0, 0) = 5, the element of this rank of 6 numbers of x."
    )
    fill(page, "rank", "4")
    assert element_text(page, "refusal") == "The rank must be from -4 to 3: a window has 4 numbers."


def test_page_starts_with_error(browser, tmp_path):
    path = tmp_path / "page.html"
    assert main(["explain", "--op", "lp", "--p", "1e300", "--html", str(path)]) == 0
    page = open_page(browser, path.as_uri(), DESKTOP)
    assert element_text(page, "refusal") == "p must be a number above 0, or inf."
    page.execute_script("window.dispatchEvent(new Event('resize'))")
    fill(page, "p", "2")
    assert grid_text(page, "output").startswith("5.48 ")
    assert browser.get_log("browser") == []


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
    page.execute_script(LARGE_ARRAY_JS)
    assert grid_text(page, "output").count("\n") == 9
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


def check_settings(page, count, seed):
    """Compare displayed numbers and marked cells with the library for random settings, some of them invalid."""
    rng, possible = random.Random(seed), 0
    while possible < count:
        settings, x, dy = random_case(rng)
        route = expected_route(settings, x, dy)
        refused = isinstance(route, str)
        sent = {"settings": json.loads(settings_json(settings)), "array": array_text(x)}
        sent["dy"] = "1" if refused else array_text(route.dy)
        page.execute_script(SET_CONTROLS_JS, json.dumps(sent))
        said = page.execute_script(READ_PAGE_JS)
        assert ("refused" in said) == refused, (sent, said, route)
        if refused:
            continue
        possible += 1
        assert element_text(page, "call") == settings.source_code(x.shape)
        assert_close(said["output"], route.y)
        assert_close(said["gradient"], route.dx)
        output = tuple(map(rng.randrange, route.y.shape))
        cell(page, "output", *output).click()
        receivers = [at for at, _ in route.cotangent_receivers_of(output)]
        assert (
            cells_of_class(page, "input", "on")
            == cells_of_class(page, "gradient", "reached")
            == receivers
        ), sent
        source = tuple(map(rng.randrange, route.x.shape))
        cell(page, "gradient", *source).click()
        share = route.cotangent_shares[..., source[0], source[1]]
        senders = [tuple(at) for at in np.argwhere(np.isnan(share) | (share != 0)).tolist()]
        assert cells_of_class(page, "cotangent", "reached") == senders, sent


def test_random_settings(page):
    check_settings(page, count=2, seed=5)


@pytest.mark.slow
def test_many_random_settings(page):
    check_settings(page, count=200, seed=6)
