"""A real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

from selenium import webdriver


def chromium(profile: Path) -> webdriver.Chrome:
    """Chromium without a window; ``profile`` is where it keeps its own files."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1400,1300"):
        options.add_argument(f"--{word}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_page_load_timeout(180)
    return driver
