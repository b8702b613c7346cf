"""A job with roles on this host: the program that its own role has, those beside it, and what each is told of all."""

import json
import os
from typing import Any, Iterator, Mapping

from musterpoint.base import job_text
from musterpoint.base.errors import UsageError, similar
from musterpoint.base.job_text import JobText, text_of
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import BY_FIELD, TO_MEET, Settings
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job import roles
from musterpoint.core.job.model import Ends, Job, Readiness, Role
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Gate, LaunchPlan, service_process
from musterpoint.core.launch.launchers import ON_ITS_OWN, asked_by, find_launcher
from musterpoint.core.rollcall.roster import Roster

OF_LOCAL = frozenset(
    (
        *("hosts", "host_names", "backend", "image", "shm_size", "memory", "cpus", "gpus", "network_isolation"),
        *("one_address", "internet", "source_dir", "hyperparameters", "distribution", "channel", "sharded", "metric"),
        *("env", "host_slots", "cpu_fallback", "debug", "stop_after", "output", "live", "groups"),
    )
)
"""Keys of a job's file for ``muster local`` alone."""
_OF_PROGRAM = ("program", "arguments", "module", "roles")
VISIBLE = "CUDA_VISIBLE_DEVICES"


class OfRole(NamedTuple):
    """A job, its options and its program's variables as this host's role has them."""

    job: Job
    options: Settings
    environ: Mapping[str, str]


def of_this_host(
    job: Job,
    options: Settings,
    environ: Mapping[str, str],
    given: Mapping[str, Any],
    folder: str = "",
    text: JobText | None = None,
) -> OfRole:
    """The job as this host's role has it; as it is, where it has no roles. ``given``: the options of the command line,
    by field; ``folder``: the job's code; ``text``: its file, where that has been read.

    Raises:
        UsageError: the file isn't there or is wrong, or its roles don't fit the job's hosts.
    """
    if options.job_file and text is None:
        text = _read(options.job_file, folder, job.paths.code)
        options = _with_options(text, options, environ, given)
    asked = roles.of_file(text) if text is not None and "roles" in text.values else []
    asked = [each._replace(role=_found(each.role, text.folder, folder or job.paths.code)) for each in asked if text]
    asked = _with_short(asked, options, job)
    if not asked:
        return OfRole(job, options, environ)
    for each in asked:
        _check_launcher(each)
    own = roles.with_roles(job, asked, lambda role: find_launcher(_launcher_of(role, job)).leads)
    role = own.role
    assert role is not None
    changes: dict[str, Any] = {"launcher": role.launcher or ON_ITS_OWN} if role.launcher != "auto" else {}
    changes.update({"slots": role.slots} if role.slots is not None else {})
    role = role._replace(replaced=tuple((name, environ.get(name)) for name, _ in role.env))
    own = own._replace(roles=tuple(role if each.name == role.name else each for each in own.roles))
    return OfRole(own, options._replace(**changes), {**environ, **dict(role.env)})


def _found(role: Role, beside: str, code: str) -> Role:
    """``role`` with its program's path, where that is ``beside`` the file and not in the ``code``."""
    path = os.path.join(beside, role.program)
    elsewhere = bool(beside and role.program) and os.path.isfile(path) and not role.module
    return role if not elsewhere or os.path.exists(os.path.join(code, role.program)) else role._replace(program=path)


def _read(name: str, *folders: str) -> JobText:
    if job_text.is_object(name):
        return job_text.read_job_text(name, "the job's roles")
    path = job_text.found_file(name, *folders, os.getcwd())
    if not path:
        looked = " or ".join(dict.fromkeys(filter(None, (*folders, os.getcwd()))))
        raise UsageError(f"--job-file {name} (MUSTER_JOB_FILE): there is no such file in {looked}")
    return job_text.read_job_text(path, path)


def _with_options(text: JobText, options: Settings, environ: Mapping[str, str], given: Mapping[str, Any]) -> Settings:
    """``options`` with those of the file, which come after the command line and variables."""
    changes = {}
    for key, value in text.values.items():
        field = key.replace("-", "_")
        if key in _OF_PROGRAM or field in OF_LOCAL:
            continue
        option = BY_FIELD.get(field)
        if option is None:
            near = similar(field, (*BY_FIELD, *OF_LOCAL, *_OF_PROGRAM))
            raise UsageError(f"{text.where}: {key} is no option of a job{f': did you mean {near}?' if near else ''}")
        if field in given or environ.get(option.variable):
            continue
        if field in TO_MEET:
            raise UsageError(f"{text.where}: {key} is needed before hosts have this file: set {option.variable}")
        words = map(text_of, value if isinstance(value, list) else (value,))
        changes[field] = option.read(("\n" if option.repeats else ",").join(words), f"{text.where}: {key}")
    return options._replace(**changes)


def _with_short(asked: list[roles.Asked], options: Settings, job: Job) -> list[roles.Asked]:
    """The roles with those of ``--role``; the job's program is the first one's, if there is no other. Or those of
    ``--group``: all other instance groups run the program on their own.
    """
    short = [roles.of_option(line) for line in options.more_roles.splitlines()]
    if asked or not short:
        return [*asked, *short] if asked or job.distribution.kind != "none" else _of_group(options, job)
    stem = os.path.basename(job.entry_point.program).partition(".")[0].replace("_", "-")
    first = Role(stem if roles.is_name(stem) else "program", (), launcher=options.launcher, slots=options.slots)
    return [roles.Asked(first, None, "", lambda key: "--role"), *short]


