#!/usr/bin/env python3
"""How long a roll call of many hosts takes, and what the leader spends on it and on their beats afterwards.

The leader is a real one, in a process of its own; its members are simulated by one epoll loop in this process, each
with a loopback address of its own. One line of JSON comes out: seconds from the first connect to the last complete
roster, the leader's memory (MiB) and its processor time while beats go (per cent of a core).
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import subprocess
import sys
import time
from typing import Any

from musterpoint.base.failure import Failure
from musterpoint.base.loop import Loop
from musterpoint.base.settings import Settings
from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import JobFailed, StopAll
from musterpoint.core.channel.session import random_token
from musterpoint.core.ports import Ports
from musterpoint.core.rollcall.hello import Hello
from musterpoint.core.rollcall.roll_call import RollCall
from musterpoint.core.rollcall.roster import Offer, Participant

OFFER = Offer("bench", "torchrun", 8, "0")
LEADER_ADDRESS = "127.1.0.1"
GIVE_UP_AFTER = 120.0


def addresses(members: int) -> dict[str, tuple[str, ...]]:
    """The leader and ``members`` more, in order, each with its own loopback address."""
    names: dict[str, tuple[str, ...]] = {"algo-1": (LEADER_ADDRESS,)}
    for index in range(members):
        names[f"algo-{index + 2}"] = (f"127.2.{index // 250}.{index % 250 + 1}",)
    return names


SECRET = "0123456789abcdef0123456789abcdef"


def lead(members: int, port: int, secret: str) -> None:
    """The leader's process: says ``ready`` once the roster is out, then answers beats until its stdin ends."""
    names = addresses(members)
    loop = Loop()
    settings = Settings(rollcall_port=port, rollcall_timeout=GIVE_UP_AFTER, secret=secret)
    participant = Participant(tuple(names), tuple(names), "algo-1", OFFER, settings)
    roll_call = RollCall(
        loop, participant, lambda text: print(text, file=sys.stderr), lambda *_a, **_f: None, Ports(), names
    )
    _roster, peers = roll_call.run()
    print("ready", flush=True)
    peers.listen(lambda event: peers.done(1) if isinstance(event, (JobFailed, StopAll)) else None)
    loop.watch(0, 1, lambda _ready: loop.stop())
    loop.run()
    peers.close()


class SimulatedHost:
    """One simulated host. ``size`` is what is left of the roster; ``challenged``: the proof of the secret is out."""

    def __init__(self, name: str, address: str, port: int, secret: str) -> None:
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.bind((address, 0))
        self.sock.connect_ex((LEADER_ADDRESS, port))
        nonce = random_token() if secret else ""
        self.hello = Hello(name, OFFER, random_token(), (LEADER_ADDRESS,), LEADER_ADDRESS, nonce).pack()
        self.opening = self.hello[4:]
        self.secret = secret
        self.challenged = not secret
        self.size = 0
        self.key = b""

    def read(self) -> bool:
        """Whether the roster is complete. The welcome is a small frame, the roster all that follows."""
        if not self.challenged:
            nonce = self.sock.recv(4096).split(b'"')[7].decode()  # without a parser: real hosts have a processor each
            from musterpoint.core.channel.secret import prove  # a leader without a secret goes without it, too

            proof, self.key = prove(self.secret, self.opening, nonce)
            self.sock.send(self.hello + wire.frame(b'{"t":"proof","proof":"%s"}' % proof.encode()))
            self.challenged = True
            return False
        data = self.sock.recv(1 << 20, socket.MSG_PEEK) if not self.size else b""
        if data:
            first = 4 + int.from_bytes(data[:4], "big")
            if len(data) < first + 4:
                return False
            self.size = first + 4 + int.from_bytes(data[first : first + 4], "big")
        while self.size:
            try:
                got = len(self.sock.recv(min(self.size, 1 << 20)))
            except BlockingIOError:
                return False
            if not got:
                raise SystemExit("the leader closed a connection")
            self.size -= got
        return True


def call_the_roll(members: int, port: int, secret: str) -> tuple[float, list[SimulatedHost]]:
    """Connects everybody; seconds until the last one holds the roster, and the open connections."""
    poller = select.epoll()
    waiting: dict[int, SimulatedHost] = {}
    done: list[SimulatedHost] = []
    remaining = iter(list(addresses(members).items())[1:])
    started = time.perf_counter()
    pending = members
    while len(done) < members:
        for _ in range(min(pending, 256)):
            name, (address,) = next(remaining)
            member = SimulatedHost(name, address, port, secret)
            waiting[member.sock.fileno()] = member
            poller.register(member.sock.fileno(), select.EPOLLIN if secret else select.EPOLLOUT)
            pending -= 1
        for fd, ready in poller.poll(0 if pending else 1.0):
            member = waiting[fd]
            if ready & select.EPOLLOUT and member.hello:
                member.sock.send(member.hello)
                member.hello = b""
                poller.modify(fd, select.EPOLLIN)
            elif ready & select.EPOLLIN and member.read():
                poller.unregister(fd)
                done.append(waiting.pop(fd))
        if time.perf_counter() - started > GIVE_UP_AFTER:
            raise SystemExit(f"only {len(done)} of {members} hold the roster after {GIVE_UP_AFTER:g} s")
    return time.perf_counter() - started, done


