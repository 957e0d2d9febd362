"""A board that is served, and a headless Chromium that looks at it: what the browser test and the pictures share."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

ROOT = Path(__file__).resolve().parents[1]
#: a slow machine needs long for the first page
PATIENCE = 180.0
#: nothing is being drawn: no status, no skeleton, no spinner, and no element left from the run before
QUIET = """
const busy = '[data-testid="stStatusWidgetRunningIcon"], [data-testid="stSkeleton"], [data-testid="stSpinner"], ' +
  '[data-stale="true"]';
return document.querySelector('h1') !== null && document.querySelector(busy) === null &&
  document.querySelector('.stApp')?.dataset.testScriptState !== 'running';
"""


def missing() -> str:
    """What there is none of, for looking at pages; empty where all is there."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed: pip install -e '.[dev]'"
    if _chromium() is None or shutil.which("chromedriver") is None:
        return "no chromium with its chromedriver: apt-get install chromium chromium-driver"
    return ""


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def served(results: Sequence[Path], cache: Path | None = None) -> Iterator[str]:
    """The address of a board over ``results``, on a port of its own until the block ends."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "harness", "leaderboard", *map(str, results), "--port", str(port), "--no-browser"]
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {})}
    process = subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        _answers(f"http://localhost:{port}/_stcore/health", process)
        yield f"http://localhost:{port}"
    finally:
        os.killpg(process.pid, 15)
        process.wait(timeout=30)


def _answers(address: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the board ended with exit code {process.returncode}")
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"{address} does not answer")


@contextmanager
def browser(downloads: Path, dark: bool = False, width: int = 1440, height: int = 1000) -> Iterator[WebDriver]:
    """A headless Chromium; what it downloads goes to ``downloads``."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = _chromium() or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.add_argument(f"--window-size={width},{height}")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_script_timeout(PATIENCE)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": theme})
        yield driver
    finally:
        driver.quit()


def until(holds: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """What ``holds`` gives as soon as it is true; elements may be drawn anew while it looks at them."""
    from selenium.common.exceptions import WebDriverException

    end, last = time.monotonic() + patience, ""
    while time.monotonic() < end:
        try:
            if found := holds():
                return found
        except WebDriverException as error:
            last = f" ({error.msg})"
        time.sleep(0.1)
    raise AssertionError(f"waited {patience:.0f} s for {what}{last}")


def settled(driver: WebDriver) -> None:
    """Waits until the page has been quiet twice in a row, since a run starts a moment after what asked for it."""
    for _ in range(2):
        time.sleep(0.3)
        until(lambda: driver.execute_script(QUIET), "a page that is drawn")


def show(driver: WebDriver, address: str) -> None:
    driver.get(address)
    settled(driver)
