"""Every host's plan for ``muster plan`` and ``muster env``, made with an assumed roster and no network."""

from __future__ import annotations

import os
from itertools import chain
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence

from musterpoint import __version__
from musterpoint.base import probe, settings
from musterpoint.base.errors import FetchError, MusterError, UsageError
from musterpoint.base.masking import Masker
from musterpoint.base.settings import Settings
from musterpoint.core.channel.names import read_hosts
from musterpoint.core.code.interpreter import user_environment
from musterpoint.core.code.unwrap import ReadLine, unwrapped
from musterpoint.core.code.workspace import Code
from musterpoint.core.data.mover_process import Access, limited, mib
from musterpoint.core.data.moves import measure, newest
from musterpoint.core.data.places import Channel
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.ignored_options import ignored_options
from musterpoint.core.job import platforms
from musterpoint.core.job.model import InstanceGroup, Job
from musterpoint.core.job.opt_ml import base_of, paths_of
from musterpoint.core.job.read import masker_of, platform_of, read_job
from musterpoint.core.job.sagemaker_files import RESOURCES
from musterpoint.core.job.variables import Watched, of_platform
from musterpoint.core.job_data.data_plan import DataPlan, plan_data
from musterpoint.core.launch.choose import Choice
from musterpoint.core.launch.host_plan import plan_host
from musterpoint.core.launch.identity import IDENTITY
from musterpoint.core.launch.inputs import LOOPBACK
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launchers import find_launcher
from musterpoint.core.launch.role_plan import of_this_host
from musterpoint.core.prepare import prepare_host, what_is_wanted
from musterpoint.core.processes.pid1 import pid1_note, unstoppable_pid1
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.core.runtime import Request
from musterpoint.tools.plans.page import BY_LAUNCHER, KEPT, NOT_NEEDED, READ, REMOVED, REPLACED, Subject

DECIDES = ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "HOME")
"""Variables that decide which modules a Python finds, or which mpirun there is."""

ANSWER = 20.0
"""Seconds in which a place lists its files, for a plan."""


class HostView(NamedTuple):
    """The job as one of its hosts sees it."""

    job: Job
    options: Settings
    environ: Mapping[str, str]


class Preview(NamedTuple):
    """Every host's plan. ``job`` is as this host sees it; ``choice`` is the leader's. ``rosters`` and ``plans`` are in
    host order. ``environ`` and ``python`` are those of the program on this host, ``used`` is what becomes of each of
    the platform's variables, ``lacks`` what the launcher needs and isn't here, each as the error of a launch.
    """

    job: Job
    choice: Choice
    rosters: tuple[Roster, ...]
    plans: tuple[LaunchPlan, ...]
    notes: tuple[str, ...]
    environ: Mapping[str, str] = {}
    used: tuple[EnvSetting, ...] = ()
    lacks: tuple[MusterError, ...] = ()
    python: str = ""

    @property
    def headline(self) -> str:
        hosts = len(self.job.hosts)
        return f"{self.job.name}: {hosts} host{'s' if hosts > 1 else ''}, {self.choice.launcher} ({self.choice.reason})"

    @property
    def subject(self) -> Subject:
        return Subject(self.job.name, self.job.entry_point.program, self.choice.launcher, self.choice.reason)

    def masker(self, environ: Mapping[str, str]) -> Masker:
        """Hides the secrets of this job."""
        return masker_of({**environ, **self.environ}, self.job)

    def of(self, host: str) -> tuple[Roster, LaunchPlan]:
        at = self.job.hosts.index(host)
        return self.rosters[at], self.plans[at]


def preview_request(request: Request, read: ReadLine | None = None) -> Preview:
    """The plans of this container's job, or of the program that ``request`` names.

    ``read``: reads command lines of ours, for a program that is wholly one.

    Raises:
        UsageError: there is no job and no program.
        MusterError: the program is missing, or no launcher fits the job.
    """
    options = settings.from_environ(request.environ, request.given)
    base = base_of(request.environ)
    platform = platform_of(options, request.environ, base)
    if request.program is None and platform.own_program is None:
        raise UsageError(
            f"muster plan: no PROGRAM given, and there is no job here to plan: {paths_of(base).input_config} has none; "
            "expected `muster plan PROGRAM`, or, for a job of hosts of this machine, `muster plan --hosts 2 PROGRAM`"
            if not platform.describes
            else f"no PROGRAM was given, and on this platform ({platform.name}) the job's command names it: pass the "
            "words that follow `muster launch` there"
        )
    watched = Watched(request.environ)
    job = read_job(watched, options, "", request.program, request.arguments, request.module)
    if job.unnamed is not None and (wrong := job.unnamed.misplaced):
        raise wrong
    view, typed = as_launched(HostView(job, options, request.environ), request.typed, request.given, read)
    job = view.job
    made = preview(views_of(*view), typed, request.given)._replace(job=job)
    return made._replace(used=used_variables(job, watched, made.of(job.current_host)[1]))


