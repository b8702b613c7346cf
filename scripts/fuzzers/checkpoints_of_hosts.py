"""Checkpoints of two hosts, each of which writes its part, at a shared directory.

Keepers, writers and hosts are killed at random moments, once or several times in an attempt of the job, which saves the
steps of the attempt before again; the disk becomes full, clocks and times of files jump.

What must hold: both hosts restore one and the same checkpoint that was saved once, byte for byte; no manifest that was
announced is lost; and where only keepers were killed, the last checkpoint of a job that ends well gets there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fuzzers.checkpoints import LONGEST, OWN, Disk, dying, jump, small_disk
from fuzzers.findings import Findings
from fuzzers.histories import played
from musterpoint.base.below import notes_of
from musterpoint.base.errors import FetchError
from musterpoint.core.data.mover_process import Access
from musterpoint.core.data.moves import Target, restore
from musterpoint.core.data.places import Share
from musterpoint.embedded.programs.checkpoint_restore import write_owned

WRITER = """
import hashlib, json, os, pickle, random, shutil, sys, time
folder, kind, seed, first, save = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
draw = random.Random(f"{seed} {first} {save}")
def write(path, data):
    with open(path, "wb") as file:
        for at in range(0, len(data), 65536):
            file.write(data[at : at + 65536])
step, log = first, os.path.join(sys.argv[6], "log")
while not os.path.exists(os.path.join(folder, "enough")):
    name, parts, sums = f"checkpoint-{step}", [], []
    for host in (0, 1):
        its = os.path.join(folder, f"host{host}", name)
        shutil.rmtree(its, ignore_errors=True)
        parts.append(os.path.join(folder, f"host{host}", f"new-{step}.tmp") if kind == "renamed" else its)
        shutil.rmtree(parts[host], ignore_errors=True)
        os.makedirs(parts[host])
        sums.append({})
    files = {
        "trainer": [(0, "training_args.bin"), (0, "rng_state_0.pth"), (1, "rng_state_1.pth")],
        "torch": [(0, "__0_0.distcp"), (1, "__1_0.distcp"), (1, "__1_1.distcp")],
        "renamed": [(0, "a.bin"), (0, "b.bin"), (1, "a.bin")],
    }[kind]
    draw.shuffle(files)
    for host, each in files:
        data = draw.randbytes(draw.choice((10, 5000, 300000)))
        write(os.path.join(parts[host], each), data)
        sums[host][each] = hashlib.sha256(data).hexdigest()
        time.sleep(draw.choice((0.0, 0.0, 0.02)))
    mark, data = {
        "trainer": ("trainer_state.json", json.dumps({"step": step, "pad": "x" * 3000}).encode()),
        "torch": (".metadata", pickle.dumps({"storage": [each for _, each in files]})),
        "renamed": ("", b""),
    }[kind]
    if mark:
        sums[0][mark] = hashlib.sha256(data).hexdigest()
    with open(log, "a") as file:  # what a whole one of this step is
        file.write(json.dumps([name, sums]) + "\\n")
    if mark:
        write(os.path.join(folder, "mark.tmp"), data)
        os.rename(os.path.join(folder, "mark.tmp"), os.path.join(parts[0], mark))
    else:
        time.sleep(0.005)
        for host in draw.sample((0, 1), 2):
            os.rename(parts[host], os.path.join(folder, f"host{host}", name))
            time.sleep(draw.choice((0.0, 0.02)))
    for host in (0, 1):
        if step > first + 2:
            shutil.rmtree(os.path.join(folder, f"host{host}", f"checkpoint-{step - 3}"), ignore_errors=True)
    time.sleep(draw.choice((0.0, 0.02, 0.2, 0.5)))
    step += 1
"""
KINDS = ("trainer", "torch", "renamed")
HOSTS = ("host 0", "host 1", "hosts")
VICTIMS = ("nobody", "keeper 0", "keeper 1", "keepers", "writer", *HOSTS, "attempt", "disk", "clock")
AT_ONCE = 2
"""Jobs at a time: they mostly wait."""
TURNS = 6
"""Jobs one after the other; each goes on from what the one before has left."""
PATIENCE = 500.0
"""Seconds for what takes one or two."""


def fuzz(seed: int, inputs: int) -> Findings:
    """``inputs`` jobs, of which something is killed."""
    return played(play, seed, inputs, TURNS, AT_ONCE)


def play(seed: int, turns: int) -> list[str]:
    """What didn't hold in jobs one after the other."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="muster-kills-") as folder, small_disk(Path(folder) / "disk") as disk:
        history = History(Path(folder), disk, seed, draw)
        return [sentence for _ in range(turns) for sentence in history.job()]


