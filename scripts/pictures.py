"""The pictures of docs/pictures: a plan, a report and the page of `muster serve`, each of a real job on this machine.

Run by `scripts/site --pictures`, with Chromium and its driver. Look at them before you commit them.
"""

from __future__ import annotations

import base64
import html
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.serve.jobs import IMAGE, Account, hosts  # noqa: E402

from musterpoint.serve import Server  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
FAILS = """
import os, time


def step(number):
    time.sleep(0.1)
    if number == 7 and os.environ["RANK"] == "3":
        raise RuntimeError(f"loss is nan at step {number}")


for number in range(10):
    step(number)
    print("step", number, flush=True)
"""
TRAINS = """
import os, time

host = os.environ["SM_CURRENT_HOST"]
for step in range(24):
    time.sleep(0.05)
    print(f"step {step} loss={3 / (step + 1) + 0.1 * int(host[-1]):.3f}", flush=True)
time.sleep(600)
"""
METRICS = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
WAIT = 120.0
TERMINAL = """<!doctype html><meta charset="utf-8"><body style="margin:0;background:#16181d;color:#dde1e6;padding:18px">
<pre style="font:14px/1.45 'DejaVu Sans Mono',monospace;margin:0"><span style="color:#8ab4f8">$ %s</span>\n%s</pre>"""


def browser(folder: Path) -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{word}")
    options.add_argument(f"--user-data-dir={folder}")
    return webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))


def shot(driver: Any, name: str, width: int, most: int, scheme: str = "light") -> None:
    """The page as a picture, as high as it is but for what goes beyond ``most``. ``scheme``: light or dark."""
    scheme_of_media = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme_of_media]})
    driver.set_window_size(width, most)
    inner = driver.execute_script("return [innerWidth, innerHeight, document.body.scrollHeight]")
    height = min(most, inner[2])
    driver.set_window_size(width + width - inner[0], height + most - inner[1])
    made = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 85})
    (PICTURES / f"{name}.webp").write_bytes(base64.b64decode(made["data"]))


def muster(folder: Path, *words: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "104"}
    command = [sys.executable, "-m", "musterpoint", *words]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if not done.stdout and done.returncode:
        raise SystemExit(f"muster {' '.join(words)} ended with code {done.returncode}:\n{done.stderr}")
    return done.stdout


def plan(folder: Path, driver: Any) -> None:
    words = ("plan", "--hosts", "2", "--slots", "2", "--launcher", "torchrun", "train.py")
    page = folder / "plan.html"
    # the interpreter is wherever this checkout's tools are; and the variables are a page of their own
    own, shown = sys.executable, "/usr/bin/python3"
    text = (
        muster(folder, *words)
        .replace(own + "  ", shown.ljust(len(own)) + "  ")
        .replace(own, shown)
        .partition("\n  variables, ")[0]
    )
    page.write_text(TERMINAL % (html.escape(f"muster {' '.join(words)}"), html.escape(text)))
    driver.get(page.as_uri())
    shot(driver, "plan", 1000, 700)


def report(folder: Path, driver: Any) -> None:
    muster(folder, "local", "--hosts", "2", "--slots", "2", "--launcher", "ranks", "train.py")
    (job,) = (folder / "muster-jobs").glob("train-*")
    muster(folder, "report", "--html", "report.html", str(job))
    driver.get((folder / "report.html").as_uri())
    driver.set_window_size(1100, 700)
    for scheme, name in (("light", "report"), ("dark", "report-dark")):
        legend = driver.execute_script("return document.getElementById('legend').getBoundingClientRect().bottom")
        shot(driver, name, 1100, round(legend) + 14, scheme)


def serve(folder: Path, driver: Any) -> None:
    with Server(folder / "data", max_jobs=3, environ={**os.environ, "PYTHONPATH": str(ROOT / "src")}) as server:
        account = Account(server)
        algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File", "MetricDefinitions": METRICS}
        account.create("digits", TRAINS, **hosts(2), AlgorithmSpecification=algorithm)
        driver.get(server.page)
        wait = WebDriverWait(driver, WAIT, 0.1)
        wait.until(lambda _: driver.find_elements(By.CSS_SELECTOR, "#jobs button"))[0].click()
        wait.until(lambda _: "48 values" in driver.find_element(By.ID, "curves").text)
        assert "token" not in urllib.parse.urlsplit(driver.current_url).query
        shot(driver, "serve", 1200, 1000)
        account.sagemaker.stop_training_job(TrainingJobName="digits")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="muster-pictures-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "train.py").write_text(FAILS)
        driver = browser(folder / "profile")
        try:
            plan(folder, driver)
            report(folder, driver)
            serve(folder, driver)
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
