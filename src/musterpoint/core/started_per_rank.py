"""Where the platform has started several entry points on one host, one for each rank: they elect one that leads.

The one that leads has the host's part in the roll call, its supervisor and its reports. The others meet it at a socket
in Linux' abstract namespace, whose name only one process can have at a time: when that one dies before ranks run, the
name is free and another leads. Each starts its own rank as a child, through the rank stub, so that the platform (an
mpirun) sees its own process tree; its output goes to its own stdout. All end with the job's code.

Lines are JSON objects. From the others: ``{"rank", "local_rank", "world_size"}``, with stdout and stderr as ancillary
data, then ``{"signal"}``. From the one that leads: ``{"start": {"argv", "set", "unset"}}``, ``{"kill": true}`` for the
rank, ``{"end": code}``, ``{"refused": why}``.
"""

from __future__ import annotations

import binascii
import errno
import json
import os
import signal
import socket
from typing import Any, Callable, Mapping, Sequence

from musterpoint.base import exit_codes, settings
from musterpoint.base.errors import LauncherError, RollCallError, StoppedEarly
from musterpoint.base.loop import READ
from musterpoint.base.untrusted import printable
from musterpoint.core.job.model import Job, StartedRank
from musterpoint.core.processes import tree
from musterpoint.core.processes.control_socket import is_same_user, peer_of
from musterpoint.core.processes.process import CannotStart, Streams, spawn
from musterpoint.core.processes.signals import STOPPING
from musterpoint.core.runtime import Runtime
from musterpoint.embedded.programs.registry import Texts

_LONGEST_NAME = 100
_MOST_WAITING = 4096
_LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of a line; the longest one has a rank's argv and variables, which the kernel bounds at 6 MiB."""
_MOST_DESCRIPTORS = 2
_LONGEST_REFUSAL = 400
_MOST_STRANGERS = 64
"""Connections that haven't said who they are, beside those of the entry points that are missing."""
_AGAIN = 0.01
"""Seconds until a socket that takes no connection is tried again."""
_MOST_TRIES = 1000
"""Tries after which such a socket is given up: not a time, which would pass while the machine is suspended."""


def name_of(job: Job, environ: Mapping[str, str]) -> str:
    """The socket's name: the same for every entry point of the job on this host, and for no others."""
    run = job.name or environ.get("PMIX_NAMESPACE") or f"{environ.get('MASTER_ADDR')}:{job.master_port}"
    key = f"{os.geteuid()}-{job.current_host}-{run}".encode("utf-8", "surrogateescape")
    return f"\0musterpoint-{binascii.crc32(key):08x}-" + key.decode("ascii", "replace")[: _LONGEST_NAME - 32]


def meet(runtime: Runtime, environ: Mapping[str, str], job: Job, started: StartedRank) -> Leader | int:
    """Elects one of this host's entry points. The one that leads gets a :class:`Leader`; the others get their exit
    code, when the job is over.

    Raises:
        LauncherError: another user's process has the socket, or this entry point doesn't fit the others.
        StoppedEarly: this process was told to stop while it found nobody to tell.
    """
    name, loop = name_of(job, environ), runtime.loop
    tries = 0
    while True:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(name)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise LauncherError(f"the entry points of this host can't meet: {error.strerror}") from None
        else:
            listener.listen(_MOST_WAITING)
            return Leader(runtime, listener, started, len(job.arguments))
        leader = _connected(name)
        if leader is None:
            runtime.check_stop(job.own_name)
            tries += 1
            if tries > _MOST_TRIES:
                raise LauncherError("the socket where this host's entry points meet is taken, and nobody answers there")
            loop.turn(_AGAIN)  # its owner doesn't listen yet, or has just ended: nothing tells when to try again
            continue
        code = _Follower(runtime, leader, environ, job, started).run()
        if code is not None:
            return code


def _connected(name: str) -> socket.socket | None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(name)
    except OSError:
        sock.close()
        return None
    if not is_same_user(sock):
        sock.close()
        raise LauncherError("a process of another user stands where this host's entry points meet: end that process")
    return sock


