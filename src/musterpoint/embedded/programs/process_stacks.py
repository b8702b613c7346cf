"""The stacks of Python processes: py-spy reads them, else the processes themselves are asked."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import threading
import time
from typing import Any, Mapping, NamedTuple

from musterpoint.embedded.programs.process_files import link, poke, read_text, stat_of, ticks_of

Facts = dict[str, Any]
PY_SPY_SECONDS = 20.0
SIGNAL = 61
"""A real-time signal that neither users' programs nor the C library use."""
ANSWER_SECONDS = 5.0
"""For the answer of a rank: a thread that may run Python gets its turn within milliseconds, on a busy machine later."""
SILENT: dict[int, int] = {}
"""The processes whose thread hasn't answered, and how long the file of their answers was when it was asked."""
ANSWER, ANSWER_END = b"Stacks, read by a thread of the process\n", b"End of the stacks\n"
"""The first and last line of what a rank's thread writes."""
WORLD, WORLD_IN = "world_size", "torch/distributed/"
"""A variable of torch's functions that make a group, and where they are; those inside know it first."""
STACKS = b"s"
"""The byte that asks for stacks in the pipe of a rank's thread."""
STACKS_FILE = "muster-stacks"
"""How the name begins of the memory file into which a rank's ``faulthandler`` writes; a thread's number follows."""
RETURNS = "muster-returns"
"""How the name of the memory file begins in which a rank notes that its main thread runs Python again."""
TGKILL = {"x86_64": 234, "aarch64": 131}.get(os.uname().machine if hasattr(os, "uname") else "", -1)
"""The system call that sends a signal to one thread; -1, which fails: not known for this machine."""
GO_ON = ("0", "pipe_read", "anon_pipe_read", "futex_wait_queue", "futex_wait_queue_me", "do_wait")
"""Where a thread of a process goes on after a signal as if there had been none; 0: it runs."""


FEW_TURNS, FEW_TICKS = 20, 5
"""A thread that wants Python's lock asks for it anew at each of its turns, every 5 ms. Who runs Python gives it up soon
then; who has run for so many hundredths of a second, and hasn't, runs C code.
"""


class Spent(NamedTuple):
    """What a thread has had: its ``turns``, its processor time in ``ticks``; and whether it ``runs`` or wants to."""

    turns: int
    ticks: int
    runs: bool


def stacks_of(
    pids: list[int], py_spy: str, seconds: float = ANSWER_SECONDS
) -> dict[int, tuple[list[Facts] | None, str]]:
    """The threads of each process, or None and why not: by py-spy, else by the process itself. Those are all asked
    before the first answer is waited for, so that many that can't answer cost no more time than one.
    """
    found = {pid: by_py_spy(pid, py_spy) for pid in pids}
    lacking = [pid for pid, (threads, _) in found.items() if threads is None]
    asked = {pid: Question(pid) for pid in lacking if stat_of(pid)[:1] not in (["T"], ["t"], ["Z"], ["X"], [])}
    until = time.monotonic() + seconds
    for pid, question in asked.items():
        found[pid] = question.stacks(until), found[pid][1]
    return found


def by_py_spy(pid: int, py_spy: str) -> tuple[list[Facts] | None, str]:
    """The threads of a process, or None and why not."""
    if py_spy == "-":
        return None, "py-spy isn't installed"
    words = [py_spy, "dump", "--json", "--nonblocking", "-p", str(pid)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=PY_SPY_SECONDS)
        if b"init_process_group" in done.stdout:
            done = subprocess.run([*words, "--locals"], capture_output=True, timeout=PY_SPY_SECONDS)
        found = json.loads(done.stdout) if not done.returncode else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return None, f"{type(error).__name__} from py-spy"
    if found is None:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return None, f"py-spy: {said[-1].removeprefix('Error: ')[:120]}" if said else "py-spy failed"
    return [
        {
            "name": thread.get("thread_name") or "",
            "tid": thread.get("os_thread_id"),
            "frames": [[frame["name"], frame["filename"], frame["line"]] for frame in thread["frames"]],
            **world_of(thread["frames"]),
        }
        for thread in found
    ], ""


def world_of(frames: list[Facts]) -> Facts:
    """Tells for how many ranks a thread makes torch's first group, as ``world``."""
    inside = [each for frame in frames if WORLD_IN in frame["filename"] for each in frame.get("locals") or ()]
    sizes = [each.get("repr") or "" for each in inside if each["name"] == WORLD]
    return next(({"world": int(size)} for size in sizes if size.isdecimal()), {})


