"""``ray``: a cluster of all hosts, and the program as the one rank, on the leader.

The head on the leader and a worker on every other host are services: ``ray start --block``, run by
:mod:`musterpoint.embedded.programs.ray_node`. :mod:`musterpoint.embedded.programs.ray_driver` starts the program when
all nodes are in. Names and defaults are Ray 2.60's: ``scripts/scripts.py`` (``ray start``), ``_private/node.py`` (what
a stop does).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import shlex
import zlib

from musterpoint.base.errors import UsageError
from musterpoint.base.readers import bracketed
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.fabric.devices import Memory, survey_memory
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job import platforms
from musterpoint.core.job.model import Job
from musterpoint.core.launch.identity import IDENTITY
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import Argument, LaunchPlan, ProcessPlan, program_arguments, program_of_ours
from musterpoint.core.launch.launcher import MISLEADING, Asked, Hidden, Launcher, Question

TEMPORARY = "muster-ray-"
"""What the names of Ray's temporary directories begin with."""
RAY_PORTS = (
    "gcs",
    "node-manager",
    "object-manager",
    "dashboard-agent-listen",
    "dashboard-agent-grpc",
    "runtime-env-agent",
    "metrics-export",
    "dashboard",
    "ray-client-server",
)
"""What listens on a host of Ray's cluster, in the order of the ports that the host offers in the roll call."""
SECONDS_TO_END = 4
"""What Ray's processes get to end by themselves: with an idle cluster they take 1 to 2."""
SECONDS_WITHOUT_HEAD = 30
"""After these a node gives up a head that is gone (Ray's default: 60). The head gives up a silent node no later."""
LONGEST_FOLDER = 40
"""Bytes of Ray's temporary directory: sockets below it have names of up to 66, and 107 is the most there can be."""
SHARE_OF_MEMORY = 0.3
"""The part of memory that Ray gives to its object store unless told otherwise."""
SHARE_OF_SHM = 0.9
LEAST_STORE, LARGEST_ON_DISK = 75 << 20, 10**10
"""Bytes: what an object store must have, and the most that Ray keeps in a directory where /dev/shm is too small."""
TOKEN, TOKEN_PATH, MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
OPEN_NOTE = (
    "Ray's cluster is open, and whoever reaches its ports may run code on every host; set MUSTER_SECRET (--secret) or "
    "RAY_AUTH_TOKEN on all hosts"
)
OURS: dict[str, str] = {
    "head": "the leader is the head",
    "address": "the head's address comes from the roll call",
    "port": "the head's port comes from the roll call",
    "block": "every node is watched",
    "node-ip-address": "every host's address comes from the roll call",
}
"""Options of ``ray start`` that nobody can change, and why."""
HEAD_ONLY = (
    "include-dashboard",
    "dashboard-host",
    "dashboard-port",
    "ray-client-server-port",
    "redis-shard-ports",
    "temp-dir",
)
"""Options of ``--ray-options`` that only the head gets."""


class Flag(NamedTuple):
    """An option of ``ray start``; ``value`` is None where it has none."""

    name: str
    value: str | None
    reason: str

    @property
    def argument(self) -> Argument:
        return Argument(f"--{self.name}" + ("" if self.value is None else f"={self.value}"), self.reason)


