"""A roster for planning: what the roll call would find, without the network."""

from __future__ import annotations

from typing import Callable, Mapping

from musterpoint.job.model import Job
from musterpoint.launch.site import LOOPBACK
from musterpoint.rollcall.roster import Roster, Seat
from musterpoint.settings import Settings

MASTER_PORT = 7777
"""The rendezvous port the leader takes if it is free."""


def imagine_roster(
    job: Job, settings: Settings, slots_of: Callable[[str], int], addresses: Mapping[str, str], version: str = ""
) -> Roster:
    """The roster of ``job`` with its own hosts, the leader on its preferred port.

    ``slots_of`` says how many ranks a host of the group will have. A host that ``addresses`` doesn't know stands there
    by its name; the roll call will put its numeric address in that place.
    """
    grouped = set(job.group_hosts)
    seats = tuple(
        Seat(name, _address(job, name, addresses), slots_of(name) if name in grouped else 0, name in grouped, version)
        for name in job.hosts
    )
    return Roster(
        job=job.name,
        session="",
        seats=seats,
        master_address=_address(job, job.leader, addresses),
        master_port=settings.master_port or MASTER_PORT,
        me=job.current_host,
    )


def _address(job: Job, name: str, addresses: Mapping[str, str]) -> str:
    return LOOPBACK if len(job.hosts) == 1 else addresses.get(name, name)
