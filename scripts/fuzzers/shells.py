"""Generated shell scripts around programs, told to stop: beside the same shell in a process group that gets SIGTERM.

What must hold: no line behind a program that was told to end runs; a program that saves in its handler is told once and
comes to its end, with its words in the log; traps run; nothing starts anew, stays stopped or is left; all that within
the grace. Where the shell in its group does otherwise, so may we: a script whose trap has no ``exit`` goes on.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from fuzzers.findings import MOST_WRONG, Findings

PATIENCE = 60.0
"""Seconds for a start."""
GRACE = 12
"""Seconds of the stop's grace. What must end ends in one or two."""
NONE_UP = "no program came up"
AT_ONCE = 2
"""Jobs beside each other."""

PROGRAM = """
import os, signal, sys, time
name, how = sys.argv[1:3]

def write(kind):
    with open(f"{kind}_{name}", "a") as file:
        file.write(f"{time.time()}\\n")

def save(signo, frame):
    if how != "again":
        signal.signal(signo, signal.SIG_DFL)
    print("saving", name, flush=True)
    time.sleep(0.3)
    print("saved", name, flush=True)
    write("SAVED")
    os._exit(int(how == "fails"))

told = []
if how != "plain":
    signal.signal(signal.SIGTERM, (lambda *_: told.append(1)) if how == "reads" else save)
write("UP")
print("up", name, flush=True)
while how != "reads":
    time.sleep(0.05)
for number, line in enumerate(sys.stdin):
    if told and number % 2 == 0:
        break
write("SAVED")
print("saved", name, flush=True)
"""
HOW = ["saves", "saves", "saves", "again", "fails", "plain"]


class Script:
    """Writes a script, and those that it runs, into ``folder``."""

    def __init__(self, rng: random.Random, folder: Path, python: str) -> None:
        self._rng, self._folder, self._python = rng, folder, python
        self._numbers = iter(range(1000))

    def write(self, depth: int, shell: str = "") -> str:
        """Writes one; returns what runs it."""
        shell = shell or self._rng.choice(["bash", "bash", "dash", *(["zsh"] if shutil.which("zsh") else [])])
        path = self._folder / f"script_{next(self._numbers)}.sh"
        path.write_text(f"#!/bin/{shell}\n{self._begin(shell)}{self._body(depth, shell)}\n{self._mark()}\n")
        path.chmod(0o755)
        return self._rng.choice([f"./{path.name}", f"{shell} {path.name}"])

    def _mark(self) -> str:
        return f"date +%s.%N >> MARK_{next(self._numbers)}"

    def _program(self, how: str = "") -> str:
        name = next(self._numbers)
        return f"{self._python} program.py {name} {how or self._rng.choice(HOW)}"

    def _begin(self, shell: str) -> str:
        cleaned = f"date +%s.%N >> CLEANED_{next(self._numbers)}"
        lines = [
            "set -e",
            f"trap '{cleaned}; exit 9' TERM",
            f"trap '{cleaned}' EXIT",
            "sleep 300 &",
            "(while :; do sleep 0.1; done) &",
            "tail -f /dev/null &",
        ]
        if shell == "bash":
            lines += ["set -o pipefail", "set -m", "exec > >(tee -a log_of_tee)", "exec 2> >(cat >&2)"]
        return "".join(f"{line}\n" for line in self._rng.sample(lines, self._rng.choice([0, 1, 1, 2])))

    def _body(self, depth: int, shell: str) -> str:
        if depth and self._rng.random() < 0.7:
            return self._around(self._inner(depth - 1, shell), shell)
        return self._around(self._program(), shell)

    def _inner(self, depth: int, shell: str) -> str:
        kinds = [
            lambda: self.write(depth),
            lambda: self.write(depth),
            lambda: f"( {self._body(depth, shell)}; {self._mark()} )",
            lambda: f"{{ {self._body(depth, shell)}; {self._mark()}; }}",
            lambda: f"timeout 100 {self.write(depth)}",
            lambda: f"su root -s /bin/bash -c 'bash {self.write(depth, 'bash').split()[-1]}'",
            lambda: f"runuser -u root -- bash {self.write(depth, 'bash').split()[-1]}",
        ]
        return self._rng.choice(kinds)()

    def _around(self, run: str, shell: str) -> str:
        """A line or a few that run ``run``, and more behind it."""
        mark, number = self._mark, next(self._numbers)
        lines = [
            f"{run}",
            f"{run} || {mark()}",
            f"{run} && {mark()}",
            f"if {run}; then {mark()}; else {mark()}; fi",
            f"until {run}; do {mark()}; done",
            f"for seed in 1 2; do {run}; {mark()}; done",
            f"{run}; code=$?; {mark()}; exit $code",
            f"f_{number}() {{ {run}; {mark()}; }}; f_{number}",
            f"{run} | tee log_{number}",
            f"{run} 2>&1 | cat | cat",
            f'{run} | while read -r line; do echo "$line"; done',
            f'{run} | {{ while read -r line; do echo "$line"; done; {mark()}; }}',
            f'text=$({run}); {mark()}; echo "$text"',
            f"mkfifo fifo_{number}; cat fifo_{number} & {run} > fifo_{number} 2>&1",
            f"{run} & wait",
            f"{run} & wait $!; {mark()}",
            f"{run} & {self._program()} & wait; {mark()}",
            f"sleep 300 & helper=$!; {run} & pid=$!; while kill -0 $pid 2>/dev/null; do kill -0 $helper 2>/dev/null || "
            f"{{ kill $pid; {mark()}; exit 3; }}; sleep 0.05; done; wait $pid",
            f"while :; do echo x; sleep 0.05; done | {self._program('reads')}",
            f"{run} & pid=$!; {self._program()}; wait $pid; {mark()}",
        ]  # fmt: skip
        if shell == "bash":
            lines += [
                f'while read -r line; do echo "$line"; done < <({run})',
                f"{run} > >(tee log_{number})",
                f"sleep 300 & helper=$!; {run} & pid=$!; wait -n; kill $helper $pid 2>/dev/null; wait; {mark()}",
            ]
        return self._rng.choice(lines)


