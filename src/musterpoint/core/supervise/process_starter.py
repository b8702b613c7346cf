"""Makes children from the processes of a plan: their words and variables, with files of ours, and their pipes."""

import os
from typing import Mapping

from musterpoint.base.records import NamedTuple
from musterpoint.core.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.core.processes.control_socket import Connection, ControlSocket
from musterpoint.core.processes.process import CannotStart, Streams, Terminal, spawn
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.rank_environment import add_for_launcher, planned_environment
from musterpoint.core.supervise.temporary_directory import TemporaryDirectory, remove
from musterpoint.embedded.programs.registry import Program, Texts


class Session(NamedTuple):
    """One plan that was started here. ``owner``: the launcher that handed it over; None for the job's own plan."""

    number: int
    plan: LaunchPlan
    environ: Mapping[str, str]
    owner: Connection | None

    @property
    def under_mpi(self) -> bool:
        """Whether an MPI starts the ranks, on this host or on several: its processes end each other."""
        return bool(self.plan.daemons) or self.plan.under_mpi

    def pump_name(self, name: str) -> str:
        """What the pump calls the process ``name`` of this session."""
        return f"{self.number}.{name}" if self.number else name


class ProcessStarter:
    """Starts one process at a time, and keeps what its children need until :meth:`close`."""

    def __init__(self, context: SupervisorContext, control_socket: ControlSocket) -> None:
        self._context, self._pump, self._control_socket = context, context.pump, control_socket
        self._terminal = Terminal()
        self._texts = Texts()
        self._temporary = TemporaryDirectory()

    def path_of(self, program: Program) -> str:
        """The file of a program of ours, which every process of this user can read."""
        return self._texts.path(program)

    def hold(self, name: str, text: str) -> str:
        """Keeps ``text`` in memory for processes of this user; returns its path."""
        return self._texts.hold(name, text)

    def environment_for(self, session: Session, process: ProcessPlan) -> dict[str, str]:
        """The environment of a process of a session."""
        path = self._texts.path
        environment = planned_environment(session.plan, process, session.environ, self._control_socket, path)
        if process.role == "launcher":
            temporary = self._temporary.path(session.environ)
            add_for_launcher(environment, session.plan, session.number, path("rank_stub"), temporary)
        return environment

    def start(self, session: Session, process: ProcessPlan, alone: bool) -> int:
        """Starts a process; its pid. ``alone``: it is all that runs here, so that our stdin is its own.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        environment = self.environment_for(session, process)
        own_terminal = process.role == "rank" and self._has_terminal(process.rank)
        if own_terminal:
            try:
                out, err = self.outputs(process.rank, "")
            except OSError as error:
                raise CannotStart(error, "exec") from None
            stdin = out
        else:
            out, err = self._pump.open(process.rank, session.pump_name(process.name))
            stdin = 0 if alone else os.open(os.devnull, os.O_RDONLY)
        try:
            pid = spawn(
                self._words(process),
                environment,
                process.cwd,
                Streams(stdin, out, err),
                foreground=alone and not own_terminal and self._terminal.lend(),
                own_terminal=own_terminal,
                cpus=session.plan.cpus_of(process),
            )
        finally:
            for fd in {out, err} | ({stdin} if stdin else set()):
                os.close(fd)
        self._context.record(f"{process.role}-started", name=process.name, pid=pid, rank=process.rank)
        return pid

    def serve(self, session: Session, process: ProcessPlan, connection: int) -> int:
        """Starts a service for one caller, with the ``connection`` as its stdin and stdout; its pid.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        out, err = self._pump.open(None, session.pump_name(process.name))
        try:
            streams = Streams(connection, connection, err)
            return spawn(self._words(process), self.environment_for(session, process), process.cwd, streams)
        finally:
            for fd in {out, err}:
                os.close(fd)

    def outputs(self, rank: int | None, name: str) -> tuple[int, int]:
        """New descriptors for a rank's stdout and stderr: pipes of ours, or the terminal that it gets.

        Of the terminal nothing comes through us.
        """
        if self._has_terminal(rank):
            assert self._context.terminal is not None
            fd = self._context.terminal.open()
            return fd, fd
        return self._pump.open(rank, name)

    def _words(self, process: ProcessPlan) -> list[str]:
        return [self._texts.path(word.ours) if word.ours else word.text for word in process.argv]

    def _has_terminal(self, rank: int | None) -> bool:
        return self._context.terminal is not None and rank == self._context.terminal.rank

    def close(self, sessions: list[Session]) -> None:
        """Removes what was made for the processes of ``sessions``."""
        self._terminal.take_back()
        self._texts.close()
        self._temporary.close()
        for folder in {session.plan.temporary for session in sessions if session.plan.temporary}:
            remove(folder)
