"""What processes of the same user say at the socket where a host's entry points meet, to the one that leads and to one
that follows.

What must hold: no exception but an error of one sentence, whatever comes and in whatever pieces; little memory, few
descriptors; one that fits is taken as before.
"""

from __future__ import annotations

import json
import os
import random
import socket
import traceback
from types import SimpleNamespace
from typing import Any, cast

from fuzzers.findings import MOST_WRONG, Findings
from musterpoint.base.errors import MusterError
from musterpoint.base.loop import Loop
from musterpoint.core.job.model import StartedRank
from musterpoint.core.runtime import Runtime
from musterpoint.core.started_per_rank.election import Meeting, MeetingFiles
from musterpoint.core.started_per_rank.host_messages import prove
from musterpoint.core.started_per_rank.leader import Leader
from musterpoint.core.started_per_rank.meeting import Follower

NASTY: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 15, 9, 255, 256, 2**63, 10**400, 1.5, "", "1", "\ud800", "\0", "a\x1b[2J", [],
    [1], ["x\0"], {}, {"argv": []}, {"argv": ["/nonexistent"], "set": {}, "unset": []}, {"argv": ["/bin/true"]},
    {"argv": ["/bin/true"], "set": [], "unset": {}}, {"argv": ["/bin/true"], "set": {"A=B": "\ud800"}, "unset": ["A"]},
    {"argv": [["x"]], "set": {"A": 1}, "unset": None}, "x" * 5000,
)  # fmt: skip
KEYS = (
    "rank", "local_rank", "world_size", "signal", "start", "end", "kill", "refused", "", "other", "nonce", "proof",
    "key", "lost",
)  # fmt: skip
TOKEN = "the entry points' token"
RAW = (
    b"\n", b"{}\n", b"[]\n", b"1\n", b'"x"\n', b"{\n", b"\xff\xfe\n", b"[" * 200_000 + b"\n",
    b'{"a":' * 100_000 + b"\n",
    b"9" * 5000 + b"\n", b'{"rank": NaN}\n', b"\0" * 100 + b"\n", b"no newline", b"GET / HTTP/1.1\r\n\r\n",
)  # fmt: skip
MOST_FILES = 40


def line(dice: random.Random) -> bytes:
    if dice.random() < 0.3:
        return dice.choice(RAW)
    value = {dice.choice(KEYS): dice.choice(NASTY) for _ in range(dice.randint(1, 4))}
    if dice.random() < 0.4:
        value = {"rank": 1, "local_rank": 1, "world_size": 2, **value}
    data = json.dumps(value).encode() + b"\n"
    return data[: dice.randrange(len(data))] if dice.random() < 0.1 else data


def fuzz(seed: int, inputs: int) -> Findings:
    wrong: list[str] = []
    tried = 0
    while tried < inputs and len(wrong) < MOST_WRONG:
        dice = random.Random(f"{seed} {tried}")
        before = len(os.listdir("/proc/self/fd"))
        lines = [line(dice) for _ in range(dice.randint(1, 6))]
        said = (_leads if dice.random() < 0.5 else _follows)(lines, dice)
        after = len(os.listdir("/proc/self/fd"))
        said = said or (f"{after - before} descriptors are left open" if after > before else "")
        if said:
            wrong.append(f"input {tried} of seed {seed} ({b' '.join(lines)[:300]!r}): {said}")
        tried += 1
    return Findings(tried, tuple(wrong))


class _Runtime:
    """What both need of the runtime."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.delivered: list[int] = []
        self.signals = SimpleNamespace(deliver=self.delivered.append, route_to=lambda handler: None)
        self.console = SimpleNamespace(say=lambda text: None)

    def check_stop(self, host: str = "") -> None:
        """Nobody stops it."""

    def keep_stops(self) -> None:
        """It has none."""


def _turns(runtime: _Runtime, count: int = 6) -> None:
    for _ in range(count):
        runtime.loop.turn(0)


def _leads(lines: list[bytes], dice: random.Random) -> str:
    """A stranger speaks to the entry point that leads; another, which fits, comes later."""
    runtime = _Runtime()
    name = f"\0muster-fuzz-{os.getpid()}"
    ends: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen(64)
        met = Meeting(MeetingFiles("/nonexistent", "fuzz"), listener, True, TOKEN)
        leader = Leader(cast(Runtime, runtime), met, StartedRank(0, 0, 3, 3), 0)
        try:
            for data in lines:
                if not ends or dice.random() < 0.4:
                    ends.append(_connected(name))
                _send(ends[-1], data, dice)
                _turns(runtime)
            last = _connected(name)
            ends.append(last)
            _turns(runtime, 12)
            _send_proved(last, {"rank": 2, "local_rank": 2, "world_size": 3})
            _turns(runtime, 12)
            if 2 not in leader._ranks:
                return "one that fits isn't taken"
            if leader._wrong or runtime.delivered:
                return f"strangers decided something: {leader._wrong!r}, {runtime.delivered}"
            if len(os.listdir("/proc/self/fd")) > MOST_FILES:
                return "descriptors add up"
            leader.end(0)
            return ""
        except MusterError as error:
            return _sentence(error)
        except Exception:
            return traceback.format_exc(limit=-3)
        finally:
            leader.end(0)
            for end in ends:
                end.close()
            runtime.loop.close()


def _follows(lines: list[bytes], dice: random.Random) -> str:
    """Something else than a leader speaks to one that follows."""
    runtime = _Runtime()
    near, far = socket.socketpair()
    job = SimpleNamespace(arguments=(), current_host="here")
    try:
        met = Meeting(MeetingFiles("/nonexistent", "fuzz"), near, False, TOKEN)
        follower = Follower(cast(Runtime, runtime), met, {}, cast(Any, job), StartedRank(1, 1, 2, 2))
        near.setblocking(False)
        if dice.random() < 0.5:  # the one that leads, gone mad
            far.sendall(b'{"nonce": "theirs"}\n')
            follower._read(1)
            greeting = json.loads(far.recv(65536))
            key = prove(TOKEN, greeting, "theirs")[1].encode()
            lines = [data.replace(b"}", b', "key": "' + key + b'"}', 1) for data in lines]
        for data in lines:
            _send(far, data, dice)
            follower._read(1)
        return "" if follower._code is None or 0 <= follower._code <= 255 else f"it ends with {follower._code}"
    except MusterError as error:
        return _sentence(error)
    except Exception:
        return traceback.format_exc(limit=-3)
    finally:
        if follower._child:
            os.waitpid(follower._child, 0)
        follower._texts.close()
        follower._lines.close()
        far.close()
        runtime.loop.close()


def _sentence(error: MusterError) -> str:
    text = str(error)
    return "" if text.isprintable() and len(text) < 600 else f"no sentence: {text[:200]!r}"


def _send_proved(sock: socket.socket, said: dict[str, Any]) -> None:
    """An entry point of the job says who it is."""
    sock.settimeout(5)
    nonce = json.loads(sock.recv(65536))["nonce"]
    said = {**said, "nonce": "mine"}
    sock.sendall(json.dumps({**said, "proof": prove(TOKEN, said, nonce)[0]}).encode() + b"\n")


def _connected(name: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(name)
    return sock


def _send(sock: socket.socket, data: bytes, dice: random.Random) -> None:
    """With descriptors now and then; an end that was closed takes nothing."""
    sock.settimeout(0.05)
    descriptors = [0] * dice.choice((0, 0, 0, 1, 2, 5))
    try:
        if descriptors:
            sent = socket.send_fds(sock, [data], descriptors)
            data = data[sent:]
        sock.sendall(data)
    except OSError:
        pass
