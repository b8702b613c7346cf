"""Malformed and hostile messages to the roll call and its channel: from strangers, from a member, from a leader; and
hosts that are started a second time.

What must hold: no host ends by an error that isn't its own, no bug of ours is met, nobody without a seat decides or
learns anything, a member speaks for itself only, and log, timeline and answers stay small and printable. Of two starts
of a host the one that has the seat keeps it.
"""

from __future__ import annotations

import copy
import json
import random
import socket
import threading
import time
from typing import Any, Callable, Iterator

from fuzzers.findings import MOST_WRONG, Findings
from fuzzers.topic_messages import example
from musterpoint.base.errors import MusterError, RollCallError
from musterpoint.base.loop import Loop
from musterpoint.base.settings import Settings
from musterpoint.core.channel import wire
from musterpoint.core.channel.bounds import STOP_SIGNALS
from musterpoint.core.channel.peers import JobFailed, PeerEvent, Peers, StopAll
from musterpoint.core.channel.secret import Seal, prove
from musterpoint.core.channel.session import Resume, random_token
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.channel.topic_table import FROM_LEADER, FROM_WORKERS
from musterpoint.core.ports import Ports
from musterpoint.core.rollcall.hello import Hello
from musterpoint.core.rollcall.roll_call import RollCall, Seams
from musterpoint.core.rollcall.roster import Offer, Participant
from musterpoint.core.rollcall.seat_columns import fold

PATIENCE = 60.0
JOB = "the-name-of-the-job"
SECRET = "0123456789abcdef0123456789abcdef"
OFFER = Offer(JOB, "torchrun", 2, "0.1", 2, (21000,))
ADDRESSES = {f"algo-{number}": (f"127.0.0.{number}",) for number in (1, 2, 3)}
STRANGER = "127.0.0.66"
EVER = 3600.0
TIMEOUTS = Timeouts(
    beat=0.5,
    silence=EVER,
    cut=EVER,
    mismatch=EVER,
    sign_of_life=EVER,
    hello=5.0,
    retry=0.001,
    retry_most=0.01,
    progress=EVER,
    flush=0.2,
)
MEMBER_INPUTS = 40
"""Messages of one hostile member before the job is begun anew."""

MOST_STARTS = 6
"""Second starts of a host for each kind of job."""

MEMBERS_OWN = ("failed", "stopping", "done", *FROM_WORKERS)

NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 15, 9, 255, 256, 2**31, 2**53, 2**53 + 1, 2**63, 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", " ", "0", "algo-1", "algo-2", "algo-3", "algo-9", "\ud800", "\udcff\udcff",
    "\x1b[2J\x1b]0;x\x07", "a\r\nmusterpoint: all is well\nloss=0.0;", "\u202egnp.exe", "\u2028", "\x9b31m", "\0",
    "x" * 300, "x" * 5000, "é" * 2000, "127.0.0.66", "6.6.6.6", "::1%eth0", [], {}, [[]], [None], ["\ud800"],
    [0] * 100, [65536], [-1], [{}] * 10, {"t": "hello"}, {"host": "algo-3", "code": 1, "cause": "user",
    "kind": "user", "reason": "r" * 9000},
)  # fmt: skip
RAW = (
    b"", b"{", b"[]", b"{}", b'{"t":1}', b'{"t":"hello","t":"bye"}', b'{"t":"' + b"x" * 9000 + b'"}', b"[" * 8000,
    b"x" + b"\0" * 50, b'{"t":' + b"1" * 5000 + b"}", b'{"t":"done","code":' + b"9" * 5000 + b',"failures":0}',
    b'{"t":"hello","protocol":NaN}', b'{"t":"proof","proof":"\\ud800"}', b'{"t":"' + b'{"a":' * 3000, b"0",
    b"9" * 18, b"9" * 19, b"1x", b"\xff\xfe{\0}\0", b"x\x9c", b"GET / HTTP/1.1\r\nHost: algo-1\r\n\r\n",
)  # fmt: skip