class Question:
    """A process is asked for the stacks of its threads, if a thread of ours waits there to be asked. They are written
    to a memory file that the process holds open.

    The thread is asked through its pipe. Where it doesn't answer as C code keeps Python's lock, it is asked by
    :data:`SIGNAL`, which would kill a process without such a thread. It may also kill one in which another thread runs
    Python meanwhile, so none is sent where the machine is so busy that one can't tell. A question that is open since
    the last look isn't asked again, as the lock has been kept since. A process that was forked from such a one has no
    such thread. Its main thread is asked only while it is in no call that a signal would end, and no other thread runs.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._tid, self._path = pid, 0, ""
        self._before = 0
        self._waits = False
        self._spent: dict[int, Spent] = {}
        try:
            self._ask()
        except (OSError, ValueError):
            self._path = ""

    def _ask(self) -> None:
        pid, folder = self._pid, f"/proc/{self._pid}/fd"
        caught = next(
            (line for line in read_text(f"/proc/{pid}/status").splitlines() if line.startswith("SigCgt:")), ":0"
        )
        targets = {name: link(f"{folder}/{name}").partition(" ")[0] for name in os.listdir(folder)}
        held = [name for name, target in targets.items() if target.startswith(f"/memfd:{STACKS_FILE}-")]
        if not held or not int(caught.partition(":")[2], 16) & 1 << (SIGNAL - 1):
            return
        self._tid = int(targets[held[0]].rpartition("-")[2])
        self._path = f"{folder}/{held[0]}"
        self._before = os.stat(self._path).st_size
        if not os.path.exists(f"/proc/{pid}/task/{self._tid}"):
            self._tid = pid
            return
        asks = [name.rpartition("-")[2] for name in targets.values() if name.startswith(f"/memfd:{RETURNS}-")]
        if pid in SILENT and ANSWER_END in written(self._path, SILENT[pid]):
            del SILENT[pid]
        self._spent = spent(pid)
        self._waits = bool(asks) and pid not in SILENT and poke(f"{folder}/{int(asks[0])}", STACKS)

    def stacks(self, until: float) -> list[Facts] | None:
        """The threads, which a thread of ours has ``until`` to write; None where they can't be had."""
        if not self._path:
            return None
        try:
            if self._waits and (said := self._answer(until)):
                return parsed(said)
            if self._tid == self._pid:
                if read_text(f"/proc/{self._pid}/wchan").strip("\0 \n") not in GO_ON or others_run(self._pid):
                    return None
            elif self._waits:
                if not keeps_lock(self._spent, spent(self._pid), self._tid):
                    return None
                SILENT[self._pid] = self._before
            begin = os.stat(self._path).st_size
            if ctypes.CDLL(None, use_errno=True).syscall(TGKILL, self._pid, self._tid, SIGNAL):
                return None
            return parsed(self._dump(begin, time.monotonic() + ANSWER_SECONDS))
        except (OSError, ValueError, KeyError):
            return None

    def _answer(self, until: float) -> str:
        """What the thread answers, once all of it is there; empty when time is ``until``."""
        while True:
            said = written(self._path, self._before)
            if (end := said.find(ANSWER_END)) >= 0:
                return said[said.find(ANSWER) : end].decode("utf-8", "replace")
            if time.monotonic() >= until:
                return ""
            threading.Event().wait(0.02)

    def _dump(self, begin: int, until: float) -> str:
        """What the handler of the signal writes behind ``begin``, once no more comes and the thread doesn't run, or
        what has come when time is ``until``. The main thread of a forked process runs on.
        """
        size = begin
        while True:
            last, size = size, os.stat(self._path).st_size
            over = self._tid == self._pid or stat_of(f"{self._pid}/task/{self._tid}")[:1] != ["R"]
            if (size == last > begin and over) or time.monotonic() >= until:
                return written(self._path, begin).decode("utf-8", "replace")
            threading.Event().wait(0.02)


def spent(pid: int) -> dict[int, Spent]:
    """What each thread of a process has had until now."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/task"):
        fields = stat_of(f"{pid}/task/{name}")
        status = read_text(f"/proc/{pid}/task/{name}/status")
        turns = re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", status, re.MULTILINE)
        found[int(name)] = Spent(int(turns[1]) if turns else 0, ticks_of(fields), fields[:1] == ["R"])
    return found


def keeps_lock(before: Mapping[int, Spent], now: Mapping[int, Spent], asked: int) -> bool:
    """Whether the thread ``asked`` hasn't answered since ``before`` as C code keeps Python's lock: it has had its turn
    time and again, and so has each thread that runs.
    """
    nothing = Spent(0, 0, False)
    turns = now.get(asked, nothing).turns - before.get(asked, nothing).turns
    had = (each.ticks - before.get(tid, nothing).ticks for tid, each in now.items() if each.runs and tid != asked)
    return turns >= FEW_TURNS and all(ticks >= FEW_TICKS for ticks in had)


def others_run(pid: int) -> bool:
    """Whether a thread of the process beside its main one runs."""
    return any(each.runs for tid, each in spent(pid).items() if tid != pid)


def written(path: str, begin: int) -> bytes:
    """What has been written into a file behind its first ``begin`` bytes; all, if it has begun anew since."""
    with open(path, "rb") as file:
        file.seek(begin if begin <= os.fstat(file.fileno()).st_size else 0)
        return file.read()


def parsed(text: str) -> list[Facts] | None:
    """The threads of ``faulthandler``'s text, or None; the one that runs the program is ``MainThread``."""
    threads: list[Facts] = []
    for line in text.splitlines():
        frame = re.fullmatch(r'  File "(.*)", line ([0-9?]+) in (.*)', line)
        if line.startswith(("Thread 0x", "Current thread 0x")):
            threads.append({"name": "", "frames": []})
        elif frame and threads:
            threads[-1]["frames"].append([frame[3], frame[1], int(frame[2]) if frame[2] != "?" else 0])
        elif threads and line.startswith(f"  {WORLD} "):
            threads[-1].setdefault("world", int(line.split()[1]))
    for thread in threads:
        if thread["frames"] and thread["frames"][-1][0] in ("<module>", "_run_module_as_main"):
            thread["name"] = "MainThread"
    return threads or None
