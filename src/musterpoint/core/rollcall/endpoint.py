"""Whether the place where hosts without given names look for their leader is this host; and who else leads there."""

from __future__ import annotations

from signal import SIGINT
from typing import Callable

from musterpoint.base.errors import MusterError, RollCallError, StoppedEarly, UsageError
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.dial import is_local
from musterpoint.core.channel.link import Context
from musterpoint.core.channel.names import Answer, Follower, Names
from musterpoint.core.job.model import UnnamedHosts
from musterpoint.core.rollcall.attendance import ProgressPrinter
from musterpoint.core.rollcall.hello import ITSELF
from musterpoint.core.rollcall.roster import Participant
from musterpoint.core.rollcall.worker import WorkerCall


class EndpointSearch:
    """Looks the leader's name up until it has addresses, for at most ``seconds``.

    :attr:`result` (whether one of them is this host's) or :attr:`error` is set when it is over.
    """

    def __init__(self, context: Context, names: Names, unnamed: UnnamedHosts, seconds: float) -> None:
        self.result: bool | None = None
        self.error: MusterError | None = None
        self._unnamed = unnamed
        self._names = names
        self._seconds = seconds
        self._follower = Follower(context, names, self._resolved)
        self._timer = context.loop.call_later(seconds, self._deadline)
        self._progress = ProgressPrinter(context, lambda: f"waiting for the leader's name: {self._trouble()}")

    def start(self) -> None:
        self._follower.follow(self._unnamed.leader)

    def stop(self, stop: StoppedEarly) -> None:
        self._end(error=stop)

    def _resolved(self, _name: str, answer: Answer) -> None:
        if answer.addresses:
            self._end(any(map(is_local, answer.addresses)))

    def _trouble(self) -> str:
        return f"{self._unnamed.leader}: {self._names.last_answer(self._unnamed.leader).trouble}"

    def _deadline(self) -> None:
        source = self._unnamed.sources.leader
        text = f"the roll call's {self._seconds:g} s are over, and the leader's name ({source}) is not known here"
        self._end(error=RollCallError(f"{text}: {self._trouble()}"))

    def _end(self, result: bool | None = None, error: MusterError | None = None) -> None:
        if self.result is None and self.error is None:
            self.result, self.error = result, error
            self._follower.drop(self._unnamed.leader)
            self._progress.stop()
            self._timer.cancel()


class OtherLeader:
    """Calls the endpoint from a host that has node rank 0 and isn't found there.

    Another host that has node rank 0, too, would lead there, and each would wait for the others: ``on_found`` gets what
    it says then. A host that is reached there by another address (a published port) finds itself.
    """

    def __init__(
        self,
        context: Context,
        names: Names,
        participant: Participant,
        incarnation: str,
        on_found: Callable[[str, bool], None],
    ) -> None:
        quiet = Context(context.loop, context.timeouts, ConnectionLog(lambda _text: None, lambda _name, **_facts: None))
        self._on_found = on_found
        self._endpoint = participant.endpoint
        self._call = WorkerCall(quiet, names, participant, incarnation)
        self._follower = Follower(quiet, names, self._resolved)
        self._calling = False

    def start(self) -> None:
        self._follower.follow(self._endpoint)

    def check(self) -> None:
        """To be called after every turn of the loop."""
        if self._call.refusal not in ("", ITSELF):
            self._on_found(self._call.refusal, isinstance(self._call.error, UsageError))

    def close(self) -> None:
        self._follower.drop(self._endpoint)
        if self._calling:
            self._call.stop(StoppedEarly("", SIGINT))

    def _resolved(self, _name: str, answer: Answer) -> None:
        if answer.addresses:
            self._follower.drop(self._endpoint)
            if not any(map(is_local, answer.addresses)):
                self._calling = True
                self._call.start()