class Host:
    """One real host in a thread of its own."""

    def __init__(self, me: str, port: int, secret: str, say: Callable[[str], None] = lambda text: None) -> None:
        self.me = me
        self.said: list[str] = []
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.events: list[PeerEvent] = []
        self.error: BaseException | None = None
        self.gathered = threading.Event()
        self._leaving = False
        self._loop = Loop()
        self._loop.prepare_posts()
        settings = Settings(rollcall_port=port, rollcall_timeout=EVER, secret=secret)
        hosts = tuple(ADDRESSES)
        self._roll_call = RollCall(
            self._loop, Participant(hosts, hosts, me, OFFER, settings), self.said.append,
            lambda event, **facts: self.rows.append((event, facts)), Ports(), ADDRESSES, Seams(timeouts=TIMEOUTS),
        )  # fmt: skip
        self.peers: Peers | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.roster, self.peers = self._roll_call.run()
            self.peers.listen(self.events.append)
            self.gathered.set()
            if not self._leaving:
                self._loop.run()
        except BaseException as error:
            if not self._leaving:
                self.error = error
        self.gathered.set()
        if self.peers is not None:
            self.peers.close()
        self._loop.close()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def settle(self) -> None:
        """Waits until it has gone once through its loop."""
        done = threading.Event()
        self.post(done.set)
        while not done.wait(0.05) and self.alive:
            pass

    def post(self, call: Callable[[], None]) -> None:
        try:
            self._loop.post(call)
        except (OSError, ValueError):
            pass  # it has ended

    def leave(self) -> None:
        self._leaving = True

        def end() -> None:
            if self.peers is None:
                self._roll_call.stop(2)
            self._loop.stop()

        self.post(end)
        self._thread.join(PATIENCE)
        if self.alive:
            raise SystemExit(f"fuzz: {self.me} can't be ended; it said {self.said[-3:]}, and heard {self.events[-3:]}")


