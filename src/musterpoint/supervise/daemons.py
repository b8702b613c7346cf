"""MPI daemons without ssh: the launch agents at the leader's desk, and the daemons that are started here for them.

On the leader mpirun calls one launch agent per host (:mod:`musterpoint.supervise.agent`). What it asks for goes to that
host over the roll call's channel, and the host's answers come back to it. On every host a request becomes an attendant
of the plan that names the daemon; its output is this host's output.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Iterator, Mapping

from musterpoint import search_path
from musterpoint.fabric.mpi import COMMANDS
from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.plan import Argument, ProcessPlan, program_of_ours
from musterpoint.peers import Peers, StartAsked, Started, StartEnded
from musterpoint.supervise.crew import Crew, number_of
from musterpoint.supervise.desk import Visitor
from musterpoint.supervise.events import Broken, LocalEvent
from musterpoint.supervise.outcome import Explainer
from musterpoint.supervise.process import CannotStart

SAID_BYTES = 4096
"""Of what a daemon wrote, so much of the end travels to the leader."""

_SESSION_BITS = 16
"""The low bits of a request's number say which session it is for: sessions have the same numbers on all hosts."""

REFUSED, CANNOT_EXECUTE, NOT_FOUND = 255, 126, 127
"""Statuses of daemons that never ran, as remote shells give them."""


class _Request:
    """One agent's, on the leader."""

    __slots__ = ("host", "started", "visitor")

    def __init__(self, visitor: Visitor, host: str) -> None:
        self.visitor, self.host = visitor, host
        self.started = False


class Daemons:
    """``roster`` is what went to all hosts, as a JSON object, with this host's name as ``me``."""

    def __init__(
        self, peers: Peers, crew: Crew, roster: Mapping[str, Any], emit: Callable[[LocalEvent], None],
        explain: Callable[[], Explainer], record: Callable[..., None],
    ) -> None:  # fmt: skip
        self._peers, self._crew = peers, crew
        self._emit, self._explain, self._record = emit, explain, record
        self._me = str(roster.get("me", ""))
        self._seats = [(str(seat[0]), str(seat[1])) for seat in roster.get("seats", ())]
        self._requests: dict[int, _Request] = {}
        self._asked = 0
        self._early: list[tuple[StartAsked, bool]] = []

    # -- the leader: agents ask, other hosts answer --

    def asked(self, visitor: Visitor, words: list[str]) -> bool:
        """Takes ``start SESSION HOST WORD…`` from an agent; False if the line is no such thing."""
        if len(words) < 4 or words[0] != "start" or number_of(words[1]) >> _SESSION_BITS:
            return False
        try:
            host, *command = (bytes.fromhex(word.strip("-")).decode() for word in words[2:])
        except ValueError:
            visitor.tell(_ended(REFUSED, "a word of mpirun's isn't UTF-8"))
            return True
        visitor.on_line = lambda words, line: None
        name = self._name_of(host)
        self._asked += 1
        number = self._asked << _SESSION_BITS | int(words[1])
        self._requests[number] = _Request(visitor, name or host)
        self._record("daemon-asked", host=name or host, number=number)
        if not name:
            self.start_ended(StartEnded(host, number, REFUSED, f"{host} is none of this job's hosts"))
        elif name == self._me:
            self._start(StartAsked(number, tuple(command)), local=True)
        else:
            self._ask(name, number, tuple(command))
        return True

    def _ask(self, host: str, number: int, command: tuple[str, ...]) -> None:
        try:
            self._peers.start(host, number, command)
        except (RuntimeError, ValueError) as error:
            self.start_ended(StartEnded(host, number, REFUSED, str(error)))

    def _name_of(self, host: str) -> str:
        """The host that mpirun means: by name, by address, or by a name without its domain, as Open MPI 4 cuts it."""
        host = host.strip("[]")
        for name, address in self._seats:
            if host in (name, address):
                return name
        short = [name for name, _address in self._seats if name.partition(".")[0] == host]
        return short[0] if len(short) == 1 else ""

    def started(self, event: Started) -> None:
        request = self._requests.get(event.number)
        if request is not None:
            request.started = True
            request.visitor.tell("started")

    def start_ended(self, event: StartEnded) -> None:
        """The agent passes it on to mpirun; a daemon that never ran ends the job with what was said about it."""
        request = self._requests.pop(event.number, None)
        if request is None:
            return
        request.visitor.tell(_ended(event.status, event.said))
        if not request.started:
            self._emit(Broken(self._explain().daemon_refused(request.host, event.said)))

    # -- every host: daemons are started --

    def start_asked(self, event: StartAsked) -> None:
        """The leader asks. If the plan hasn't been started yet (or handed over), this waits for it."""
        self._start(event)

    def look_again(self) -> None:
        """A plan was started."""
        early, self._early = self._early, []
        for event, local in early:
            self._start(event, local)

    def _start(self, event: StartAsked, local: bool = False) -> None:
        session = event.number & (1 << _SESSION_BITS) - 1
        if self._crew.refusing:
            self._tell_ended(event.number, REFUSED, "this host is stopping", local)
        elif session not in self._crew.sessions:
            self._early.append((event, local))
        else:
            self._run(session, event, local)

    def _run(self, session: int, event: StartAsked, local: bool) -> None:
        # few jobs need regular expressions here
        from musterpoint.supervise.daemon_words import NotADaemon, read_daemon

        number = event.number

        def on_end(status: int, tail: bytes) -> None:
            said = tail[-SAID_BYTES:].decode("utf-8", "replace")
            self._tell_ended(number, status, said, local)

        try:
            daemon = read_daemon(event.words, self._crew.sessions[session].plan.daemons)
            process = ProcessPlan("launcher", daemon.name, (Argument(daemon.name),))
            environment = self._crew.environment_for(session, process)
            path = find(daemon.name, environment.get("PATH", os.defpath))
            if os.path.realpath(daemon.program) == os.path.realpath(path):
                process = process._replace(environment=tuple(_settings(daemon.settings, environment)))
            words = (Argument(path), *map(_own_agent, daemon.arguments))
            self._crew.attend(session, process._replace(argv=words), on_end)
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
                self._peers.started(number)

    def _tell_ended(self, number: int, status: int, said: str, local: bool) -> None:
        if local:
            self.start_ended(StartEnded(self._me, number, status, said))
        else:
            self._peers.start_ended(number, status, said)


def find(name: str, path: str) -> str:
    """The daemon ``name`` of this host's own MPI: beside its mpirun (which may be a link), or else on ``path``.

    Raises:
        FileNotFoundError: it is in neither place; the text says where it was looked for.
    """
    mpirun = next((found for command in COMMANDS if (found := search_path.find(command, {"PATH": path}))), "")
    beside = [os.path.dirname(mpirun), os.path.dirname(os.path.realpath(mpirun))] if mpirun else []
    if program := search_path.find(name, {"PATH": os.pathsep.join([*beside, path])}):
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
    """mpirun tells its daemons which agent it was given; Open MPI 4's end if that isn't there on their host, too."""
    head, of_process, rest = word.partition("/proc/")
    pid, _, name = rest.partition("/")
    is_agent = not head and of_process and pid.isdecimal() and name.startswith("fd/")
    return program_of_ours("agent") if is_agent else Argument(word)


def _ended(status: int, said: str) -> str:
    return f"ended {status} {said.encode('utf-8', 'replace').hex()}"
