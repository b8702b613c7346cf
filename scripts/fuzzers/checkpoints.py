"""Checkpoints whose writer, keeper or restore is killed at a random moment, or whose place refuses or is full.

What must hold: the newest manifest names a checkpoint that a writer had made whole, a restore brings it byte for byte,
and no manifest that was announced is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator

from fuzzers.findings import MOST_WRONG, Findings
from musterpoint.base.errors import FetchError
from musterpoint.core.data.checkpoints import Target, restore
from musterpoint.core.data.mover import Access
from musterpoint.embedded.programs.registry import KEEPER, Texts

WRITER = """
import hashlib, json, os, random, sys, time
directory, log, seed, first = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
draw = random.Random(seed)
def state(folder, step):
    sums = {}
    for number in range(draw.randint(1, 4)):
        data = draw.randbytes(draw.choice((10, 5000, 300000)))
        with open(os.path.join(folder, f"file{number}.bin"), "wb") as file:
            for at in range(0, len(data), 4096):
                file.write(data[at : at + 4096])
        sums[f"file{number}.bin"] = hashlib.sha256(data).hexdigest()
    return sums
for step in range(first, first + 1000):
    kind = seed % 3
    name = f"checkpoint-{step}"
    folder = os.path.join(directory, name if kind == 0 else f"new-{step}.tmp")
    os.makedirs(folder)
    if kind == 0:  # as transformers' Trainer
        with open(os.path.join(folder, "training_args.bin"), "wb"):
            pass
        sums = {"training_args.bin": hashlib.sha256(b"").hexdigest()}
    else:
        sums = {}
    sums.update(state(folder, step))
    mark = json.dumps({"step": step, "pad": "x" * 3000})
    sums["trainer_state.json"] = hashlib.sha256(mark.encode()).hexdigest()
    with open(log, "a") as file:  # what a whole one of this step is
        file.write(json.dumps([name, sums]) + "\\n")
    with open(os.path.join(folder, "trainer_state.json"), "w") as file:
        file.write(mark)
    if kind:
        time.sleep(0.005)
        os.rename(folder, os.path.join(directory, name))
    if step > first + 2:
        import shutil
        shutil.rmtree(os.path.join(directory, f"checkpoint-{step - 3}"), ignore_errors=True)
    time.sleep(draw.choice((0.0, 0.02, 0.2)))
"""
VICTIMS = ("keeper", "writer", "host", "restore", "refusal")


def fuzz(seed: int, inputs: int) -> Findings:
    """``inputs`` kills."""
    draw, wrong, tried = random.Random(seed), list[str](), 0
    while tried < inputs and len(wrong) < MOST_WRONG:
        with tempfile.TemporaryDirectory(prefix="muster-kills-") as folder:
            history = History(Path(folder), draw.randrange(10**6))
            for _ in range(min(10, inputs - tried)):  # each goes on from what the one before has left
                tried += 1
                wrong += history.kill(draw)
    return Findings(tried, tuple(wrong))


@contextlib.contextmanager
def stopped(keeper: subprocess.Popen[bytes]) -> Iterator[None]:
    """While it makes no directory."""
    keeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, keeper.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    yield
    keeper.send_signal(signal.SIGCONT)


class History:
    """A job that is killed and started again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._directory, self._place, self._log = folder / "checkpoints", folder / "place", folder / "log"
        self._directory.mkdir()
        self._announced, self._step = 0, -1
        self._turn = 0

    def kill(self, draw: random.Random) -> list[str]:
        """One start that is killed, and the restore after it; what didn't hold."""
        self._turn += 1
        victim, moment = draw.choice(VICTIMS), draw.choice((0.1, 0.3, 0.6, 1.0)) * draw.random() + 0.15
        what = f"seed {self._seed}, turn {self._turn}: {victim} killed after {moment:.3f} s"
        texts = Texts()
        request = {
            "directory": str(self._directory), "uri": str(self._place), "access": {}, "place": 0, "hosts": 1,
            "job": "j", "keep": draw.randint(1, 3), "marks": [], "ranks": 1, "first": 0, "own": 1, "attempt": 0,
        }  # fmt: skip
        said = self._folder / f"said-{self._turn}"
        with open(said, "wb") as out:
            keeper = subprocess.Popen(texts.command(sys.executable, KEEPER, request), stdin=subprocess.PIPE, stdout=out)
        words = [sys.executable, "-c", WRITER, str(self._directory), str(self._log)]
        writer = subprocess.Popen([*words, str(self._seed), str(self._turn * 1000)])
        assert keeper.stdin is not None
        try:
            time.sleep(moment)  # the moment is what is drawn
            if victim == "refusal":
                with stopped(keeper):
                    self._place.mkdir(exist_ok=True)
                    self._place.rename(self._folder / "elsewhere")
                    self._place.write_text("no directory")
                time.sleep(draw.random() * 0.3)
                with stopped(keeper):
                    self._place.unlink()
                    (self._folder / "elsewhere").rename(self._place)
            first, second = (writer, keeper) if victim == "writer" else (keeper, writer)
            first.kill()
            if victim == "writer":
                writer.wait()
                keeper.stdin.write(b'finish {"seconds": 30, "clean": false}\n')
                keeper.stdin.flush()
                keeper.wait(timeout=500)
            second.kill()
        finally:
            for process in (keeper, writer):
                process.kill()
                process.wait()
            with contextlib.suppress(OSError):  # it has ended
                keeper.stdin.close()
            texts.close()
        for line in said.read_text().splitlines():
            with contextlib.suppress(ValueError):
                fact = json.loads(line)
                self._announced = max(self._announced, int(fact.get("number", 0)))
                self._step = int(fact["whole"].rpartition("-")[2]) if "whole" in fact else self._step
        if draw.random() < 0.5:
            shutil.rmtree(self._directory, ignore_errors=True)  # another host
        if victim == "restore":
            self._kill_restore(draw)
        return [f"{what}: {sentence}" for sentence in self._restored()]

    def _kill_restore(self, draw: random.Random) -> None:
        program = (
            "import os, sys\nfrom musterpoint.core.data.checkpoints import Target, restore\n"
            "from musterpoint.core.data.mover import Access\n"
            "restore(Target(sys.argv[1], 'j'), sys.argv[2], Access(os.environ))\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(self._place), str(self._directory)], start_new_session=True,
            stdout=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            time.sleep(0.05 + draw.random() * 0.2)
            os.killpg(process.pid, signal.SIGKILL)

    def _restored(self) -> list[str]:
        target = Target(str(self._place), "j")
        try:
            found = restore(target, str(self._directory), Access(os.environ), say=lambda _: None)
        except FetchError as error:
            return [f"the restore failed: {error}"]
        if found.number < self._announced:
            return [f"manifest {self._announced} was announced, and {found.number} is the newest"]
        if not found.number:
            return []
        whole = {}
        for line in self._log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                name, sums = json.loads(line)
                whole[name] = sums
        wrong = []
        here = {path.name: path for path in self._directory.iterdir() if path.name.startswith("checkpoint-")}
        if sorted(here) != [name for name in sorted(found.names) if name != "."]:
            wrong.append(f"the manifest names {found.names}, and {sorted(here)} is here")
        if all(int(name.rpartition("-")[2]) < self._step for name in here):
            wrong.append(f"step {self._step} was announced as whole, and {sorted(here)} is here")
        for name, path in here.items():
            sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.iterdir()}
            if sums != whole.get(name):
                wrong.append(f"{name} isn't what was written: {sorted(sums)}, not {sorted(whole.get(name, {}))}")
        return wrong
