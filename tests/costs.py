"""What a run of several workers tells while it runs and at its end: each failure at once, and which files' tests take
the processors' time.

How long a test takes says little where many run at once. Processor time is what it adds to the run: its own and that of
the processes it has waited for; not what runs in containers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

SECONDS = "processor_seconds"
"""What the report of a test's end has in a worker."""
FILES = 40
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


class Controller:
    """Tells it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._taken: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._taken[report.nodeid.partition("::")[0]] += getattr(report, SECONDS, 0)
        if report.failed:
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            assert isinstance(terminal, pytest.TerminalReporter)
            lines = report.longreprtext.strip().split("\n")
            why = next((line[1:].strip() for line in lines if line.startswith("E ")), lines[-1])
            terminal.write_line(f"\nFAILED {report.nodeid} in {report.when}: {why[:200]}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"processor seconds: {sum(self._taken.values()):.0f}, most by")
        for path, seconds in self._taken.most_common(FILES):
            terminalreporter.write_line(f"{seconds:8.0f} {path}")


def register(config: pytest.Config) -> None:
    """For runs of several workers only: one worker shows its failures and times as pytest does."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker())
    elif config.getoption("numprocesses", None):
        config.pluginmanager.register(Controller(config))