def _of_group(options: Settings, job: Job) -> list[roles.Asked]:
    """The instance group that trains, and the others beside it."""
    others = [group.name for group in job.groups if group.name != options.group and group.hosts]
    if not options.group or not others:
        return []
    first = Role(options.group, (), launcher=options.launcher, slots=options.slots)
    ends: Ends = "never" if options.outside == "stop" else "job"
    served = [Role(name, (), launcher="", ends=ends) for name in others]
    return [roles.Asked(role, None, role.name, lambda key: "--group (MUSTER_GROUP)") for role in (first, *served)]


def _check_launcher(asked: roles.Asked) -> None:
    try:
        if asked.role.launcher not in ("", "auto"):
            find_launcher(asked.role.launcher)
    except UsageError as error:
        raise UsageError(f"{asked.where('launcher')}: {error}") from None


def _launcher_of(role: Role, job: Job) -> str:
    """The launcher of a role, as far as it is known on all hosts."""
    if role.launcher != "auto":
        return role.launcher or ON_ITS_OWN
    return next((name for name, _ in asked_by(job.distribution.kind)), ON_ITS_OWN)


def devices_of(job: Job, devices: Devices) -> Devices:
    """The devices that this host's own role has: without those of the roles beside it.

    Raises:
        UsageError: there are too few.
    """
    wanted = sum(role.gpus for role in job.beside)
    if not wanted or not devices.gpus:
        return devices
    if wanted >= devices.gpus:
        names = ", ".join(f"{role.name} {role.gpus}" for role in job.beside if role.gpus)
        raise UsageError(f"{job.own_name} has {devices.gpus} GPUs: {names} leave none for {job.role_name}")
    return devices._replace(gpus=devices.gpus - wanted)


def gpu_sets(job: Job, devices: Devices, environ: Mapping[str, str]) -> dict[str, str]:
    """The value of CUDA_VISIBLE_DEVICES by role on this host: its own has the first GPUs, those beside it the others.
    ``devices`` are those of its own role.
    """
    beside = [role for role in job.beside if role.gpus]
    if not beside or not devices.gpus:
        return {}
    total = devices.gpus + sum(role.gpus for role in beside)
    names = (environ.get(VISIBLE) or ",".join(map(str, range(total)))).split(",")
    found, at = {job.role_name: ",".join(names[: devices.gpus])}, devices.gpus
    for role in beside:
        found[role.name], at = ",".join(names[at : at + role.gpus]), at + role.gpus
    return found


def told(inputs: LaunchInputs, role: Role) -> Iterator[EnvSetting]:
    """Variables about all roles, for the programs of ``role``."""
    yield EnvSetting("MUSTER_ROLE", role.name, "the role of this program")
    for each in inputs.job.roles:
        reason = f"the addresses of {each.name}'s hosts"
        yield EnvSetting(roles.variable_of(each.name), ",".join(addresses(inputs.roster, each)), reason)
    yield EnvSetting("MUSTER_ROLES", json.dumps(described(inputs.job, inputs.roster)), "every role, as JSON")


def described(job: Job, roster: Roster) -> list[dict[str, Any]]:
    """Every role, for programs."""
    return [
        {
            "name": role.name,
            "hosts": list(role.hosts),
            "addresses": addresses(roster, role),
            "master_port": roster.port_of(job, role.name),
            "ends": role.ends,
            **({"beside": role.beside} if role.beside else {}),
            **({"ready": str(role.ready)} if role.ready.kind != "started" else {}),
        }
        for role in job.roles
    ]


def addresses(roster: Roster, role: Role) -> list[str]:
    """The addresses of a role's hosts."""
    of_host = {seat.name: seat.address for seat in roster.seats}
    return [of_host[host] for host in role.hosts]


def with_roles(inputs: LaunchInputs, plan: LaunchPlan, beside: tuple[tuple[Role, Workspace], ...]) -> LaunchPlan:
    """``plan`` with the roles beside this host's own, and all gates."""
    own = inputs.job.role
    if own is None:
        return plan
    sets = gpu_sets(inputs.job, inputs.devices, inputs.environ)
    gpus = {name: [EnvSetting(VISIBLE, each, f"the GPUs of {name} on this host")] for name, each in sets.items()}
    settings = (*plan.environment, *told(inputs, own), *gpus.get(own.name, ()))
    services = []
    for role, workspace in beside:
        more = [EnvSetting(name, value, f"of the role {role.name}") for name, value in role.env]
        more += gpus.get(role.name, ())
        before = [EnvSetting(name, value, f"as {own.name} doesn't have it") for name, value in own.replaced if value]
        service = service_process(workspace, role.name, (*before, *told(inputs, role), *_world(inputs, role), *more))
        given = {setting.name for setting in service.environment}
        without = tuple(name for name, value in own.replaced if name not in given)
        services.append(service._replace(of_role=role.name, without=without))
    awaited = {name for role in inputs.job.roles for name in role.after}
    # a world has one server, most likely that of its first host
    ready = own.ready if plan.independent or not inputs.roster.node_rank else Readiness()
    gates = tuple(
        Gate(role.name, role.after, role.ready, role.ends, role.name in awaited)
        for role in (own._replace(ready=ready), *(each for each, _ in beside))
    )
    return plan._replace(processes=(*plan.processes, *services), environment=settings, gates=gates)


def _world(inputs: LaunchInputs, role: Role) -> tuple[EnvSetting, ...]:
    """The place of a program beside another role: one on each host."""
    roster = inputs.roster
    place, size = roster.node_rank, len(role.hosts)
    values = {
        "RANK": place,
        "WORLD_SIZE": size,
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "NODE_RANK": place,
        "NNODES": size,
        "MASTER_ADDR": inputs.master_address,
        "MASTER_PORT": roster.port_of(inputs.job, role.name),
    }
    why = f"{role.name} is one process on each host of {role.beside}"
    return tuple(EnvSetting(name, str(value), why) for name, value in values.items())