class Ran(NamedTuple):
    """What a run left.

    stopped: when it was told to stop. up: the names of programs that were there then. files: the times in each.
    """

    stopped: float
    up: set[str]
    files: dict[str, list[float]]
    log: str
    wrong: str = ""

    def names(self, kind: str, later: float | None = None) -> set[str]:
        """The names behind ``KIND_`` that have a time; ``later``: one that many seconds after the stop."""
        return {
            name.partition("_")[2]
            for name, times in self.files.items()
            if name.startswith(kind) and (later is None or max(times, default=0) > self.stopped + later)
        }


def run(folder: Path, words: list[str], environ: dict[str, str], rng: random.Random, group: bool) -> Ran:
    """Starts ``words`` in ``folder``, tells them to stop once a program is up, and waits for their end."""
    log = folder / "log"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            words, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    until = time.monotonic() + PATIENCE
    while not any(folder.glob("UP_*")):
        if process.poll() is not None or time.monotonic() > until:
            _killed(folder)
            return Ran(time.time(), set(), {}, log.read_text(errors="replace"), NONE_UP)
        time.sleep(0.01)
    time.sleep(rng.choice([0.0, 0.1, 0.4]))
    up = {path.name.partition("_")[2] for path in folder.glob("UP_*")}
    stopped = time.time()
    os.killpg(process.pid, signal.SIGTERM) if group else process.send_signal(signal.SIGTERM)
    wrong = ""
    if group:  # programs in groups of their own (set -m) don't hear of it
        while _left(folder) and time.time() < stopped + 2:
            process.poll()
            time.sleep(0.05)
        _killed(folder)
        process.wait()
    else:
        try:
            code = process.wait(GRACE + 30)
        except subprocess.TimeoutExpired:
            code = 0
        took = time.time() - stopped
        left = _killed(folder)
        if code != 143 or took > GRACE - 2 or left:
            wrong = f"it ended with {code} after {took:.1f} s, left: {left}"
    kinds = ("UP_", "SAVED_", "MARK_", "CLEANED_")
    files = {
        path.name: [float(line) for line in path.read_text().split()]
        for path in folder.iterdir()
        if path.name.startswith(kinds)
    }
    return Ran(stopped, up, files, log.read_text(errors="replace"), wrong)