def as_launched(view: HostView, typed: bool, given: Mapping[str, Any], read: ReadLine | None) -> tuple[HostView, bool]:
    """``view`` with the job of the launch that its program is; and whether a person named the program.

    ``typed``: whether one did where the program is no launch.

    Raises:
        UsageError: the launch's line is wrong.
    """
    code = Code(view.job, view.environ, view.options.python, named=not view.options.asks_for_roles)
    found = unwrapped(view.job, given, view.environ, code.folder, read)
    return (view, typed) if found is None else (HostView(found.job, found.options, found.line.environ), True)


def used_variables(job: Job, environ: Watched, plan: LaunchPlan) -> tuple[EnvSetting, ...]:
    """The platform's variables of the host with ``plan``: what each is for, and whether ranks get it."""
    of_ranks = (process.environment for process in plan.processes if process.role == "rank")
    given: dict[str, set[str]] = {}
    for setting in (*plan.environment, *chain.from_iterable(of_ranks)):
        given.setdefault(setting.name, set()).add(setting.value)
    foreign = find_launcher(plan.launcher).starts == "foreign"
    found, seen = [], frozenset(environ.seen)
    platform = platforms.load(job.platform)
    for name in of_platform(platform, environ):
        value = environ[name]
        read = READ if name in seen or name.startswith(platform.families) else NOT_NEEDED
        if name in plan.unset:
            fate = REMOVED
        elif given.get(name, {value}) != {value}:
            fate = REPLACED
        elif foreign and name in IDENTITY:
            fate = BY_LAUNCHER
        else:
            fate = KEPT
        found.append(EnvSetting(name, value, f"{read}; {fate}"))
    return tuple(found)


def views_of(job: Job, options: Settings, environ: Mapping[str, str]) -> tuple[HostView, ...]:
    """Every host's view, derived from this one's."""
    at = platforms.load(job.platform).environ_at
    return tuple(
        HostView(seen_from(job, host), options, environ if at is None else at(environ, place))
        for place, host in enumerate(job.hosts)
    )


def seen_from(job: Job, host: str) -> Job:
    """``job`` as another of its hosts reads it."""
    if host == job.current_host:
        return job
    group = next((group for group in job.groups if host in group.hosts), InstanceGroup("", "", ()))
    files = dict(job.files)
    if isinstance(files.get(RESOURCES), dict):
        own: dict[str, Any] = {"current_host": host}
        if group.name:
            own.update(current_group_name=group.name, current_instance_type=group.instance_type)
        files[RESOURCES] = {**files[RESOURCES], **own}
    started, distribution = job.started, job.distribution
    if started is not None:
        started = started.on(job.hosts.index(host), len(job.hosts))
        if distribution.processes_per_host:
            distribution = distribution._replace(processes_per_host=started.local_size)
    unnamed = job.unnamed
    if unnamed is not None and unnamed.node_rank is not None:
        unnamed = unnamed._replace(node_rank=job.hosts.index(host))
    paths = job.paths
    if paths_at := platforms.load(job.platform).paths_at:
        paths = paths_at(paths, job.hosts.index(host))
    return job._replace(
        paths=paths,
        started=started,
        distribution=distribution,
        unnamed=unnamed,
        current_host=host,
        current_group=group.name or job.current_group,
        instance_type=group.instance_type or job.instance_type,
        files=files,
    )


def _asked_once() -> probe.Ask:
    """Asks a program of this machine once for all hosts: they differ in no variable that decides its answer."""
    answers: dict[tuple[object, ...], probe.Answer] = {}

    def ask(words: Sequence[str], environ: Mapping[str, str], cwd: str, errors: bool = False) -> probe.Answer:
        key = (*words, cwd, errors, *(environ.get(name) for name in DECIDES))
        if key not in answers:
            answers[key] = probe.ask(words, environ, cwd, errors)
        return answers[key]

    return ask