class Fuzzer:
    """One run: its inputs are drawn from ``seed``."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.tried = 0
        self.wrong: list[str] = []

    def blame(self, what: str, sent: object) -> None:
        if len(self.wrong) < MOST_WRONG:
            self.wrong.append(f"{what}; sent {str(sent)[:300]!r}")

    # messages

    def messages(self, me: str, session: str = "") -> list[dict[str, Any]]:
        """What is valid at some stage, from somebody who is ``me``."""
        failure = {
            "host": me, "code": 7, "cause": "user", "kind": "user", "reason": "boom", "rank": 1, "local_rank": 0,
            "signal": None, "at": 1.5,
        }  # fmt: skip
        hello = Hello(me, OFFER, random_token(), ("6.6.6.6",), "6.6.6.6", stop=15)
        seats = [[name, found[0], 1, True, "0.1", 1, [21000], ""] for name, found in ADDRESSES.items()]
        roster: dict[str, Any] = {
            "job": JOB, "session": "s", "master_address": "6.6.6.6", "master_port": 7777,
            "seats": seats, "attempt": 0, "max_restarts": 0,
        }  # fmt: skip
        return [
            _fields(hello.pack()), _fields(hello._replace(stop=0, nonce=random_token()).pack()),
            _fields(hello._replace(nnodes=3, place=1).pack()), {"t": "welcome", "host": "algo-1", "job": JOB,
            "token": "t", "answer": "a", "seat": 1}, _fields(Resume(me,
            session or "s", "t", 0).pack()), {"t": "proof", "proof": "0" * 32}, {"t": "challenge",
            "nonce": "0" * 32}, {"t": "wait"}, {"t": "bye"}, {"t": "leaving"}, {"t": "welcome", "host": "algo-1",
            "job": JOB, "token": "t", "answer": "a"}, {"t": "roster", "roster": roster}, {"t": "roster",
            "roster": {**roster, "seats": fold(seats)}}, {"t": "abandon",
            "host": "algo-1", "signal": 15}, {"t": "stopping", "signal": 15}, {"t": "failed", "failure": failure},
            {"t": "done", "code": 0, "failures": [0, 0, 0]}, {"t": "alldone", "failures": [0, 0, 0],
            "stopped": False}, *map(example, (*FROM_WORKERS.values(), *FROM_LEADER.values())), {"t": "verdict",
            "failure": failure, "secondary": [0, 0, 0]}, {"t": "stop", "host": "algo-1", "signal": 15}, {"t": "lost",
            "host": "algo-2", "why": "gone"}, {"t": "over", "text": "table"}, {"t": "refused", "reason": "no",
            "over": True}, {"t": "resumed", "answer": "a", "got": 0},
        ]  # fmt: skip

    def mutated(self, message: dict[str, Any]) -> dict[str, Any]:
        message = json.loads(json.dumps(message))
        for _ in range(self.draw.choice((0, 1, 1, 1, 2, 4))):
            place: Any = message
            while True:
                keys = list(place) if isinstance(place, dict) else list(range(len(place)))
                if not keys:
                    break
                key = self.draw.choice(keys)
                if isinstance(place[key], (dict, list)) and place[key] and self.draw.random() < 0.7:
                    place = place[key]
                    continue
                if isinstance(place, dict) and self.draw.random() < 0.15:
                    del place[key]
                elif key != "t" or self.draw.random() < 0.2:
                    place[key] = copy.deepcopy(self.draw.choice(NASTY))
                break
        return message

    def payload(self, messages: list[dict[str, Any]]) -> bytes:
        pick = self.draw.random()
        if pick < 0.15:
            return self.draw.choice(RAW)
        if pick < 0.2:
            return self.draw.randbytes(self.draw.randrange(200))
        data = json.dumps(self.mutated(self.draw.choice(messages))).encode()
        if pick < 0.25:
            data = data[: self.draw.randrange(len(data))]
        elif pick < 0.3:
            at = self.draw.randrange(len(data))
            data = data[:at] + self.draw.randbytes(3) + data[at + 1 :]
        return data

    def stream(self, messages: list[dict[str, Any]]) -> bytes:
        """What one connection says: a few frames, some cut or with a wrong length."""
        parts = []
        for number in range(self.draw.choice((1, 1, 2, 3))):
            first = number == 0 and self.draw.random() < 0.6  # what gets further than anything else
            frame = wire.frame(json.dumps(self.mutated(self.draw.choice(messages[:3]))).encode())
            frame = frame if first else wire.frame(self.payload(messages))
            if self.draw.random() < 0.05:
                frame = self.draw.randbytes(4) + frame[4:]
            parts.append(frame)
        data = b"".join(parts) * self.draw.choice((1, 1, 1, 1, 30))
        return data[: self.draw.randrange(len(data) + 1)] if self.draw.random() < 0.1 else data

    # what must hold of every host

    def check(self, host: Host, sent: object, rows: int = 400, ends: tuple[type[BaseException], ...] = ()) -> bool:
        """Whether all is well with ``host``; else it is told of."""
        before = len(self.wrong)
        if host.error is not None and not isinstance(host.error, ends):
            self.blame(f"{host.me} ended with {host.error!r}", sent)
        for event, facts in host.rows:
            if event == "internal-error":
                self.blame(f"{host.me} met a bug of its own: {facts}", sent)
            if len(repr(facts)) > 4000 or not all(
                text.isprintable() for text in facts.values() if isinstance(text, str)
            ):
                self.blame(f"{host.me} has a row {event} {facts!r:.300} in its timeline", sent)
        if len(host.rows) > rows or len(host.said) > 60:
            self.blame(f"{host.me} has {len(host.rows)} rows and {len(host.said)} lines", sent)
        for text in host.said:
            if len(text) > 3000 or not text.replace("\n", "").isprintable():
                self.blame(f"{host.me} says {text[:300]!r}", sent)
        return len(self.wrong) == before

    # the parts

    def strangers(self, count: int, secret: str, mustered: bool) -> None:
        """Callers from an address that is nobody's, while the hosts gather, or once the roster is out."""
        port = free_port()
        hosts = [Host("algo-1", port, secret)]
        others = [Host(name, port, secret) for name in ("algo-2", "algo-3")] if mustered else []
        hosts += others
        for host in hosts if mustered else ():
            host.gathered.wait(PATIENCE)
        sent = b""
        for number in range(count):
            me = self.draw.choice(("algo-1", "algo-2", "algo-2", "algo-3", "algo-9"))
            sent = self.stream(self.messages(me, getattr(getattr(hosts[0], "roster", None), "session", "")))
            answer = speak(port, STRANGER, sent)
            self.tried += 1
            if b"the-name" in answer.replace(sent, b"") or any(
                address in answer for address in (b"127.0.0.2", b"127.0.0.3")
            ):
                self.blame(f"a stranger was told {answer[:300]!r}", sent)
            if number % 50 == 49 and not self.check(hosts[0], sent):
                break
        hosts[0].settle()
        for host in hosts:
            self.check(host, sent)
            if host.events:
                self.blame(f"{host.me} heard {host.events[:2]} because of a stranger", sent)
        if not mustered:
            hosts += [Host(name, port, secret) for name in ("algo-2", "algo-3")]
            for host in hosts:
                if not host.gathered.wait(PATIENCE) or host.error is not None:
                    self.blame(f"after strangers {host.me} did not muster ({host.error!r})", sent)
                elif host.roster.master_address != "127.0.0.1":
                    self.blame(f"strangers chose the master address {host.roster.master_address}", sent)
        for host in reversed(hosts):
            host.leave()

    def second_starts(self, count: int, secret: str, mustered: bool) -> None:
        """A host's command is typed again, while the hosts gather or once the roster is out."""
        port = free_port()
        hosts = [Host(name, port, secret) for name in ("algo-1", "algo-2", *(("algo-3",) if mustered else ()))]
        until = time.monotonic() + PATIENCE
        while not any(event == "host-here" for event, _ in hosts[0].rows) and time.monotonic() < until:
            hosts[0].settle()
        for host in hosts if mustered else ():
            host.gathered.wait(PATIENCE)
        while count > 0:
            group = [Host("algo-2", port, secret) for _ in range(min(count, self.draw.choice((1, 1, 2, 3))))]
            count -= len(group)
            self.tried += len(group)
            for again in group:
                if not again.gathered.wait(PATIENCE) or not isinstance(again.error, RollCallError):
                    self.blame(f"a second start of algo-2 ended with {again.error!r}", (secret, mustered))
                again.leave()
        hosts += [] if mustered else [Host("algo-3", port, secret)]
        for host in hosts:
            if not host.gathered.wait(PATIENCE) or host.events:
                self.blame(f"{host.me} heard {host.events[:2]} because of a second start", (secret, mustered))
            self.check(host, (secret, mustered))
        for host in reversed(hosts):
            host.leave()

    def member(self, count: int, secret: str) -> None:
        """A host with a seat that goes mad; the others may lose it or be stopped by it, and no more."""
        port = free_port()
        hosts = [Host("algo-1", port, secret), Host("algo-3", port, secret)]
        seat = Seat(port, secret)
        for host in hosts:
            host.gathered.wait(PATIENCE)
        sent = b""
        for _ in range(count):
            messages = self.messages(self.draw.choice(tuple(ADDRESSES)))
            sent = self.payload([one for one in messages if one["t"] in MEMBERS_OWN] * 4 + messages)
            for _again in range(self.draw.choice((1, 1, 1, 40))):
                seat.say(sent)
            self.tried += 1
        hosts[0].settle()
        hosts[1].settle()
        for host in hosts:
            self.check(host, sent)
            for event in host.events:
                if isinstance(event, StopAll) and (event.host != "algo-2" or event.signal not in STOP_SIGNALS):
                    self.blame(f"{host.me} was stopped by {event}", sent)
                if isinstance(event, JobFailed):
                    failure = event.failure
                    small = (
                        len(failure.reason.encode()) <= 900
                        and failure.reason.replace("\n", "").replace("\t", "").isprintable()
                    )
                    if failure.host != "algo-2" or not small or not 1 <= failure.code <= 255:
                        self.blame(f"{host.me} heard the verdict {event!r:.300}", sent)
        seat.close()
        for host in reversed(hosts):
            host.leave()

    def leader(self, count: int, secret: str) -> None:
        """A leader that goes mad: at the hello, at the welcome, after the roster. Its worker may obey or give up."""
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            listener.settimeout(0.2)
            port = listener.getsockname()[1]
            worker = Host("algo-2", port, secret)
            sent = b""
            for _ in range(count):
                until = time.monotonic() + PATIENCE
                caller = None
                while caller is None and time.monotonic() < until:
                    if worker.error is not None or worker.peers is not None:  # it has obeyed, or given up
                        self.check(worker, sent, ends=(MusterError,))
                        worker.leave()
                        worker = Host("algo-2", port, secret)
                    try:
                        caller = listener.accept()[0]
                    except TimeoutError:
                        pass
                if caller is None:
                    self.blame(f"algo-2 calls no more ({worker.error!r}, {worker.said[-1:]})", sent)
                    break
                with caller as sock:
                    sock.settimeout(5.0)
                    sent = self._lead(sock, secret)
                self.tried += 1
            worker.settle()
            self.check(worker, sent, ends=(MusterError,))
            worker.leave()

    def _lead(self, sock: socket.socket, secret: str) -> bytes:
        """One connection as a leader, valid for a while; what it sent last."""
        frames = Stream(sock)
        opening = frames.next()
        if opening is None:
            return b""
        seal: Seal | None = None

        def send(payload: bytes) -> None:
            frame = wire.frame(payload)
            _send(sock, frame if seal is None else seal.close(frame) + payload)

        valid = [{"t": "welcome", "host": "algo-1", "job": JOB, "token": "t", "answer": "a"}]
        valid.append(next(one for one in self.messages("algo-2") if one["t"] == "roster"))
        stage = self.draw.randrange(4 if secret else 3)
        if secret and stage:
            nonce = random_token()
            send(json.dumps({"t": "challenge", "nonce": nonce}).encode())
            frames.next()
            seal = Seal(prove(secret, opening, nonce)[1], leads=True)
            stage -= 1
        for message in valid[:stage]:
            send(json.dumps(message).encode())
        sent = b""
        for _ in range(self.draw.choice((1, 2, 5))):
            sent = self.payload(self.messages("algo-1"))
            send(sent)
        frames.rest(0.002)
        return sent


