"""MPI daemons without ssh: the launch agents at the leader's control socket, and the daemons started here for them.

On the leader mpirun calls one launch agent per host (:mod:`musterpoint.embedded.programs.launch_agent`). It asks for a
daemon on that host; request and answers go over the channel. On that host the supervisor starts the daemon, if the plan
names it, and its output is this host's output.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Iterable, Iterator, Mapping, Sequence

from musterpoint.base import executables
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.peers import Peers, StartAsked, Started, StartEnded
from musterpoint.core.channel.topics import start_requests
from musterpoint.core.fabric.mpirun import COMMANDS
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.launch_plan import Argument, ProcessPlan, program_of_ours
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.supervise import own_failures as failures
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import Broken, LocalEvent
from musterpoint.core.supervise.host_processes import HostProcesses
from musterpoint.core.supervise.process_starter import StartedPlan

SAID_BYTES = 4096
"""Bytes of the end of a daemon's output that are sent to the leader."""

REFUSED, CANNOT_EXECUTE, NOT_FOUND = 255, 126, 127
"""Statuses of daemons that never ran, as remote shells give them."""


class _Request:
    """A launch agent's request, on the leader."""

    __slots__ = ("host", "started", "connection")

    def __init__(self, connection: Connection, host: str) -> None:
        self.connection, self.host = connection, host
        self.started = False


class MpiDaemons:
    """The requests of agents here, and the daemons that they ask for. ``emit`` gets the events of this host."""

    def __init__(
        self,
        context: SupervisorContext,
        peers: Peers,
        processes: HostProcesses,
        roster: Roster,
        emit: Callable[[LocalEvent], None],
    ) -> None:
        self._context, self._peers, self._processes, self._emit = context, peers, processes, emit
        self._me, self._seats = roster.me, roster.seats
        self._requests: dict[int, _Request] = {}
        self._asked = 0
        self._early: list[tuple[StartAsked, bool]] = []

    # -- the leader: agents ask, other hosts answer --

    def asked(self, connection: Connection, words: list[str]) -> bool:
        """Takes ``start HOST WORD…`` from an agent; False if the line is no such thing."""
        if len(words) < 3 or words[0] != "start":
            return False
        try:
            host, *command = (bytes.fromhex(word.strip("-")).decode() for word in words[1:])
        except ValueError:
            connection.send(_ended(REFUSED, "a word of mpirun's isn't UTF-8"))
            return True
        connection.ignore()
        name = self._name_of(host)
        number = self._asked = self._asked + 1
        self._requests[number] = _Request(connection, name or host)
        self._context.record("daemon-asked", host=name or host, number=number)
        if not name:
            self.start_ended(StartEnded(host, number, REFUSED, f"{host} is none of this job's hosts"))
        elif name == self._me:
            self._start(StartAsked(number, tuple(command)), local=True)
        else:
            self._ask(name, number, tuple(command))
        return True

    def _ask(self, host: str, number: int, command: tuple[str, ...]) -> None:
        try:
            self._peers.topic(start_requests.TOPIC).start(host, number, command)
        except (RuntimeError, ValueError) as error:
            self.start_ended(StartEnded(host, number, REFUSED, str(error)))

    def _name_of(self, host: str) -> str:
        """The host that mpirun means: by name, by address, or by a name without its domain, as Open MPI 4 cuts it."""
        host = host.strip("[]")
        for seat in self._seats:
            if host in (seat.name, seat.address):
                return seat.name
        short = [seat.name for seat in self._seats if seat.name.partition(".")[0] == host]
        return short[0] if len(short) == 1 else ""

    def started(self, event: Started) -> None:
        request = self._requests.get(event.number)
        if request is not None:
            request.started = True
            request.connection.send("started")

    def start_ended(self, event: StartEnded) -> None:
        """Sends the end to the agent; a daemon that never ran fails the job with the reason given."""
        request = self._requests.pop(event.number, None)
        if request is None:
            return
        request.connection.send(_ended(event.status, event.said))
        if not request.started:
            self._emit(Broken(failures.daemon_refused(request.host, event.said, self._context.diagnosis)))

    # -- every host: daemons are started --

    def start_asked(self, event: StartAsked) -> None:
        """Starts the daemon that the leader asks for, or waits until its plan has been started."""
        self._start(event)

    def plan_started(self) -> None:
        """A plan was started."""
        early, self._early = self._early, []
        for event, local in early:
            self._start(event, local)

    def _start(self, event: StartAsked, local: bool = False) -> None:
        if self._processes.is_ending:
            self._tell_ended(event.number, REFUSED, "this host is stopping", local)
        elif (started := self._processes.started) is None:
            self._early.append((event, local))
        else:
            self._run(started, event, local)

    def _run(self, started: StartedPlan, event: StartAsked, local: bool) -> None:
        number = event.number

        def on_end(status: int, tail: bytes) -> None:
            said = tail[-SAID_BYTES:].decode("utf-8", "replace")
            self._tell_ended(number, status, said, local)

        try:
            daemon = read_daemon(event.words, started.plan.daemons)
            process = ProcessPlan("launcher", daemon.name, (Argument(daemon.name),))
            environment = self._processes.starter.environment_for(started, process)
            path = find_daemon(daemon.name, environment.get("PATH", os.defpath))
            if os.path.realpath(daemon.program) == os.path.realpath(path):
                process = process._replace(environment=tuple(_settings(daemon.settings, environment)))
            words = (Argument(path), *map(_own_agent, daemon.arguments))
            self._processes.start_service_or_launcher(process._replace(argv=words), on_end)
        except NotADaemon as error:
            self._tell_ended(number, CANNOT_EXECUTE, str(error), local)
        except FileNotFoundError as error:
            self._tell_ended(number, NOT_FOUND, str(error), local)
        except CannotStart as error:
            self._tell_ended(number, CANNOT_EXECUTE, f"{path} can't be executed: {error}", local)
        else:
            if local:
                self.started(Started(self._me, number))
            else:
                self._peers.topic(start_requests.TOPIC).started(number)

    def _tell_ended(self, number: int, status: int, said: str, local: bool) -> None:
        if local:
            self.start_ended(StartEnded(self._me, number, status, said))
        else:
            self._peers.topic(start_requests.TOPIC).start_ended(number, status, said)