class _Lines:
    """JSON objects over a socket, both ways."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.descriptors: list[int] = []
        self._buffer = b""

    def receive(self) -> list[dict[str, Any]] | None:
        """What has come; None at the end. Descriptors are added to :attr:`descriptors`.

        Raises:
            ValueError: something else than such a line came.
        """
        try:
            data, descriptors, _flags, _address = socket.recv_fds(self.sock, 65536, 8)
        except BlockingIOError:
            return []
        except OSError:
            return None
        self.descriptors += descriptors
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _LONGEST_LINE or len(self.descriptors) > _MOST_DESCRIPTORS:
            raise ValueError("expected shorter lines, and two descriptors")
        try:
            found = [json.loads(line) for line in lines]
        except RecursionError:
            raise ValueError("expected a plain object") from None
        if not all(isinstance(value, dict) for value in found):
            raise ValueError("expected an object")
        return found if data else None

    def send(self, value: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Sends ``value``; nothing happens where the other end is gone."""
        self.sock.settimeout(5.0)
        try:
            data = json.dumps(value).encode() + b"\n"
            sent = socket.send_fds(self.sock, [data], descriptors) if descriptors else 0
            self.sock.sendall(data[sent:])
        except OSError:
            pass
        self.sock.setblocking(False)

    def close(self) -> None:
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors = []
        self.sock.close()


class Leader:
    """The entry point that leads; it gathers the others in the runtime's loop.

    ``arguments``: how many its program has.
    """

    def __init__(self, runtime: Runtime, listener: socket.socket, started: StartedRank, arguments: int) -> None:
        self._runtime, self._listener, self._started, self._arguments = runtime, listener, started, arguments
        self._others: dict[int, _Lines] = {}
        self._ranks: dict[int, int] = {}
        self._new: dict[int, _Lines] = {}
        self._wrong = ""
        self._on_lost: Callable[[int, int], None] | None = None
        listener.setblocking(False)
        runtime.loop.watch(listener.fileno(), READ, self._accept)

    def gather(self, seconds: float) -> None:
        """Waits until every entry point of this host is here.

        Raises:
            StoppedEarly: this host was told to stop meanwhile.
            RollCallError: some aren't here after ``seconds``; names their local ranks.
            LauncherError: two have the same local rank, or one has ended.
        """
        loop = self._runtime.loop
        until = loop.clock() + seconds
        while len(self._others) + 1 < self._started.local_size and not self._wrong:
            self._runtime.check_stop()
            left = until - loop.clock()
            if left <= 0:
                here = {self._started.local_rank, *self._others}
                missing = [str(place) for place in range(self._started.local_size) if place not in here]
                raise RollCallError(
                    f"this host's entry points of local rank {', '.join(missing)} weren't here within {seconds:g} s: "
                    f"the platform starts {self._started.local_size} of them"
                )
            loop.turn(left)
        if self._wrong:
            raise LauncherError(self._wrong)

    @property
    def outlets(self) -> dict[int, tuple[int, int]]:
        """The stdout and stderr of every other entry point, by its global rank."""
        return {
            self._ranks[local]: (other.descriptors[0], other.descriptors[1])
            for local, other in self._others.items()
            if len(other.descriptors) >= 2
        }

    def start(self, argv: Sequence[str], given: Mapping[str, str], gone: Sequence[str]) -> None:
        """Lets every other entry point start its rank by ``argv``, with the variables ``given``, and without others.

        Each has its own arguments in the place of this one's: a shell may have put its rank there.
        """
        words = list(argv[: len(argv) - self._arguments])
        for other in self._others.values():
            other.send({"start": {"argv": words, "set": dict(given), "unset": list(gone)}})

    def watch(self, on_lost: Callable[[int, int], None]) -> None:
        """From now on ``on_lost`` gets the rank and local rank of each entry point that has ended before this one."""
        self._on_lost = on_lost

    def end(self, code: int) -> None:
        """Ends the others with ``code``, and whatever they still run."""
        self._runtime.loop.forget(self._listener.fileno())
        self._listener.close()
        for other in (*self._others.values(), *self._new.values()):
            other.send({"end": code})
            self._runtime.loop.forget(other.sock.fileno())
            other.close()
        self._others, self._new = {}, {}

    def kill(self) -> None:
        """Kills the ranks of the others."""
        for other in self._others.values():
            other.send({"kill": True})

    def _accept(self, _ready: int) -> None:
        try:
            sock, _address = self._listener.accept()
        except OSError:
            return
        if not is_same_user(sock):
            sock.close()
            return
        if len(self._new) >= self._started.local_size + _MOST_STRANGERS:
            sock.close()
            return
        sock.setblocking(False)
        other = self._new[sock.fileno()] = _Lines(sock)
        self._runtime.loop.watch(sock.fileno(), READ, lambda _ready: self._read(other, None))

    def _read(self, other: _Lines, local: int | None) -> None:
        try:
            values = other.receive()
        except ValueError:
            values = None
        for value in values or ():
            if local is None:
                local = self._greet(other, value)
                if local is None:
                    return
            elif value.get("signal") in STOPPING:
                self._runtime.signals.deliver(value["signal"])
        if values is None:
            self._lost(other, local)

    def _greet(self, other: _Lines, value: Mapping[str, Any]) -> int | None:
        """Takes another entry point; its local rank, or None where it was sent away."""
        fd = other.sock.fileno()
        self._new.pop(fd, None)
        rank, local, world = (value.get(name) for name in ("rank", "local_rank", "world_size"))
        mine = self._started
        if type(rank) is not int or type(local) is not int or not 0 <= local < mine.local_size:
            why = f"local rank {local!r:.40} isn't one of this host's {mine.local_size}"
        elif local == mine.local_rank or local in self._others:
            why = f"two entry points of this host have the local rank {local}"
        elif world != mine.world_size:
            why = (
                f"the entry point of local rank {local} has {world!r:.40} processes in all, that of "
                f"{mine.local_rank} {mine.world_size}"
            )
        else:
            self._others[local], self._ranks[local] = other, rank
            self._runtime.loop.watch(fd, READ, lambda _ready: self._read(other, local))
            return local
        self._wrong = self._wrong or why
        other.send({"refused": why})
        self._runtime.loop.forget(fd)
        other.close()
        return None

    def _lost(self, other: _Lines, local: int | None) -> None:
        fd = other.sock.fileno()
        self._runtime.loop.forget(fd)
        self._new.pop(fd, None)
        if local is None:
            other.close()
            return
        self._others.pop(local, None)
        other.sock.close()  # its stdout stays open: the pump may still write to it
        if self._on_lost is not None:
            self._on_lost(self._ranks[local], local)
        elif not self._wrong:
            self._wrong = f"the entry point of local rank {local} has ended before any rank was started"


