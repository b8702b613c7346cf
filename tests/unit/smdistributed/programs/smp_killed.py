"""Ranks that are killed at every moment of ``smp.save_checkpoint`` and version 2's ``save``, and what is resumed with.

Each rank is a process of its own, with a model of one number. A moment is an operation on a file or folder, before it
happens, or a file of which one half is written. Prints what was seen: by case, how many moments there were, and what is
wrong.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import smdistributed.modelparallel.torch as smp  # noqa: F401  (the package first: its modules need each other)
import torch
from smdistributed.modelparallel.torch import checkpoint
from smdistributed.modelparallel.torch.state import Group, state
from torch.sagemaker.distributed.checkpoint import state_dict_loader, state_dict_saver

torch.set_num_threads(1)
FORK = multiprocessing.get_context("fork")
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")
RANKS = 2


class Case(NamedTuple):
    """Checkpoints that are there, the one that is being saved, and how it is resumed from: tag and whether partial."""

    before: tuple[tuple[str, bool], ...]
    saved: tuple[str, bool]
    kept: int | None = None
    tag: str | None = None


CASES = {
    "another one, and only one is kept": Case((("s0", True), ("s1", True)), ("s2", True), kept=1),
    "again under the same name": Case((("last", True),), ("last", True), tag="last"),
    "the full one again": Case((("last", False),), ("last", False)),
    "a partial one after a full one": Case((("s1", True), ("full", False)), ("s2", True), kept=1),
}


class Script:
    """A model or an optimizer, whose state is the number of its checkpoint."""

    sharded = False

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def state_dict(self) -> dict[str, Any]:
        return {"number": torch.full((4,), self.number)}

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        return self.state_dict()

    def load_state_dict(self, values: dict[str, Any], strict: bool = True) -> None:
        self.number = int(values["number"][0])


def become(rank: int) -> None:
    """Makes this process one rank of a pipeline, without the others."""
    part, alone = Group(tuple(range(RANKS)), rank, None), Group((rank,), 0, None)
    groups = {"pp": part, "mp": part, "tp": alone, "rdp": alone}
    state._world = SimpleNamespace(groups=groups, rank=rank, cfg=SimpleNamespace(sharded_data_parallel_degree=1))  # type: ignore[assignment]


def save(rank: int, case: Case, folder: Path, number: int, tag: str, partial: bool) -> None:
    become(rank)
    checkpoint.save_checkpoint(
        folder, tag, partial, Script(number), Script(number), {"number": number},
        num_kept_partial_checkpoints=case.kept,
    )  # fmt: skip


class Killer:
    """Ends this process at its ``moment``-th moment."""

    def __init__(self, moment: int, folder: Path) -> None:
        self._left, self._folder = moment, os.fspath(folder)
        sys.addaudithook(self._event)
        self._write = checkpoint._write
        checkpoint._write = self._half  # type: ignore[assignment]

    def now(self) -> bool:
        self._left -= 1
        return self._left == 0

    def _event(self, event: str, args: tuple[Any, ...]) -> None:
        changes = event in EVENTS and self._folder in str(args[0]) and not (event == "open" and args[1] == "r")
        if changes and self.now():
            os.kill(os.getpid(), signal.SIGKILL)

    def _half(self, obj: Any, path: str, *more: Any) -> None:
        self._write(obj, path, *more)
        if self.now():
            os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)


def of_a_rank(rank: int, meeting: Any, case: Case, folder: Path, number: int, victim: int, moment: int) -> None:
    checkpoint.barrier = lambda _group: meeting.wait()  # type: ignore[assignment]
    if rank == victim:
        Killer(moment, folder)
    save(rank, case, folder, number, *case.saved)


def saved_by_all(case: Case, folder: Path, number: int, victim: int = -1, moment: int = 0) -> bool:
    """Whether all ranks came to the end; a launcher ends the others where one didn't."""
    meeting = FORK.Barrier(RANKS)
    ranks = [
        FORK.Process(target=of_a_rank, args=(rank, meeting, case, folder, number, victim, moment))
        for rank in range(RANKS)
    ]
    for each in ranks:
        each.start()
    last = ranks.pop(victim) if victim >= 0 else ranks.pop()
    last.join()
    for each in ranks:
        if last.exitcode:
            each.kill()
        each.join()
    return not any(each.exitcode for each in (last, *ranks))


