"""A process beside a job at its control socket: malformed words with the job's token, and anything without it.

The job is a real one in a process of its own, on this machine alone. Whatever was said to it, it still lends a
launch what it needs afterwards, ends with its program's own code, and has stayed small.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

from fuzzers.findings import MOST_WRONG, Findings
from musterpoint.base.failure import Failure
from musterpoint.base.settings import OUTER, SOCKET_TOKEN
from musterpoint.core.processes.control_socket import LONGEST_LINE, address_of
from musterpoint.core.supervise.launches import encode_end
from musterpoint.core.supervise.loan import Lender
from musterpoint.core.supervise.state import Outcome

OF_ONE_JOB = 700
"""Inputs, until the job is ended and looked at."""
CODE = 7
MEBIBYTES = 120
"""Of the supervisor: a few of the longest lines, with what their decoding takes."""
SECONDS = 100.0
"""For whatever is waited for."""
KEPT = 300
"""Connections that stay open; more of them than the socket keeps without the token."""

PROGRAM = """
import json, os, sys, time
with open("told.part", "w") as file:
    json.dump({name: os.environ[name] for name in sys.argv[1:]}, file)
os.rename("told.part", "told")
while not os.path.exists("end"):
    time.sleep(0.02)
sys.exit(7)
"""
FAILURE = Failure("x", CODE, "user", "user", "ValueError: none of the rank's own")
WRONG: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, [[]], {"a": 1}, [[1]], [None], {}, "", "\ud800", "\0")


class Job:
    """A job of one rank that waits to be told to end."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="muster-fuzz-"))
        (self.folder / "program.py").write_text(PROGRAM)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("SM_", "MUSTER_"))}
        environ["SAGEMAKER_BASE_DIR"] = str(self.folder / "ml")
        command = [
            sys.executable,
            "-m",
            "musterpoint",
            "launch",
            "--launcher",
            "script",
            "program.py",
            OUTER,
            SOCKET_TOKEN,
        ]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.kept: list[socket.socket] = []
        deadline = time.monotonic() + SECONDS
        while not (self.folder / "told").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the job didn't start: {self.log}")
            time.sleep(0.02)
        self.environ: dict[str, str] = json.loads((self.folder / "told").read_text())
        self.token = self.environ[SOCKET_TOKEN]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-1500:]

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(SECONDS)
        sock.connect(address_of(self.environ[OUTER]))
        return sock

    def faults(self) -> list[str]:
        """Ends the job; what did not hold."""
        found = []
        if self.process.poll() is not None:
            return [f"it ended with {self.process.returncode} before it was told to; its log: {self.log}"]
        lender = Lender.find(self.environ)
        if lender is None or lender.borrow() is None:
            found.append("it lends a launch nothing any more")
        else:
            lender.ended(Outcome(0))
        status = Path(f"/proc/{self.process.pid}/status")
        peak = [int(line.split()[1]) >> 10 for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        if peak and peak[0] > MEBIBYTES:
            found.append(f"it took {peak[0]} MiB, expected at most {MEBIBYTES}")
        (self.folder / "end").touch()
        try:
            code = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            found.append(f"it didn't end within {SECONDS:g} s")
        else:
            if code != CODE:
                found.append(f"it ended with {code}, expected {CODE}")
        if "Traceback" in self.log or self.token in self.log:
            found.append("its log has a traceback or the token")
        return [f"{text}; its log: {self.log}" for text in found[:1]]

    def close(self) -> None:
        for sock in self.kept:
            sock.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Caller:
    """What is said at the socket, from one seed."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def call(self, job: Job) -> str:
        """Sends one input; returns what it was."""
        knows = self._dice.random() < 0.6
        what, data = self._malformed() if knows else self._anything()
        token = f"{job.token}\n".encode() if knows else self._no_token(job.token)
        sock = job.connect()
        try:
            self._send(sock, token + data)
        except OSError:
            pass  # sent away meanwhile
        if self._dice.random() < 0.4:
            job.kept.append(sock)
            if len(job.kept) > KEPT:
                job.kept.pop(self._dice.randrange(KEPT)).close()
        else:
            sock.close()
        return f"{'with' if knows else 'without'} the token: {what}"

    def _send(self, sock: socket.socket, data: bytes) -> None:
        way = self._dice.random()
        if way < 0.1:
            fds = [0] * self._dice.choice((1, 2, 200))
            at = self._dice.randint(1, max(1, min(len(data), 60)))
            socket.send_fds(sock, [data[:at] or b"x"], fds)
            data = data[at:]
        elif way < 0.3:
            for _ in range(self._dice.randint(1, 5)):
                at = self._dice.randint(0, min(len(data), 40))
                sock.sendall(data[:at])
                data = data[at:]
        sock.sendall(data)
        if way > 0.8:
            sock.shutdown(self._dice.choice((socket.SHUT_WR, socket.SHUT_RDWR)))

    def _no_token(self, token: str) -> bytes:
        at = self._dice.randrange(len(token))
        return self._dice.choice((
            b"", b"\n", token[:at].encode(), token[:at].encode() + b"\n", f"{token[:at]}x{token[at + 1 :]}\n".encode(),
            f" {token}\n".encode(), f"{token} \n".encode(), token.upper().encode().replace(b"0", b"O") + b"O\n",
            b"\0" * 33, self._dice.randbytes(40), b"token " + token.encode() + b"\n", token[::-1].encode() + b"x\n",
        ))  # fmt: skip

    def _anything(self) -> tuple[str, bytes]:
        """Also what would do something if it were heard."""
        fine = (b"rank 0 0 1 77\n", b"rank 1 1 2 77\n", b"start 78 2f62696e2f74727565\n", b"launch 77\n")
        return self._dice.choice((
            ("words that mean something", b"".join(self._dice.sample(fine, 3))),
            ("a launch's end", _line(encode_end(os.getpid(), FAILURE, ["a warning"]))),
            ("nothing", b""), ("a flood", self._dice.randbytes(self._dice.choice((1, 100, 300_000)))),
            self._malformed(),
        ))  # fmt: skip

    def _malformed(self) -> tuple[str, bytes]:
        """What no process of the job says: it ends its own connection, and nothing else."""
        ways: tuple[Callable[[], bytes], ...] = (
            self._rank, self._start, self._launch, self._bytes, lambda: b"\n" * self._dice.choice((1, 50_000)),
        )  # fmt: skip
        if self._dice.random() < 0.01:
            return "a line without an end", b"x" * (LONGEST_LINE + (1 << 20))
        data = self._dice.choice(ways)()
        return repr(data[:80]), data

    def _number(self) -> str:
        return self._dice.choice(
            ("", "-1", "0x1", "1.5", "1e3", "9" * 11, "9" * 5000, "٣", "²", "one", "\ud800", "\0", "nan", "+1", "1_000")
        )

    def _rank(self) -> bytes:
        words = ["rank", "0", "0", "1", str(os.getpid())]
        way = self._dice.random()
        if way < 0.3:
            words = words[: self._dice.randint(1, 4)]
        elif way < 0.5:
            words += ["0"] * self._dice.choice((1, 10_000))
        else:
            words[self._dice.randint(1, 4)] = self._number() or "x"
        return _line(" ".join(words))

    def _start(self) -> bytes:
        bad = self._dice.choice(("ff", "zz", "0", "c0af", "eda080", "\ud800", "é", "'"))
        words = self._dice.choice((
            ["start"], ["start", "78"], ["start", self._number() or "x", "79"], ["start", bad, "79"],
            ["start", "78", bad], ["start", *["78"] * 1000, bad], ["started"], ["START", "78", "79"],
        ))  # fmt: skip
        return _line(" ".join(words))

    def _launch(self) -> bytes:
        """What no launch says, or one that is none of the rank's."""
        wrong, deep = self._dice.choice(WRONG), self._dice.choice((100, 5_000, 200_000))
        failure = {**FAILURE.to_wire(), self._dice.choice((*Failure._fields, "surplus")): wrong}
        end = {"pid": os.getpid(), "failure": failure, "warnings": []}
        body = self._dice.choice((
            "", "null", "[]", "{}", "[" * deep, '{"a":' * deep, "9" * 5000, '["a", {"b": NaN}]', "\\ud800", "\xff",
            *map(json.dumps, (wrong, [wrong, {}], ["a", wrong], ["a", {"b": wrong}], ["rank-ended", {}, wrong])),
            *map(json.dumps, (end, {**end, self._dice.choice(("pid", "failure", "warnings")): wrong})),
        ))  # fmt: skip
        first = self._dice.choice(
            ("", *["launch 77\n"] * 3, f"launch {self._number()}\n", "launch\n", "launch 77 \r\n")
        )
        return _line(first + self._dice.choice(("event ", "ended ", "heard", "launch ", "")) + body)

    def _bytes(self) -> bytes:
        line = bytearray(self._dice.randbytes(self._dice.choice((1, 30, 1000, 100_000))))
        return bytes(line).replace(b"rank", b"knar") + b"\n"


def _line(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass") + b"\n"


def fuzz(seed: int, inputs: int) -> Findings:
    """One job after the other, each with a part of the inputs."""
    caller = Caller(random.Random(seed))
    wrong: list[str] = []
    tried = 0
    while tried < inputs and len(wrong) < MOST_WRONG:
        job = Job()
        said: list[str] = []
        try:
            for _ in range(min(OF_ONE_JOB, inputs - tried)):
                tried += 1
                try:
                    said.append(caller.call(job))
                except OSError as error:
                    said.append(f"{type(error).__name__} ({error})")
                if job.process.poll() is not None:
                    break
            wrong += [f"seed {seed}, after {' | '.join(said[-3:])}: {fault}" for fault in job.faults()]
        finally:
            job.close()
    return Findings(tried, tuple(wrong))
