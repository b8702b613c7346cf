"""Checkpoints whose writer, keeper or restore is killed at a random moment, or whose place refuses.

The disk becomes full, clocks and times of files jump, and an attempt saves the last one's steps again. What must hold:
the newest manifest names a checkpoint that a writer had made whole, a restore brings it byte for byte, no manifest that
was announced is lost, and what was there before the job's first start stays.
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
from musterpoint.base.below import notes_of
from musterpoint.base.errors import FetchError
from musterpoint.core.data.mover_process import Access
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
JUMPING = """
import random, time
def _jumping(real, unit):
    return lambda: real() + unit * random.choice((-1, 0, 1)) * {seconds}
time.time, time.time_ns = _jumping(time.time, 1), _jumping(time.time_ns, 10**9)
"""
"""Begins a program for which the clock jumps; the monotonic one never does."""
WRITER = """
import hashlib, json, os, pickle, random, shutil, sys, time
directory, log, seed, first, attempt = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
draw = random.Random(f"{seed} {first} {attempt}")
kind, renames = KINDS[seed % len(KINDS)]
def write(path, data):
    with open(path, "wb") as file:
        for at in range(0, len(data), 65536):
            file.write(data[at : at + 65536])
for step in range(first, first + 1000):
    name = f"checkpoint-{step}"
    folder = os.path.join(directory, f"new-{step}.tmp" if renames else name)
    if renames or draw.random() < 0.5:  # else it is written over where it is, as Trainer does
        shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, exist_ok=True)
    count = random.Random(f"{seed} {step}").randint(1, 4)
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
        shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
        os.rename(folder, os.path.join(directory, name))
    if kind == "deepspeed":
        write(os.path.join(directory, "latest"), name.encode())
    if step > first + 2:
        shutil.rmtree(os.path.join(directory, f"checkpoint-{step - 3}"), ignore_errors=True)
    time.sleep(draw.choice((0.0, 0.02, 0.2)))
"""
KINDS = (("trainer", False), ("trainer", True), ("torch", False), ("torch", True), ("deepspeed", False), ("none", True))
"""How checkpoints are written: whose they are, and whether they are renamed when they are whole."""
VICTIMS = ("keeper", "writer", "host", "restore", "refusal", "owner", "disk", "clock", "attempt")
OWN = "pretrained"
"""A file that was there before the job's first start."""
SIZE = 64 << 20
"""Bytes of a history's disk."""
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
    with tempfile.TemporaryDirectory(prefix="muster-kills-") as folder, small_disk(Path(folder) / "disk") as disk:
        history = History(Path(folder), disk, seed)
        return [sentence for _ in range(turns) for sentence in history.kill(draw)]


class Disk:
    """A folder on a small disk of its own; without the right to mount it is a folder that never becomes full."""

    def __init__(self, folder: Path, is_small: bool) -> None:
        self.folder, self._filler, self._is_small = folder, folder / "filler", is_small

    def fill(self, left: int) -> None:
        """Takes all room but about ``left`` bytes."""
        if self._is_small:
            with open(self._filler, "wb") as file, contextlib.suppress(OSError):
                room = os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize
                os.posix_fallocate(file.fileno(), 0, max(1, room - left))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "muster-kills", str(folder)]
    is_small = not subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode
    try:
        yield Disk(folder, is_small)
    finally:
        if is_small:
            subprocess.run(["umount", "-l", folder], check=False)


def jump(directory: Path, draw: random.Random) -> None:
    """Gives some files times of an hour ago, or in an hour."""
    with contextlib.suppress(OSError):  # the writer removes some
        for path in directory.rglob("*"):
            if path.name != OWN and draw.random() < 0.3:
                then = time.time() + draw.choice((-3600, 3600))
                os.utime(path, (then, then))


@contextlib.contextmanager
def stopped(keeper: subprocess.Popen[bytes]) -> Iterator[None]:
    """While it makes no directory."""
    keeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, keeper.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    yield
    keeper.send_signal(signal.SIGCONT)


def dying(words: Sequence[str], operations: int, below: Path, jumps: int = 0) -> list[str]:
    """``words``, which start a Python with -c, so that it is killed; 0 operations: it isn't. ``jumps``: seconds by
    which its clock does.
    """
    at = list(words).index("-c") + 1
    program = DYING.format(operations=operations, below=str(below)) + words[at] if operations else words[at]
    program = JUMPING.format(seconds=jumps) + program if jumps else program
    return [*words[:at], program, *words[at + 1 :]]


