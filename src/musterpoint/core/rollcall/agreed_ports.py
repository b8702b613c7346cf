"""The two ports that all hosts of a job agree on: the roll call's, and the master's."""

from __future__ import annotations

from typing import Callable

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import MASTER_PORT, ROLLCALL_PORT, Settings
from musterpoint.core.job.model import Job
from musterpoint.core.ports import Ports


def rollcall_port(job: Job, settings: Settings) -> int:
    """The leader's port for the roll call: that of a leader who is told by the platform, else the option's, else the
    platform's usual.
    """
    usual = job.rollcall_port if settings.rollcall_port == ROLLCALL_PORT else 0
    return (job.unnamed.port if job.unnamed is not None else 0) or usual or settings.rollcall_port


def hold_early(job: Job, settings: Settings, ports: Ports) -> None:
    """Holds the port of the roll call on the leader, where that is known, before it listens there.

    Raises:
        UsageError: another job of this host holds it.
    """
    leads = job.unnamed is None and job.current_host == job.first_host and len(job.hosts) > 1
    if leads and (port := rollcall_port(job, settings)):
        hold_rollcall_port(port, job.own_name, ports)


def hold_rollcall_port(port: int, me: str, ports: Ports) -> None:
    """Holds the roll call's ``port`` on ``me``, the leader.

    Raises:
        UsageError: another job of this host holds it.
    """
    if not ports.hold(port):
        raise UsageError(
            f"--rollcall-port {port}, {me}: {ports.who_has(port)}: give every host of this job another free port, "
            "unless this host was started twice"
        )


def leaders_master_port(
    asked: int | None, ports: Ports, say: Callable[[str], None], preferred: int = MASTER_PORT
) -> int:
    """The master port that the leader tells all hosts, held: the one asked for, else ``preferred`` if it can be had,
    else any.

    ``preferred``: the platform's own, or 7777. ``say`` is told that it is another one.

    Raises:
        UsageError: somebody has the port that was asked for.
    """
    if asked:
        if not ports.take(asked):
            raise UsageError(
                f"--master-port {asked}: {ports.who_has(asked)}; leave the option out and a free one is taken"
            )
        return asked
    if asked is None and ports.take(preferred):
        return preferred
    found = ports.take_any()
    if asked is None:
        say(f"the master port is {found}: {ports.who_has(preferred)}")
    return found


def next_master_port(asked: int | None, last: int, ports: Ports) -> int:
    """The master port of another attempt, held: a late rank of the ``last`` one must not meet its ranks.

    A port that was ``asked`` for stays.
    """
    if asked:
        return asked
    return last + 1 if ports.take(last + 1) else ports.take_any()
