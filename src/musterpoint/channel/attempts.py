"""What the hosts tell each other between two attempts of a job, and the messages for it.

Every host says that it is ready when nothing of the last attempt is left there. The leader then begins the next one, or
says that there is none.
"""

from typing import Any, Container, Literal, Mapping, NamedTuple, cast

from musterpoint.channel import wire
from musterpoint.failure import MOST_REASON, Failure
from musterpoint.untrusted import printable

Progress = Literal["made", "none", "unknown"]
"""Whether an attempt changed a host's checkpoint directory; unknown: there is none."""
_PROGRESS = ("made", "none", "unknown")
MOST_PORTS = 64
MOST_ATTEMPTS = 2**31


class Ready(NamedTuple):
    """What a host says when an attempt is over there.

    ``progress``: what became of its checkpoint directory. ``ports``: free now, for servers of the launcher's framework.
    ``left``: processes that couldn't be ended.
    """

    progress: Progress = "unknown"
    ports: tuple[int, ...] = ()
    left: int = 0

    def pack(self) -> bytes:
        return wire.pack("ready", **self._asdict())

    @classmethod
    def from_wire(cls, message: dict[str, Any]) -> "Ready":
        """Raises WireError."""
        progress = wire.text(message, "progress", 16)
        if progress not in _PROGRESS:
            raise wire.WireError(f"a message 'ready' whose 'progress' is none of {', '.join(_PROGRESS)}")
        ports = wire.numbers(message, "ports", 1, 65535, MOST_PORTS)
        return cls(cast(Progress, progress), ports, wire.number(message, "left"))


class AllReady(NamedTuple):
    """Every host is ready for another attempt, but for those that are lost (``gone``) or have said goodbye (``left``).

    Only the leader gets this, again whenever it changes. ``hosts``: what each said, by name.
    """

    hosts: Mapping[str, Ready]
    gone: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class SeatChange(NamedTuple):
    """Where a host is in the next attempt, and its free ports."""

    host: str
    address: str
    ports: tuple[int, ...] = ()


class NextAttempt(NamedTuple):
    """All hosts start their ranks again.

    ``number``: 1 for the first restart. ``master_port``: free on the leader. ``seats``: of hosts that have other ports
    or another address than before.
    """

    number: int
    master_port: int
    seats: tuple[SeatChange, ...] = ()

    def pack(self) -> bytes:
        return wire.pack("restart", **self._asdict())

    @classmethod
    def from_wire(cls, message: dict[str, Any], hosts: Container[str]) -> "NextAttempt":
        """``hosts``: those of the job. Raises WireError."""
        rows = message.get("seats")
        if not isinstance(rows, list):
            raise wire.WireError("a message 'restart' without a list of seats")
        seats = tuple(_seat(row, hosts) for row in rows)
        number = wire.number(message, "number", MOST_ATTEMPTS, 1)
        return cls(number, wire.number(message, "master_port", 65535, 1), seats)


def _seat(row: Any, hosts: Container[str]) -> SeatChange:
    if not isinstance(row, list) or len(row) != len(SeatChange._fields):
        raise wire.WireError("a message 'restart' with a seat that is no seat")
    values = {"t": "restart", "host": row[0], "addresses": [row[1]], "ports": row[2]}
    name, (address,) = wire.host(values), wire.addresses(values, "addresses", 1)
    if name not in hosts:
        raise wire.WireError(f"a 'restart' with a seat of {name}, which is no host of this job")
    return SeatChange(name, address, wire.numbers(values, "ports", 1, 65535, MOST_PORTS))


class NoRestart(NamedTuple):
    """There is no other attempt.

    ``failure``: what all hosts end with; None: as the last attempt ended here. ``why``: for the log. ``stopped_by``:
    the host where ``signal`` asked the job to stop meanwhile; empty: none did.
    """

    failure: Failure | None
    why: str = ""
    stopped_by: str = ""
    signal: int = 0

    def pack(self) -> bytes:
        failure = None if self.failure is None else self.failure._asdict()
        return wire.pack("norestart", **{**self._asdict(), "failure": failure})

    @classmethod
    def from_wire(cls, message: dict[str, Any]) -> "NoRestart":
        """Raises WireError."""
        failure = None if message.get("failure") is None else wire.failure(message, "failure")
        why = printable(wire.text(message, "why", MOST_REASON), MOST_REASON)
        if not message.get("stopped_by"):
            return cls(failure, why)
        return cls(failure, why, wire.host(message, "stopped_by"), wire.stop_signal(message))
