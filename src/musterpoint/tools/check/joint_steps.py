"""Steps that all hosts of a check take together over the channel, each waited for in the loop, none for ever."""

from __future__ import annotations

from typing import Any, Callable

from musterpoint.base.errors import MusterError, StoppedEarly
from musterpoint.base.exit_codes import HOST_LOST
from musterpoint.base.loop import Loop
from musterpoint.core.channel.peers import AllDone, Decide, PeerEvent, PeerLost, Peers, Report, StopAll
from musterpoint.core.channel.topics import consultations
from musterpoint.core.processes.received_signals import STOPPING

WHEN = "during the check"
STEP = 30.0
"""Seconds that the leader waits for the hosts at a step."""
_END = 5.0


class LeaderLost(MusterError):
    """The leader is gone, so nobody decides."""

    code = HOST_LOST


class JointSteps:
    """This host's part in the steps. ``lost``: hosts that were lost meanwhile, and why."""

    def __init__(self, loop: Loop, peers: Peers, me: str) -> None:
        self.lost: dict[str, str] = {}
        self._loop, self._peers, self._me = loop, peers, me
        self._stop: StoppedEarly | None = None
        self._done = False
        peers.listen(self._on_event)

    def on_signal(self, signo: int) -> None:
        """A signal came to this process; a stop ends the check on all hosts."""
        if signo in STOPPING:
            self._peers.stopping(signo)
            self._stop = self._stop or StoppedEarly(self._me, signo, WHEN)

    def _on_event(self, event: PeerEvent) -> None:
        if isinstance(event, PeerLost):
            self.lost[event.host] = event.why
        elif isinstance(event, StopAll):
            self._stop = self._stop or StoppedEarly(event.host, event.signal, WHEN)
        elif isinstance(event, AllDone):
            self._done = True

    def step(self, point: str, text: str, decide: Decide, seconds: float = STEP) -> str:
        """Reports ``text`` at ``point``; what the leader's ``decide`` made of all reports.

        Raises:
            LeaderLost: there will be no answer.
            StoppedEarly: this host or another was told to stop.
        """
        answers: list[str | None] = []
        errors: list[Exception] = []

        def decided(reports: dict[str, Report]) -> str:
            try:
                return decide(reports)
            except Exception as error:  # the channel would blame the host whose report came last
                errors.append(error)
                return ""

        self._peers.topic(consultations.TOPIC).consult(point, text, decided, answers.append, seconds)
        self.wait(lambda: bool(answers))
        if errors:
            raise errors[0]
        if answers[0] is None:
            why = "; ".join(f"{host}: {why}" for host, why in self.lost.items())
            raise LeaderLost(f"the leader was lost during the check ({why})")
        return answers[0]

    def check(self) -> None:
        """Raises StoppedEarly where this host or another was told to stop."""
        if self._stop is not None:
            raise self._stop

    def wait(self, is_over: Callable[[], Any]) -> None:
        """Turns the loop until ``is_over``.

        Raises:
            StoppedEarly: this host or another was told to stop.
        """
        while not is_over():
            self.check()
            self._loop.turn()

    def close(self, code: int) -> None:
        """Tells the others that this host is done, and waits a little until all are."""
        self._peers.done(code)
        until = self._loop.clock() + _END
        while not self._done and (left := until - self._loop.clock()) > 0:
            self._loop.turn(left)
        self._peers.close()
