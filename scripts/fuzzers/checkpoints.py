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
from typing import Callable, Iterator, Mapping, Sequence

from fuzzers.findings import Findings
from fuzzers.histories import played
from musterpoint.base.errors import FetchError
from musterpoint.core.data.mover import Access
from musterpoint.core.data.moves import Target, restore
from musterpoint.embedded.programs.checkpoint_manifest import Shelf
from musterpoint.embedded.programs.checkpoint_restore import write_owned
from musterpoint.embedded.programs.registry import KEEPER, Texts

DYING = """
import os, signal, sys
def _count(event, args, left=[{operations}], below={below!r}):
    if event not in ("open", "shutil.rmtree") and not event.startswith("os."):
        return
    if any(isinstance(each, str) and each.startswith(below) for each in args):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(_count)
"""
"""Begins a program that is killed right before its n-th operation on a path ``below`` some folder."""
WRITER = """
import hashlib, json, os, pickle, random, shutil, sys, time
directory, log, seed, first = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
draw = random.Random(seed * 1000 + first)
kind, renames = KINDS[seed % len(KINDS)]
def write(path, data):
    with open(path, "wb") as file:
        for at in range(0, len(data), 65536):
            file.write(data[at : at + 65536])
for step in range(first, first + 1000):
    name = f"checkpoint-{step}"
    folder = os.path.join(directory, f"new-{step}.tmp" if renames else name)
    os.makedirs(folder)
    count = draw.randint(1, 4)
    files = {
        "trainer": ["training_args.bin", *(f"file{each}.bin" for each in range(count))],
        "torch": [f"__{each}_0.distcp" for each in range(count)],
        "deepspeed": ["mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"],
        "none": [f"file{each}.bin" for each in range(count)],
    }[kind]
    sums = {}
    for each in files:
        data = draw.randbytes(draw.choice((10, 5000, 300000)))
        write(os.path.join(folder, each), data)
        sums[each] = hashlib.sha256(data).hexdigest()
    mark = {
        "trainer": ("trainer_state.json", json.dumps({"step": step, "pad": "x" * 3000}).encode()),
        "torch": (".metadata", pickle.dumps({"storage": files})),
        "deepspeed": (),
        "none": (),
    }[kind]
    if mark:
        sums[mark[0]] = hashlib.sha256(mark[1]).hexdigest()
    with open(log, "a") as file:  # what a whole one of this step is
        file.write(json.dumps([name, sums]) + "\\n")
    if mark and kind == "torch":
        write(os.path.join(folder, ".metadata.tmp"), mark[1])
        os.rename(os.path.join(folder, ".metadata.tmp"), os.path.join(folder, ".metadata"))
    elif mark:
        write(os.path.join(folder, mark[0]), mark[1])
    if renames:
        time.sleep(0.005)
        os.rename(folder, os.path.join(directory, name))
    if kind == "deepspeed":
        write(os.path.join(directory, "latest"), name.encode())
    if step > first + 2:
        shutil.rmtree(os.path.join(directory, f"checkpoint-{step - 3}"), ignore_errors=True)
    time.sleep(draw.choice((0.0, 0.02, 0.2)))
"""
KINDS = (("trainer", False), ("trainer", True), ("torch", False), ("torch", True), ("deepspeed", False), ("none", True))
"""How checkpoints are written: whose they are, and whether they are renamed when they are whole."""
VICTIMS = ("keeper", "writer", "host", "restore", "refusal", "owner")
AT_ONCE = 4
"""Jobs at a time: they mostly wait."""
LONGEST = 1.5
"""Seconds after which a program is killed that hasn't come to its n-th operation."""


def fuzz(seed: int, inputs: int) -> Findings:
    """``inputs`` kills."""
    return played(play, seed, inputs, TURNS, AT_ONCE)


TURNS = 10
"""Kills of one job; each start goes on from what the one before has left."""


def play(seed: int, turns: int) -> list[str]:
    """What didn't hold in one job."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="muster-kills-") as folder:
        history = History(Path(folder), seed)
        return [sentence for _ in range(turns) for sentence in history.kill(draw)]


@contextlib.contextmanager
def stopped(keeper: subprocess.Popen[bytes]) -> Iterator[None]:
    """While it makes no directory."""
    keeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, keeper.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    yield
    keeper.send_signal(signal.SIGCONT)


def dying(words: Sequence[str], operations: int, below: Path) -> list[str]:
    """``words``, which start a Python with -c, so that it is killed; 0 operations: it isn't."""
    at = list(words).index("-c") + 1
    program = DYING.format(operations=operations, below=str(below)) + words[at] if operations else words[at]
    return [*words[:at], program, *words[at + 1 :]]


