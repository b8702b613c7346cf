"""Real hosts in threads on loopback, and a cable between a worker and its leader that can be cut or freeze."""

from __future__ import annotations

import fcntl
import select
import socket
import sys
import termios
import threading
import time
from typing import Any, Callable, Iterable, Iterator

import pytest

from musterpoint.base.loop import Loop
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import AllDone, PeerEvent, Peers
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.channel.topic_table import TOPICS
from musterpoint.core.channel.topics import consultations
from musterpoint.core.channel.topics.consultations import Answer, Ask
from musterpoint.core.rollcall.roll_call import RollCall, Seams
from musterpoint.core.rollcall.roster import Offer, Participant, Roster

from ..ports import free_port, unheld
from .fixtures import closing_fixture

EVER = 600.0
# Nobody is silent or cut off for too long, however slow this machine is, unless a test wants just that.
TIMEOUTS = Timeouts(
    beat=0.2, silence=EVER, cut=EVER, hold=0.2, mismatch=0.3, hello=10.0, connect=10.0, retry=0.02, retry_most=0.1,
    progress=0.3, stop_notice=0.3, confirm=0.3,
)  # fmt: skip
LONG_NOTICE = TIMEOUTS._replace(stop_notice=EVER)
SHORT_SILENCE = TIMEOUTS._replace(silence=0.6)
SHORT_CUT = TIMEOUTS._replace(cut=0.5)
# For tests in which a symptom's time is over before it is known what became of a host.
UNHURRIED = TIMEOUTS._replace(silence=3.0, cut=3.0, hold=1.0)
OFFER = Offer("job", "torchrun", 2, "0.1", 2)
PATIENCE = 500.0


class Arrived(NamedTuple):
    """All hosts have come to ``point``, or the leader is lost."""

    point: str


class Spoken:
    """The methods of a host's end of the channel and of all its topics."""

    def __init__(self, peers: Any) -> None:
        self._peers = peers

    def arrive(self, point: str) -> None:
        """This host is at ``point``: a message in each direction, after which :class:`Arrived` is an event here."""
        emit = lambda _answer: self._peers.emit(Arrived(point))  # noqa: E731
        self._peers.topic(consultations.TOPIC).consult(Ask(point, "{}"), lambda _all: Answer(point, ""), emit, EVER)

    def __getattr__(self, word: str) -> Any:
        halves = (self._peers.topic(topic) for topic in TOPICS)
        return next(getattr(each, word) for each in (self._peers, *halves) if hasattr(each, word))


def spoken(peers: Any) -> Any:
    return Spoken(peers)


