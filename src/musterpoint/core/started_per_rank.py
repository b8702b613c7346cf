"""Where the platform has started several entry points on one host, one for each rank: they elect one that leads.

The one that leads has the host's part in the roll call, its supervisor and its reports. The others meet it at a socket
(:mod:`musterpoint.core.election`); when that one dies before ranks run, another leads. Each starts its own rank as a
child, through the rank stub, so that the platform (an mpirun) sees its own process tree; its output goes to its own
stdout. All end with the job's code.

Lines are JSON objects. The one that leads begins with ``{"nonce", "local_rank"}``. The others say ``{"rank",
"local_rank", "world_size", "lost", "nonce", "proof"}``, with stdout and stderr as ancillary data, then ``{"signal"}``;
``lost`` are local ranks of those that led before and have ended. Then the one that leads says ``{"start": {"argv",
"set", "unset"}}``, ``{"kill": true}`` for the rank, ``{"end": code}`` or ``{"refused": why}``, each with ``"key"``.
Proof and key show that both know the token of this host's entry points.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import Any, Callable, Collection, Iterable, Mapping, Sequence

from musterpoint.base import exit_codes, settings
from musterpoint.base.errors import LauncherError, RollCallError, StoppedEarly
from musterpoint.base.loop import READ
from musterpoint.base.untrusted import printable, same_token
from musterpoint.core.channel.secret import derived
from musterpoint.core.channel.secret import prove as proof_and_key
from musterpoint.core.channel.session import random_token
from musterpoint.core.election import Meeting, Place, elect, file_name, leave
from musterpoint.core.job.model import Job, StartedRank
from musterpoint.core.processes import tree
from musterpoint.core.processes.private_folder import is_same_user, peer_of
from musterpoint.core.processes.process import CannotStart, Streams, spawn
from musterpoint.core.processes.signals import STOPPING
from musterpoint.core.runtime import Runtime
from musterpoint.embedded.programs.registry import Texts

_LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of a line; the longest one has a rank's argv and variables, which the kernel bounds at 6 MiB."""
_MOST_DESCRIPTORS = 2
_LONGEST_REFUSAL = 400
_MOST_STRANGERS = 64
"""Connections that haven't said who they are, beside those of the entry points that are missing."""
_MOST_TRIES = 1000
"""How often another one is met that ends before it has said anything."""


def name_of(job: Job, environ: Mapping[str, str]) -> str:
    """What the files where they meet are called: the same for every entry point of the job here, and for no others."""
    run = job.name or environ.get("PMIX_NAMESPACE") or f"{environ.get('MASTER_ADDR')}:{job.master_port}"
    return file_name(job.current_host, run)


def meet(runtime: Runtime, environ: Mapping[str, str], job: Job, started: StartedRank, secret: str) -> Leader | int:
    """Elects one of this host's entry points. The one that leads gets a :class:`Leader`; the others get their exit
    code, when the job is over.

    Raises:
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
        follower = _Follower(runtime, met, environ, job, started, lost)
        code = follower.run()
        if follower.led_by is not None:
            lost.add(follower.led_by)
        if code is not None:
            return code
    raise LauncherError("the entry point that leads this host ends again and again before it has said anything")


def prove(token: str, said: Mapping[str, Any], theirs: str) -> tuple[str, str]:
    """How an entry point that has ``said`` this answers the nonce ``theirs``, and the key that shows who leads."""
    words = " ".join(str(said.get(name)) for name in ("rank", "local_rank", "world_size", "nonce"))
    proof, key = proof_and_key(token, words.encode("utf-8", "surrogatepass"), theirs)
    return proof, key.hex()


class _Lines:
    """JSON objects over a socket, both ways."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.descriptors: list[int] = []
        self.nonce = self.key = ""
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
            data = json.dumps({**value, "key": self.key} if self.key else value).encode() + b"\n"
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

    ``arguments``: how many its program has; ``lost``: the local ranks of those that led before and have ended.
    """

    def __init__(
        self, runtime: Runtime, met: Meeting, started: StartedRank, arguments: int, lost: Collection[int] = ()
    ) -> None:
        self._runtime, self._started, self._arguments = runtime, started, arguments
        self._place: Place | None
        self._place, listener, _leads, self._token = met
        self._listener = listener
        self._others: dict[int, _Lines] = {}
        self._ranks: dict[int, int] = {}
        self._new: dict[int, _Lines] = {}
        self._gone: dict[int, int] = {}
        self._wrong = ""
        self._on_lost: Callable[[int, int], None] | None = None
        self._led_before(lost)
        listener.setblocking(False)
        runtime.loop.watch(listener.fileno(), READ, self._accept)

    def _led_before(self, lost: Iterable[Any]) -> None:
        """These don't come any more: no platform starts one of a host's entry points again."""
        mine = self._started
        for local in lost:
            if type(local) is int and 0 <= local < mine.local_size and local != mine.local_rank:
                self._wrong = self._wrong or _ended_early(local)

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
                    f"the platform starts {self._started.local_size} of them, and they meet in {self._folder}, which "
                    "all of them must have"
                )
            loop.turn(left)
        if self._wrong:
            raise LauncherError(self._wrong)

    @property
    def _folder(self) -> str:
        return self._place.folder if self._place is not None else "a directory"

    def token_for(self, purpose: str) -> str:
        """A token that this host's processes may know: another one for each ``purpose``."""
        return derived(self._token, purpose)

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
        """``on_lost`` gets the rank and local rank of each entry point that ends before this one, or has already."""
        self._on_lost = on_lost
        for local, rank in self._gone.items():
            on_lost(rank, local)

    def end(self, code: int) -> None:
        """Ends the others with ``code``, and whatever they still run."""
        if self._place is not None:
            leave(self._place)  # while it still listens: nobody else has a socket there
            self._place = None
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
        other.nonce = random_token()
        other.send({"nonce": other.nonce, "local_rank": self._started.local_rank})
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
        if not self._knows_token(other, value):
            self._runtime.loop.forget(fd)
            other.close()
            return None
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
            self._led_before(lost if isinstance(lost := value.get("lost"), list) else ())
            self._runtime.loop.watch(fd, READ, lambda _ready: self._read(other, local))
            return local
        self._wrong = self._wrong or why
        other.send({"refused": why})
        self._runtime.loop.forget(fd)
        other.close()
        return None

    def _knows_token(self, other: _Lines, value: Mapping[str, Any]) -> bool:
        """Whether an entry point of this job sent ``value``; nobody else decides anything here."""
        expected, key = prove(self._token, value, other.nonce)
        if not same_token(str(value.get("proof")), expected):
            return False
        other.key = key
        return True

    def _lost(self, other: _Lines, local: int | None) -> None:
        fd = other.sock.fileno()
        self._runtime.loop.forget(fd)
        self._new.pop(fd, None)
        if local is None:
            other.close()
            return
        self._others.pop(local, None)
        other.sock.close()  # its stdout stays open: the pump may still write to it
        self._gone[local] = self._ranks[local]
        if self._on_lost is not None:
            self._on_lost(self._ranks[local], local)
        elif not self._wrong:
            self._wrong = _ended_early(local)


class _Follower:
    """Another entry point: starts its rank when the one that leads says so, and ends as that one says.

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
        self._lines = _Lines(met.sock)
        self._expected = ""
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
                raise LauncherError("what leads this host's entry points doesn't know their token: end that process")
            elif isinstance(value.get("start"), dict):
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


def _ended_early(local: int) -> str:
    return f"the entry point of local rank {local} has ended before any rank was started"


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and "\0" not in text for text in value)


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return
