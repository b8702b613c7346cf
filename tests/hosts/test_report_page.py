"""``muster report --html``: the page of a real job, in a real browser."""

from __future__ import annotations

import subprocess
from typing import Any

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

PROGRAM = """
import os, time
print("begun", flush=True)
for step in range(3):
    print(f"loss={3 / (step + 1) + int(os.environ['RANK'])}", flush=True)
time.sleep(0.2)
if os.environ["RANK"] == "3":
    raise ValueError("<img src=x onerror=document.title='broken'>")
time.sleep(60)
"""


def shapes(browser: Any, selector: str) -> int:
    return len(browser.find_elements(By.CSS_SELECTOR, f"#svg {selector}"))


def shown(browser: Any) -> str:
    """The stretch of time that the lanes show."""
    return str(browser.find_element(By.ID, "range").text).split(";")[0]


def test_the_page_of_a_job(local: Any, browser: Any) -> None:
    words = ["--hosts", "2", "--slots", "2", "--launcher", "ranks", "--metric", "loss=^loss=([0-9.]+)"]
    words += ["--metric", "accuracy=acc=(.*)", "--log-prefix", "rank"]
    ran = local.run(*words, local.program(PROGRAM))
    assert ran.code == 1, ran.stderr
    assert "metric loss: " in ran.stderr
    assert "metric accuracy: 'acc=(.*)' matched no line of the hosts" in ran.stderr
    assert [each["MetricName"] for each in ran.job["FinalMetricDataList"]] == ["loss"]
    assert f"where the time went: muster report {ran.output}\n" in ran.stderr
    page = local.folder / "report.html"
    words = [local.python, "-m", "musterpoint", "report", "--html", page, ran.output]
    subprocess.run(words, env=local.environ, check=True, timeout=500)
    browser.get(page.as_uri())
    logged = [entry for entry in browser.get_log("browser") if "chrome://" not in entry["message"]]
    assert logged == [], "the page's script has nothing to complain of"
    answers = browser.find_element(By.ID, "answers").text
    assert "Failed first: rank 3 on algo-2" in answers
    assert "ValueError: <img src=x onerror=" in answers
    assert browser.title.startswith("program-"), "the error's text is text"
    names = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "#svg text") if each.text]
    assert {"▾ algo-1", "▾ algo-2 ✖ failed first", "rank 0", "rank 1", "rank 2", "rank 3 ✖"} <= {*names}
    assert shapes(browser, "path.first") == 1, "one rank has a cross"
    legend = browser.find_element(By.ID, "legend").text
    assert "failed first" in legend
    assert "before its entry point" in legend
    assert "Every host ended with code 1." in legend
    (figure,) = browser.find_elements(By.CSS_SELECTOR, "#curves figure")
    assert figure.find_element(By.TAG_NAME, "figcaption").text.endswith(", 12 values")
    assert len(figure.find_elements(By.CSS_SELECTOR, "polyline.curve")) == 2, "a line for each host"
    assert figure.find_element(By.CLASS_NAME, "legend").text.split() == ["algo-1", "algo-2"]
    whole, bars = shown(browser), shapes(browser, "rect[rx='2']")
    assert bars >= 10
    lanes = browser.find_element(By.ID, "svg")
    lanes.send_keys("+")
    assert shown(browser) != whole
    lanes.send_keys("0")
    assert shown(browser) == whole
    browser.find_element(By.ID, "startup").click()
    assert shown(browser) != whole
    browser.find_element(By.ID, "all").click()
    browser.find_element(By.ID, "fold").click()
    assert "rank 0" not in lanes.text
    run = browser.find_element(By.CSS_SELECTOR, "#svg rect[fill='var(--run)']")
    ActionChains(browser).move_to_element(run).perform()
    assert browser.find_element(By.ID, "tip").text.startswith("ran: ")
    opened = browser.find_element(By.CSS_SELECTOR, "#events tr.opened")
    assert "rank 3" in opened.text
    within = "const row = arguments[0].getBoundingClientRect(), list = scroll.getBoundingClientRect();"
    within += "return row.top > list.top && row.bottom < list.bottom"
    assert browser.execute_script(f"const scroll = document.getElementById('scroll'); {within}", opened)
    search = browser.find_element(By.ID, "filter")
    search.send_keys("rank 3 ended")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#events tr")) == 1
    search.send_keys(" and nothing like it")
    assert browser.find_elements(By.CSS_SELECTOR, "#events tr") == []
    light = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    browser.find_element(By.ID, "theme").click()
    assert browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color") != light
    search.clear()
    browser.set_window_size(520, 1000)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off"
    assert browser.execute_script("return LEFT") < 20, "the lanes have the whole width"
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script("return [printing, view[0] === whole[0], view[1] === whole[1]]") == [True] * 3
    assert browser.get_log("browser") == []
