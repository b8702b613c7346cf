"""The channel of a host without others: a leader without workers. Its own reports come back as events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Iterable

from musterpoint.base.failure import NO_FAILURES, Failure, Secondary
from musterpoint.base.loop import Loop, Timer
from musterpoint.core.channel.peers import AllDone, EventQueue, JobFailed
from musterpoint.core.channel.topic import Api, Topic

if TYPE_CHECKING:
    from musterpoint.core.channel.root_cause import Decision, RootCauseFinder


class LoneChannel(EventQueue):
    """For one-host jobs, and for jobs whose roll call opens no channel.

    A symptom waits for its cause here, too: mpirun may end before the failed rank that made it end.
    """

    me = ""
    others: tuple[str, ...] = ()
    away = goodbyes = frozenset[str]()

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._halves: dict[str, Any] = {}
        self._causes: RootCauseFinder | None = None
        self._timer: Timer | None = None
        self._stopped = self._done = False

    def topic(self, topic: Topic[Api]) -> Api:
        half: Api | None = self._halves.get(topic.name)
        if half is None:  # a topic's module is imported by who uses it
            half = self._halves[topic.name] = topic.leader(self)
        return half

    def failed(self, failure: Failure) -> None:
        # imported at the first failure: most jobs have none
        from musterpoint.core.channel.root_cause import RootCauseFinder
        from musterpoint.core.channel.timeouts import Timeouts

        if self._causes is None:
            self._causes = RootCauseFinder(Timeouts().hold)
        self._announce(self._causes.failed(failure, self._loop.clock()))
        self._wait(self._causes)

    def _wait(self, causes: RootCauseFinder) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = causes.due
        self._timer = None if due is None else self._loop.call_at(due, lambda: self._tick(causes))

    def _tick(self, causes: RootCauseFinder) -> None:
        self._announce(causes.tick(self._loop.clock()))
        self._wait(causes)

    def _announce(self, decisions: Iterable[Decision]) -> None:
        from musterpoint.core.channel.root_cause import Announce

        for decision in decisions:
            if isinstance(decision, Announce) and not self._stopped:
                self.emit(JobFailed(decision.failure, decision.secondary))

    def stopping(self, signal: int) -> None:
        self._stopped = True

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self._done = True
        self.emit(AllDone(failures, self._stopped))

    def close(self) -> None:
        self._cancel()
        self._stop_listening()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # what topics have of it

    @property
    def group(self) -> frozenset[str]:
        return frozenset((self.me,))

    def is_done(self, host: str) -> bool:
        return self._done

    def wall(self) -> float:
        return time.time()

    def check(self, message: Any) -> None:
        """It goes to nobody."""

    def broadcast(self, message: Any) -> None:
        """There is nobody."""

    def send(self, host: str, message: Any) -> None:
        """There is nobody."""

    def begin_attempt(self, attempt: Any) -> bool:
        self._causes = None
        self._done = False
        self._cancel()
        for half in self._halves.values():
            half.begin()
        return True

    def tell_end(self, end: Any) -> None:
        """There is nobody else to tell."""