class Host:
    """One host of a job in a thread of its own; :attr:`events` and :attr:`said` grow as it goes.

    ``listens=False`` keeps its events waiting until :meth:`listen`. ``stopped`` is a stop before the roll call.
    """

    def __init__(self, me: str, hosts: tuple[str, ...], port: int, **options: Any) -> None:
        self.me, self.port = me, port
        self.events: list[PeerEvent] = []
        self.said: list[str] = []
        self.moments: list[str] = []
        self.facts: list[dict[str, Any]] = []
        self.roster: Roster | None = None
        self.error: BaseException | None = None
        self._change = threading.Condition()
        self._peers: Peers | None = None
        self._over = self._given_up = False
        self._loop = Loop()
        self._loop.prepare_posts()
        self._listens = options.pop("listens", True)
        self._stopped = options.pop("stopped", None)
        timeouts = options.pop("timeouts", TIMEOUTS)
        group = options.pop("group", hosts)
        offer = options.pop("offer", OFFER)
        addresses = options.pop("addresses", dict.fromkeys(hosts, ("127.0.0.1",)))
        unnamed = options.pop("unnamed", None)
        seams = Seams(timeouts, options.pop("lookup", None))
        settings = Settings(rollcall_port=port, **{"rollcall_timeout": PATIENCE, **options})
        participant = Participant(hosts, group, me, offer, settings, unnamed)
        self._roll_call = RollCall(self._loop, participant, self._say, self._record, unheld(), addresses, seams)
        self._thread = threading.Thread(target=self._run, name=me, daemon=True)
        self._thread.start()

    def _say(self, text: str) -> None:
        with self._change:
            self.said.append(text)
            self._change.notify_all()

    def _record(self, name: str, **facts: Any) -> None:
        with self._change:
            self.moments.append(name)
            self.facts.append(facts)
            self._change.notify_all()

    def _on_event(self, event: PeerEvent) -> None:
        with self._change:
            self.events.append(event)
            self._change.notify_all()

    def _run(self) -> None:
        try:
            if self._stopped is not None:
                self._roll_call.report_stop(self._stopped)
            self.roster, self._peers = self._roll_call.run()
            if self._listens:
                self._peers.listen(self._on_event)
        except BaseException as error:
            self.error = error
        with self._change:
            self._over = True
            self._change.notify_all()
        if self._peers is not None:
            if not self._given_up:  # or the roll call has taken the wish to stop for its own
                self._loop.run()
            self._peers.close()
        self._loop.close()

    def wait(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """What ``condition`` gives once it is true."""
        with self._change:
            if not self._change.wait_for(condition, seconds):
                seen = f"{self.events}, {self.said}, {self.error!r}"
                raise AssertionError(f"{self.me}: nothing after {seconds:g} s; {seen}")
            return condition()

    def gathered(self) -> Roster:
        self.wait(lambda: self._over)
        if self.roster is None:
            raise AssertionError(f"{self.me}: {self.error!r}")
        return self.roster

    def failed(self) -> BaseException:
        """The error the roll call ended with."""
        self.wait(lambda: self._over)
        assert self.error is not None, f"{self.me} has the roster"
        return self.error

    def event(self, kind: type[Any]) -> Any:
        """The first event of this kind, waited for."""
        return self.wait(lambda: [event for event in self.events if isinstance(event, kind)])[0]

    def has(self, kind: type[Any]) -> bool:
        return any(isinstance(event, kind) for event in self.events)

    def say(self, word: str, *arguments: Any) -> None:
        """Calls a method of the peers in the host's own thread."""
        self._loop.post(lambda: getattr(spoken(self._peers), word)(*arguments))

    def ask(self, call: Callable[[Any], Any]) -> Any:
        """What ``call(peers)`` gives in the host's own thread, an error included."""
        answers: list[Any] = []

        def run() -> None:
            try:
                answer = call(self._peers)
            except Exception as error:
                answer = error
            with self._change:
                answers.append(answer)
                self._change.notify_all()

        self._loop.post(run)
        self.wait(lambda: answers)
        return answers[0]

    def listen(self) -> None:
        self.say("listen", self._on_event)

    @property
    def warnings(self) -> list[str]:
        """What it said beside its progress."""
        return [line for line in self.said if line.startswith("warning: ")]

    def heard(self, *kinds: type[Any]) -> list[Any]:
        """The events of these kinds, in order."""
        return [event for event in self.events if isinstance(event, kinds)]

    def stop(self, signal: int) -> None:
        self._loop.post(lambda: self._roll_call.stop(signal))

    def leave(self) -> None:
        self._loop.post(self._loop.stop)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def give_up(self) -> None:
        """Ends the thread whatever it is doing."""
        self._given_up = True
        try:
            if not self._over:
                self.stop(15)
            self._loop.post(self._loop.stop)
        except ValueError:
            pass  # its loop is closed already
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"{self.me} goes on: {self.said}"


class Cable:
    """Forwards what comes to :attr:`port` to ``to``. :meth:`pull` closes and refuses, :meth:`freeze` holds bytes."""

    def __init__(self, to: int) -> None:
        self._to = to
        self.port = free_port()
        self._frozen = False
        self._ends: dict[socket.socket, socket.socket] = {}
        self._listener: socket.socket | None = None
        self._wake = socket.socketpair()
        self._jobs: list[Callable[[], None]] = []
        self._running = True
        self._listen()
        self._thread = threading.Thread(target=self._run, name="cable")
        self._thread.start()

    def pull(self) -> None:
        """Every connection ends; new ones are refused."""
        self._do(self._pull)

    def freeze(self) -> None:
        """Bytes and new connections stay where they are; those that had been forwarded have arrived."""
        self._do(lambda: setattr(self, "_frozen", True))
        while any(int.from_bytes(fcntl.ioctl(end, termios.TIOCOUTQ, bytes(4)), sys.byteorder) for end in self._ends):
            time.sleep(0.001)

    def plug(self) -> None:
        """All is well again."""
        self._do(self._plug)

    def snap(self) -> None:
        """Every connection ends once."""
        self._do(self._drop_all)

    def close(self) -> None:
        self._do(lambda: setattr(self, "_running", False))
        self._thread.join(PATIENCE)
        self._pull()
        for end in self._wake:
            end.close()

    def _do(self, job: Callable[[], None]) -> None:
        done = threading.Event()
        self._jobs.append(lambda: (job(), done.set()))  # type: ignore[func-returns-value]
        self._wake[1].send(b"x")
        assert done.wait(PATIENCE)

    def _listen(self) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen()

    def _pull(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._drop_all()

    def _plug(self) -> None:
        self._frozen = False
        if self._listener is None:
            self._listen()

    def _drop_all(self) -> None:
        for end in list(self._ends):
            end.close()
        self._ends.clear()

    def _run(self) -> None:
        while self._running:
            watched = [self._wake[0]]
            if not self._frozen:
                watched += [*self._ends, *([self._listener] if self._listener else [])]
            for ready in select.select(watched, [], [])[0]:
                if ready is self._wake[0]:
                    ready.recv(100)
                    while self._jobs:
                        self._jobs.pop(0)()
                    break
                if ready is self._listener:
                    self._accept(ready)
                elif ready in self._ends:
                    self._forward(ready)

    def _accept(self, listener: socket.socket) -> None:
        near, _ = listener.accept()
        far = socket.socket()
        if far.connect_ex(("127.0.0.1", self._to)):
            near.close()
            far.close()
            return
        self._ends[near], self._ends[far] = far, near

    def _forward(self, end: socket.socket) -> None:
        other = self._ends[end]
        try:
            data = end.recv(65536)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for sock in (end, other):
            sock.close()
            del self._ends[sock]


def connect(port: int, source: str = "") -> socket.socket:
    """A connection to the leader's port, from ``source`` if that is given, once it listens."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 10, (source, 0) if source else None)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def read_to_end(sock: socket.socket) -> bytes:
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


def replies(sock: socket.socket) -> list[dict[str, Any]]:
    """Every message until the other end closes; beats, which come with time, are none."""
    frames = wire.Frames(wire.LEADER_LIMIT)
    frames.feed(read_to_end(sock))
    found = []
    while (payload := frames.next()) is not None:
        if not wire.is_beat(payload):
            found.append(wire.unpack(payload, compressed=True))
    return found


@pytest.fixture
def port() -> int:
    """A port that nobody listens on."""
    return free_port()


@pytest.fixture
def start(port: int) -> Iterator[Callable[..., Host]]:
    """``start(me, count, **options)`` starts host ``me`` of ``algo-1`` to ``algo-<count>``; all end with the test."""
    hosts: list[Host] = []

    def begin(me: int, count: int, **options: Any) -> Host:
        names = tuple(f"algo-{number + 1}" for number in range(count))
        host = Host(f"algo-{me}", names, options.pop("port", port), **options)
        hosts.append(host)
        return host

    yield begin
    for host in reversed(hosts):
        host.give_up()


def gathered(start: Callable[..., Host], count: int, cable: Any = None, **options: Any) -> list[Any]:
    """All hosts of a job, which have its roster; what the first worker says and hears goes through ``cable``."""
    behind = {"port": cable.port} if cable else {}
    hosts = [start(me, count, **options, **(behind if me == 2 else {})) for me in range(1, count + 1)]
    for host in hosts:
        host.gathered()
    return hosts


def all_done(hosts: Iterable[Any], code: int = 0) -> None:
    """The hosts' ranks are done with ``code``, and each host learns that all are."""
    for host in hosts:
        host.say("done", code)
    for host in hosts:
        host.event(AllDone)


cable = closing_fixture(Cable, "port")
"""A cable to the leader's port, for workers started with ``port=cable.port``."""
