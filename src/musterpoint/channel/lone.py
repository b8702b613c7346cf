"""The channel of a host without others: its own reports come back as events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from musterpoint.channel.peers import AllDone, AllLooked, Arrived, EventQueue, JobFailed, LookAsked, Stalled
from musterpoint.failure import NO_FAILURES, Failure, Secondary
from musterpoint.loop import Loop, Timer

if TYPE_CHECKING:
    from musterpoint.channel.attempts import NextAttempt, NoRestart, Ready
    from musterpoint.channel.root_cause import Decision, RootCauseFinder
    from musterpoint.position import Position


class LoneChannel(EventQueue):
    """For one-host jobs, and for jobs whose roll call opens no channel.

    A symptom waits for its cause here, too: mpirun may end before the failed rank that made it end.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._causes: RootCauseFinder | None = None
        self._timer: Timer | None = None

    def failed(self, failure: Failure) -> None:
        # imported at the first failure: most jobs have none
        from musterpoint.channel.root_cause import RootCauseFinder
        from musterpoint.channel.timeouts import Timeouts

        if self._causes is None:
            self._causes = RootCauseFinder(Timeouts().hold)
        self._announce(self._causes.failed(failure, self._loop.clock()))
        if self._causes.due is not None and self._timer is None:
            self._timer = self._loop.call_at(self._causes.due, self._tick)

    def _tick(self) -> None:
        if self._causes is not None:
            self._announce(self._causes.tick(self._loop.clock()))

    def _announce(self, decisions: Iterable[Decision]) -> None:
        from musterpoint.channel.root_cause import Announce

        for decision in decisions:
            if isinstance(decision, Announce):
                self._emit(JobFailed(decision.failure, decision.secondary))

    def stopping(self, signal: int) -> None:
        """There is no other host to stop."""

    def arrive(self, point: str) -> None:
        self._emit(Arrived(point))

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self._emit(AllDone(failures))

    def quiet(self, on: bool) -> None:
        if on:
            self._emit(LookAsked())

    def looked(self, positions: tuple[Position, ...] | None) -> None:
        self._emit(AllLooked(positions))

    def stalled(self, sentence: str) -> None:
        self._emit(Stalled(sentence))

    def ready(self, ready: Ready) -> None:
        from musterpoint.channel.attempts import AllReady

        self._emit(AllReady({"": ready}))

    def restart(self, attempt: NextAttempt) -> None:
        self._causes = None
        self._cancel()
        self._emit(attempt)

    def end_attempts(self, end: NoRestart) -> None:
        self._emit(end)

    def close(self) -> None:
        self._cancel()
        self._stop_listening()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