class History:
    """A job that is killed and started again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._directory, self._place, self._log = folder / "checkpoints", folder / "place", folder / "log"
        self._directory.mkdir()
        write_owned(str(self._directory))  # as the first start's restore does
        self._shelf = Shelf(str(self._place), {})
        self._announced, self._step = 0, -1
        self._turn = 0

    def kill(self, draw: random.Random) -> list[str]:
        """One start that is killed, and the restore after it; what didn't hold."""
        self._turn += 1
        victim, moment = draw.choice(VICTIMS), draw.choice((0.1, 0.3, 0.6, 1.0)) * draw.random() + 0.15
        operation = int(2 ** (draw.random() * 7)) if draw.random() < 0.6 else 0
        when = f"before operation {operation}" if operation else f"after {moment:.3f} s"
        what = f"seed {self._seed}, turn {self._turn}: {victim} killed {when}"
        texts = Texts()
        request = {
            "directory": str(self._directory), "uri": str(self._place), "access": {}, "place": 0, "hosts": 1,
            "job": "j", "keep": draw.randint(1, 3), "marks": [], "ranks": 1, "first": 0, "own": 1, "attempt": 0,
            "run": "", "began": 0, "told": [], "owner": self._claim(),
        }  # fmt: skip
        said = self._folder / f"said-{self._turn}"
        words: Sequence[str] = texts.command(sys.executable, KEEPER, request)
        with open(said, "wb") as out:
            words = dying(words, operation if victim == "keeper" else 0, self._folder)
            keeper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out)
        program = f"KINDS = {KINDS!r}\n{WRITER}"
        words = [sys.executable, "-c", program, str(self._directory), str(self._log)]
        words = dying([*words, str(self._seed), str(self._turn * 1000)], operation * (victim == "writer"), self._folder)
        writer = subprocess.Popen(words)
        assert keeper.stdin is not None
        late: list[int] = []
        first, second = (writer, keeper) if victim == "writer" else (keeper, writer)
        try:
            if operation and victim in ("writer", "keeper"):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    first.wait(LONGEST)
            else:
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
            if victim == "owner":
                self._claim()
                newest = next(iter(self._shelf.numbers()), 0)
                time.sleep(1.5)  # the manifest that is being written may still come, and no other
                late = [number for number in self._shelf.numbers() if number > newest + 1]
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
            self._kill_restore(operation, draw.random() * 0.2 + 0.05)
        wrong = [f"manifests {late} were written by a start that no longer owns the place"] if late else []
        return [f"{what}: {sentence}" for sentence in (*wrong, *self._restored())]

    def _claim(self) -> int:
        """The number of a new start of the job."""
        return self._shelf.claim("j", "here")

    def _kill_restore(self, operation: int, moment: float) -> None:
        """The mover is killed: whoever runs it touches no file."""

        def run(argv: tuple[str, ...], environ: Mapping[str, str], on_line: Callable[[str], None]) -> int:
            words = dying(argv, operation, self._folder)
            with subprocess.Popen(words, env=dict(environ), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(LONGEST if operation else moment)
                child.kill()
                return child.wait()

        with contextlib.suppress(FetchError):
            restore(Target(str(self._place), "j"), str(self._directory), Access(os.environ), run=run)

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
        here = {path.name: path for path in self._directory.iterdir() if not path.name.startswith(".muster-")}
        latest = here.pop("latest", None)
        if sorted(here) != [name for name in sorted(found.names) if name != "."]:
            wrong.append(f"the manifest names {found.names}, and {sorted(here)} is here")
        if latest is not None and [latest.read_text()] != list(here):
            wrong.append(f"latest names {latest.read_text()}, and {sorted(here)} is here")
        if latest is None and KINDS[self._seed % len(KINDS)][0] == "deepspeed":
            wrong.append("latest isn't here")
        if any(not name.startswith("checkpoint-") for name in here):
            return [*wrong, f"{sorted(here)} is here, which was not whole"]
        if all(int(name.rpartition("-")[2]) < self._step for name in here):
            wrong.append(f"step {self._step} was announced as whole, and {sorted(here)} is here")
        for name, path in here.items():
            sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.iterdir()}
            if sums != whole.get(name):
                wrong.append(f"{name} isn't what was written: {sorted(sums)}, not {sorted(whole.get(name, {}))}")
        return wrong
