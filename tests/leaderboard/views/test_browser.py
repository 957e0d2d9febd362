"""The board in a real browser: filters and address, keyboard, download, pages, light and dark."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlparse

import pytest

from harness.config.variants import Variant
from leaderboard.views import PAGES
from scripts.board_browser import browser, missing, served, settled, show, until
from tests.harness.driving import COMMITTED
from tests.harness.made_runs import FULL, both, lines_of, write_run

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")

BAD = '<img src=x onerror="window.broken=1"><b>bold</b> [click](https://evil.example) https://evil.example/x'


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed run, one of another model, and one whose every name is hostile."""
    folder = tmp_path_factory.mktemp("board") / "results"
    folder.mkdir()
    (folder / COMMITTED.name).mkdir()
    for file in COMMITTED.iterdir():
        (folder / COMMITTED.name / file.name).write_bytes(file.read_bytes())
    lines = lines_of(FULL, both(100))
    for level in (0.25, 0.5, 0.75):
        lines += lines_of(Variant("knorm", "head", "removed", level), both(100 * (1 - level)))
    write_run(folder / "second", lines, model="second-model")
    write_run(folder / "bad", lines, model=BAD, dtype=BAD)
    return folder


@pytest.fixture(scope="module")
def address(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served([results], tmp_path_factory.mktemp("cache")) as found:
        yield found


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def driver(downloads: Path) -> Iterator[WebDriver]:
    with browser(downloads) as found:
        yield found


def all_of(driver: WebDriver, css: str) -> list[WebElement]:
    return driver.find_elements("css selector", css)


def one(driver: WebDriver, css: str) -> WebElement:
    return until(lambda: all_of(driver, css), css)[0]


def query(driver: WebDriver) -> dict[str, list[str]]:
    return parse_qs(urlparse(driver.current_url).query)


def boards(driver: WebDriver) -> list[str]:
    return [found.text for found in all_of(driver, "h3")]


def choose(driver: WebDriver, key: str, text: str) -> None:
    """Picks an option of the box with this key by typing it."""
    from selenium.webdriver.common.keys import Keys

    box = one(driver, f".st-key-{key} input")
    box.click()
    box.send_keys(text)
    until(lambda: text in one(driver, '[role="option"]').text, f"the option {text}")
    box.send_keys(Keys.ENTER)
    until(lambda: key in query(driver), f"{key} in the address")
    settled(driver)


def colour(driver: WebDriver) -> list[int]:
    """Red, green and blue of the page's background."""
    text = driver.execute_script("return getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    return [int(part) for part in text[text.index("(") + 1 : -1].split(",")[:3]]


def charts(driver: WebDriver) -> list[WebElement]:
    return all_of(driver, '[data-testid="stVegaLiteChart"] canvas, [data-testid="stVegaLiteChart"] svg')


def complaints(driver: WebDriver) -> list[str]:
    """What the page's scripts complained about; icons that come from elsewhere aside."""
    return [
        entry["message"]
        for entry in driver.get_log("browser")
        if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]
    ]


def test_the_first_page_has_charts_and_tables(driver: WebDriver, address: str) -> None:
    show(driver, address)
    until(lambda: len(charts(driver)) == 3, "three charts")
    assert "KV-cache pruning, measured" in one(driver, "h1").text
    assert "smollm2-135m, needles at 1,024 tokens" in boards(driver)
    assert not all_of(driver, '[data-testid="stException"]') and not complaints(driver)


def test_text_of_strangers_is_shown_as_it_is(driver: WebDriver, address: str) -> None:
    show(driver, address)
    assert any(title.replace("\u2060", "").startswith(BAD) for title in boards(driver)), boards(driver)
    assert driver.execute_script("return window.broken") is None
    assert not all_of(driver, 'a[href*="evil"], img[src="x"], h3 b')


def test_a_filter_changes_the_address_and_a_reload_keeps_the_view(driver: WebDriver, address: str) -> None:
    show(driver, address)
    choose(driver, "model", "second-model")
    assert query(driver)["model"] == ["second-model"] and boards(driver) == ["second-model, toy at 64 tokens"]
    one(driver, ".st-key-log label").click()
    until(lambda: query(driver).get("log") == ["true"], "the log axis in the address")
    settled(driver)
    shared = driver.current_url
    show(driver, shared)
    assert boards(driver) == ["second-model, toy at 64 tokens"] and query(driver)["log"] == ["true"]
    assert one(driver, ".st-key-log input").get_attribute("aria-checked") in ("true", None)
    assert one(driver, ".st-key-log input").is_selected()


def test_going_to_another_page_keeps_the_filter(driver: WebDriver, address: str) -> None:
    show(driver, f"{address}/?model=second-model")
    one(driver, '[data-testid="stSidebarNavLink"][href*="benchmark"]').click()
    until(lambda: "benchmark" in urlparse(driver.current_url).path, "the other page")
    settled(driver)
    until(lambda: query(driver).get("model") == ["second-model"], "the filter in the address", patience=20)


def test_the_keyboard_reaches_filters_and_pages(driver: WebDriver, address: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    show(driver, address)
    reached: set[str] = set()
    who = """
    const here = document.activeElement, key = here.closest('[class*="st-key-"]');
    return (key ? [...key.classList].find(name => name.startsWith('st-key-')) : '') + ' ' + (here.href || '');
    """
    for _ in range(40 + 2 * len(PAGES)):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        reached.add(driver.execute_script(who))
    keys = {name.split(" ")[0] for name in reached}
    assert {"st-key-model", "st-key-benchmark", "st-key-method", "st-key-level", "st-key-log"} <= keys
    links = " ".join(reached)
    assert all(f"/{name}" in links for name in PAGES if name != "overview"), links


def test_the_table_is_downloaded_as_csv(driver: WebDriver, address: str, downloads: Path) -> None:
    show(driver, f"{address}/?model=smollm2-135m")
    one(driver, '[data-testid="stDownloadButton"] button').click()
    (file,) = until(lambda: list(downloads.glob("smollm2-135m-needles*.csv")), "the file")
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    cells = json.loads((COMMITTED / "summary.json").read_text("utf-8"))["cells"]
    assert [row["variant"] for row in rows] == [cell["variant"] for cell in cells]
    assert [float(row["score"]) for row in rows] == [cell["score"] for cell in cells]


def test_a_click_in_the_legend_singles_a_method_out(driver: WebDriver, address: str) -> None:
    """The picture changes, and nothing else: no run of the page, no entry in the address."""
    from selenium.webdriver.common.action_chains import ActionChains

    show(driver, f"{address}/?model=smollm2-135m")
    chart = charts(driver)[0]
    before = chart.screenshot_as_png
    width = chart.size["width"]
    first = width // 2 - 150, 70 - chart.size["height"] // 2
    ActionChains(driver).move_to_element_with_offset(chart, *first).click().perform()
    until(lambda: chart.screenshot_as_png != before, "another picture")
    assert query(driver) == {"model": ["smollm2-135m"]}


@pytest.mark.parametrize("name", PAGES)
def test_each_page_opens(driver: WebDriver, address: str, name: str, tmp_path: Path) -> None:
    show(driver, f"{address}/{name}?model=smollm2-135m")
    assert one(driver, "h1").text
    assert not all_of(driver, '[data-testid="stException"], [role="dialog"]')  # a dialog: there is no such page
    driver.save_screenshot(str(tmp_path / f"{name}.png"))
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_the_slider_of_the_adaptivity_page_moves(driver: WebDriver, address: str) -> None:
    from selenium.webdriver.common.keys import Keys

    show(driver, f"{address}/adaptivity?model=smollm2-135m")
    slider = one(driver, '[data-testid="stSlider"] input[type="range"]')
    before, last = slider.get_attribute("value"), slider.get_attribute("max")
    slider.send_keys(Keys.ARROW_LEFT if before == last else Keys.ARROW_RIGHT)
    until(lambda: one(driver, '[data-testid="stSlider"] input').get_attribute("value") != before, "a moved slider")
    settled(driver)
    assert not all_of(driver, '[data-testid="stException"]')


def test_a_sample_opens_on_the_inside_page(driver: WebDriver, address: str) -> None:
    show(driver, f"{address}/inside?model=smollm2-135m")
    assert not all_of(driver, '[data-testid="stException"]')
    values = [box.get_attribute("value") or "" for box in all_of(driver, '[data-testid="stMain"] input')]
    assert any(value.startswith("needles/") for value in values), values


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_light_and_dark(address: str, downloads: Path, tmp_path: Path, dark: bool) -> None:
    with browser(downloads, dark=dark) as own:
        show(own, f"{address}/?model=smollm2-135m")
        assert (max(colour(own)) < 80) == dark and (min(colour(own)) > 200) != dark
        until(lambda: charts(own), "a chart")
        time.sleep(0.5)  # the chart fades in
        own.save_screenshot(str(tmp_path / "page.png"))
        assert (tmp_path / "page.png").stat().st_size > 30_000
