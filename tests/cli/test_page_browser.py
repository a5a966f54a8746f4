"""The page of `explain` in a headless browser: controls, clicks, keys, layout and displayed numbers.

200 random choices: `python -m pytest -m slow tests/cli/test_page_browser.py`.
"""

import random
from pathlib import Path

import numpy as np
import pytest

from jaxpool.__main__ import main
from tests.cli.test_page import page_data, random_choice, route_key
from tests.support.browser import (
    ActionChains,
    By,
    Keys,
    Select,
    WebDriverWait,
    open_browser,
    set_screen,
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def write_page(folder, *words):
    path = folder / "page.html"
    assert main(["explain", *words, "--html", str(path)]) == 0
    return path.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("page"))


@pytest.fixture
def page(browser, address):
    yield open_page(browser, address)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def open_page(browser, address, width=1200, scheme="light"):
    set_screen(browser, width, scheme)
    browser.get(address)
    WebDriverWait(browser, 60).until(lambda page: page.find_elements(By.CSS_SELECTOR, "#x td"))
    return browser


def cells_of(page, panel):
    """The cells of a grid as rows."""
    rows = page.find_elements(By.CSS_SELECTOR, f"#{panel} tr")
    return [row.find_elements(By.TAG_NAME, "td") for row in rows]


def marked(page, panel, name):
    """The (row, column) of each cell of class `name`."""
    script = """
const cells = document.querySelectorAll(`#${arguments[0]} td.${arguments[1]}`);
return [...cells].map((cell) => [cell.parentElement.rowIndex, cell.cellIndex]);
"""
    return [tuple(place) for place in page.execute_script(script, panel, name)]


def numbers(page, panel):
    script = """
const value = (cell) => cell.querySelector("input")?.value ?? cell.textContent;
return [...document.querySelectorAll(`#${arguments[0]} td`)].map(value);
"""
    return np.array(page.execute_script(script, panel)).astype(float)


def element_text(page, name):
    return page.find_element(By.ID, name).text


def choose(page, **values):
    for name, value in values.items():
        Select(page.find_element(By.ID, name)).select_by_value(value)


def press_keys(page, *keys):
    ActionChains(page).send_keys(*keys).perform()


def test_clicked_output_shows_window_and_receiver(page):
    assert element_text(page, "call") == "jaxpool.max_pool(x, (2, 2), (2, 2), axes=(0, 1))"
    cells_of(page, "y")[1][2].click()
    assert marked(page, "y", "current") == marked(page, "dy", "current") == [(1, 2)]
    assert marked(page, "x", "window") == [(2, 4), (2, 5), (3, 4), (3, 5)]
    assert marked(page, "x", "on") == marked(page, "dx", "on") == [(2, 4)]
    assert element_text(page, "detail") == (
        "y(1, 2) = 9. The cotangent dy(1, 2) = 1 goes to: (2, 4)."
    )


def test_hovered_input_shows_windows_and_gradient_sum(page):
    choose(page, op="avg_pool", strides="1x1")
    ActionChains(page).move_to_element(cells_of(page, "x")[0][4]).perform()
    assert marked(page, "y", "on") == marked(page, "dy", "on") == [(0, 3), (0, 4)]
    assert element_text(page, "detail") == (
        "x(0, 4) = 5. dx(0, 4) = 0.25 · dy(0, 3) + 0.25 · dy(0, 4) = 0.5."
    )


