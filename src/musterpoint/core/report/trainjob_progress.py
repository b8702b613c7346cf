"""The progress of a program in a Kubeflow TrainJob: from a file that it writes, to the trainer's status server.

``MUSTER_PROGRESS`` names the file, on the first host. The program writes one JSON value into it as often as it likes: a
percentage (``40``), or an object with the fields of the trainer's ``TrainerStatus``: ``{"progressPercentage": 40,
"estimatedRemainingSeconds": 120, "metrics": {"loss": 0.21}}``. What the program has sent to the server itself, as
transformers' Trainer does, stands in a second file beside it (:mod:`musterpoint.embedded.startup.trainjob_progress`)
and isn't sent again. Source: kubeflow/trainer, ``pkg/apis/trainer/v1alpha1`` (the fields and their limits).
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from typing import Any, Callable

from musterpoint.base.untrusted import open_regular_nofollow, printable

SENT = ".sent"
"""Behind the file's name: the file with what the program has sent itself."""
LOOK = 1.0
"""Seconds between looks at the file."""
EVERY = 5.0
"""Seconds between two requests at least, as Kubeflow asks of its clients."""
_LONGEST, _MOST = 64, 240
"""Characters of a metric's name or value; metrics at most: the server takes 256, and a failure has some of its own."""
_LARGEST = 1 << 16
_FORM = 'expected a percentage, or {"progressPercentage": 40, "estimatedRemainingSeconds": 120, "metrics": {"loss": 1}}'


def status_in(text: str) -> dict[str, Any]:
    """The fields of ``TrainerStatus`` in what a program wrote.

    Raises:
        ValueError: it is no JSON, or a field is none of the trainer's, or has no value that it takes.
    """
    value = json.loads(text)
    if not isinstance(value, dict):
        value = {"progressPercentage": value}
    found: dict[str, Any] = {}
    for name, given in value.items():
        if name in ("progressPercentage", "estimatedRemainingSeconds"):
            found[name] = _whole(name, given, 100 if name == "progressPercentage" else (1 << 31) - 1)
        elif name == "metrics":
            found[name] = _metrics(given)
        else:
            raise ValueError(f"{printable(repr(name), 80)} is no field of a TrainJob's status, {_FORM}")
    return found


def _whole(name: str, value: Any, most: int) -> int:
    right = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not right or not math.isfinite(value) or not 0 <= value <= most:
        raise ValueError(f"{name} is {printable(repr(value), 80)}, expected a number from 0 to {most}")
    return int(value)


def _metrics(given: Any) -> list[dict[str, str]]:
    """``{"loss": 0.2}``, or the trainer's own form, ``[{"name": "loss", "value": "0.2"}]``."""
    pairs = (
        given.items()
        if isinstance(given, dict)
        else [
            (each.get("name"), each.get("value")) if isinstance(each, dict) else (None, None)
            for each in (given if isinstance(given, list) else [None])
        ]
    )
    metrics = []
    for name, value in pairs:
        if not isinstance(name, str) or not name or not isinstance(value, (str, int, float)) or value == "":
            raise ValueError(f'metrics is {printable(repr(given), 80)}, expected names and values: {{"loss": 0.21}}')
        metrics.append({"name": name[:_LONGEST], "value": str(value)[:_LONGEST]})
    return metrics[:_MOST]


class ProgressWatch:
    """Sends what the program writes into ``path``, in a thread of its own.

    ``send``: gets the fields; its answer is why they weren't delivered, empty where they were. ``say``: gets a sentence
    in that thread, each one once.
    """

    def __init__(self, path: str, send: Callable[[dict[str, Any]], str], say: Callable[[str], None]) -> None:
        self._path, self._send, self._say = path, send, say
        self._done: tuple[int, int] = (0, 0)
        self._unread: tuple[int, int] = (0, 0)
        self._sent_at = -EVERY
        self._status: dict[str, Any] = {}
        self._said: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self, sends: bool, seconds: float = EVERY) -> dict[str, Any]:
        """Ends the watch, within ``seconds``; the files are gone then. Raises nothing.

        ``sends``: the last progress is still sent. Returns it, whether the program sent it or this.
        """
        self._over.set()
        self._thread.join(seconds)
        if sends and not self._thread.is_alive():
            self._look(last=True)
        own, by_program = _stamp(self._path), _stamp(self._path + SENT)
        status = self._read(self._path) or self._status
        if by_program > own:
            status = self._read(self._path + SENT) or status
        for path in (self._path, self._path + SENT):
            try:
                os.unlink(path)
            except OSError:
                pass  # the program wrote none
        return status

    def _run(self) -> None:
        while not self._over.wait(LOOK):
            if time.monotonic() - self._sent_at >= EVERY:
                self._look()

    def _look(self, last: bool = False) -> None:
        stamp = _stamp(self._path)
        if stamp in ((0, 0), self._done):
            return
        status = self._read(self._path, quiet=not last and stamp != self._unread)
        self._unread = stamp
        if status is None:
            return  # written while it was read, or no JSON: if that stays so, the next look says it
        self._done, self._status, self._sent_at = stamp, status, time.monotonic()
        if problem := self._send(status):
            self._tell(problem)

    def _read(self, path: str, quiet: bool = True) -> dict[str, Any] | None:
        try:
            with open(path, encoding="utf-8", opener=open_regular_nofollow) as file:
                return status_in(file.read(_LARGEST))
        except (OSError, ValueError, RecursionError) as error:
            if not quiet:
                why = f"{error}, {_FORM}" if isinstance(error, json.JSONDecodeError) else str(error)
                self._tell(f"MUSTER_PROGRESS={path}: {why}")
            return None

    def _tell(self, problem: str) -> None:
        if problem not in self._said:
            self._said.add(problem)
            self._say(problem)


def _stamp(path: str) -> tuple[int, int]:
    """When the file was changed, and its inode; zeros where there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino
