"""A process beside a job at its control socket: malformed words with the job's token, and anything without it.

The job is a real one in a process of its own, on this machine alone. Whatever was said to it, it still takes a
launcher's greeting afterwards, ends with its program's own code, and has stayed small.
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
from musterpoint.base.settings import OUTER, SOCKET_TOKEN
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.plan import Argument, LaunchPlan, ProcessPlan
from musterpoint.core.processes.control_socket import LONGEST_LINE, address_of
from musterpoint.core.supervise.handover import HELLO, Outer, plan_from

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
PLAN = LaunchPlan(
    "ranks", "x",
    (ProcessPlan("rank", "rank 0", (Argument("/bin/true"),), (EnvSetting("A", "b", ""),), "/", 0, 0),),
    (), 1, 1, 0, "/",
).to_wire()  # fmt: skip
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
        outer = Outer.find(self.environ)
        if outer is None or outer.offer() is None:
            found.append("it takes no launcher's greeting any more")
        if outer is not None:
            outer.close()
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
        fine = (b"rank 0 0 1 77 0\n", b"rank 1 1 2 77 0\n", b"start 0 78 2f62696e2f74727565\n", f"{HELLO}\n".encode())
        plan = json.dumps({"plan": PLAN, "environ": {}}).encode()
        return self._dice.choice((
            ("words that mean something", b"".join(self._dice.sample(fine, 3))),
            ("a launcher's plan", f"{HELLO}\n".encode() + plan + b"\n"),
            ("nothing", b""), ("a flood", self._dice.randbytes(self._dice.choice((1, 100, 300_000)))),
            self._malformed(),
        ))  # fmt: skip

    def _malformed(self) -> tuple[str, bytes]:
        """What no process of the job says: it ends its own connection, and nothing else."""
        ways: tuple[Callable[[], bytes], ...] = (
            self._rank, self._start, self._handover, self._bytes, lambda: b"\n" * self._dice.choice((1, 50_000)),
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
        words = ["rank", "0", "0", "1", str(os.getpid()), "0"]
        way = self._dice.random()
        if way < 0.3:
            words = words[: self._dice.randint(1, 5)]
        elif way < 0.5:
            words += ["0"] * self._dice.choice((1, 10_000))
        elif way < 0.6:
            words[5] = str(self._dice.choice((60_000, 65_536, 10**9)))  # no such session
        else:
            words[self._dice.randint(1, 5)] = self._number() or "x"
        return _line(" ".join(words))

    def _start(self) -> bytes:
        bad = self._dice.choice(("ff", "zz", "0", "c0af", "eda080", "\ud800", "é", "'"))
        words = self._dice.choice((
            ["start"], ["start", "0"], ["start", "0", "78"], ["start", self._number() or "x", "78", "79"],
            ["start", "65536", "78", "79"], ["start", "0", bad, "79"], ["start", "0", "78", bad],
            ["start", "0", *["78"] * 1000, bad], ["started"], ["START", "0", "78", "79"],
        ))  # fmt: skip
        return _line(" ".join(words))

    def _handover(self) -> bytes:
        """The greeting is right, and what follows is no plan that could be started."""
        deep = self._dice.choice((100, 5_000, 200_000))
        plan: Any = json.loads(json.dumps(PLAN))
        wrong = self._dice.choice(WRONG)
        key = self._dice.choice(("processes", "environment", "local_ranks", "launcher", "unset", "surplus"))
        plan[key] = self._dice.choice(([None], 10**30, -1, [[[]]])) if key == "local_ranks" else (wrong, wrong)
        body = self._dice.choice((
            "", "null", "[]", "{}", "[" * deep, '{"a":' * deep, "9" * 5000,
            '{"plan": {}, "environ": ' + "9" * 5000 + "}",
            json.dumps({"plan": plan, "environ": {}}), json.dumps({"plan": PLAN, "environ": wrong or 1}),
            json.dumps({"plan": wrong, "environ": {}}), '{"plan": NaN, "environ": {}}', "\\ud800", "\xff",
        ))  # fmt: skip
        if _could_be_started(body):
            body = "{}"
        greeting = self._dice.choice((HELLO, HELLO, HELLO, "inner 2", f"{HELLO} ", f"{HELLO}\r", "inner"))
        return _line(f"{greeting}\n{body}")

    def _bytes(self) -> bytes:
        line = bytearray(self._dice.randbytes(self._dice.choice((1, 30, 1000, 100_000))))
        return bytes(line).replace(b"rank", b"knar") + b"\n"


def _could_be_started(body: str) -> bool:
    try:
        plan_from(body)
    except ValueError:
        return False
    return True


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
