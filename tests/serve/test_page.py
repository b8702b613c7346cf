"""The page, in a real browser and by hand: jobs, logs and metrics as they come, buttons, and who may look."""

from __future__ import annotations

import contextlib
import http.client
import urllib.parse
from typing import Any

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from .jobs import IMAGE, Account, hosts

PRINTS = """
import os, time
for step in range(20):
    print(f"<b>step</b> {step} loss={3 / (step + 1) + len(os.environ['SM_CURRENT_HOST'])}", flush=True)
if os.environ.get("WAIT"):
    time.sleep(300)
"""
ALGORITHM = {
    "TrainingImage": IMAGE, "TrainingInputMode": "File",
    "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
}  # fmt: skip

BARS_IN_VIEW = """
const bars = [...document.querySelectorAll("#lanes .bar")].map(bar => bar.getBoundingClientRect());
const all = document.documentElement;
return all.scrollHeight <= innerHeight && bars.length > 2
  && bars.every(bar => bar.top >= 0 && bar.bottom <= 500 && bar.left >= 0 && bar.right <= innerWidth);
"""


def token_of(account: Account) -> str:
    return urllib.parse.parse_qs(urllib.parse.urlsplit(account.server.page).query)["token"][0]


def text(browser: Any, name: str) -> str:
    return str(browser.find_element(By.ID, name).text)


def until(browser: Any, name: str, words: str) -> None:
    WebDriverWait(browser, 300, 0.1).until(lambda _: words in text(browser, name), f"{name}: {words}")


def test_jobs_are_seen_as_they_run(account: Account, browser: Any) -> None:
    browser.get(account.server.page)
    assert token_of(account) not in browser.current_url, "the token doesn't stay in the address"
    account.create("waits", PRINTS, **hosts(2), AlgorithmSpecification=ALGORITHM, Environment={"WAIT": "1"})
    until(browser, "jobs", "waits")
    browser.get(account.server.page)
    until(browser, "name", "waits")  # the newest is open
    until(browser, "log", "algo-2 | <b>step</b> 19 loss=")
    until(browser, "status", "Training")
    WebDriverWait(browser, 300, 0.1).until(lambda _: len(browser.find_elements(By.CSS_SELECTOR, "polyline.curve")) == 2)
    until(browser, "curves", "40 values")
    assert browser.find_element(By.ID, "interrupt").get_property("disabled"), "it is no spot job"
    browser.find_elements(By.CSS_SELECTOR, "#hosts button")[1].click()
    until(browser, "log", "<b>step</b> 19")
    assert "algo-2 |" not in text(browser, "log")
    browser.find_element(By.ID, "stop").click()
    until(browser, "status", "Stopped")
    until(browser, "jobs", "Stopped")
    browser.refresh()
    until(browser, "name", "waits")
    until(browser, "log", "algo-2 | <b>step</b> 19 loss=")
    shown = text(browser, "log")
    assert shown.index("algo-2 |") < shown.rindex("algo-1 |"), "by time, as it was while the job ran"
    assert "Stopping" in text(browser, "steps")
    browser.switch_to.frame(browser.find_element(By.ID, "report"))
    until(browser, "answers", "The job was stopped")
    for again in ("name", "metrics", "reason"):
        assert not browser.find_element(By.ID, again).is_displayed(), "the page around it has that"
    dark = "return getComputedStyle(document.body).backgroundColor"
    before = browser.execute_script(dark)
    for width in (400, 1200):
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        WebDriverWait(browser, 300, 0.1).until(lambda _: browser.execute_script(BARS_IN_VIEW))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.switch_to.default_content()
    browser.find_element(By.ID, "theme").click()
    assert browser.execute_script(dark) != before
    browser.switch_to.frame(browser.find_element(By.ID, "report"))
    assert browser.execute_script(dark) != before, "it has the colours of the page around it"
    browser.switch_to.default_content()
    browser.set_window_size(520, 1300)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off"
    browser.set_window_size(1400, 1300)
    logged = [
        entry
        for entry in browser.get_log("browser")
        if not any(word in entry["message"] for word in ("favicon", "chrome://"))
    ]
    assert logged == [], "the page's script has nothing to complain of"


def ask(account: Account, method: str, path: str, **headers: str) -> tuple[int, str]:
    """What the server answers to a call that isn't signed."""
    place = urllib.parse.urlsplit(account.server.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    with contextlib.closing(connection):
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_only_who_has_the_token_may_look(account: Account) -> None:
    port = urllib.parse.urlsplit(account.server.url).port
    cookie = f"muster-{port}={token_of(account)}"
    assert ask(account, "GET", "/")[0] == 403
    assert ask(account, "GET", "/?token=wrong")[0] == 403
    assert ask(account, "GET", "/", Cookie=f"muster-{port}=wrong")[0] == 403
    assert ask(account, "GET", "/", Cookie=cookie)[0] == 200
    for path in ("/_muster/page/jobs", "/_muster/page/news", "/_muster/page/report?job=x", "/_muster/page/script.js"):
        assert ask(account, "GET", path)[0] == 403
    assert ask(account, "GET", "/", Cookie=cookie, Host="localhost:1234")[0] == 200, "a container's published port"
    assert ask(account, "GET", "/", Cookie=cookie, Host=f"evil.example:{port}")[0] == 403
    assert ask(account, "GET", f"/?token={token_of(account)}", Host="evil.example")[0] == 403


def test_buttons_are_pressed_by_this_page_only(account: Account) -> None:
    port = urllib.parse.urlsplit(account.server.url).port
    cookie = f"muster-{port}={token_of(account)}"
    path = "/_muster/page/stop?job=none"
    assert ask(account, "POST", path, Cookie=cookie)[0] == 403
    assert ask(account, "POST", path, Cookie=cookie, Origin="http://evil.example")[0] == 403
    status, said = ask(account, "POST", path, Cookie=cookie, Origin=account.server.url)
    assert (status, said) == (400, "Requested resource not found.")
    assert ask(account, "POST", "/_muster/page/interrupt?job=none", Cookie=cookie, Origin=account.server.url)[0] == 404
    assert ask(account, "GET", "/_muster/page/report?job=../../etc", Cookie=cookie)[0] == 400
