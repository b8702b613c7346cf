"""Prepares this host's part of a job before the roll call: the request understood, code, devices and launcher here.

``muster plan`` takes the steps of :func:`prepare_host`, too.
"""

import os
from typing import Mapping

from musterpoint import __version__
from musterpoint.base import probe
from musterpoint.base.errors import LauncherError, MusterError, StoppedEarly, UsageError
from musterpoint.base.probe import Ask
from musterpoint.base.settings import LOCAL, Settings
from musterpoint.core.code.interpreter import LauncherModules, UserEnvironment, has_module, user_environment
from musterpoint.core.code.program import NoProgram, find_program
from musterpoint.core.code.project import requirements_of
from musterpoint.core.code.unwrap import ReadLine, Unwrapped, unwrapped
from musterpoint.core.code.workspace import Code
from musterpoint.core.fabric.devices import survey
from musterpoint.core.job import restartable
from musterpoint.core.job.directories import is_own, locked, made, without_own
from musterpoint.core.job.model import Job
from musterpoint.core.launch import smdistributed
from musterpoint.core.launch.choose import choose
from musterpoint.core.launch.host_plan import PreparedHost
from musterpoint.core.launch.inputs import capacity_of
from musterpoint.core.launch.launcher import (
    MPIRUN,
    Lacks,
    Question,
    Wanted,
    asks_for_ssh,
    check_unnamed,
    known_of,
    option_for_ports,
    refuse,
    wanted_ports,
)
from musterpoint.core.launch.launchers import find_launcher, instead_of, of_program
from musterpoint.core.part import JobContext, Part, Ready, Refused, Stopped
from musterpoint.core.ports import Ports, offered
from musterpoint.core.rollcall.agreed_ports import hold_early
from musterpoint.core.rollcall.roster import LONGEST_PLACE, Offer
from musterpoint.core.runtime import Request, Runtime
from musterpoint.core.supervise.context import OtherEntryPoints


def understand(runtime: Runtime, context: JobContext) -> JobContext:
    """The job with its directories, and the request as the program sees it.

    Raises:
        UsageError: a job of one host has no folder of its own.
    """
    context = context if context.request.loan is not None else _with_own_folder(runtime, context)
    request, options, job, wrong = context
    runtime.watchers.open("understood", context.seen(runtime))
    placed = made(job)
    runtime.set_job(placed.job)
    said = placed.why or (placed.said if runtime.leads else "")
    if said:
        runtime.console.say(said)
    named = {name: value for name, value in request.environ.items() if name not in placed.unset}
    seen = user_environment(named, options.python)
    if seen.note and runtime.leads:
        runtime.console.say(seen.note)
    for note in placed.job.notes:
        if note.level != "plan":
            runtime.console.say(f"{note.level}: {note.text}".removeprefix("info: "))
    return JobContext(request._replace(environ=seen.environ, python=seen.python), options, placed.job, wrong)


def _with_own_folder(runtime: Runtime, context: JobContext) -> JobContext:
    """The job with a folder that no other running job writes to; or without one, and why. None is made for a typed
    program that isn't there.
    """
    job = context.job
    try:
        program, module = job.entry_point.program, job.entry_point.module
        named = program.endswith((".py", ".sh", ".ipynb")) or os.path.isdir(os.path.join(job.paths.code, program))
        if named and is_own(job.paths.failure) and not context.installs:
            find_program(program, module, job.paths.code, "", {})
        placed, locks, moved = locked(job, bool(context.options.job_name))
    except UsageError as error:
        if len(job.hosts) == 1:
            raise
        return JobContext(context.request, context.options, without_own(job), (*context.wrong, error))
    runtime.keep_open(locks)
    if moved:
        runtime.console.say(moved)
    return context.with_job(placed)


