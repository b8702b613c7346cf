"""Makes children from the processes of a plan: their words and variables, with files of ours, and their pipes."""

from __future__ import annotations

import os
from typing import Callable, Mapping

from musterpoint.base import temporary
from musterpoint.base.python_variables import INSPECT
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import OUTER, PLANNED, ROLE_HOSTS, SOCKET_TOKEN
from musterpoint.core.fabric.setting import FOR_ALL_BELOW
from musterpoint.core.launch.launch_plan import OWN_PATHS, LaunchPlan, ProcessPlan
from musterpoint.core.processes.control_socket import ControlSocket
from musterpoint.core.processes.process import CannotStart, Streams, Terminal, spawn
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.embedded.programs.registry import Program, Texts


class StartedPlan(NamedTuple):
    """The plan of this host, and the environment from which its processes start."""

    plan: LaunchPlan
    environ: Mapping[str, str]

    @property
    def under_mpi(self) -> bool:
        """Whether an MPI starts the ranks, on this host or on several: its processes end each other."""
        return bool(self.plan.daemons) or self.plan.under_mpi

    @property
    def runs_script(self) -> bool:
        """Whether the ranks' program is none of Python's, as far as the plan of this host tells."""
        ranks = [process.words[0] for process in self.plan.processes if process.role == "rank"]
        return bool(ranks) and not any(os.path.basename(word).startswith("python") for word in ranks)


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

    def environment_for(self, started: StartedPlan, process: ProcessPlan) -> dict[str, str]:
        """The environment of a process of the plan."""
        path = self._texts.path
        environment = planned_environment(started.plan, process, started.environ, self._control_socket, path)
        inspects = environment.pop(INSPECT, "") if process.role != "rank" and not process.users else ""
        if process.role == "launcher":
            add_for_launcher(environment, started.plan, path("rank_stub"), self._temporary.path(started.environ))
            ranks = process._replace(environment=())  # a daemon's own folders aren't for its ranks
            hosts = planned_environment(started.plan, ranks, started.environ, self._control_socket, path)
            environment.update({f"MUSTER_USER_{name}": hosts.get(name, "") for name in OWN_PATHS})
            environment.update({f"MUSTER_USER_{INSPECT}": inspects} if inspects else {})
        return environment

    def start(self, started: StartedPlan, process: ProcessPlan, alone: bool) -> int:
        """Starts a process; its pid. ``alone``: it is all that runs here, so that our stdin is its own.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        environment = self.environment_for(started, process)
        own_terminal = process.role == "rank" and self._has_terminal(process.rank)
        if own_terminal:
            try:
                out, err = self.outputs(process.rank)
            except OSError as error:
                raise CannotStart(error, "exec") from None
            stdin = out
        else:
            out, err = self.outputs(process.rank, "" if process.rank is not None else process.name)
            stdin = 0 if alone else os.open(os.devnull, os.O_RDONLY)
        try:
            pid = spawn(
                self._words(process),
                environment,
                process.cwd,
                Streams(stdin, out, err),
                foreground=alone and not own_terminal and self._terminal.lend(),
                own_terminal=own_terminal,
                cpus=started.plan.cpus_of(process),
            )
        finally:
            for fd in {out, err} | ({stdin} if stdin else set()):
                os.close(fd)
        self._context.record(f"{process.role}-started", name=process.name, pid=pid, rank=process.rank)
        return pid

    def serve(self, started: StartedPlan, process: ProcessPlan, connection: int) -> int:
        """Starts a service for one caller, with the ``connection`` as its stdin and stdout; its pid.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        out, err = self._pump.open(None, process.name)
        try:
            streams = Streams(connection, connection, err)
            return spawn(self._words(process), self.environment_for(started, process), process.cwd, streams)
        finally:
            for fd in {out, err}:
                os.close(fd)

    def outputs(self, rank: int | None, name: str = "") -> tuple[int, int]:
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

    def close(self, started: StartedPlan | None) -> None:
        """Removes what was made for the processes of the plan."""
        self._terminal.take_back()
        self._texts.close()
        self._temporary.close()
        if started is not None and started.plan.temporary:
            _remove(started.plan.temporary)


class TemporaryDirectory:
    """Made when it is first asked for, below the user's TMPDIR; :meth:`close` removes it with all that is in it."""

    def __init__(self) -> None:
        self._path = ""

    def path(self, environ: Mapping[str, str]) -> str:
        """The path; empty where none can be made, so that launchers use their default."""
        place = temporary.place_of(environ) if not self._path else ""
        if place:
            path = os.path.join(place, f"muster-{os.urandom(4).hex()}")
            try:
                os.mkdir(path, 0o700)
            except OSError:
                return ""
            self._path = path
        return self._path

    def close(self) -> None:
        if self._path:
            _remove(self._path)
            self._path = ""


def _remove(path: str) -> None:
    """Removes a temporary directory with all that is in it, as far as that can be done."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def planned_environment(
    plan: LaunchPlan,
    process: ProcessPlan,
    environ: Mapping[str, str],
    control_socket: ControlSocket,
    path: Callable[[Program], str],
) -> dict[str, str]:
    """``environ`` with the settings of ``plan`` and ``process``; ``path`` gives the file of a program of ours."""
    unset = {*plan.unset, *process.without}
    environment = {name: value for name, value in environ.items() if name not in unset}
    for setting in (*plan.environment, *process.environment):
        environment[setting.name] = path(setting.ours) if setting.ours else setting.value
    environment[OUTER] = control_socket.address
    environment[SOCKET_TOKEN] = control_socket.token
    planned = (setting.name for setting in plan.environment if setting.name not in FOR_ALL_BELOW)
    environment[PLANNED] = ",".join(name for name in planned if not name.startswith(ROLE_HOSTS))
    return environment


def add_for_launcher(environment: dict[str, str], plan: LaunchPlan, stub: str, temporary: str) -> None:
    """Adds what a launcher needs to start ranks through ``stub``; the stub restores for ranks what is changed here.

    ``temporary``: a directory for its temporary files; empty: its default.
    """
    environment["MUSTER_STUB"] = stub
    environment["MUSTER_SOCKET"] = environment[OUTER]
    environment["MUSTER_USER_CWD"] = plan.user_cwd
    environment["MUSTER_USER_PYTHONPATH"] = plan.user_pythonpath
    environment.pop("PYTHONPATH", None)
    if plan.local_rank_at >= 0:
        environment["MUSTER_LOCAL_RANK_AT"] = f"{plan.local_rank_at}{plan.local_rank_flag}"
    if plan.cpu_sets:
        environment["MUSTER_CPUS"] = ";".join(cpus.cpus for cpus in plan.cpu_sets)
    if plan.expands:
        environment["MUSTER_EXPAND"] = "1"
    if temporary:
        environment["MUSTER_USER_TMPDIR"] = environment.get("TMPDIR", "")
        environment["TMPDIR"] = temporary
