"""Chromium without a window, for the tests of the page and for pictures of it."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Browser:
    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def show(self, page: Path, width: int, scheme: str = "light", height: int = 800) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get(page.as_uri())

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def style(self, css: str) -> None:
        """Add rules to the page that is shown."""
        add = "document.head.append(Object.assign(document.createElement('style'), {textContent: arguments[0]}))"
        self.driver.execute_script(add, css)

    def open_everything(self) -> None:
        self.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")

    def requests(self) -> list[str]:
        """The addresses asked for since the last call."""
        told = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"]

    def screenshot(self) -> bytes:
        """What is in sight, as PNG."""
        return base64.b64decode(self.driver.get_screenshot_as_base64())


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Raises FileNotFoundError where Chromium or its driver is missing."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise FileNotFoundError("Chromium and its driver are needed: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        yield Browser(made)
    finally:
        made.quit()
