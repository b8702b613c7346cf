"""What the hosts tell each other between two attempts of a job; the messages are in ``attempt_messages``.

Every host says that it is ready when nothing of the last attempt is left there. The leader then begins the next one, or
says that there is none.
"""

from typing import Literal, Mapping, NamedTuple

from musterpoint.base.failure import Failure

Progress = Literal["made", "none", "unknown"]
"""Whether an attempt changed a host's checkpoint directory; unknown: there is none."""


class Ready(NamedTuple):
    """What a host says when an attempt is over there.

    ``progress``: what became of its checkpoint directory. ``ports``: free now, for servers of the launcher's framework.
    ``left``: processes that couldn't be ended. ``address``: where it is now, if the platform has started it anew.
    """

    progress: Progress = "unknown"
    ports: tuple[int, ...] = ()
    left: int = 0
    address: str = ""


class AllReady(NamedTuple):
    """Every host is ready for another attempt, but for those that are lost (``gone``) or have said goodbye (``left``).

    Only the leader gets this, again whenever it changes. ``hosts``: what each said, by name; a lone host's is empty.
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


class NoRestart(NamedTuple):
    """There is no other attempt.

    ``failure``: what all hosts end with; None: as the last attempt ended here. ``why``: for the log. ``stopped_by``:
    the host where ``signal`` asked the job to stop meanwhile; empty: none did.
    """

    failure: Failure | None
    why: str = ""
    stopped_by: str = ""
    signal: int = 0
