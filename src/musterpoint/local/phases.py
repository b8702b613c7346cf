"""The statuses that a local job goes through."""

from __future__ import annotations

import time
from typing import Callable

from musterpoint.base.console import Console
from musterpoint.base.timeline import CONTROL_PLANE, Timeline
from musterpoint.local.observer import Observer
from musterpoint.local.results import Phase, Status


class Phases:
    """The job's statuses; each is logged when it begins, and kept."""

    def __init__(self, console: Console, observer: Observer) -> None:
        self.console = console
        self.observer = observer
        self.passed: list[Phase] = []
        self.timeline = Timeline(CONTROL_PLANE)

    def enter(self, status: Status, message: str, mask: Callable[[str], str] | None = None) -> None:
        self.passed.append(Phase(status, time.time(), message))
        self.timeline.add("phase", status=status)
        self.observer.entered(self.passed[-1])
        took = f" after {self.passed[-1].start - self.passed[0].start:.1f} s" if len(self.passed) > 1 else ""
        self.console.say(f"{status}{took}: {message}", mask)
