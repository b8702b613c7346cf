"""What the hosts tell each other between two attempts of a job.

Every host says that it is ready when nothing of the last attempt is left there. The leader then begins the next one, or
says that there is none.
"""

from typing import Annotated, Literal, Mapping, Union

from musterpoint.base.failure import MOST_REASON, Failure
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import is_host_name
from musterpoint.core.channel.bounds import STOP_SIGNALS, Address, HostName, Length, Port, Range, Text, Which, WireError
from musterpoint.core.channel.topic import LeaderHalf, Topic, WorkerHalf

Progress = Literal["made", "none", "unknown"]
"""Whether an attempt changed a host's checkpoint directory; unknown: there is none."""


def _is_host_or_nobody(value: str) -> bool:
    return not value or is_host_name(value)


class Ready(NamedTuple):
    """What a host says when an attempt is over there.

    ``progress``: what became of its checkpoint directory. ``ports``: free now, for servers of the launcher's framework.
    ``left``: processes that couldn't be ended. ``address``: where it is now, if the platform has started it anew; no
    host says that of itself.
    """

    progress: Progress = "unknown"
    ports: Annotated[tuple[Port, ...], Length(0, 64)] = ()
    left: int = 0
    address: Annotated[str, Text(0)] = ""


class AllReady(NamedTuple):
    """Every host is ready for another attempt, but for those that are lost (``gone``) or have said goodbye (``left``).

    Only the leader gets this, again whenever it changes. ``hosts``: what each said, by name; a lone host's is empty.
    """

    hosts: Mapping[str, Ready]
    gone: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class SeatChange(NamedTuple):
    """Where a host is in the next attempt, and its free ports."""

    host: HostName
    address: Address
    ports: Annotated[tuple[Port, ...], Length(0, 64)] = ()


class NextAttempt(NamedTuple):
    """All hosts start their ranks again.

    ``number``: 1 for the first restart. ``master_port``: free on the leader. ``seats``: of hosts that have other ports
    or another address than before.
    """

    number: Annotated[int, Range(1, 2**31)]
    master_port: Port
    seats: tuple[SeatChange, ...] = ()


class NoRestart(NamedTuple):
    """There is no other attempt.

    ``failure``: what all hosts end with; None: as the last attempt ended here. ``why``: for the log. ``stopped_by``:
    the host where ``signal`` asked the job to stop meanwhile; empty: none did.
    """

    failure: Union[Failure, None]
    why: Annotated[str, Text(MOST_REASON, shown=True)] = ""
    stopped_by: Annotated[str, Which(_is_host_or_nobody, "no host's name")] = ""
    signal: int = 0


class Attempts:
    """What hosts say when an attempt is over."""

    def ready(self, ready: Ready) -> None:
        """Nothing of this attempt is left here, after its end; :class:`NextAttempt` or :class:`NoRestart` comes.

        The leader decides which when it gets :class:`AllReady`.
        """
        raise NotImplementedError

    def restart(self, attempt: NextAttempt) -> bool:
        """Begins the next attempt on all hosts; only who gets :class:`AllReady` may. False: a stop came before it."""
        raise RuntimeError(f"attempt {attempt.number}: only the leader begins one")

    def end_attempts(self, end: NoRestart) -> None:
        """Tells all hosts that there is no other attempt; only who gets :class:`AllReady` may."""
        raise RuntimeError("no other attempt: only the leader says so")


class LeadersAttempts(LeaderHalf, Attempts):
    """Collects who is ready, and begins the next attempt or ends all."""

    def begin(self) -> None:
        self._ready: dict[str, Ready] = {}
        self._missing: Union[list[str], None] = None
        self._over = False

    def ready(self, ready: Ready) -> None:
        self.is_ready(self._side.me, ready)

    def is_ready(self, host: str, ready: Ready) -> None:
        """``host`` is: it says so, or the platform has started it anew."""
        self._ready[host] = ready
        self.changed()

    def restart(self, attempt: NextAttempt) -> bool:
        begun = self._side.begin_attempt(attempt)
        if begun:
            self._side.emit(attempt)
        return begun

    def end_attempts(self, end: NoRestart) -> None:
        self._over = True
        self._side.tell_end(end)
        self._side.emit(end)

    def hear(self, host: str, message: Ready) -> None:
        if not self._side.is_done(host) or host in self._ready:
            raise WireError("that it is ready, before it was done or twice")
        self.is_ready(host, message)

    def awaits(self) -> set[str]:
        side = self._side
        return {side.me, *side.others} - self._ready.keys() - side.away if self._ready else set()

    def changed(self) -> None:
        """All hosts are ready for another attempt, or gone, now or again."""
        side = self._side
        if side.me not in self._ready or self._over or not self._all_are_ready():
            return
        away = side.away
        hosts = {name: each for name, each in self._ready.items() if name not in away}
        side.emit(AllReady(hosts, tuple(sorted(away - side.goodbyes)), tuple(sorted(away & side.goodbyes))))

    def _all_are_ready(self) -> bool:
        """Who is ready or away stays so until the next attempt: none is looked at twice."""
        if self._missing is None:
            self._missing = list(self._side.others)
        while self._missing and (self._missing[-1] in self._ready or self._side.is_away(self._missing[-1])):
            self._missing.pop()
        return not self._missing


class WorkersAttempts(WorkerHalf, Attempts):
    """Says that this host is ready, and does what the leader decides."""

    def begin(self) -> None:
        self._ready = False
        self._end: Union[NoRestart, None] = None

    def ready(self, ready: Ready) -> None:
        if self._end is not None:
            self._side.emit(self._end)
        elif self._side.is_alone:
            self._no_leader()
        else:
            self._ready = True
            self._side.post(ready)

    def hear(self, message: Union[NextAttempt, NoRestart], size: int) -> None:
        if isinstance(message, NextAttempt):
            strangers = [seat.host for seat in message.seats if seat.host not in self._side.hosts]
            if not self._ready or strangers:
                raise WireError(f"a next attempt with {strangers or 'this host'}, which is no host that is ready")
            self._side.begin_attempt()
            self._side.emit(message)
            return
        if message.stopped_by and message.signal not in STOP_SIGNALS:
            raise WireError(f"a stop by {message.signal}, which stops nobody")
        if self._end is not None:
            raise WireError("twice that there is no other attempt")
        self._end = message
        if self._ready:
            self._ready = False
            self._side.emit(message)

    def awaits_leader(self) -> bool:
        return self._ready

    def alone(self) -> None:
        if self._ready:
            self._no_leader()

    def _no_leader(self) -> None:
        """The leader is gone, who would begin the next attempt."""
        self._ready = False
        self._side.emit(NoRestart(None, f"{self._side.leader}, the leader, is gone: {self._side.loss}"))


TOPIC: Topic[Attempts] = Topic("attempts", (Ready,), (NextAttempt, NoRestart), LeadersAttempts, WorkersAttempts)
