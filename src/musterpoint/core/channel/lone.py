"""The channel of a host without others: a leader without workers. Its own reports come back as events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, cast

from musterpoint.base.failure import NO_FAILURES, Failure, Secondary
from musterpoint.base.loop import Loop, Timer
from musterpoint.core.channel.peers import AllDone, EventQueue, JobFailed
from musterpoint.core.channel.topic import Api, Topic, World
from musterpoint.core.channel.topics import ended_groups, raised_ranks

if TYPE_CHECKING:
    from musterpoint.core.channel.root_cause import Decision


class LoneChannel(EventQueue):
    """For one-host jobs, and for jobs whose roll call opens no channel.

    A symptom waits for its cause here, too: mpirun may end before the failed rank that made it end.
    """

    me = ""
    others: tuple[str, ...] = ()
    away = goodbyes = frozenset[str]()

    def __init__(self, loop: Loop, worlds: tuple[World, ...] = ()) -> None:
        super().__init__(loop)
        own = frozenset((self.me,))
        self.worlds = tuple(world._replace(hosts=own) for world in worlds) or (World("", own),)
        self._halves: dict[str, Any] = {}
        self._failures: _LoneFailures | None = None
        self._stopped = self._done = False

    def topic(self, topic: Topic[Api]) -> Api:
        half: Api | None = self._halves.get(topic.name)
        if half is None:  # a topic's module is imported by who uses it
            half = self._halves[topic.name] = topic.leader(self)
        return half

    def failed(self, failure: Failure) -> None:
        if self._failures is None:
            raised = cast(raised_ranks.LeadersRaised, self.topic(raised_ranks.TOPIC))
            self._failures = _LoneFailures(self._loop, self._announce, raised)
        self._failures.failed(failure)

    def _announce(self, failure: Failure, secondary: Secondary) -> None:
        if not self._stopped:
            self.emit(JobFailed(failure, secondary))

    def stopping(self, signal: int) -> None:
        self._stopped = True

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self._done = True
        self.topic(ended_groups.TOPIC)  # nobody else asks for it
        for half in self._halves.values():
            half.left(self.me)
        self.emit(AllDone(failures, self._stopped))

    def close(self) -> None:
        self._forget_failures()
        self._stop_listening()

    def _forget_failures(self) -> None:
        if self._failures is not None:
            self._failures.close()
            self._failures = None

    # what topics have of it

    @property
    def group(self) -> frozenset[str]:
        return frozenset((self.me,))

    def is_away(self, host: str) -> bool:
        return False

    def is_done(self, host: str) -> bool:
        return self._done

    def wall(self) -> float:
        return time.time()

    def check(self, message: Any) -> None:
        """A message that would go to others: to nobody here, so any is good."""

    def broadcast(self, message: Any) -> None:
        """There is nobody."""

    def send(self, host: str, message: Any) -> None:
        """There is nobody."""

    def begin_attempt(self, attempt: Any) -> bool:
        self._done = False
        self._forget_failures()
        for half in self._halves.values():
            half.begin()
        return True

    def tell_end(self, end: Any) -> None:
        """There is nobody else to tell."""


class _LoneFailures:
    """``announce`` gets the root cause, once, and the counts of the others. A symptom waits for its cause before.

    ``raised`` is asked where nothing else explains it: a rank may have raised, and still run, or be late.
    """

    def __init__(
        self, loop: Loop, announce: Callable[[Failure, Secondary], None], raised: raised_ranks.LeadersRaised
    ) -> None:
        self._loop, self._announce, self._raised = loop, announce, raised
        from musterpoint.core.channel import root_cause  # 2 ms with the next, for what failed
        from musterpoint.core.channel.timeouts import Timeouts

        self._rules, self._causes = root_cause, root_cause.RootCauseFinder(Timeouts().hold)
        self._timer: Timer | None = None

    def failed(self, failure: Failure) -> None:
        """A failure was seen here."""
        self._follow(self._causes.failed(failure, self._loop.clock()))

    def _tick(self) -> None:
        self._follow(self._causes.tick(self._loop.clock(), bool(self._raised.awaits())))

    def _follow(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, self._rules.Announce):
                self._announce(self._raised.explained(decision.failure), decision.secondary)
            elif isinstance(decision, self._rules.AskRaised):
                self._raised.ask()
        self.close()
        due = self._causes.due
        self._timer = None if due is None else self._loop.call_at(due, self._tick)

    def close(self) -> None:
        """Nothing is announced any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