class Seat:
    """The seat of algo-2, held by a raw socket; it comes back when it is thrown out."""

    def __init__(self, port: int, secret: str) -> None:
        self._port, self._secret = port, secret
        self._token = ""
        self._session = ""
        self._sock: socket.socket | None = None
        self._open(Hello("algo-2", OFFER, random_token(), (), "127.0.0.1", random_token() if secret else "").pack())
        while not self._session:
            message: dict[str, Any] = wire.unpack(self._hear(), compressed=True)
            if message["t"] == "welcome":
                self._token = message["token"]
            elif message["t"] == "roster":
                self._session = message["roster"]["session"]

    def _open(self, opening: bytes) -> None:
        self._sock = connect(self._port, "127.0.0.2")
        self._frames = Stream(self._sock)
        self._seal: Seal | None = None
        _send(self._sock, opening)
        if self._secret:
            nonce = wire.unpack(self._frames.next() or b"")["nonce"]
            proof, key = prove(self._secret, opening[4:], nonce)
            _send(self._sock, wire.pack("proof", proof=proof))
            self._seal = Seal(key, leads=False)

    def _hear(self) -> bytes:
        while True:
            data = self._frames.next() or b""
            data = self._seal.open(data) if self._seal is not None else data
            if not wire.is_beat(data):
                return data

    def say(self, payload: bytes) -> None:
        assert self._sock is not None
        frame = wire.frame(payload)
        data = frame if self._seal is None else self._seal.close(frame) + payload
        try:
            self._sock.sendall(data)
            self._sock.setblocking(False)
            try:
                while self._sock.recv(65536):
                    pass
                raise ConnectionError("closed")
            except BlockingIOError:
                self._sock.settimeout(PATIENCE)
        except OSError:
            self._sock.close()
            self._open(Resume("algo-2", self._session, self._token, 0, random_token() if self._secret else "").pack())

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()


