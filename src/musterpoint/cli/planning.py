"""What ``muster plan`` and ``muster env`` show: the road's own steps for every host, up to the roll call."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from musterpoint import __version__
from musterpoint.channel.names import read_hosts
from musterpoint.job.model import InstanceGroup, Job
from musterpoint.job.secrets import masker_of
from musterpoint.launch.choose import Choice
from musterpoint.launch.inputs import LOOPBACK
from musterpoint.launch.plan import LaunchPlan
from musterpoint.masking import Masker
from musterpoint.prepare import activated, get_ready, plan_here
from musterpoint.processes.pid1 import pid1_note, unstoppable_pid1
from musterpoint.rollcall.roster import Roster, Seat
from musterpoint.settings import MASTER_PORT, Settings

ABOUT = "Show what every host of the job would run, each flag and variable with its reason. Starts nothing."
USAGE = "muster plan [--host NAME] [--json] [--hosts N] [options] [--] [PROGRAM [ARGS...]]"

RESOURCES = "resourceconfig.json"


class View(NamedTuple):
    """The job as one of its hosts sees it."""

    job: Job
    options: Settings
    environ: Mapping[str, str]


class Planned(NamedTuple):
    """``job`` is as this host sees it; ``plans`` and ``rosters`` are in host order. ``environ`` is its environment."""

    job: Job
    choice: Choice
    rosters: tuple[Roster, ...]
    plans: tuple[LaunchPlan, ...]
    notes: tuple[str, ...]
    environ: Mapping[str, str] = {}

    @property
    def headline(self) -> str:
        hosts = len(self.job.hosts)
        return f"{self.job.name}: {hosts} host{'s' if hosts > 1 else ''}, {self.choice.launcher} ({self.choice.reason})"

    def masker(self, environ: Mapping[str, str]) -> Masker:
        """Hides the secrets of this job."""
        return masker_of({**environ, **self.environ}, self.job)

    def of(self, host: str) -> tuple[Roster, LaunchPlan]:
        at = self.job.hosts.index(host)
        return self.rosters[at], self.plans[at]


def add_host_option(parser: argparse.ArgumentParser, prefix: str = "--") -> None:
    parser.add_argument(prefix + "host", default="", metavar="NAME", help="show this host only [all]")


def views_of(job: Job, options: Settings, environ: Mapping[str, str]) -> tuple[View, ...]:
    """Every host's view, told from this one's."""
    return tuple(View(seen_from(job, host), options, environ) for host in job.hosts)


def seen_from(job: Job, host: str) -> Job:
    """``job`` as another of its hosts reads it."""
    if host == job.current_host:
        return job
    group = next((group for group in job.groups if host in group.hosts), InstanceGroup("", "", ()))
    files = dict(job.files)
    if isinstance(files.get(RESOURCES), dict):
        told: dict[str, Any] = {"current_host": host}
        if group.name:
            told.update(current_group_name=group.name, current_instance_type=group.instance_type)
        files[RESOURCES] = {**files[RESOURCES], **told}
    return job._replace(
        current_host=host,
        current_group=group.name or job.current_group,
        instance_type=group.instance_type or job.instance_type,
        files=files,
    )


def plan_views(views: Sequence[View], typed: bool) -> Planned:
    """The plans of all hosts. This machine's devices stand for every host's.

    Raises:
        MusterError: the program is missing, or the launcher can't be had here.
    """
    views = [view._replace(environ=activated(view.environ, view.options.python)) for view in views]
    readies = [get_ready(view.job, view.options, view.environ, typed) for view in views]
    slots = {view.job.current_host: ready.choice.slots for view, ready in zip(views, readies, strict=True)}
    rosters, plans = [], []
    for view, ready in zip(views, readies, strict=True):
        roster = imagine_roster(view.job, view.options, slots.__getitem__, _known_addresses(view.options), __version__)
        rosters.append(roster)
        plans.append(plan_here(view.job, view.options, ready, roster, view.environ))
    job = views[0].job
    leader = job.hosts.index(job.leader)
    return Planned(job, readies[leader].choice, tuple(rosters), tuple(plans), _notes(views[0], rosters[0]),
                   views[0].environ)  # fmt: skip


def _known_addresses(options: Settings) -> dict[str, str]:
    """What the hosts files of this machine say; nobody is asked."""
    known: dict[str, str] = {}
    for path in (options.hosts_file, "/etc/hosts"):
        try:
            names = read_hosts(path) if path else {}
        except OSError:
            continue
        for name, addresses in names.items():
            known.setdefault(name, addresses[0])
    return known


def _notes(view: View, roster: Roster) -> tuple[str, ...]:
    job, options = view.job, view.options
    notes = [note.text for note in job.notes]
    several = len(job.hosts) > 1
    if several and not (options.slots or job.distribution.processes_per_host):
        stand = f"this host's {job.counted.variable} stands" if job.counted.slots else "this machine's devices stand"
        notes.append(f"{stand} for every host's; the roll call learns each host's own slots")
    if several and any(seat.address == seat.name for seat in roster.seats):
        notes.append(
            "host names stand where the roll call will put numeric addresses, and the interface for NCCL and Gloo "
            "is chosen then, by the route to the leader"
        )
    unstoppable = unstoppable_pid1()
    return (*notes, *([pid1_note(unstoppable, options.pid1_watch)] if unstoppable else ()))


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