def resumed(case: Case, folder: Path) -> set[int]:
    """The numbers of everything that all ranks resume with; -1: one of them finds nothing."""
    found: set[int] = set()
    for rank in range(RANKS):
        become(rank)
        state.model, state.optimizer = Script(), Script()  # type: ignore[assignment]
        try:
            content = checkpoint.resume_from_checkpoint(folder, case.tag, case.saved[1])
        except checkpoint.SMPCheckpointError:
            found.add(-1)
            continue
        found |= {state.model.number, state.optimizer.number, content["number"] if content else 0}
    return found


def wrong_after(case: Case, folder: Path, number: int) -> str:
    """What is wrong with what a job that was killed left; empty: nothing."""
    newest = [place for place, (_tag, partial) in enumerate(case.before, 1) if partial == case.saved[1]]
    allowed = [{number}, {newest[-1] if newest else -1}]
    found = resumed(case, folder)
    if found not in allowed:
        return f"resumed with {found}, expected one of {allowed}"
    for rank in reversed(range(RANKS)):
        save(rank, case, folder, number + 1, *case.saved)
    if resumed(case, folder) != {number + 1}:
        return f"resumed with {resumed(case, folder)} after the next job"
    left = [str(path.relative_to(folder)) for path in folder.rglob(".*")]
    return f"left behind: {left}" if left else ""


def moments(case: Case, start: Path, victim: int) -> tuple[int, list[str]]:
    """How many moments there were for one rank, and what was wrong."""
    number, wrong = len(case.before) + 1, []
    for moment in range(1, 1000):
        folder = start.parent / f"{start.name}-{victim}-{moment}"
        shutil.copytree(start, folder, copy_function=shutil.copy2)
        if saved_by_all(case, folder, number, victim, moment):
            return moment - 1, wrong
        words = wrong_after(case, folder, number)
        if words:
            wrong.append(f"rank {victim}, moment {moment}: {words}")
        shutil.rmtree(folder)
    raise AssertionError("no end of moments")


def of_version_2(folder: Path, number: int, moment: int) -> None:
    if moment:
        Killer(moment, folder)
    state_dict_saver.save({"number": torch.full((4,), number)}, checkpoint_id=folder / "last")


def version_2() -> dict[str, Any]:
    """A checkpoint of torch's, over an older one; and which folders stay."""
    start, wrong = Path.cwd() / "version-2", []
    of_version_2(start, 1, 0)
    (start / "last" / "notes.txt").touch()
    for moment in range(1, 1000):
        folder = start.parent / f"version-2-{moment}"
        shutil.copytree(start, folder)
        process = FORK.Process(target=of_version_2, args=(folder, 2, moment))
        process.start()
        process.join()
        found = []
        for number in (0, 3):
            if number:
                of_version_2(folder, number, 0)
            values = {"number": torch.zeros(4, dtype=torch.int64)}
            state_dict_loader.load(values, checkpoint_id=folder / "last")
            found += set(values["number"].tolist())
        left = sorted(os.listdir(folder)), "notes.txt" in os.listdir(folder / "last")
        if found not in ([1, 3], [2, 3]) or left != (["last"], True):
            wrong.append(f"moment {moment}: loaded {found}, then there is {left}")
        shutil.rmtree(folder)
        if process.exitcode == 0:
            return {"moments": [moment - 1, 0], "wrong": wrong}
    raise AssertionError("no end of moments")


checkpoint.barrier = lambda _group: None  # type: ignore[assignment]
seen: dict[str, Any] = {}
for place, (name, case) in enumerate(CASES.items()):
    start = Path.cwd() / f"case-{place}"
    start.mkdir()
    for number, (tag, partial) in enumerate(case.before, 1):
        for rank in reversed(range(RANKS)):
            save(rank, case._replace(kept=None), start, number, tag, partial)
    counts, faults = zip(*(moments(case, start, victim) for victim in range(RANKS)))
    seen[name] = {"moments": counts, "wrong": [*faults[0], *faults[1]]}
seen["version 2"] = version_2()
print(json.dumps(seen))