class _Follower:
    """Another entry point: starts its rank when the one that leads says so, and ends as that one says."""

    def __init__(
        self, runtime: Runtime, sock: socket.socket, environ: Mapping[str, str], job: Job, started: StartedRank
    ) -> None:
        self._runtime, self._environ, self._job, self._started = runtime, environ, job, started
        self._leader_pid = peer_of(sock)[0]
        self._lines = _Lines(sock)
        self._texts = Texts()
        self._child = 0
        self._code: int | None = None
        self._over = False
        self._stop = 0

    def run(self) -> int | None:
        """The exit code; None where the one that led has ended before it let ranks start."""
        loop, signals = self._runtime.loop, self._runtime.signals
        tree.adopt_orphans()
        signals.route_to(self._on_signal)
        rank, local, world = self._started[:3]
        self._lines.send({"rank": rank, "local_rank": local, "world_size": world}, (1, 2))
        loop.watch(self._lines.sock.fileno(), READ, self._read)
        try:
            while not self._over:
                loop.turn()
        finally:
            self._runtime.keep_stops()
            loop.forget(self._lines.sock.fileno())
            self._lines.close()
            tree.kill_below(os.getpid())
            _reap()
            self._texts.close()
        if self._code is None and self._stop:
            raise StoppedEarly(self._job.current_host, self._stop)
        return self._code

    def _on_signal(self, signo: int) -> None:
        if signo == signal.SIGCHLD:
            _reap()
        elif signo in STOPPING:
            self._stop = signo
            self._lines.send({"signal": int(signo)})

    def _read(self, _ready: int) -> None:
        try:
            values = self._lines.receive()
        except ValueError:
            values = None
        for value in values or ():
            if isinstance(value.get("start"), dict):
                self._start(value["start"])
            elif value.get("end") in range(256):
                self._code, self._over = value["end"], True
            elif value.get("kill"):
                tree.kill_below(os.getpid())
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


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return