def preview(
    views: Sequence[HostView],
    typed: bool,
    given: Mapping[str, Any] = {},
    addresses: Mapping[str, str] = {},
    names: Sequence[str] = (),
) -> Preview:
    """The plans of all hosts, whose ``views`` are in rank order. This machine's devices stand for every host's.

    ``given``: options of the command line. ``addresses``: those of hosts, by name, where they are known beforehand;
    ``names``: the hosts' in that table, in rank order; those without one will say it in the roll call.

    Raises:
        MusterError: the program is missing, or no launcher fits the job.
    """
    seen = [user_environment(view.environ, view.options.python) for view in views]
    views = [
        of_role(HostView(_placed(view.job, place), view.options, its.environ), given)
        for place, (view, its) in enumerate(zip(views, seen, strict=True))
    ]
    lacks = dict[str, MusterError]()

    def lacking(error: MusterError) -> None:
        lacks.setdefault(str(error), error)

    wanted = [what_is_wanted(view.job, view.options, its, lacks=lacking) for view, its in zip(views, seen, strict=True)]
    ask = _asked_once()
    prepared = [
        prepare_host(each, view.environ, typed, ask=ask, lacks=lacking)
        for each, view in zip(wanted, views, strict=True)
    ]
    slots = {view.job.current_host: host.choice.slots for view, host in zip(views, prepared, strict=True)}
    rosters, plans = [], []
    for view, each, host in zip(views, wanted, prepared, strict=True):
        job, known = view.job, {**_known_addresses(view.options), **addresses}
        known.update((own, addresses[name]) for own, name in zip(job.hosts, names) if name in addresses)
        roster = assumed_roster(job, view.options, slots.__getitem__, known, __version__)
        if job.unnamed is not None and names:
            seats = tuple(seat._replace(name=name) for seat, name in zip(roster.seats, names, strict=True))
            roster = roster._replace(seats=seats, me=names[job.rank_of_host], master_address=seats[0].address)
            each = each._replace(job=roster.settled(each.job))
        rosters.append(roster)
        plans.append(plan_host(each.job, each.settings, host, roster, view.environ))
    job = rosters[0].settled(views[0].job) if names else views[0].job
    leader = job.hosts.index(job.first_host)
    first, choice = views[leader], prepared[leader].choice
    notes = (
        *filter(None, (seen[0].note,)),
        *_notes(views[0]._replace(job=job), rosters[0]),
        *ignored_options(first.job, first.options, first.environ, given, choice, typed),
        *endings(lacks.values()),
    )
    made = Preview(job, prepared[leader].choice, tuple(rosters), tuple(plans), notes, seen[0].environ)
    return made._replace(lacks=tuple(lacks.values()), python=seen[0].python)


def of_role(view: HostView, given: Mapping[str, Any] = {}) -> HostView:
    """``view`` with the program that its host's role has, where the job has roles."""
    if not view.options.asks_for_roles:
        return view
    folder = Code(view.job, view.environ, view.options.python, named=False).folder
    return HostView(*of_this_host(view.job, view.options, view.environ, given, folder))


def _placed(job: Job, place: int) -> Job:
    """``job`` on the host at ``place``: where places go by arrival, no host knows its own before."""
    by_arrival = job.unnamed is not None and job.unnamed.node_rank is None
    return job._replace(current_host=job.hosts[place]) if by_arrival else job


def endings(lacks: Iterable[MusterError]) -> Iterator[str]:
    """How a job would end that is started here: a host says the first error, and the next once that is mended."""
    start = "started on this machine, the job would end at once"
    for error in lacks:
        yield f"warning: {start} with code {error.code}: {error}"
        start = "with that mended, it would end"


def _known_addresses(options: Settings) -> dict[str, str]:
    """The addresses in this machine's hosts files, by name; no look-ups."""
    known: dict[str, str] = {}
    for path in (options.hosts_file, "/etc/hosts"):
        try:
            names = read_hosts(path) if path else {}
        except OSError:
            continue
        for name, addresses in names.items():
            known.setdefault(name, addresses[0])
    return known


