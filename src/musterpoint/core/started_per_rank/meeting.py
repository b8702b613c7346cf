"""The entry points of one host elect one that leads.

It has the host's part in the roll call, its supervisor and its reports. The others meet it at a socket; when it dies
before ranks run, another leads. Each starts its own rank as a child, through the rank stub, so that the platform (an
mpirun) sees its own process tree; its output goes to its own stdout. All end with the job's code.
"""

from __future__ import annotations

import os
import signal
from typing import Any, Collection, Mapping

from musterpoint.base import exit_codes, settings
from musterpoint.base.errors import LauncherError, StoppedEarly
from musterpoint.base.loop import READ
from musterpoint.base.untrusted import printable, same_token
from musterpoint.core.channel.session import random_token
from musterpoint.core.job.model import Job, StartedRank
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.private_folder import peer_of
from musterpoint.core.processes.process import CannotStart, Streams, spawn
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.runtime import Runtime
from musterpoint.core.started_per_rank.election import Meeting, elect, file_name
from musterpoint.core.started_per_rank.host_messages import Lines, prove
from musterpoint.core.started_per_rank.leader import Leader
from musterpoint.core.supervise.context import LedByAnother
from musterpoint.embedded.programs.registry import Texts

_LONGEST_REFUSAL = 400
_MOST_TRIES = 1000
"""How often another one is met that ends before it has said anything."""


def name_of(job: Job, environ: Mapping[str, str]) -> str:
    """What the files where they meet are called: the same for every entry point of the job here, and for no others."""
    run = job.name or environ.get("PMIX_NAMESPACE") or f"{environ.get('MASTER_ADDR')}:{job.master_port}"
    return file_name(job.current_host, run)


def meet(runtime: Runtime, environ: Mapping[str, str], job: Job, started: StartedRank, secret: str) -> Leader:
    """Elects one of this host's entry points, and returns what leads the others.

    Raises:
        LedByAnother: that is another one, and the job is over.
        LauncherError: they can't meet, or this entry point doesn't fit the others.
        StoppedEarly: this process was told to stop while it found nobody to tell.
    """
    name = name_of(job, environ)
    lost: set[int] = set()
    for _ in range(_MOST_TRIES):
        runtime.check_stop(job.own_name)
        met = elect(runtime.loop, name, secret, lambda: runtime.check_stop(job.own_name))
        if met.leads:
            return Leader(runtime, met, started, len(job.arguments), lost)
        follower = Follower(runtime, met, environ, job, started, lost)
        code = follower.run()
        if follower.led_by is not None:
            lost.add(follower.led_by)
        if code is not None:
            raise LedByAnother(code)
    raise LauncherError("the entry point that leads this host ends again and again before it has said anything")


class Follower:
    """Starts its rank when the one that leads says so, and ends as that one says.

    :attr:`led_by`: the local rank of the one that leads.
    """

    def __init__(
        self,
        runtime: Runtime,
        met: Meeting,
        environ: Mapping[str, str],
        job: Job,
        started: StartedRank,
        lost: Collection[int] = (),
    ) -> None:
        self.led_by: int | None = None
        self._lost = lost
        self._runtime, self._environ, self._job, self._started = runtime, environ, job, started
        self._token = met.token
        self._leader_pid = peer_of(met.sock)[0]
        self._lines = Lines(met.sock)
        self._expected = ""
        self._texts = Texts()
        self._child = 0
        self._code: int | None = None
        self._over = False
        self._stop = 0

    def run(self) -> int | None:
        """The exit code; None where the one that led has ended before it let ranks start."""
        loop, signals = self._runtime.loop, self._runtime.signals
        process_tree.adopt_orphans()
        signals.route_to(self._on_signal)
        loop.watch(self._lines.sock.fileno(), READ, self._read)
        try:
            while not self._over:
                loop.turn()
        finally:
            self._runtime.keep_stops()
            loop.forget(self._lines.sock.fileno())
            self._lines.close()
            process_tree.kill_below(os.getpid())
            self._child = 0
            self._reap()
            self._texts.close()
        if self._code is None and self._stop:
            raise StoppedEarly(self._job.current_host, self._stop)
        return self._code

    def _reap(self) -> None:
        """Reaps what has ended; the end of the rank's own process is told."""
        for pid, status in process_tree.ended_children():
            if pid == self._child:
                self._lines.send({"ended": os.waitstatus_to_exitcode(status)})

    def _on_signal(self, signo: int) -> None:
        if signo == signal.SIGCHLD:
            self._reap()
        elif signo in STOPPING:
            self._stop = signo
            if self._expected:
                self._lines.send({"signal": int(signo)})

    def _read(self, _ready: int) -> None:
        try:
            values = self._lines.receive()
        except ValueError:
            values = None
        for value in values or ():
            if not self._expected:
                self._greet(value)
            elif not same_token(str(value.get("key")), self._expected):
                raise LauncherError("what leads this host's entry points doesn't know their token; end that process")
            elif isinstance(value.get("start"), dict):
                self._start(value["start"])
            elif value.get("end") in range(256):
                self._code, self._over = value["end"], True
            elif value.get("kill"):
                process_tree.kill_below(os.getpid())
            elif value.get("refused"):
                raise LauncherError(printable(str(value["refused"]), _LONGEST_REFUSAL))
        if values is None and not self._over:
            self._over = True
            if self._child:
                self._runtime.console.say(
                    f"the entry point that led this host (pid {self._leader_pid}) has ended without a word: local rank "
                    f"{self._started.local_rank} is ended too"
                )
                self._code = exit_codes.HOST_LOST

    def _greet(self, value: Mapping[str, Any]) -> None:
        """Says who this is, to whoever knows the token."""
        theirs = value.get("nonce")
        if not isinstance(theirs, str) or not theirs.isascii():
            raise LauncherError("what leads this host's entry points says something else than expected: end it")
        led_by = value.get("local_rank")
        self.led_by = led_by if type(led_by) is int else None
        rank, local, world = self._started[:3]
        said = {"rank": rank, "local_rank": local, "world_size": world, "lost": sorted(self._lost)}
        greeting = {**said, "nonce": random_token()}
        greeting["proof"], self._expected = prove(self._token, greeting, theirs)
        self._lines.send(greeting, (1, 2))
        if self._stop:
            self._lines.send({"signal": int(self._stop)})

    def _start(self, order: Mapping[str, Any]) -> None:
        argv, given, unset = order.get("argv"), order.get("set"), order.get("unset")
        texts = [*given.values()] if isinstance(given, dict) else None
        if not argv or given is None or not all(map(_is_texts, (argv, texts, unset))):
            raise LauncherError("the entry point that leads this host says to start a rank, but not how")
        gone = set(unset or ())
        environ = {name: value for name, value in settings.without_own(self._environ).items() if name not in gone}
        environ.update(given)
        environ.update(RANK=str(self._started.rank), LOCAL_RANK=str(self._started.local_rank))
        environ["MUSTER_STUB"] = self._texts.path("rank_stub")
        stdin = os.open(os.devnull, os.O_RDONLY)
        try:
            streams = Streams(stdin, 1, 2)
            self._child = spawn([*argv, *self._job.arguments], environ, "/", streams)
        except CannotStart as error:
            raise LauncherError(f"local rank {self._started.local_rank} can't be started: {error}") from None
        finally:
            os.close(stdin)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and "\0" not in text for text in value)
