"""``muster report --html``: the page of a real job, in a real browser."""

from __future__ import annotations

import subprocess
from typing import Any

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


def shown(browser: Any) -> str:
    """The stretch of time that the lanes show."""
    return str(browser.find_element(By.ID, "range").text)


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
    lanes = browser.find_element(By.ID, "lanes")
    names = [each.text for each in lanes.find_elements(By.CLASS_NAME, "name")]
    assert names[0::3] == ["algo-1 · code 1", "algo-2 ✖ failed first"]
    assert {"rank 0", "rank 1", "rank 2", "rank 3 ✖"} == {*names} - {*names[0::3]}
    assert len(lanes.find_elements(By.CSS_SELECTOR, ".cross.first")) == 1, "one rank has a cross"
    assert len(lanes.find_elements(By.CLASS_NAME, "bar")) >= 10
    assert lanes.find_element(By.CSS_SELECTOR, ".bar.run").get_attribute("title").startswith("ran: ")
    legend = browser.find_element(By.ID, "legend").text
    assert "failed first" in legend and "before its entry point" in legend
    (figure,) = browser.find_elements(By.CSS_SELECTOR, "#curves figure")
    assert figure.find_element(By.TAG_NAME, "figcaption").text.endswith(", 12 values")
    assert len(figure.find_elements(By.CSS_SELECTOR, "polyline.curve")) == 2, "a line for each host"
    assert figure.find_element(By.CLASS_NAME, "legend").text.split() == ["algo-1", "algo-2"]
    whole = shown(browser)
    browser.find_element(By.ID, "in").click()
    assert shown(browser) != whole
    browser.find_element(By.CSS_SELECTOR, "#stretches button").click()
    assert shown(browser) == whole
    lanes.find_element(By.TAG_NAME, "summary").click()
    assert ("rank 0" in lanes.text, "rank 2" in lanes.text) == (False, True)
    opened = browser.find_element(By.CSS_SELECTOR, "#events tr.opened")
    assert "rank 3" in opened.text
    row, events = opened.rect, browser.find_element(By.ID, "scroll").rect
    assert events["y"] < row["y"] < events["y"] + events["height"], "it is in view"
    opened.click()
    assert shown(browser) != whole
    search = browser.find_element(By.ID, "filter")
    search.send_keys("rank 3 ended")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#events tr")) == 1
    search.send_keys(" and nothing like it")
    assert browser.find_elements(By.CSS_SELECTOR, "#events tr") == []
    browser.set_window_size(520, 1000)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off"
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert shown(browser) == whole, "all of it is on paper"
    assert browser.get_log("browser") == []
