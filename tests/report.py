"""A run's report: each failure at once, the files that take the processors' time, and a file for `scripts/test`.

How long a test takes says little where many run at once. Processor time is what it adds to the run: its own and that of
the processes it has waited for; not what runs in containers.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

SECONDS = "processor_seconds"
"""What the report of a test's end has in a worker."""
FILES = 40
LONGEST = 6000
"""Characters of a failure that a run of several workers prints. The file has all of it."""
_BEGAN = pytest.StashKey[float]()


def _now() -> float:
    """Processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Worker:
    """Notes what each test took."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        item.stash[_BEGAN] = _now()
        result = yield
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            setattr(report, SECONDS, _now() - item.stash[_BEGAN])
        return report


def sections(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What was printed."""
    return "".join(f"--- {title}\n{text}\n" for title, text in report.sections)


class Controller:
    """Counts outcomes. Several workers' failures are told at once, shortened, and their times at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._several = bool(config.getoption("numprocesses", None))
        self._taken: Counter[str] = Counter()
        self._ran: set[str] = set()
        self._skipped: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._said: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._taken[report.nodeid.partition("::")[0]] += getattr(report, SECONDS, 0)
        self._ran.add(report.nodeid)
        if report.when == "teardown" and not self._several:
            self._said[report.nodeid] = sections(report)
        if report.failed:
            self._note(report, report.when)
        elif report.skipped and not hasattr(report, "wasxfail"):  # a failure that is expected of a peer has passed
            self._skipped[report.nodeid] = report.longreprtext.rpartition("Skipped: ")[2].rstrip("')")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(report, "collection")

    def _note(self, report: pytest.TestReport | pytest.CollectReport, when: str) -> None:
        text = report.longreprtext
        before = self._failed.get(report.nodeid, "")
        self._failed[report.nodeid] = f"{before}in {when}:\n{text}\n{sections(report)}"
        if self._several:
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            assert isinstance(terminal, pytest.TerminalReporter)
            lines = text.strip().split("\n")
            why = next((line[1:].strip() for line in lines if line.startswith("E ")), lines[-1])
            terminal.write_line(f"\nFAILED {report.nodeid} in {when}: {why[:200]}")
            if len(text) > LONGEST:
                half = LONGEST // 2
                report.longrepr = f"{text[:half]}\n[...: this test alone shows it all]\n{text[-half:]}"

    def pytest_sessionfinish(self) -> None:
        path = self._config.getoption("--report")
        if path:
            passed = len(self._ran - self._failed.keys() - self._skipped.keys())
            found = {"passed": passed, "failed": self._failed, "skipped": self._skipped, "said": self._said}
            Path(path).write_text(json.dumps(found))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._several:
            terminalreporter.section(f"processor seconds: {sum(self._taken.values()):.0f}, most by")
            for path, seconds in self._taken.most_common(FILES):
                terminalreporter.write_line(f"{seconds:8.0f} {path}")


def register(config: pytest.Config) -> None:
    """Adds what this process has to do with the report."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker())
    else:
        config.pluginmanager.register(Controller(config))
