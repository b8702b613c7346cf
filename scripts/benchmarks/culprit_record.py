"""What tools have said so far, kept as it comes: a run of hours that is stopped goes on where it was."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from benchmarks.peers import Peer, Said, Told
from benchmarks.verdicts import Row, Verdict, best

FORMAT = "culprits 1"


class Trial(NamedTuple):
    """A row under a tool. ``program``: its digest. ``patience``: by what its limits were multiplied."""

    tool: str
    row: str
    program: str
    patience: float
    told: Told


class Record:
    """A file of JSON lines: the first says of which versions the others are, each other one is a trial.

    ``path``: None: they are kept in memory only.
    """

    def __init__(self, path: Path | None, versions: Mapping[str, str]) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._torn: int | None = None  # where a line begins that was not written whole, as the benchmark was killed
        self._trials: dict[tuple[str, str, str], list[Trial]] = {}
        if path is None:
            return
        head = {"format": FORMAT, "versions": dict(versions)}
        if path.exists():
            self._read(path, head)
        else:
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")

    def _read(self, path: Path, head: dict[str, Any]) -> None:
        data = path.read_bytes()
        kept = data[: data.rfind(b"\n") + 1]
        lines = kept.decode("utf-8", "replace").split("\n")[:-1]
        first = parsed(path, 1, lines[0] if lines else "")
        if first.get("format") != FORMAT:
            refuse(path, f"line 1 is not of this benchmark (expected the format {FORMAT!r})")
        for tool, version in head["versions"].items():
            if first["versions"].get(tool) != version:
                refuse(path, f"it is of {tool} {first['versions'].get(tool)}, and here is {tool} {version}")
        self._torn = len(kept) if kept != data else None
        for number, line in enumerate(lines[1:], 2):
            found = parsed(path, number, line)
            try:
                told = Told([Said(*each) for each in found["said"]], found["rank"], found["cut"])
                self._note(Trial(found["tool"], found["row"], found["program"], found["patience"], told))
            except (KeyError, TypeError):
                refuse(path, f"line {number} is no trial")

    def _note(self, trial: Trial) -> None:
        self._trials.setdefault((trial.tool, trial.row, trial.program), []).append(trial)

    def add(self, trial: Trial) -> None:
        told = trial.told
        line = {**trial._asdict(), **told._asdict()}
        del line["told"]
        with self._lock:
            self._note(trial)
            if self._path is not None:
                if self._torn is not None:
                    os.truncate(self._path, self._torn)
                    self._torn = None
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def of(self, row: Row, peer: Peer) -> list[Trial]:
        """The trials of this row's program, in the order in which they were made."""
        return self._trials.get((peer.name, row.name, row.digest(peer)), [])

    def verdict(self, row: Row, peer: Peer) -> tuple[Verdict, str] | None:
        """The best that any trial came to, and what was said then; None: no trial came to the failure."""
        struck = [trial.told for trial in self.of(row, peer) if trial.told.rank >= 0]
        found = [best(row, told.rank, told.said) for told in struck]
        return max(found, key=lambda pair: (sum(pair[0]), pair[0]), default=None)


def parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    found = None
    with contextlib.suppress(ValueError):
        found = json.loads(line)
    if not isinstance(found, dict):
        refuse(path, f"line {number} is no JSON object")
    return found


def refuse(path: Path, why: str) -> NoReturn:
    sys.exit(f"bench: {path}: {why}: nothing was changed there; give another --json FILE, or remove {path.name}")
