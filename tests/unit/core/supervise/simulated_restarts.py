"""A simulated host whose job may be started again: the real decisions between attempts, made-up checkpoints."""

from __future__ import annotations

from typing import Any, Callable, cast

from musterpoint.base import exit_codes
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.supervise.restart_rules import RestartRules
from musterpoint.core.supervise.restarts import Between, Restarts
from musterpoint.core.supervise.state import Outcome, State, code_of

from .simulated_hosts import Host, Job


class RestartingHost(Host):
    """``outcome`` is of the last attempt, ``attempts`` the moments at which they began here."""

    def __init__(self, job: Job, index: int) -> None:
        super().__init__(job, index)
        self.attempts: list[float] = []
        self._restarts: Restarts | None = None
        self._outcome: Outcome | None = None
        self._final: Outcome | None = None
        self._on_signal: Callable[[int], None] = super().told_to_stop
        self._saved = 0
        self.loop.turned = self._follow

    @property
    def outcome(self) -> tuple[int, str, str]:
        if self._final is None:
            return super().outcome
        failure = self._final.failure
        return self._final.code, failure.host if failure else "", failure.reason if failure else ""

    def start(self) -> None:
        if self._restarts is None:
            history, roster = self.job.history, self.job.roster._replace(me=self.name)
            between = Between(
                self.loop, self.machine.said.append, lambda *_words, **_facts: None, self._route, lambda: (),
                lambda last: last + 1, self._checkpoints, exit_codes.STOPPED,
            )  # fmt: skip
            rules = RestartRules(history.restarts, history.on, history.rejoin)
            self._restarts = Restarts(between, self.peers, roster, rules)
        self.attempts.append(self.job.clock.now)
        self.job.begins(self)
        super().start()

    def _route(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal

    def told_to_stop(self, signal: int) -> None:
        self._on_signal(signal)

    def _checkpoints(self) -> frozenset[tuple[str, int, int]] | None:
        saves = self.job.history.saves
        return (
            None if saves is None else frozenset(("step", number, 0) for number in range(min(saves, self._saved) + 1))
        )

    def drain(self, _seconds: float) -> int:
        """As a supervisor does, when all has ended."""
        return 0

    def reap(self) -> None:
        """As a supervisor does."""

    def finish(self) -> None:
        """An attempt is over here, but for what has to leave the kernel."""
        self.end_services()
        self.alive_at_end = len(self.live)
        failure = None if self.state.stop_signal else self.state.root_cause or self.state.failure
        self._outcome = Outcome(
            code_of(self.state, self.rules), failure, self.state.stopped_by if self.state.stop_signal else ""
        )
        self._saved += 1
        self.loop.call_later(self.job.history.drains[self.index], self._drained)

    def _drained(self) -> None:
        assert self._restarts is not None and self._outcome is not None
        if self._outcome.failure is not None:
            self._restarts.ask(cast(Any, self), self._outcome.failure)
        else:
            self._end(self._restarts.follow(self._outcome))

    def _follow(self) -> None:
        """What a loop does that waits for the leader's word."""
        if self._restarts is None or self._restarts.answer is None or self._outcome is None:
            return
        following = self._restarts.follow(self._outcome)
        if isinstance(following, Roster):
            self._begin(following)
        else:
            self._end(following)

    def _begin(self, roster: Roster) -> None:
        if roster.attempt != self.attempt + 1:
            self.job.broken.append(f"{self.name} begins attempt {roster.attempt} after attempt {self.attempt}")
        for timer in self.timers.values():
            timer.cancel()
        self.attempt, self.state, self.first_stop, self._outcome = roster.attempt, State(), None, None
        self.earlier += self.failures
        self.signalled, self.killed, self.failures, self.late, self.timers = {}, False, [], [], {}
        self.unheeded = []
        self._on_signal = super().told_to_stop
        self.start()

    def _end(self, following: Roster | Outcome) -> None:
        assert isinstance(following, Outcome)
        self._final, self._outcome = following, None
        self.over_at = self.job.clock.now
        self.loop.call_later(self.job.history.leaves[self.index], self.leave)
