"""The failures of a host without others: which of them is announced as the job's, and when."""

from __future__ import annotations

from typing import Callable, Iterable

from musterpoint.base.failure import Failure, Secondary
from musterpoint.base.loop import Loop, Timer
from musterpoint.core.channel.root_cause import Announce, AskRaised, Decision, RootCauseFinder
from musterpoint.core.channel.timeouts import Timeouts


class LoneFailures:
    """``announce`` gets the root cause, once, and the counts of the others. A symptom waits for its cause before.

    ``ask_raised`` is called where nothing else explains it: a rank may have raised, and still run.
    """

    def __init__(
        self, loop: Loop, announce: Callable[[Failure, Secondary], None], ask_raised: Callable[[], None]
    ) -> None:
        self._loop, self._announce, self._ask_raised = loop, announce, ask_raised
        self._causes = RootCauseFinder(Timeouts().hold)
        self._timer: Timer | None = None

    def failed(self, failure: Failure) -> None:
        """A failure was seen here."""
        self._follow(self._causes.failed(failure, self._loop.clock()))

    def _tick(self) -> None:
        self._follow(self._causes.tick(self._loop.clock()))

    def _follow(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Announce):
                self._announce(decision.failure, decision.secondary)
            elif isinstance(decision, AskRaised):
                self._ask_raised()
        self.close()
        due = self._causes.due
        self._timer = None if due is None else self._loop.call_at(due, self._tick)

    def close(self) -> None:
        """Nothing is announced any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