class Stream:
    """Frames that come through a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = wire.Frames(wire.LEADER_LIMIT)

    def next(self) -> bytes | None:
        """The next one; None at the end."""
        while (payload := self._frames.next()) is None:
            try:
                data = self._sock.recv(65536)
            except OSError:
                return None
            if not data:
                return None
            self._frames.feed(data)
        return payload

    def rest(self, seconds: float) -> None:
        """Lets the other end read: until it closes, or for some ``seconds``."""
        self._sock.settimeout(seconds)
        try:
            while self._sock.recv(65536):
                pass
        except OSError:
            pass


def _fields(frame: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(frame[4:])
    return fields


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except OSError:
        pass  # it has heard enough


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("", 0))
        port: int = sock.getsockname()[1]
    return port


def connect(port: int, source: str) -> socket.socket:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), PATIENCE, (source, 0))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def speak(port: int, source: str, data: bytes) -> bytes:
    """Says ``data`` and its end; all that came back."""
    answer = b""
    with connect(port, source) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while more := sock.recv(65536):
                answer += more
        except OSError:
            pass  # it was thrown out
    return answer


def _parts(inputs: int) -> Iterator[tuple[str, int]]:
    """Half for strangers, a quarter each for members and leaders."""
    yield "strangers", max(1, inputs // 2)
    yield "member", inputs // 4
    yield "leader", inputs - max(1, inputs // 2) - inputs // 4


def fuzz(seed: int, inputs: int) -> Findings:
    fuzzer = Fuzzer(seed)
    for part, count in _parts(inputs):
        if part == "strangers":
            for number, (secret, mustered) in enumerate((s, m) for s in ("", SECRET) for m in (False, True)):
                share = count // 4 + (number < count % 4)
                if share:
                    fuzzer.strangers(share, secret, mustered)
                    fuzzer.second_starts(min(share, MOST_STARTS), secret, mustered)
        else:
            run = fuzzer.member if part == "member" else fuzzer.leader
            while count > 0 and len(fuzzer.wrong) < MOST_WRONG:
                share = min(count, MEMBER_INPUTS)
                run(share, fuzzer.draw.choice(("", SECRET)))
                count -= share
    return Findings(fuzzer.tried, tuple(fuzzer.wrong))