class History:
    """A job that is killed and started again."""

    def __init__(self, folder: Path, disk: Disk, seed: int) -> None:
        self._folder, self._disk, self._seed = folder, disk, seed
        self._directory, self._place, self._log = disk.folder / "checkpoints", disk.folder / "place", folder / "log"
        self._directory.mkdir()
        (self._directory / OWN).write_text("the user's")
        write_owned(str(self._directory), "j")  # as the first start's restore does
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
            "names": ["a"], "job": "j", "keep": draw.randint(1, 3), "marks": [], "ranks": 1, "first": 0, "own": 1,
            "attempt": 0, "run": str(self._turn), "began": 0, "told": [], "owner": self._claim(),
        }  # fmt: skip
        jumps = draw.choice((3, 3600)) if victim == "clock" else 0
        said = self._folder / f"said-{self._turn}"
        words: Sequence[str] = texts.command(sys.executable, KEEPER, request)
        with open(said, "wb") as out:
            words = dying(words, operation if victim == "keeper" else 0, self._folder, jumps)
            keeper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out)
        program = f"KINDS = {KINDS!r}\n{WRITER}"
        words = [sys.executable, "-c", program, str(self._directory), str(self._log)]
        words = [*words, str(self._seed), str(self._turn * 1000)]
        writing = operation if victim in ("writer", "attempt") else 0
        writer = subprocess.Popen(dying([*words, "0"], writing, self._folder), stderr=subprocess.DEVNULL)
        assert keeper.stdin is not None
        late: list[int] = []
        first, second = (writer, keeper) if victim in ("writer", "attempt") else (keeper, writer)
        try:
            if operation and victim in ("writer", "keeper", "attempt"):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    first.wait(LONGEST)
            else:
                time.sleep(moment)  # the moment is what is drawn
            if victim == "refusal":
                with stopped(keeper):
                    self._place.mkdir(exist_ok=True)
                    self._place.rename(self._disk.folder / "elsewhere")
                    self._place.write_text("no directory")
                time.sleep(draw.random() * 0.3)
                with stopped(keeper):
                    self._place.unlink()
                    (self._disk.folder / "elsewhere").rename(self._place)
            if victim == "owner":
                self._claim()
                newest = next(iter(self._shelf.numbers()), 0)
                time.sleep(1.5)  # the manifest that is being written may still come, and no other
                late = [number for number in self._shelf.numbers() if number > newest + 1]
            if victim == "disk":
                self._disk.fill(draw.choice((0, 5000, 300000)))
                time.sleep(draw.random())
                if draw.random() < 0.5:
                    self._disk.free()
                    time.sleep(draw.random() * 0.5)
            if victim == "clock":
                for _ in range(3):
                    jump(self._directory, draw)
                    time.sleep(draw.random() * 0.3)
            first.kill()
            if victim == "attempt":
                writer.wait()
                writer = subprocess.Popen([*words, "1"], stderr=subprocess.DEVNULL)
                time.sleep(draw.random())
                writer.kill()
            if victim in ("writer", "attempt"):
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
            self._disk.free()
        for line in said.read_text().splitlines():
            with contextlib.suppress(ValueError):
                fact = json.loads(line)
                self._announced = max(self._announced, int(fact.get("number", 0)))
                self._step = int(fact["whole"].rpartition("-")[2]) if "whole" in fact else self._step
        if draw.random() < 0.5:
            self._other_host()
        if victim == "restore":
            self._kill_restore(operation, draw.random() * 0.2 + 0.05)
        wrong = [f"manifests {late} were written by a start that no longer owns the place"] if late else []
        return [f"{what}: {sentence}" for sentence in (*wrong, *self._restored())]

    def _other_host(self) -> None:
        """All is gone but the user's own, which is there again."""
        for path in self._directory.iterdir():
            if path.name != OWN:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(notes_of(str(self._directory)))

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
        whole: dict[str, list[dict[str, str]]] = {}
        for line in self._log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                name, sums = json.loads(line)
                whole.setdefault(name, []).append(sums)
        wrong = []
        here = {path.name: path for path in self._directory.iterdir() if not path.name.startswith(".muster-")}
        own = here.pop(OWN, None)
        if own is None or own.read_text() != "the user's":
            wrong.append("the user's own file is gone")
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
            if sums not in whole.get(name, ()):
                wrong.append(f"{name} isn't what was written: {sums}, not {whole.get(name)}")
        return wrong
