"""Watches that every rank is started which others start: a launcher, MPI's daemon, or another entry point of this host.

What starts a rank may stand still, or wait for what never comes; then nothing else would end the job.
"""

from __future__ import annotations

from typing import Callable

from musterpoint.base.failure import numbers
from musterpoint.core.supervise import own_failures as failures
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import Broken, LocalEvent
from musterpoint.core.supervise.host_processes import HostProcesses
from musterpoint.core.supervise.watcher import Watched, Watcher

SAID_AFTER = 60.0
"""Seconds after which a line says which ranks are awaited."""


class StartWatch(Watcher):
    """Ranks that don't run after ``seconds`` are this host's failure."""

    def __init__(
        self, context: SupervisorContext, processes: HostProcesses, seconds: float, emit: Callable[[LocalEvent], None]
    ) -> None:
        self._context, self._processes = context, processes
        self._seconds, self._emit = seconds, emit
        loop = context.loop
        self._timers = [loop.call_later(seconds, self._judge)]
        if seconds > SAID_AFTER:
            self._timers.append(loop.call_later(SAID_AFTER, self._tell))

    @property
    def _starter(self) -> str:
        plan = self._processes.plan
        return "its entry point" if plan.of_others else plan.launcher

    @property
    def _missing(self) -> list[int]:
        return [self._processes.plan.first_rank + key for key in self._processes.ranks.unstarted]

    def _tell(self) -> None:
        missing = self._missing
        if missing and not self._processes.is_ending:
            which, them = numbers(missing), "it" if len(missing) == 1 else "them"
            self._context.say(f"{which} of this host: {self._starter} has not started {them} yet")

    def _judge(self) -> None:
        missing = self._missing
        if missing and not self._processes.is_ending:
            self._context.record("ranks-never-started", ranks=len(missing))
            self._emit(Broken(failures.never_started(missing, self._starter, self._seconds, self._context.diagnosis)))

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()


def watch(watched: Watched) -> StartWatch:
    """Watches that the ranks of this host are started."""
    return StartWatch(watched.context, watched.processes, watched.rules.start_timeout, watched.emit)
