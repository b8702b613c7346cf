"""The channel of a host that is alone: what it says comes straight back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from musterpoint.channel.peers import AllDone, Arrived, EventQueue, JobFailed
from musterpoint.failure import NO_FAILURES, Failure, Secondary
from musterpoint.loop import Loop, Timer

if TYPE_CHECKING:
    from musterpoint.channel.root_cause import Action, RootCause


class LoneChannel(EventQueue):
    """For one-host jobs, and for jobs whose roll call opens no channel.

    A symptom waits for its cause as long as it does among several hosts: an mpirun may end before the rank does whose
    failure it ends for.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._verdict: RootCause | None = None
        self._timer: Timer | None = None

    def failed(self, failure: Failure) -> None:
        # imported when the first failure is known: most jobs have none
        from musterpoint.channel.root_cause import RootCause
        from musterpoint.channel.timeouts import Timeouts

        if self._verdict is None:
            self._verdict = RootCause(Timeouts().hold)
        self._announce(self._verdict.failed(failure, self._loop.clock()))
        if self._verdict.due is not None and self._timer is None:
            self._timer = self._loop.call_at(self._verdict.due, self._tick)

    def _tick(self) -> None:
        if self._verdict is not None:
            self._announce(self._verdict.tick(self._loop.clock()))

    def _announce(self, judgements: Iterable[Action]) -> None:
        from musterpoint.channel.root_cause import Announce

        for judgement in judgements:
            if isinstance(judgement, Announce):
                self._emit(JobFailed(judgement.failure, judgement.secondary))

    def stopping(self, signal: int) -> None:
        """There is nobody to tell."""

    def arrive(self, point: str) -> None:
        self._emit(Arrived(point))

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self._emit(AllDone(failures))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._deafen()
