"""The channel of a host without others: its own reports come back as events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from musterpoint.base.failure import NO_FAILURES, Failure, Secondary
from musterpoint.base.loop import Loop, Timer
from musterpoint.core.channel.peers import (
    AllDone,
    AllLooked,
    Arrived,
    Decide,
    EventQueue,
    JobFailed,
    LookAsked,
    OnAnswer,
    Report,
    RuleReport,
    Stalled,
)

if TYPE_CHECKING:
    from musterpoint.base.position import Position
    from musterpoint.core.channel.attempts import NextAttempt, NoRestart, Ready
    from musterpoint.core.channel.quiet_hosts import QuietDecision, QuietHosts
    from musterpoint.core.channel.root_cause import Decision, RootCauseFinder


_ME = "this host"


class LoneChannel(EventQueue):
    """For one-host jobs, and for jobs whose roll call opens no channel.

    A symptom waits for its cause here, too: mpirun may end before the failed rank that made it end.
    """

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._causes: RootCauseFinder | None = None
        self._timer: Timer | None = None
        self._hosts: QuietHosts | None = None
        self._stopped = False

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
                self._emit(JobFailed(decision.failure, decision.secondary))

    def stopping(self, signal: int) -> None:
        self._stopped = True

    def arrive(self, point: str) -> None:
        self._emit(Arrived(point))

    def done(self, code: int, failures: Secondary = NO_FAILURES) -> None:
        self._emit(AllDone(failures, self._stopped))

    def quiet(self, on: bool) -> None:
        self._about_quiet(self._quiet.quiet(_ME, on))

    def looked(self, positions: tuple[Position, ...] | None) -> None:
        self._about_quiet(self._quiet.looked(_ME, positions))

    def rule_state(self, report: RuleReport) -> None:
        self._about_quiet(self._quiet.rule_state(_ME, report))

    @property
    def _quiet(self) -> QuietHosts:
        if self._hosts is None:
            from musterpoint.core.channel.quiet_hosts import QuietHosts  # only where ranks are watched

            self._hosts = QuietHosts([_ME])
        return self._hosts

    def _about_quiet(self, decisions: list[QuietDecision]) -> None:
        from musterpoint.core.channel.quiet_hosts import Look

        for each in decisions:
            self._emit(LookAsked(each.rule) if isinstance(each, Look) else AllLooked(each.positions, each.missing))

    def ask_running(self) -> None:
        """There is no other host."""

    def stalled(self, sentence: str) -> None:
        self._emit(Stalled(sentence))

    def ready(self, ready: Ready) -> None:
        from musterpoint.core.channel.attempts import AllReady

        self._emit(AllReady({"": ready}))

    def restart(self, attempt: NextAttempt) -> bool:
        self._causes = self._hosts = None
        self._cancel()
        self._emit(attempt)
        return True

    def end_attempts(self, end: NoRestart) -> None:
        self._emit(end)

    def consult(self, point: str, text: str, decide: Decide, on_answer: OnAnswer, seconds: float) -> None:
        import time

        answer = decide({"": Report(text, time.time())})
        self._loop.call_later(0, lambda: on_answer(answer))

    def close(self) -> None:
        self._cancel()
        self._stop_listening()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