def _left(folder: Path) -> list[int]:
    """The pids of processes whose working directory is ``folder``."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if os.readlink(f"/proc/{entry.name}/cwd") == str(folder):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _killed(folder: Path) -> list[str]:
    """Kills what is left; returns the command lines and states."""
    found = []
    for pid in _left(folder):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
        if state not in "ZX":
            found.append(f"{words} ({state})")
    return found


def worse(ours: Ran, plain: Ran) -> list[str]:
    """What of ``ours`` is worse than the shell in its group."""
    found = [ours.wrong] if ours.wrong else []
    late = 0.15  # seconds: what ran when the stop came may still write
    lost = plain.names("SAVED") & plain.up & ours.up - ours.names("SAVED")
    twice = {name for name, times in ours.files.items() if name.startswith("SAVED") and len(times) > 1}
    ran = ours.names("MARK", late) - plain.names("MARK", late)
    anew = ours.names("UP", late) - plain.names("UP", late)
    untidy = plain.names("CLEANED") - ours.names("CLEANED")
    unsaid = {
        name for name in plain.names("SAVED") & ours.names("SAVED")
        if f"saved {name}\n" in plain.log and f"saved {name}\n" not in ours.log
    }  # fmt: skip
    for what, names in (
        ("not saved", lost), ("told twice", twice), ("lines ran behind", ran), ("started anew", anew),
        ("traps didn't run", untidy), ("not in the log", unsaid),
    ):  # fmt: skip
        if names:
            found.append(f"{what}: {sorted(names)}")
    return found


def one(seed: int, folder: Path) -> list[str]:
    """One script, by its shell in a group and by musterpoint."""
    rng = random.Random(seed)
    first, second = folder / "plain", folder / "ours"
    first.mkdir(parents=True)
    (first / "program.py").write_text(PROGRAM)
    words = Script(rng, first, sys.executable).write(rng.choice([0, 1, 1, 2])).split()
    shutil.copytree(first, second)
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    # the second word is a script that needn't be executable: only its shell reads it
    script = words[-1] if words[-1].startswith("./") else f"./{words[-1]}"
    muster = [sys.executable, "-m", "musterpoint", "launch", "--stop-grace", str(GRACE)]
    how = rng.choice([["--launcher", "script"], ["--launcher", "ranks", "--slots", "1"]])
    moment = rng.random()
    plain = run(first, words, environ, random.Random(moment), group=True)
    ours = run(second, [*muster, *how, script], environ, random.Random(moment), group=False)
    if plain.wrong == ours.wrong == NONE_UP:
        return []  # the script ends before it comes to a program
    found = worse(ours, plain)
    if not found:
        return []
    scripts = "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(second.glob("script_*.sh")))
    return [f"seed {seed}: {'; '.join(found)}\n{scripts}\n--- log\n{ours.log}--- log of the shell\n{plain.log}"]


def fuzz(seed: int, count: int) -> Findings:
    """Plays ``count`` scripts."""
    rng = random.Random(seed)
    wrong: list[str] = []
    tried = 0
    with tempfile.TemporaryDirectory(prefix="muster-shells-") as base, ThreadPoolExecutor(AT_ONCE) as pool:
        seeds = [rng.randrange(10**9) for _ in range(count)]
        for found in pool.map(lambda each: one(each, Path(base, str(each))), seeds):
            tried += 1
            wrong += found
            if len(wrong) >= MOST_WRONG:
                pool.shutdown(cancel_futures=True)
                break
    return Findings(tried, tuple(wrong))
