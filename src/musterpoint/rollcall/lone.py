"""The channel of a host that is alone: what it says comes straight back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from musterpoint.loop import Loop, Timer
from musterpoint.peers import NO_FAILURES, AllDone, Arrived, Failure, JobFailed, Secondary
from musterpoint.rollcall.events import Events

if TYPE_CHECKING:
    from musterpoint.rollcall.verdict import Action, Verdict


class LonePeers(Events):
    """For one-host jobs, and for jobs whose roll call opens no channel.

    A symptom waits for its cause as long as it does among several hosts: an mpirun may end before the rank does whose
    failure it ends for.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._verdict: Verdict | None = None
        self._timer: Timer | None = None

    def failed(self, failure: Failure) -> None:
        # imported when the first failure is known: most jobs have none
        from musterpoint.rollcall.limits import Limits
        from musterpoint.rollcall.verdict import Verdict

        if self._verdict is None:
            self._verdict = Verdict(Limits().hold)
        self._announce(self._verdict.failed(failure, self._loop.clock()))
        if self._verdict.due is not None and self._timer is None:
            self._timer = self._loop.call_at(self._verdict.due, self._tick)

    def _tick(self) -> None:
        if self._verdict is not None:
            self._announce(self._verdict.tick(self._loop.clock()))

    def _announce(self, judgements: Iterable[Action]) -> None:
        from musterpoint.rollcall.verdict import Announce

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