class Host:
    """One host's process; it and all that it has started are killed together."""

    def __init__(self, asked: dict[str, Any], incoming: int, outgoing: int) -> None:
        """``incoming`` and ``outgoing``: descriptors from and to the other host, which are closed here."""
        words = [sys.executable, str(Path(__file__).with_name("keeping_host.py"))]
        self._process = subprocess.Popen(
            [*words, json.dumps({**asked, "from": incoming, "to": outgoing})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, pass_fds=[incoming, outgoing],
        )  # fmt: skip
        os.close(incoming)
        os.close(outgoing)
        self.kept: dict[str, Any] = {}
        self.said: list[str] = []
        self.announced = 0

    def tell(self, words: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{words}\n")

    def hear(self, until: str = "") -> bool:
        """Hears what it says, until it did or heard that, or it happened; False: it has ended before."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            fact = json.loads(line)
            self.kept = fact.get("kept", self.kept)
            self.announced = max(self.announced, fact.get("number", 0))
            if "said" in fact:
                self.said.append(fact["said"])
            if until and until in (fact.get("did"), fact.get("heard"), fact.get("event")):
                return True
        return False

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self.hear()
        self._process.wait()
        self._process.stdout.close()


def links_of_two() -> list[tuple[int, int]]:
    """For each of two hosts the descriptors from and to the other one."""
    (from_first, to_second), (from_second, to_first) = os.pipe(), os.pipe()
    return [(from_second, to_second), (from_first, to_first)]


class History:
    """Jobs of two hosts on the same directories."""

    def __init__(self, logs: Path, disk: Disk, seed: int, draw: random.Random) -> None:
        self._disk, folder = disk, disk.folder
        self._folder, self._seed, self._draw = folder, seed, draw
        self._kind = KINDS[seed % len(KINDS)]
        self._directories = [folder / "host0", folder / "host1"]
        self._place, self._log, self._enough = folder / "place", logs / "log", folder / "enough"
        self._announced = self._jobs = self._saves = 0
        self._saved_well, self._is_cut_off = True, False
        for directory in self._directories:
            directory.mkdir()
            (directory / OWN).write_text("the user's")
            write_owned(str(directory), "j")  # as the first start's restore does

    def job(self) -> list[str]:
        """One job; what didn't hold."""
        draw = self._draw
        self._jobs, self._saved_well, self._is_cut_off = self._jobs + 1, True, False
        victim = draw.choice(VICTIMS)
        operations = [int(2 ** (draw.random() * 7)) if draw.random() < 0.4 else 0 for _ in range(3)]
        killed = [each if victim in (f"keeper {host}", "keepers") else 0 for host, each in enumerate(operations[:2])]
        what = f"seed {self._seed}, job {self._jobs}, {self._kind}: {victim} killed {operations}"
        self._enough.unlink(missing_ok=True)
        links = links_of_two()
        hosts = []
        for place in (0, 1):
            asked = {
                "place": place, "directory": str(self._directories[place]), "uri": str(self._place),
                "operations": killed[place], "below": str(self._folder), "keep": draw.randint(1, 3),
                "jumps": draw.choice((-3600, -3, 3600)) if victim == "clock" else 0,
            }  # fmt: skip
            hosts.append(Host(asked, *links[place]))
        for host in hosts:
            host.tell("begin")
        begun = [host.hear("begin") for host in hosts]
        if not all(begun):
            for host in hosts:
                host.kill()
                host.end()
            return [f"{what}: a host's process ended before it began, which nobody had killed"]
        writer = self._writer(operations[2] if victim == "writer" else 0)
        try:
            ends_well = self._play(victim, hosts, writer, any(killed))
        finally:
            writer.kill()
            writer.wait()
            for host in hosts:
                host.end()
        said = [each for host in hosts for each in host.said]
        newest, last = hosts[0].kept.get("newest", ""), self._last_saved()
        wrong = []
        if self._is_cut_off:
            wrong.append(f"a host's process ended by itself: {said}")
        elif ends_well and self._saved_well and newest != last and last.startswith(f"checkpoint-{self._jobs}"):
            wrong.append(f"{last} was saved last, and {newest or 'nothing'} was kept: {hosts[0].kept}, {said}")
        self._announced = max(self._announced, *(host.announced for host in hosts))
        for directory in self._directories:
            if draw.random() < 0.3:
                shutil.rmtree(directory)  # another host
                shutil.rmtree(notes_of(str(directory)), ignore_errors=True)
                directory.mkdir()
                (directory / OWN).write_text("the user's")
        return [f"{what}: {sentence}" for sentence in (*wrong, *self._restored())]

    def _play(self, victim: str, hosts: list[Host], writer: subprocess.Popen[bytes], once: bool) -> bool:
        """Kills what is to be killed, and ends the job; whether it ended well. ``once``: a keeper is killed already."""
        draw = self._draw
        if victim == "writer":
            with contextlib.suppress(subprocess.TimeoutExpired):
                writer.wait(LONGEST * draw.random() + 0.3)
        else:
            time.sleep(draw.random() * 1.2 + 0.1)  # the moment is what is drawn
        killed: tuple[Host, ...] = ()
        if victim.startswith("keeper"):
            for _ in range(draw.randint(1, 2) - once):  # the third time it is given up
                for host in hosts if victim == "keepers" else [hosts[int(victim[-1])]]:
                    host.tell("kill")
                time.sleep(draw.random() * 0.6)
        elif victim.startswith("host"):
            killed = tuple(hosts) if victim == "hosts" else (hosts[int(victim[-1])],)
            for host in killed:
                host.kill()
        elif victim == "attempt":
            writer.kill()
            writer.wait()
            for host in hosts:
                if draw.random() < 0.3:
                    host.tell("kill")
                host.tell("attempt 1")
            for host in hosts:
                host.hear("attempt")
            self._saves, saved = self._saves + 1, len(self._whole())
            with self._writer(0) as again:
                time.sleep(draw.random())
                for host in hosts:
                    if draw.random() < 0.3:
                        host.tell("kill")
                self._enough.touch()
                again.wait(PATIENCE)
            if len(self._whole()) == saved:  # it came too late to save anything, and the one before was killed
                self._saved_well = False
        elif victim == "disk":
            self._disk.fill(draw.choice((0, 5000, 300000)))
            time.sleep(draw.random())
            self._disk.free()
        times = victim == "clock" and draw.random() < 0.5
        for directory in self._directories * 2 if times else ():
            jump(directory, draw)
            time.sleep(draw.random() * 0.3)
        ends_well = victim in ("nobody", "attempt") or (victim.startswith(("keeper", "clock")) and not times)
        if ends_well:
            self._enough.touch()
            writer.wait(PATIENCE)
        writer.kill()
        writer.wait()
        alive = [host for host in hosts if host not in killed]
        for host in draw.sample(alive, len(alive)):
            host.tell("finish clean" if ends_well else "finish")
        finished = [host.hear("finish") for host in alive]
        self._is_cut_off = not all(finished)
        return ends_well

    def _writer(self, operations: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", WRITER, str(self._folder), self._kind, str(self._seed)]
        words += [str(self._jobs * 1000), str(self._saves), str(self._log.parent)]
        return subprocess.Popen(dying(words, operations, self._folder), stderr=subprocess.DEVNULL)

    def _whole(self) -> list[tuple[str, list[dict[str, str]]]]:
        """Every save: its name, and the checksums of its files on both hosts."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for line in self._log.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def _last_saved(self) -> str:
        return self._whole()[-1][0] if self._whole() else ""

    def _restored(self) -> list[str]:
        target, numbers, wrong = Target(str(self._place), "j"), [], []
        here: list[dict[str, dict[str, str]]] = []
        for place, directory in enumerate(self._directories):
            try:
                found = restore(target, str(directory), Access(os.environ), Share(place, 2), say=lambda _: None)
            except FetchError as error:
                return [f"the restore of host {place} failed: {error}"]
            numbers.append(found.number)
            if (directory / OWN).read_text() != "the user's":
                wrong.append(f"the user's own file of host {place} is another one")
            folders = [
                path
                for path in directory.iterdir()
                if path.name != OWN and not path.name.startswith(".muster-") and any(path.iterdir())
            ]
            here.append({path.name: _sums(path) for path in folders if found.number})
        if len(set(numbers)) > 1 or numbers[0] < self._announced:
            return [f"manifest {self._announced} was announced, and {numbers} are the newest"]
        if not numbers[0]:
            return []
        if len({*here[0], *here[1]}) != 1 or not (here[0] and here[1]):
            return [f"of manifest {numbers[0]} {sorted(here[0])} and {sorted(here[1])} are here"]
        [name] = here[0]
        saves = [sums for each, sums in self._whole() if each == name]
        if self._kind != "renamed":  # every host reads all files
            saves = [[{**one, **other}] * 2 for one, other in saves]
        if not any(here[0][name] == one and here[1][name] == other for one, other in saves):
            wrong.append(f"{name} of manifest {numbers[0]} isn't what was saved at one time: {here}, not {saves}")
        return wrong


def _sums(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