def answer_beats(members: list[SimulatedHost], seals: dict[int, Any], seconds: float) -> int:
    """Everybody answers the leader's beats; how many there were."""
    poller = select.epoll()
    by_fd = {member.sock.fileno(): member for member in members}
    for fd in by_fd:
        poller.register(fd, select.EPOLLIN)
    data = wire.pack_beat(0)
    until = time.perf_counter() + seconds
    beats = 0
    while (left := until - time.perf_counter()) > 0:
        for fd, _ready in poller.poll(left):
            member = by_fd[fd]
            member.sock.recv(65536)
            say(member, seals, data)
            beats += 1
    return beats


def end_the_job(members: list[SimulatedHost], seals: dict[int, Any], end: str) -> tuple[float, float]:
    """A rank of one member fails, or the member is stopped: seconds until all others know, and until all know that all
    are done.
    """
    poller = select.epoll()
    by_fd = {member.sock.fileno(): member for member in members}
    for fd in by_fd:
        poller.register(fd, select.EPOLLIN)
    failure = Failure("algo-2", 1, "user", "user", "RuntimeError: loss is nan", 0, 0, at=time.time())
    report = wire.pack("failed", failure=failure._asdict()) if end == "fails" else wire.pack("stopping", signal=15)
    done = wire.pack("done", code=1, failures=(0, 0, 0))
    began = time.perf_counter()
    say(members[0], seals, report)
    told = over = 0.0
    sign = b'"verdict"' if end == "fails" else b'"stop"'
    heard, ended = set[int](), set[int]()
    if end == "stops":  # it knows
        heard.add(members[0].sock.fileno())
        say(members[0], seals, done)
    while len(ended) < len(members) and time.perf_counter() - began < GIVE_UP_AFTER:
        for fd, _ready in poller.poll(1.0):
            data = by_fd[fd].sock.recv(65536)
            if not data:
                raise SystemExit("the leader closed a connection")
            if fd not in heard and sign in data:
                heard.add(fd)
                told = time.perf_counter() - began
                say(by_fd[fd], seals, done)
            if b'"alldone"' in data:
                ended.add(fd)
                over = time.perf_counter() - began
    if len(ended) < len(members):
        raise SystemExit(f"only {len(heard)} and {len(ended)} of {len(members)} know of the end")
    return told, over


def say(member: SimulatedHost, seals: dict[int, Any], frame: bytes) -> None:
    seal = seals.get(member.sock.fileno())
    member.sock.send(frame if seal is None else seal.close(frame) + frame[wire.HEAD :])


def seals_of(members: list[SimulatedHost]) -> dict[int, Any]:
    """What marks each member's frames, by its descriptor, where there is a secret."""
    if not members[0].key:
        return {}
    from musterpoint.core.channel.secret import Seal  # the leader without a secret goes without it, too

    return {member.sock.fileno(): Seal(member.key, leads=False) for member in members}


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/schedstat") as stat:
        return int(stat.read().split()[0]) / 1e9


def memory(pid: int, key: str) -> float:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key + ":")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--beats", type=float, default=0.0, metavar="S", help="measure beats for S seconds")
    parser.add_argument("--end", choices=("fails", "stops"), help="a rank of a member fails, or the member is stopped")
    parser.add_argument("--secret", action="store_true", help="all hosts share one")
    parser.add_argument("--lead", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    secret = SECRET if arguments.secret else ""
    if arguments.lead:
        lead(arguments.members, arguments.lead, secret)
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, arguments.members + 512), hard))
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "--members", str(arguments.members), "--lead", str(port)]
    command += ["--secret"] if secret else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as leader:
        assert leader.stdin is not None and leader.stdout is not None
        while socket.socket().connect_ex((LEADER_ADDRESS, port)):
            time.sleep(0.01)
        before = memory(leader.pid, "VmRSS")
        spent = cpu_seconds(leader.pid)
        seconds, members = call_the_roll(arguments.members, port, secret)
        for line in leader.stdout:
            if line == "ready\n":
                break
        figures = {
            "members": arguments.members, "seconds": round(seconds, 3),
            "leader_cpu_s": round(cpu_seconds(leader.pid) - spent, 2),
            "leader_rss_before_mib": round(before, 1), "leader_rss_mib": round(memory(leader.pid, "VmRSS"), 1),
            "leader_rss_most_mib": round(memory(leader.pid, "VmHWM"), 1),
        }  # fmt: skip
        seals = seals_of(members)
        if arguments.beats:
            spent = cpu_seconds(leader.pid)
            figures["beats"] = answer_beats(members, seals, arguments.beats)
            figures["beats_cpu_percent"] = round((cpu_seconds(leader.pid) - spent) / arguments.beats * 100, 2)
        if arguments.end:
            spent = cpu_seconds(leader.pid)
            told, over = end_the_job(members, seals, arguments.end)
            figures |= {"told_s": round(told, 3), "over_s": round(over, 3)}
            figures["end_cpu_s"] = round(cpu_seconds(leader.pid) - spent, 3)
        print(json.dumps(figures))
        for member in members:
            member.sock.close()
        leader.stdin.close()


if __name__ == "__main__":
    main()