def plan_ray(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: the head and the program, or a worker.

    Raises:
        UsageError: ``--ray-options`` or ``--ray-head-options`` has an option that the plan decides.
    """
    leads = inputs.roster.node_rank == 0
    token, notes = _token(inputs)
    environment = inputs.environment(*token, *_settings(inputs))
    processes = (_node(inputs, leads), *((_driver(inputs),) if leads else ()))
    environment = tuple(setting for setting in environment if setting.name not in IDENTITY)
    plan = inputs.plan(processes, environment, notes=notes if leads else ())
    return plan if _asked_folder(inputs) else plan._replace(temporary=_folder(inputs))


def _settings(inputs: LaunchInputs) -> tuple[EnvSetting, ...]:
    patience = str(int(inputs.settings.rollcall_timeout * 1000))
    return (
        EnvSetting("RAY_agent_register_timeout_ms", patience, "agents start slowly on a loaded machine"),
        EnvSetting("RAY_USAGE_STATS_ENABLED", "0", "nothing about the job is sent to Ray's makers"),
        EnvSetting(
            "RAY_gcs_rpc_server_reconnect_timeout_s", str(SECONDS_WITHOUT_HEAD), "a node learns in time of a dead head"
        ),
        EnvSetting(
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0", "below `uv run`, too, tasks run in the code that their host has"
        ),
        EnvSetting("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0", "when nodes are stopped, the program has ended"),
    )


def _token(inputs: LaunchInputs) -> tuple[tuple[EnvSetting, ...], tuple[str, ...]]:
    """The variables of Ray's authentication, and a note where there is none.

    Ray before 2.52 knows none of them. With neither, a token that an earlier Ray left in the home directory of one host
    would keep that host apart.
    """
    environ, secret = inputs.environ, inputs.settings.secret
    if environ.get(MODE):
        return (), () if environ[MODE] == "token" else (OPEN_NOTE,)
    if environ.get(TOKEN) or environ.get(TOKEN_PATH):
        return (EnvSetting(MODE, "token", f"{TOKEN if environ.get(TOKEN) else TOKEN_PATH} is set"),), ()
    if not secret:
        return (EnvSetting(MODE, "disabled", "there is neither a secret nor a token"),), (OPEN_NOTE,)
    words = f"musterpoint: Ray's token of {inputs.roster.session}"
    token = hmac.new(secret.encode("utf-8", "surrogateescape"), words.encode(), hashlib.sha256).hexdigest()
    return (
        EnvSetting(MODE, "token", "nobody without the job's secret may use the cluster"),
        EnvSetting(TOKEN, token[:32], "made from the job's secret on every host; it is never sent by musterpoint"),
    ), ()


def _port(inputs: LaunchInputs, name: str, of_leader: bool = False) -> int:
    """The port that this host (or the leader) offered; a preview has none, and counts from the master port."""
    seat = inputs.roster.group[0] if of_leader else inputs.roster.seat
    at = RAY_PORTS.index(name)
    return seat.ports[at] if at < len(seat.ports) else inputs.roster.master_port + 1 + at


def _address(inputs: LaunchInputs) -> str:
    """The head's address, as Ray's programs are told it."""
    return f"{bracketed(inputs.master_address)}:{_port(inputs, 'gcs', of_leader=True)}"


def _folder(inputs: LaunchInputs) -> str:
    """Ray's temporary directory, the same on all hosts: the one asked for, else one that is no other job's."""
    asked_for = _asked_folder(inputs)
    if asked_for:
        return asked_for
    name = f"{TEMPORARY}{_port(inputs, 'gcs', of_leader=True)}-{zlib.crc32(inputs.roster.session.encode()):08x}"
    own = os.path.join(inputs.environ.get("TMPDIR") or "/tmp", name)
    return own if len(os.fsencode(own)) <= LONGEST_FOLDER else f"/tmp/{name}"


def _asked_folder(inputs: LaunchInputs) -> str:
    return next((flag.value or "" for flag in _asked(inputs) if flag.name == "temp-dir"), "")


def _asked(inputs: LaunchInputs) -> tuple[Flag, ...]:
    return asked(inputs.settings.ray_options, "--ray-options")


def _driver(inputs: LaunchInputs) -> ProcessPlan:
    """The user's program, as soon as all nodes are in."""
    roster, workspace = inputs.roster, inputs.workspace
    nodes = ",".join(f"{seat.name}={seat.address}" for seat in roster.group)
    address = EnvSetting("RAY_ADDRESS", _address(inputs), "the cluster that ray.init() joins")
    # Ray's own programs would import a queue.py beside the program; its workers get the program's sys.path
    paths = tuple(setting for setting in inputs.program_environment() if setting.name == "PYTHONPATH")
    argv = (
        Argument(workspace.interpreter, "the program's Python, which has Ray"),
        program_of_ours("ray_driver", "waits for all nodes, then becomes the program"),
        Argument(_address(inputs), "the head"),
        Argument(nodes, "the nodes it waits for"),
        Argument(f"{inputs.settings.rollcall_timeout:g}", "seconds it waits at most: --rollcall-timeout"),
        *program_arguments(workspace.argv),
    )
    return ProcessPlan("rank", "rank 0", argv, (address, *paths), workspace.cwd, 0, 0)


def _node(inputs: LaunchInputs, leads: bool) -> ProcessPlan:
    """This host's node of the cluster."""
    flags = {flag.name: flag for flag in (*_place(inputs, leads), *_capacity(inputs), *_port_flags(inputs, leads))}
    for flag in _asked(inputs):
        if leads or flag.name not in HEAD_ONLY:
            flags[flag.name] = flag
    for flag in asked(inputs.settings.ray_head_options, "--ray-head-options") if leads else ():
        flags[flag.name] = flag
    return ProcessPlan(
        "service",
        "Ray's head" if leads else "Ray's worker",
        (
            Argument(inputs.workspace.interpreter, "the program's Python, which has Ray"),
            program_of_ours("ray_node", "runs `ray start`; its own words come to the log, Ray's advice doesn't"),
            Argument(_folder(inputs), "Ray's temporary directory, made for this user alone"),
            Argument(f"{inputs.settings.rollcall_timeout:g}", "seconds a worker waits for the head at most"),
            Argument("start", "the command of ray"),
            *(flag.argument for flag in flags.values()),
        ),
        cwd=inputs.workspace.cwd,
        time_to_end=SECONDS_TO_END,
    )


def _place(inputs: LaunchInputs, leads: bool) -> tuple[Flag, ...]:
    own = Flag("node-ip-address", inputs.own_address, "this host, as the others reach it")
    watched = Flag("block", None, "it ends when one of Ray's processes here does")
    silent = Flag("disable-usage-stats", None, "nothing about the job is sent to Ray's makers")
    if not leads:
        return (Flag("address", _address(inputs), "the head, on the leader"), own, watched, silent)
    port = str(_port(inputs, "gcs", of_leader=True))
    return (
        Flag("head", None, "the leader has the head"),
        own,
        Flag("port", port, "free on this host"),
        watched,
        silent,
        Flag(
            "temp-dir", _folder(inputs), "a directory of this job alone, removed at its end; the workers take it over"
        ),
        Flag("include-dashboard", "false", "--ray-options '--include-dashboard=true' asks for it"),
    )


def _capacity(inputs: LaunchInputs) -> tuple[Flag, ...]:
    devices, slots = inputs.devices, inputs.settings.slots
    gpus = min(slots, devices.gpus) if slots else devices.gpus
    given = slots if slots and not devices.gpus else 0
    why = f"--slots {slots}" if slots else "GPUs of this host"
    store = _store(inputs)
    return (
        Flag("num-cpus", str(given or devices.cpus), why if given else "processors of this container"),
        Flag("num-gpus", str(gpus), why if gpus else "none here"),
        *([store] if store else []),
    )


def _store(inputs: LaunchInputs) -> Flag | None:
    """The size of the object store: Ray's share of memory, less where /dev/shm has no room for it."""
    memory = inputs.known
    if not isinstance(memory, Memory) or not memory.total:
        return None
    wanted, room = int(memory.total * SHARE_OF_MEMORY), int(memory.shared * SHARE_OF_SHM)
    if wanted <= room:
        return Flag("object-store-memory", str(max(wanted, LEAST_STORE)), "30 % of memory, as Ray would take")
    if room >= LEAST_STORE:
        return Flag("object-store-memory", str(room), "nine tenths of what is free in /dev/shm")
    size = max(min(wanted, LARGEST_ON_DISK), LEAST_STORE)
    return Flag("object-store-memory", str(size), "30 % of memory, on disk: /dev/shm has no room; give it more")


def _port_flags(inputs: LaunchInputs, leads: bool) -> tuple[Flag, ...]:
    names = [name for name in RAY_PORTS if name not in ("gcs", "dashboard", "ray-client-server")]
    if leads:
        names += ["dashboard", *(["ray-client-server"] if "grpc" in inputs.modules else [])]
    return tuple(Flag(f"{name}-port", str(_port(inputs, name)), "free on this host") for name in names)


def asked(text: str, option: str) -> tuple[Flag, ...]:
    """The options of ``ray start`` in ``text``, which was given as ``option``.

    Raises:
        UsageError: the text isn't a list of options, or one of them is the plan's.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option}={text!r}: {str(error).lower()}; expected options of ray start") from None
    flags: list[Flag] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            flags.append(Flag(name, value if equals else None, option))
        elif flags and flags[-1].value is None:
            flags[-1] = flags[-1]._replace(value=word)
        else:
            raise UsageError(f"{option}={text!r}: {word!r} is no option of ray start, which begin with --")
    for flag in flags:
        if flag.name in OURS:
            raise UsageError(f"{option}: --{flag.name} can't be given: {OURS[flag.name]}")
    return tuple(flags)


def _ports(_job: Job, _settings: Settings) -> tuple[int, ...]:
    return (0,) * len(RAY_PORTS)


def _survey(question: Question) -> Memory:
    """This host's memory.

    Raises:
        UsageError: the platform has started a cluster around the program already.
    """
    job = question.job
    if job.cluster:
        raise UsageError(
            f"--launcher ray: {platforms.load(job.platform).title} has started a Ray cluster ({job.cluster}), and this "
            "would start another of this host alone: leave --launcher out, or leave the job's distribution out "
            "(type: ray)"
        )
    return survey_memory()


LAUNCHER = Launcher(
    name="ray",
    summary="a cluster of Ray's over all hosts, and the program once, on the leader",
    starts="leader",
    leads=True,
    talks_grpc=True,
    plan=plan_ray,
    asked_by={"ray": Asked("the job asks for Ray")},
    needs="ray",
    uses=("grpc",),
    survey=_survey,
    ports=_ports,
    reads=("slots", "ray_options", "ray_head_options"),
    chatter=re.compile(rb"(?:(?:\x1b\[\d+m)*\((?:autoscaler|raylet|pid=gcs_server)[ ,)][^\n]*\n)+"),
    hides=(Hidden((*IDENTITY, "RAY_ADDRESS"), MISLEADING),),
)