def prepare(
    runtime: Runtime, context: JobContext, others: OtherEntryPoints, read: ReadLine | None = None
) -> tuple[JobContext, Part]:
    """Takes the steps before the roll call that need no other host.

    The job is as its program has it, where that is a launcher's command line, or wholly a launch of ours, which
    ``read`` reads.
    """
    if context.wrong:
        return context, Refused(runtime.failure_of(context.wrong[0]))
    try:
        request, options, job, _ = context
        # a program from a command line is here already, and its packages are left to the user unless asked for
        fetches = request.program is None or context.installs
        tools = (lambda: runtime.tools(job, options)) if fetches else None
        code = Code(job, request.environ, request.python, tools, named=not options.asks_for_roles)
        found = unwrapped(job, request.given, request.environ, code.folder, read)
        if found is not None:
            request, options, job, _ = context = with_line(runtime, request, found)
        if options.asks_for_roles:
            from musterpoint.core.launch.role_plan import of_this_host  # 5 ms, for jobs with roles

            job, options, environ = of_this_host(job, options, request.environ, request.given, code.folder)
            request = request._replace(environ=environ)
            context = JobContext(request, options, job)
            hold_early(job, options, runtime.ports)
        seen = UserEnvironment(request.environ, request.python)
        wanted = what_is_wanted(job, options, seen, runtime.ask)
        host = prepare_host(wanted, request.environ, request.typed, code, fetches, runtime.ask)
        ready = JobContext(request, wanted.settings, wanted.job)
        runtime.watchers.open("prepared", ready.seen(runtime, host.ssh))
        offer = offer_of(wanted.job, wanted.settings, host, runtime.ports, runtime.watchers.ports, runtime.watchers.key)
        runtime.timeline.add("host-prepared", launcher=offer.launcher, job=wanted.job.name)
        if request.given or request.program is not None or any(name.startswith("MUSTER_") for name in request.environ):
            from musterpoint.core.ignored_options import ignored_options  # 2 ms, where there are options

            typed = request.program is not None
            for text in ignored_options(job, options, request.environ, request.given, host.choice, typed, request.line):
                runtime.console.say(text)
        others.gather(options.rollcall_timeout)
    except StoppedEarly as stop:
        return context, Stopped(stop.signal)
    except MusterError as error:
        return context, Refused(runtime.failure_of(error))
    return ready, Ready(host, offer)


def with_line(runtime: Runtime, request: Request, found: Unwrapped) -> JobContext:
    """The request, options and job of the launch that a program wholly is."""
    line: Request = found.line
    runtime.use_options(line.given)
    for text in line.notes:
        runtime.console.say(text)
    seen = user_environment(line.environ, found.options.python or request.python)
    given = {**request.given, **line.given}
    line = line._replace(environ=seen.environ, python=seen.python, given=given, loan=request.loan)
    return JobContext(line, found.options, found.job)


def what_is_wanted(
    job: Job, options: Settings, seen: UserEnvironment, ask: Ask | None = None, lacks: Lacks | None = None
) -> Wanted:
    """What is to be run: ``job`` and ``options`` as they are, unless the program is a launcher's own command line.

    ``seen`` has the program's Python and its variables. ``lacks`` is told where this host lacks that launcher, for a
    plan.

    Raises:
        MusterError: the line is wrong, or contradicts the job.
    """
    program = job.entry_point.program
    name = of_program(os.path.basename(program), program)
    read = find_launcher(name).typed if name else None
    question = Question(job, options, seen.environ, seen.python, ask=ask, lacks=lacks)
    found = read(question) if read is not None else None
    return (found or Wanted(job, options))._replace(python=seen.python)