def _notes(view: HostView, roster: Roster) -> tuple[str, ...]:
    job, options = view.job, view.options
    notes = [note.text for note in job.notes]
    several = len(job.hosts) > 1
    if job.unnamed is not None:
        what = "" if job.unnamed.node_rank is not None else "; which of them this host is, too"
        notes.append(
            f"{job.hosts[0]} to {job.hosts[-1]} stand for names that the hosts say in the roll call, at "
            f"{job.unnamed.leader} port {job.unnamed.port or options.rollcall_port}{what}"
        )
    if several and not (options.slots or job.distribution.processes_per_host):
        stand = f"this host's {job.counted.variable} stands" if job.counted.slots else "this machine's devices stand"
        notes.append(f"{stand} for every host's; the roll call learns each host's own slots")
    if several and options.host_order == "topology":
        notes.append(
            "hosts are shown as the platform lists them; their switches decide the rank order in the roll call"
        )
    if several and any(seat.address == seat.name for seat in roster.seats):
        notes.append(
            "host names stand where the roll call will put numeric addresses, and the interface for NCCL and Gloo "
            "is chosen then, by the route to the leader"
        )
    unstoppable = unstoppable_pid1()
    return (*notes, *([pid1_note(unstoppable, options.pid1_watch)] if unstoppable else ()))


def assumed_roster(
    job: Job, options: Settings, slots_of: Callable[[str], int], addresses: Mapping[str, str], version: str = ""
) -> Roster:
    """The roster of ``job`` with its own hosts, the leader on its preferred port.

    ``slots_of`` says how many ranks a host of the group will have. A host without an address in ``addresses`` gets
    its name in that place, until the roll call.
    """
    grouped = set(job.hosts if job.roles else job.group_hosts)
    role_of = {host: role.name for role in job.roles if not role.beside for host in role.hosts}
    port = options.master_port or job.master_port
    seats = tuple(
        Seat(
            name,
            _address(job, name, addresses),
            slots_of(name) if name in grouped else 0,
            name in grouped,
            version,
            role=role_of.get(name, ""),
            role_ports=tuple(
                f"{role.name}={port + at}"
                for at, role in enumerate(job.roles, 1)
                if role.hosts[0] == name and role.name != job.leads
            ),
        )
        for name in job.hosts
    )
    roster = Roster(
        job=job.name,
        session="",
        seats=seats,
        master_address=_address(job, job.unnamed.leader if job.unnamed else job.leader, addresses),
        master_port=port,
        me=job.current_host,
        leading_host=job.first_host if job.roles else "",
        leading_port=port if job.roles else 0,
    )
    return roster.seen_by(roster.seat.role)._replace(me=job.current_host)


def _address(job: Job, name: str, addresses: Mapping[str, str]) -> str:
    return LOOPBACK if len(job.hosts) == 1 else addresses.get(name, name)


def with_data(preview: Preview, request: Request) -> Preview:
    """``preview`` with what its data is, as the stores tell.

    Raises:
        UsageError: an option of the data is wrong.
    """
    options = settings.from_environ(request.environ, request.given)
    if not options.has_data:
        return preview
    plan = plan_data(preview.job, options, os.getcwd())
    access = Access(preview.environ, (preview.python,), preview.job.region)
    return preview._replace(notes=(*preview.notes, *_data_notes(plan, access)))


def _data_notes(plan: DataPlan, access: Access) -> Iterator[str]:
    for channel, directory in plan.channels:
        yield f"channel {channel.name}: {_fetched(channel, plan, access)}, to {directory}"
    if plan.target is not None:
        uri = plan.target.uri
        try:
            found = newest(plan.target, access, limited(ANSWER))
        except FetchError as error:
            yield str(error)
        else:
            what = "has none yet" if found is None else f"begins with {', '.join(found.names)} ({mib(found.bytes)})"
            yield f"checkpoints: whole ones of {plan.directory} go to {uri}, which {what}"
    if plan.upload is not None:
        kind = "files" if plan.upload.as_files else "archives"
        yield f"results: the model and output data go to {plan.upload.uri} as {kind}"


def _fetched(channel: Channel, plan: DataPlan, access: Access) -> str:
    try:
        size = measure(channel, access, plan.share, ANSWER)
    except FetchError as error:
        return f"{channel.uri} can't be listed from here ({error})"
    whose = (
        f"for the host at place {plan.share.place + 1} of {plan.share.hosts}" if channel.sharded else "for each host"
    )
    return f"{size.sentence} of {channel.uri} {whose}"
