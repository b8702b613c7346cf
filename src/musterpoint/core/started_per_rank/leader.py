"""The entry point that leads its host: gathers the others, lets them start their ranks, and ends them."""

from __future__ import annotations

from typing import Any, Callable, Collection, Iterable, Mapping, Sequence

from musterpoint.base.errors import LauncherError, RollCallError
from musterpoint.base.loop import READ
from musterpoint.base.untrusted import same_token
from musterpoint.core.channel.secret import derived
from musterpoint.core.channel.session import random_token
from musterpoint.core.job.model import StartedRank
from musterpoint.core.processes.private_folder import is_same_user
from musterpoint.core.processes.received_signals import STOPPING
from musterpoint.core.runtime import Runtime
from musterpoint.core.started_per_rank.election import Meeting, MeetingFiles, leave
from musterpoint.core.started_per_rank.host_messages import Lines, prove
from musterpoint.core.supervise.context import OtherEntryPoints

_MOST_STRANGERS = 64
"""Connections that haven't said who they are, beside those of the entry points that are missing."""


class Leader(OtherEntryPoints):
    """The entry point that leads; it gathers the others in the runtime's loop.

    ``arguments``: how many its program has; ``lost``: the local ranks of those that led before and have ended.
    """

    def __init__(
        self, runtime: Runtime, met: Meeting, started: StartedRank, arguments: int, lost: Collection[int] = ()
    ) -> None:
        self._runtime, self._started, self._arguments = runtime, started, arguments
        self._place: MeetingFiles | None
        self._place, listener, _leads, self._token = met
        self._listener = listener
        self._others: dict[int, Lines] = {}
        self._ranks: dict[int, int] = {}
        self._new: dict[int, Lines] = {}
        self._gone: dict[int, int] = {}
        self._wrong = ""
        self._on_lost: Callable[[int, int], None] | None = None
        self._on_ended: Callable[[int, int, int], None] | None = None
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

    def watch(self, on_lost: Callable[[int, int], None], on_ended: Callable[[int, int, int], None]) -> None:
        """``on_lost`` gets the rank and local rank of each entry point that ends before this one, or has already;
        ``on_ended`` those of each whose process for the rank has ended, and its status (negative: a signal).
        """
        self._on_lost, self._on_ended = on_lost, on_ended
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
        other = self._new[sock.fileno()] = Lines(sock)
        other.nonce = random_token()
        other.send({"nonce": other.nonce, "local_rank": self._started.local_rank})
        self._runtime.loop.watch(sock.fileno(), READ, lambda _ready: self._read(other, None))

    def _read(self, other: Lines, local: int | None) -> None:
        try:
            values = other.receive()
        except ValueError:
            values = None
        for value in values or ():
            if local is None:
                local = self._greet(other, value)
                if local is None:
                    return
            elif type(ended := value.get("ended")) is int and self._on_ended is not None:
                self._on_ended(self._ranks[local], local, ended)
            elif value.get("signal") in STOPPING:
                self._runtime.signals.deliver(value["signal"])
        if values is None:
            self._lost(other, local)

    def _greet(self, other: Lines, value: Mapping[str, Any]) -> int | None:
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

    def _knows_token(self, other: Lines, value: Mapping[str, Any]) -> bool:
        """Whether an entry point of this job sent ``value``; nobody else decides anything here."""
        expected, key = prove(self._token, value, other.nonce)
        if not same_token(str(value.get("proof")), expected):
            return False
        other.key = key
        return True

    def _lost(self, other: Lines, local: int | None) -> None:
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


def _ended_early(local: int) -> str:
    return f"the entry point of local rank {local} has ended before any rank was started"