def prepare_host(
    wanted: Wanted,
    environ: Mapping[str, str],
    typed: bool = False,
    code: Code | None = None,
    installs: bool = False,
    ask: Ask = probe.ask,
    lacks: Lacks = refuse,
) -> PreparedHost:
    """The steps that need no other host: the user's code, this host's devices, the launcher and its slots.

    ``environ`` has the variables that the program sees. ``code``: where it is on this host already; None: nothing is
    fetched, and nothing installed. ``installs``: packages beside the program are the job's.
    ``ask`` asks programs of this host, and is interrupted by a stop. ``lacks`` is told of what the launcher needs and
    isn't here; where it returns, the host is prepared for a plan as if it had that.

    Raises:
        MusterError: the program, its code, packages or launcher are missing.
    """
    job, options = wanted.job, wanted.settings
    if options.max_restarts:
        restartable.check_restartable(job, options)
    interpreter = wanted.interpreter
    requirements = requirements_of(options.requirements, job.entry_point.program, job.paths.code, typed and installs)
    try:
        code = code or Code(job, environ, interpreter)
        workspace = code.workspace(job, interpreter, options.installer, requirements)
        besides = tuple((role, code.workspace(job.seen_by(role), interpreter, "none")) for role in job.beside)
    except NoProgram as error:
        instead = instead_of(os.path.basename(job.entry_point.program), "launch", job)  # it is a launcher's command
        raise UsageError("; ".join(filter(None, (str(error), instead)))) from None
    devices = survey(environ)
    if job.beside:
        from musterpoint.core.launch.role_plan import devices_of

        devices = devices_of(job, devices)

    of_launcher = LauncherModules(workspace.interpreter, environ, ask)

    def has(module: str) -> bool:
        if module != MPIRUN:
            return module in of_launcher.among((module,))
        from musterpoint.core.fabric.mpirun import mpirun_of

        return bool(mpirun_of(environ))

    local = typed or bool(environ.get(LOCAL))
    choice = choose(job, options, devices, has, local, environ, wanted, lacks)
    launcher = find_launcher(choice.launcher)
    check_unnamed(job, options, launcher)
    told = (workspace.note,) if workspace.note else ()
    if not job.in_group:
        return PreparedHost(workspace, devices, choice, notes=told)
    if workspace.kind in ("python", "module"):

        def beside(module: str) -> bool:
            return has_module(workspace.interpreter, module, environ, "/", ask)

        smdistributed.check_modules(job, environ, beside, lacks)
    modules = of_launcher.among(launcher.modules).union((launcher.needs,) if launcher.needs else ())
    question = Question(job, options, environ, interpreter, choice.reason, ask)
    known, notes = wanted.known, tuple(filter(None, (wanted.assumed,)))
    if launcher.survey is not None and known is None:
        known, notes = known_of(launcher, question, not launcher.needs or has(launcher.needs), lacks)
    surveyed = None
    if devices.accelerated and (len(job.hosts) > 1 or choice.slots > 1 or devices.gpus > 1):
        from musterpoint.core.fabric.fabric_facts import survey_fabric  # 3 ms, where there are accelerators

        surveyed = survey_fabric(devices, environ, workspace.interpreter)
    ssh = None
    if len(job.group_hosts) > 1 and (asked := asks_for_ssh(launcher, options)):
        from musterpoint.core.fabric.ssh import ASSUMED, find_ssh

        try:
            ssh = find_ssh(environ, asked)
        except LauncherError as error:
            lacks(error)
            ssh = ASSUMED
    return PreparedHost(workspace, devices, choice, modules, known, surveyed, ssh, (*told, *notes), besides)


def offer_of(
    job: Job, options: Settings, host: PreparedHost, held: Ports, more: tuple[int, ...] = (), key: str = ""
) -> Offer:
    """What this host says about itself in the roll call. ``held`` are the ports that are held for the job; ``more``
    are open for other hosts, and ``key`` is the public key by which they call.

    Raises:
        MusterError: a port that all hosts must use is taken.
    """
    choice = host.choice
    return Offer(
        job.name,
        choice.launcher,
        choice.slots,
        __version__,
        capacity_of(job, options, host.devices),
        (*free_ports(job, options, host, held), *more),
        host.fabric.libraries.compared if host.fabric is not None else (),
        _place(job, options),
        ssh_key=key,
        independent=find_launcher(choice.launcher).independent,
        role=job.role_name,
        roles=job.roles_digest,
        role_ports=_role_ports(job, held),
    )


def _role_ports(job: Job, held: Ports) -> tuple[str, ...]:
    """Held master ports: of roles whose first host this is, but for the one that leads."""
    first = [role for role in job.roles if role.hosts[0] == job.current_host and role.name != job.leads]
    return tuple(f"{role.name}={held.take_any()}" for role in first)


def _place(job: Job, options: Settings) -> str:
    """Where this host is in the network, if that decides the rank order."""
    if options.host_order != "topology" or len(job.hosts) == 1:
        return ""
    place = f"{options.topology}.{job.own_name}" if options.topology else job.place  # the host itself comes last
    return place[:LONGEST_PLACE]


def free_ports(job: Job, options: Settings, host: PreparedHost, held: Ports) -> tuple[int, ...]:
    """Ports of this host for servers of the launcher's framework, which are ``held`` from now on.

    Raises:
        MusterError: a port that all hosts must use is taken.
    """
    launcher = find_launcher(host.choice.launcher)
    wanted = wanted_ports(launcher, host.modules, options, job) if job.in_group else ()
    if job.in_group and len(job.hosts) > 1 and host.devices.neuron_cores:
        from musterpoint.core.launch.fabric import wanted_for_neuron

        wanted += wanted_for_neuron(launcher, host.devices)
    return offered(wanted, held, option_for_ports(launcher, options))
