"""The messages between two attempts: a worker's ``ready``, and the leader's ``restart`` and ``norestart``.

Every function that reads one raises WireError where that is no such message.
"""

from __future__ import annotations

from typing import Any, Container, cast

from musterpoint.base.failure import MOST_REASON
from musterpoint.base.untrusted import printable
from musterpoint.core.channel import wire
from musterpoint.core.channel.attempts import NextAttempt, NoRestart, Progress, Ready, SeatChange

_PROGRESS = ("made", "none", "unknown")
_MOST_PORTS = 64
_MOST_ATTEMPTS = 2**31


def pack_ready(ready: Ready) -> bytes:
    return wire.pack("ready", progress=ready.progress, ports=ready.ports, left=ready.left)


def read_ready(message: dict[str, Any]) -> Ready:
    progress = wire.text(message, "progress", 16)
    if progress not in _PROGRESS:
        raise wire.WireError(f"a message 'ready' whose 'progress' is none of {', '.join(_PROGRESS)}")
    ports = wire.numbers(message, "ports", 1, 65535, _MOST_PORTS)
    return Ready(cast(Progress, progress), ports, wire.number(message, "left"))


def pack_restart(attempt: NextAttempt) -> bytes:
    return wire.pack("restart", **attempt._asdict())


def read_restart(message: dict[str, Any], hosts: Container[str]) -> NextAttempt:
    """``hosts``: those of the job."""
    rows = message.get("seats")
    if not isinstance(rows, list):
        raise wire.WireError("a message 'restart' without a list of seats")
    seats = tuple(_seat(row, hosts) for row in rows)
    number = wire.number(message, "number", _MOST_ATTEMPTS, 1)
    return NextAttempt(number, wire.number(message, "master_port", 65535, 1), seats)


def _seat(row: Any, hosts: Container[str]) -> SeatChange:
    if not isinstance(row, list) or len(row) != len(SeatChange._fields):
        raise wire.WireError("a message 'restart' with a seat that is no seat")
    values = {"t": "restart", "host": row[0], "addresses": [row[1]], "ports": row[2]}
    name, (address,) = wire.host(values), wire.addresses(values, "addresses", 1)
    if name not in hosts:
        raise wire.WireError(f"a 'restart' with a seat of {name}, which is no host of this job")
    return SeatChange(name, address, wire.numbers(values, "ports", 1, 65535, _MOST_PORTS))


def pack_no_restart(end: NoRestart) -> bytes:
    failure = None if end.failure is None else end.failure._asdict()
    return wire.pack("norestart", **{**end._asdict(), "failure": failure})


def read_no_restart(message: dict[str, Any]) -> NoRestart:
    failure = None if message.get("failure") is None else wire.failure(message, "failure")
    why = printable(wire.text(message, "why", MOST_REASON), MOST_REASON)
    if not message.get("stopped_by"):
        return NoRestart(failure, why)
    return NoRestart(failure, why, wire.host(message, "stopped_by"), wire.stop_signal(message))
