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
from typing import Union

import pytest

SECONDS = "processor_seconds"
"""What the report of a test's end has in a worker."""
FILES = 40
LONGEST = 6000
"""Characters of a failure that a run of several workers prints. The file has all of it."""
_BEGAN = pytest.StashKey[float]()
Report = Union[pytest.TestReport, pytest.CollectReport]


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--report", metavar="FILE", help="where the outcomes go, as JSON")
    parser.addoption("--again", metavar="FILE", help="only these tests: their ids, as a list in JSON")


def register(config: pytest.Config) -> None:
    """Adds what this process has to do with the report."""
    config.pluginmanager.register(Worker())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller(config))
    if file := config.getoption("--again"):
        config.pluginmanager.register(Again(json.loads(Path(file).read_text())))


def _now() -> float:
    """Processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def plain(text: str) -> str:
    """The text without halves of surrogate pairs, which no worker can send: it would end the whole run."""
    return text.encode("utf-8", "backslashreplace").decode()


def without_group(name: str) -> str:
    """The id of a test without the name of its group, which xdist puts behind it where several workers run."""
    at = name.rfind("@")
    return name[:at] if at > max(name.rfind("]"), name.rfind("::")) > 0 else name


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
        if isinstance(report.longrepr, tuple):
            path, line, why = report.longrepr
            report.longrepr = path, line, plain(why)
        elif report.longrepr is not None and plain(report.longreprtext) != report.longreprtext:
            report.longrepr = plain(report.longreprtext)
        report.sections = [(title, plain(text)) for title, text in report.sections]
        return report


class Again:
    """Leaves all tests out but some, by their ids, which no command line could hold: they have quotes and NUL."""

    def __init__(self, ids: list[str]) -> None:
        self._ids = {*ids}
        self._files = {name.partition("::")[0] for name in ids}

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        wanted = collection_path.relative_to(config.rootpath).as_posix() in self._files
        return None if wanted or not collection_path.name.startswith("test_") or collection_path.is_dir() else True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._ids]


class Controller:
    """Counts outcomes. Several workers' failures are told at once, shortened, and their times at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._several = bool(config.getoption("numprocesses", None))
        self._taken: Counter[str] = Counter()
        self._called: set[str] = set()
        self._ended: set[str] = set()
        self._skipped: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._said: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = without_group(report.nodeid)
        self._taken[name.partition("::")[0]] += getattr(report, SECONDS, 0)
        if report.when == "teardown":
            self._ended.add(name)
            if not self._several:
                self._said[name] = sections(report)
        if report.when == "call":
            self._called.add(name)
        if report.when not in ("setup", "call", "teardown"):  # its worker has died
            self._ended.add(name)
        if report.failed:
            self._note(report, str(report.when))
        elif report.skipped and not hasattr(report, "wasxfail"):  # a failure that is expected of a peer has passed
            self._skipped[name] = reason(report)
        elif report.skipped:
            self._called.add(name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(report, "collection")
        elif report.skipped:
            self._skipped[report.nodeid] = reason(report)

    def _note(self, report: Report, when: str) -> None:
        text = report.longreprtext
        name = without_group(report.nodeid)
        self._failed[name] = f"{self._failed.get(name, '')}in {when}:\n{text}\n{sections(report)}"
        if self._several:
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            assert isinstance(terminal, pytest.TerminalReporter)
            lines = text.strip().split("\n")
            why = next((line[1:].strip() for line in lines if line.startswith("E ")), lines[-1])
            terminal.write_line(f"\nFAILED {report.nodeid} in {when}: {why[:200]}")
            if len(text) > LONGEST:
                half = LONGEST // 2
                report.longrepr = f"{text[:half]}\n[...: this test alone shows it all]\n{text[-half:]}"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        path = self._config.getoption("--report")
        if path:
            found = {
                "passed": sorted((self._called & self._ended) - self._failed.keys() - self._skipped.keys()),
                "failed": self._failed,
                "skipped": self._skipped,
                "said": self._said,
                "missed": session.testscollected - len(self._ended),
            }
            Path(path).write_text(json.dumps(found))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._several:
            terminalreporter.section(f"processor seconds: {sum(self._taken.values()):.0f}, most by")
            for path, seconds in self._taken.most_common(FILES):
                terminalreporter.write_line(f"{seconds:8.0f} {path}")


def sections(report: Report) -> str:
    """What was printed."""
    return "".join(f"--- {title}\n{text}\n" for title, text in report.sections)


def reason(report: Report) -> str:
    """Why a test, or a whole file, was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return text.removeprefix("Skipped: ")