def test_keyboard(page):
    page.find_element(By.ID, "ties").click()
    press_keys(page, Keys.ESCAPE, Keys.TAB, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    press_keys(page, Keys.ARROW_UP)
    assert element_text(page, "detail").startswith("x(1, 1) = 2.")
    press_keys(page, Keys.TAB, Keys.TAB, Keys.TAB)  # to y, dx and the first number of dy
    assert element_text(page, "detail").startswith("y(0, 0) = 4. The cotangent dy(0, 0) = 1 ")
    press_keys(page, Keys.ARROW_UP, "5")
    assert element_text(page, "detail").startswith("y(0, 0) = 4. The cotangent dy(0, 0) = 25 ")
    names = "return [...document.querySelectorAll('select, input')].every((e) => e.labels[0] || e.ariaLabel)"
    assert page.execute_script(names)


def test_changed_cotangent(page):
    box = cells_of(page, "dy")[0][0].find_element(By.TAG_NAME, "input")
    box.clear()
    ActionChains(page).move_to_element(cells_of(page, "x")[5][5]).perform()  # marks another number
    box.send_keys("2.5")
    dx = np.zeros((6, 6))
    dx[[1, 1, 1, 2, 2, 3, 4, 4, 5], [0, 3, 4, 3, 4, 0, 1, 3, 5]] = 1
    dx[1, 0] = 2.5
    np.testing.assert_array_equal(numbers(page, "dx"), dx.ravel())
    choose(page, ties="last")  # the cotangent stays as long as the output has the same size
    assert numbers(page, "dy")[0] == 2.5
    choose(page, strides="1x1")
    assert set(numbers(page, "dy")) == {1}


def test_errors_appear_and_clear(page):
    choose(page, array="ties", window_dilation="2x2", window_shape="3x3")
    assert element_text(page, "refusal").startswith(
        "jaxpool.max_pool: `window_shape` must be at most"
    )
    assert not page.find_element(By.ID, "board").is_displayed()
    choose(page, window_dilation="1x1", window_shape="2x2", ties="last")
    assert not page.find_element(By.ID, "refusal").is_displayed()
    assert marked(page, "x", "chosen") == [(1, 1), (1, 3), (3, 1), (3, 3)]


def test_function_without_windows(browser, tmp_path):
    words = ["--op", "segment_max", "--array", "1 9; 4 2; 5 9", "--set", "segment_ids=[0, 1, 0]"]
    page = open_page(browser, write_page(tmp_path, *words, "--cotangent", "2"))
    assert numbers(page, "y").tolist() == [5, 9, 4, 2]
    assert numbers(page, "dx").tolist() == [0, 1, 2, 2, 2, 1]
    cells_of(page, "y")[0][1].click()
    assert element_text(page, "detail") == (
        "y(0, 1) = 9. The cotangent dy(0, 1) = 2 goes to: "
        "(0, 1) gets 1/2, (2, 1) gets 1/2; 2 elements tie, ties='split'."
    )
    choose(page, op="rank_pool", rank="-1")
    assert numbers(page, "y").tolist() == [9]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_layout_and_contrast_on_phone(browser, scheme, tmp_path):
    """A wide grid scrolls by itself. WCAG 2 requires a contrast of 4.5 to 1 for text."""
    long_row = " ".join("1" * 30)
    address = write_page(tmp_path, "--array", f"{long_row};{long_row}")
    page = open_page(browser, address, width=390, scheme=scheme)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    script = """
const texts = "h1, h2, p, label, select, td, code";
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
    data = page_data(Path(address.removeprefix("file://")).read_text(encoding="utf-8"))
    rng = random.Random(count)
    for _ in range(count):
        chosen = random_choice(data, rng)
        choose(page, **chosen)
        found = data["routes"][route_key(data, chosen)]
        assert element_text(page, "refusal") == found.get("refusal", "")
        if "refusal" in found:
            continue
        assert element_text(page, "call") == found["call"]
        for name in ("x", "y"):
            want = np.array(found[name]["values"]).astype(float)
            np.testing.assert_allclose(numbers(page, name), want, rtol=1e-3)
        links = [
            (output, at, float(share))
            for output, inputs in enumerate(found["links"])
            for at, share in inputs
        ]
        dx = np.zeros(len(found["x"]["values"]))
        for _, at, share in links:
            dx[at] += share
        np.testing.assert_allclose(numbers(page, "dx"), dx, rtol=1e-3)
        senders = [(output, at) for output, at, share in links if share != 0]
        columns, output_columns = found["x"]["cols"], found["y"]["cols"]
        output, source = rng.randrange(len(found["links"])), rng.randrange(len(dx))
        row, column = divmod(output, output_columns)
        cells_of(page, "y")[row][column].click()
        receivers = [divmod(at, columns) for each, at in senders if each == output]
        assert marked(page, "x", "on") == marked(page, "dx", "on") == receivers, chosen
        row, column = divmod(source, columns)
        cells_of(page, "dx")[row][column].click()
        outputs = [divmod(each, output_columns) for each, at in senders if at == source]
        assert marked(page, "dy", "on") == outputs, chosen