def find_daemon(name: str, path: str) -> str:
    """The daemon ``name`` of this host's own MPI: beside its mpirun (which may be a link), or else on ``path``.

    Raises:
        FileNotFoundError: it is in neither place; the text says where it was looked for.
    """
    mpirun = next((found for command in COMMANDS if (found := executables.find_command(command, {"PATH": path}))), "")
    beside = [os.path.dirname(mpirun), os.path.dirname(os.path.realpath(mpirun))] if mpirun else []
    if program := executables.find_command(name, {"PATH": os.pathsep.join([*beside, path])}):
        return program
    raise FileNotFoundError(
        f"{name} is not on this host's PATH ({path}): the MPI that the leader starts must be installed on every host"
    )


def _settings(settings: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> Iterator[EnvSetting]:
    """mpirun's settings for an MPI below a prefix, on top of this host's ``environment``."""
    for name, value in settings:
        old = environment.get(name, "") if name.endswith("PATH") else ""
        yield EnvSetting(name, f"{value}:{old}" if old else value, "mpirun's, for the MPI that it is part of")


def _own_agent(word: str) -> Argument:
    """Replaces the path of mpirun's launch agent by this host's: Open MPI 4's daemons end if theirs doesn't exist."""
    head, of_process, rest = word.partition("/proc/")
    pid, _, name = rest.partition("/")
    is_agent = not head and of_process and pid.isdecimal() and name.startswith("fd/")
    return program_of_ours("launch_agent") if is_agent else Argument(word)


def _ended(status: int, said: str) -> str:
    return f"ended {status} {said.encode('utf-8', 'replace').hex()}"


DAEMONIZE = "--daemonize"

_PROFILE = ["(", "test", "!", "-r", "./.profile", "||", ".", "./.profile;"]
"""What Open MPI puts first, for shells that read no profile when called remotely."""

_NAME = r"(?:(?:DYLD_|LD_)LIBRARY_PATH|PATH|[A-Z]+_PREFIX)"
_VALUE = r"[^;&|<>()`'\"\\$]*"
_OLD = rf"(?:\$\{{{_NAME}:-\}}|\${_NAME})?"
_CSH_TEST = r"if \( \$\?\w+ == [01] \)"
_SETTING = re.compile(
    rf"(?P<name>{_NAME})=(?P<value>{_VALUE}){_OLD}"
    rf"|(?:{_CSH_TEST} )?setenv (?P<csh_name>{_NAME}) (?P<csh_value>{_VALUE}){_OLD}"
    rf"|set path = \( (?P<path>{_VALUE}) \$path \)"
)
_NO_SETTING = re.compile(rf"export {_NAME}|{_CSH_TEST} set \w+")
"""The statements before the daemon, of ``sh`` and of ``csh``."""

_SPECIAL = re.compile(r"[;&|<>()`$'\"\\\n\0]")
"""Characters with a meaning to a shell outside quotes."""


class NotADaemon(Exception):
    """The words don't start a daemon; the text says what is wrong with them."""


class Daemon(NamedTuple):
    """``program`` is what mpirun called it: a file name, or a path on its own host.

    ``settings``: variables for an MPI at that path; names that end in PATH are prepended, others replaced.
    """

    program: str
    arguments: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return os.path.basename(self.program)


def read_daemon(words: Sequence[str], known: Sequence[str]) -> Daemon:
    """The daemon that ``words`` start; ``known`` are the file names that are allowed.

    Raises:
        NotADaemon: they ask for something else.
    """
    left = list(words)
    if left[: len(_PROFILE)] == _PROFILE and left[-1] == ")":
        left = left[len(_PROFILE) : -1]
    if not left:
        raise NotADaemon("no command was given")
    *statements, program = (part.strip() for part in left[0].split(";"))
    settings = dict(filter(None, map(_setting, statements)))
    if len(program) > 1 and program[0] == program[-1] == '"':
        program = program[1:-1]
    if os.path.basename(program) not in known:
        wanted = " or ".join(known) or "nothing"
        raise NotADaemon(f"{_shown(program)} is not what this job's mpirun starts on other hosts ({wanted})")
    arguments = [_argument(word) for word in left[1:]]
    return Daemon(program, tuple(word for word in arguments if word != DAEMONIZE), tuple(settings.items()))


def _setting(statement: str) -> tuple[str, str] | None:
    found = _SETTING.fullmatch(statement)
    if found is None:
        if _NO_SETTING.fullmatch(statement):
            return None
        raise NotADaemon(f"{_shown(statement)} is none of the settings that an mpirun puts before its daemon")
    name = found["name"] or found["csh_name"] or "PATH"
    value = found["value"] or found["csh_value"] or found["path"] or ""
    return name, value.rstrip(":")


def _argument(word: str) -> str:
    if len(word) > 1 and word[0] == word[-1] == '"' and "\0" not in word:
        return word[1:-1]
    if _SPECIAL.search(word):
        raise NotADaemon(f"the argument {_shown(word)} would mean something to a shell, and there is none here")
    return word


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "…")
