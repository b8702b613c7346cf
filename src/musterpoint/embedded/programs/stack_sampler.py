"""Looks twice at ranks that print nothing: ``stack_sampler.py SECONDS PY_SPY GPUS CALLS RESULT RANK=PID...``.

Between the looks lie SECONDS. Writes to the file RESULT a JSON object: for each rank what
:func:`musterpoint.core.diagnosis.standstill.position` takes, the stacks those of the second look. PY_SPY is the program
that reads the stacks of Python processes, ``-`` where there is none; GPUS the one that says how busy GPUs are; CALLS
the one that says whether a process is in an MPI. It alone stops a thread, while its registers are read. A rank of which
the last RESULT said ``"silent": SIZE`` is named by RANK=PID:SIZE: it hasn't answered the question that it was asked
when its answers were of SIZE bytes.

Run by musterpoint's own Python from its text, since a look may block for seconds. Ends with its stdin.
"""

from __future__ import annotations

import base64
import ctypes
import json
import linecache
import os
import re
import stat
import subprocess
import sys
import threading
import time
from typing import Any, Iterator, NamedTuple

Facts = dict[str, Any]

TICKS_PER_SECOND = 1.0
"""Hundredths of a second of processor time: 1 % of a processor is what idle helper threads use."""
IDLE_BYTES = 4096
POLLERS = re.compile(r"/horovod/\S*mpi_lib\S*\.so$", re.MULTILINE)
"""Libraries whose own threads look for work a thousand times a second, also while there is none: Horovod's cycle is
1 ms (``horovod/common/operations.cc``, HOROVOD_CYCLE_TIME).
"""
OWN = "musterpoint/embedded/startup/"
POLL_SECONDS = 100e-6
"""What such a thread runs at a time: 10 to 20 µs were measured. One that computes runs until another gets its turn,
which is 0.5 ms or more.
"""
POLL_SHARE = 0.25
"""Of a processor, for all such threads of a process: 2 % were measured."""
GPU_PERCENT = 1
"""Percent of the time in which a GPU's memory is in use. A kernel of NCCL's that waits runs 100 % of the time, but uses
none to speak of.
"""
GPU_SECONDS = 5.0
"""For the end of the program that looks at GPUs."""
PY_SPY_SECONDS = 20.0
MOST_CHILDREN = 16
MOST_FRAMES = 60
SIGNAL = 61
"""A real-time signal that neither users' programs nor the C library use."""
ANSWER_SECONDS = 5.0
"""For the answer of a rank: a thread that may run Python gets its turn within milliseconds, on a busy machine later."""
SILENT: dict[int, int] = {}
"""The processes whose thread hasn't answered, and how long the file of their answers was when it was asked."""
ANSWER, ANSWER_END = b"Stacks, read by a thread of the process\n", b"End of the stacks\n"
"""The first and last line of what a rank's thread writes."""
STACKS = b"s"
"""The byte that asks for stacks in the pipe of a rank's thread."""
STACKS_FILE = "muster-stacks"
"""How the name begins of the memory file into which a rank's ``faulthandler`` writes; a thread's number follows."""
TGKILL = {"x86_64": 234, "aarch64": 131}.get(os.uname().machine if hasattr(os, "uname") else "", -1)
"""The system call that sends a signal to one thread; -1, which fails: not known for this machine."""
GO_ON = ("0", "pipe_read", "anon_pipe_read", "futex_wait_queue", "futex_wait_queue_me", "do_wait")
"""Where a thread of a process goes on after a signal as if there had been none; 0: it runs."""
MPI_LIBRARY = re.compile(r"/lib(?:mpi|mpich|mpi_cxx|pmpi|open-pal)[\w.-]*\.so", re.MULTILINE)
STARVED_SHARE = 0.5
"""Of the time between the looks: a thread that ran or waited for a processor for so long wanted to run, though a busy
machine may have given it next to nothing.
"""
FEW_FAULTS = 16
"""Pages that a process which only looks for messages touches for the first time, between two looks."""
CALLS_SECONDS = 5.0
"""For the end of the program that looks at native code, beside the time between the looks."""
FEW_CALLS = 5
"""So many moments at least, all of them in an MPI, say that a thread was there all the time."""
RETURNS = "muster-returns"
"""How the name of the memory file begins in which a rank notes that its main thread runs Python again."""
FLIGHT_FILE = "muster-flight"
"""How the name of the memory file begins into which a rank writes what torch's flight recorder knows."""
FLIGHT_COUNT, FLIGHT_WRITING = 8, 1 << 63
FLIGHT_SECONDS = 5.0
"""For all ranks together: for their answers with stacks; torch looks at NCCL's pipe every second."""
MOST_FLIGHT = 8 << 20
PIPE, DUMP = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"


def read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def stat_of(pid: int | str) -> list[str]:
    """The fields of a process's ``stat`` behind its name: its state, its parent, …; empty where it is gone."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def children_of() -> dict[int, list[int]]:
    """The children of every process, by its pid."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_of(name)
            if len(fields) > 1:
                found.setdefault(int(fields[1]), []).append(int(name))
    return found


def tree(pid: int, children: dict[int, list[int]]) -> list[int]:
    """``pid`` and every process below it, parents first."""
    found = [pid]
    for one in found:
        found += sorted(children.get(one, ()))
    return found


class Work(NamedTuple):
    """What processes or threads have done so far: ``ticks`` of processor time used, ``size`` bytes read and written.

    ``polled``: the same of their threads that may only look for work, each with ``seconds`` on a processor and the
    ``turns`` in which it had them, by thread.
    """

    ticks: int
    size: int
    polled: dict[int, Thread] = {}

    def since(self, earlier: Work, seconds: float) -> tuple[int, int]:
        """Ticks and bytes since ``earlier``, ``seconds`` ago, without those of threads that only looked for work."""
        ticks, size = self.ticks - earlier.ticks, self.size - earlier.size
        ran = [thread.since(earlier.polled[tid]) for tid, thread in self.polled.items() if tid in earlier.polled]
        idle = [each for each in ran if each.seconds <= each.turns * POLL_SECONDS]
        if sum(each.seconds for each in idle) > seconds * POLL_SHARE:
            return ticks, size
        return ticks - sum(each.ticks for each in idle), size - sum(each.size for each in idle)


class Thread(NamedTuple):
    """A thread of a process, as :class:`Work`."""

    ticks: int
    size: int
    seconds: float
    turns: int

    def since(self, earlier: Thread) -> Thread:
        ticks, size, seconds, turns = earlier
        return Thread(self.ticks - ticks, self.size - size, self.seconds - seconds, self.turns - turns)


def faults_of(pid: int) -> int:
    """How often a process touched a page of memory for the first time."""
    fields = stat_of(pid)
    return int(fields[7]) + int(fields[9]) if len(fields) > 9 else 0


def main_thread(facts: Facts) -> list[Any]:
    """The frames of the thread that runs the program."""
    threads = facts.get("threads") or [{}]
    return next((each for each in threads if each.get("name") == "MainThread"), threads[0]).get("frames", [])  # type: ignore[no-any-return]


def size_of(io: str) -> int:
    """Bytes read and written, as a file ``io`` says."""
    size = 0
    for line in io.splitlines():
        name, _, number = line.partition(": ")
        size += int(number) if name in ("rchar", "wchar") and number.isdigit() else 0
    return size


def ticks_of(fields: list[str]) -> int:
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def work_of(pids: list[int], python: dict[int, set[int]]) -> Work:
    """What these processes have done so far; ``python``: threads that run Python, where they are known."""
    ticks = size = 0
    polled: dict[int, Thread] = {}
    for pid in pids:
        ticks += ticks_of(stat_of(pid))
        size += size_of(read(f"/proc/{pid}/io"))
        if pid in python and POLLERS.search(read(f"/proc/{pid}/maps")):
            polled.update(native_threads(pid, python[pid]))
    return Work(ticks, size, polled)


class Turns(NamedTuple):
    """What a thread had of a processor so far: the seconds for which it ``ran`` and ``waited`` for its turn, and in how
    many ``turns``. ``runs``: it has or wants one now. ``main``: it is its process's main thread.
    """

    ran: float
    waited: float
    turns: int
    runs: bool
    main: bool

    def wanted(self, earlier: Turns, seconds: float) -> bool:
        """Whether it wanted to run for most of the ``seconds`` since ``earlier``. A thread that only looks for work may
        wait for long on a busy machine, too, but then it runs for a moment; a main thread is none.
        """
        ran, waited, turns = self.ran - earlier.ran, self.waited - earlier.waited, self.turns - earlier.turns
        if not turns:  # the kernel adds what a thread waits when its turn has come
            return self.runs and earlier.runs
        return ran + waited > seconds * STARVED_SHARE and (self.main or ran > turns * POLL_SECONDS)


def turns_of(pids: list[int]) -> dict[int, Turns]:
    """The threads of processes, where the kernel counts their turns."""
    found = {}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for name in names:
            spent = read(f"/proc/{pid}/task/{name}/schedstat").split()
            if len(spent) == 3:
                ran, waited, turns = map(int, spent)
                runs = stat_of(f"{pid}/task/{name}")[:1] == ["R"]
                found[int(name)] = Turns(ran / 1e9, waited / 1e9, turns, runs, int(name) == pid)
    return found


def native_threads(pid: int, python: set[int]) -> dict[int, Thread]:
    """The threads of a process that run no Python. A kernel that doesn't count a thread's time says nothing of any."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/task"):
        folder, tid = f"/proc/{pid}/task/{name}", int(name)
        spent = read(f"{folder}/schedstat").split()
        if tid != pid and tid not in python and len(spent) == 3:
            fields = read(f"{folder}/stat").rpartition(")")[2].split()
            size = size_of(read(f"{folder}/io"))
            found[tid] = Thread(ticks_of(fields), size, int(spent[0]) / 1e9, int(spent[2]))
    return found


def is_python(pid: int) -> bool:
    """Whether a process has the Python interpreter mapped, as its program or its library."""
    return any("python" in os.path.basename(line.rstrip("\n")) for line in read(f"/proc/{pid}/maps").splitlines()[:400])


def facts_of(pid: int, threads: list[Facts] | None, error: str) -> Facts:
    """What is known of a process, with the ``threads`` that were read, or the ``error`` of what couldn't read them."""
    fields = stat_of(pid)
    facts: Facts = {"state": fields[0] if fields else "X", "wchan": read(f"/proc/{pid}/wchan").strip("\0 \n")}
    facts["mpi"] = MPI_LIBRARY.search(read(f"/proc/{pid}/maps")) is not None
    if threads is None:
        facts["error"] = error
        return facts
    main = next((thread for thread in threads if thread["name"] == "MainThread"), (threads or [{}])[0])
    facts["source"] = source_of(pid, main.get("frames", [])[:1])
    folder = link(f"/proc/{pid}/cwd") + "/"
    facts["python"] = python_threads(pid, threads)
    threads = [thread for thread in threads if not is_ours(thread)]
    for thread in threads:
        thread.pop("tid", None)
        thread["frames"] = [[name, short(file, folder), line] for name, file, line in thread["frames"][:MOST_FRAMES]]
    facts["threads"] = threads
    return facts


def stacks_of(pids: list[int], py_spy: str) -> dict[int, tuple[list[Facts] | None, str]]:
    """The threads of each process, or None and why not: by py-spy, else by the process itself. Those are all asked
    before the first answer is waited for, so that many that can't answer cost no more time than one.
    """
    found = {pid: by_py_spy(pid, py_spy) for pid in pids}
    lacking = [pid for pid, (threads, _) in found.items() if threads is None]
    asked = {pid: Question(pid) for pid in lacking if stat_of(pid)[:1] not in (["T"], ["t"], ["Z"], ["X"], [])}
    until = time.monotonic() + ANSWER_SECONDS
    for pid, question in asked.items():
        found[pid] = question.stacks(until), found[pid][1]
    return found


def is_ours(thread: Facts) -> bool:
    return any(OWN in file for _, file, _ in thread["frames"])


def python_threads(pid: int, threads: list[Facts]) -> list[Any] | None:
    """The numbers of the threads that run Python; None where more than the main one do, and which is not known.

    Our own only wait until they are asked.
    """
    found = [thread.get("tid") for thread in threads if not is_ours(thread)]
    if len(found) == 1:
        return [pid]
    return None if None in found else found


def by_py_spy(pid: int, py_spy: str) -> tuple[list[Facts] | None, str]:
    """The threads of a process, or None and why not."""
    if py_spy == "-":
        return None, "py-spy isn't installed"
    try:
        done = subprocess.run(
            [py_spy, "dump", "--json", "--nonblocking", "-p", str(pid)], capture_output=True, timeout=PY_SPY_SECONDS
        )
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
        }
        for thread in found
    ], ""


class Question:
    """A process is asked for the stacks of its threads, if a thread of ours waits there to be asked. They are written
    to a memory file that the process holds open.

    The thread is asked through its pipe. Where it doesn't answer, C code keeps Python's lock; then it is asked by
    :data:`SIGNAL`, which would kill a process without such a thread. A question that is open since the last look isn't
    asked again, as the lock has been kept since. A process that was forked from such a one has no such thread. Its main
    thread is asked only while it is in no call that a signal would end.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._tid, self._path = pid, 0, ""
        self._before = 0
        self._waits = False
        try:
            self._ask()
        except (OSError, ValueError):
            self._path = ""

    def _ask(self) -> None:
        pid, folder = self._pid, f"/proc/{self._pid}/fd"
        caught = next((line for line in read(f"/proc/{pid}/status").splitlines() if line.startswith("SigCgt:")), ":0")
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
        self._waits = bool(asks) and pid not in SILENT and poke(f"{folder}/{int(asks[0])}", STACKS)

    def stacks(self, until: float) -> list[Facts] | None:
        """The threads, which a thread of ours has ``until`` to write; None where they can't be had."""
        if not self._path:
            return None
        try:
            if self._waits and (said := self._answer(until)):
                return parsed(said)
            if self._tid == self._pid and read(f"/proc/{self._pid}/wchan").strip("\0 \n") not in GO_ON:
                return None
            if self._waits:
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


def written(path: str, begin: int) -> bytes:
    """What has been written into a file behind its first ``begin`` bytes."""
    with open(path, "rb") as file:
        file.seek(begin)
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
    for thread in threads:
        if thread["frames"] and thread["frames"][-1][0] in ("<module>", "_run_module_as_main"):
            thread["name"] = "MainThread"
    return threads or None


class Flight:
    """What torch's flight recorder knows of one rank: asked for at once, and read as soon as it is there.

    A rank whose Python has our thread answers by it, twice; else NCCL's own is asked, where its pipe is. ``found`` is
    the best answer so far, ``done`` says that no better one comes.
    """

    def __init__(self, rank: int, pids: list[int]) -> None:
        self.found, self.done = b"", False
        self._path, self._before = "", -1
        if not any(self._ask_thread(pid) or self._ask_nccl(pid, rank) for pid in pids):
            self.done = True

    def _ask_thread(self, pid: int) -> bool:
        try:
            for path, bell in answers_of(pid, FLIGHT_FILE):
                self._path = path
                with open(path, "rb") as file:
                    self._before = int.from_bytes(file.read(FLIGHT_COUNT), "big")
                return poke(bell)
        except (OSError, ValueError):
            pass
        return False

    def _ask_nccl(self, pid: int, rank: int) -> bool:
        environ = dict(word.partition("=")[::2] for word in read(f"/proc/{pid}/environ").split("\0"))
        if not environ.get(PIPE) or not environ.get(DUMP) or not poke(f"{environ[PIPE]}{rank}.pipe"):
            return False
        self._path, self._before = f"{environ[DUMP]}{rank}", -1
        return True

    def look(self) -> None:
        """Reads what has been answered by now."""
        try:
            with open(self._path, "rb") as file:
                data = file.read(MOST_FLIGHT)
                file.seek(0)
                head = file.read(FLIGHT_COUNT)
        except OSError:
            self.done = self._before >= 0  # the rank has ended; NCCL's file may still come
            return
        if self._before < 0:
            self.found = data if data.endswith(b".") else b""  # the last byte of a pickle
            self.done = bool(self.found)
            return
        count = int.from_bytes(head, "big")
        if head == data[:FLIGHT_COUNT] and self._before < count < FLIGHT_WRITING:
            self.found, self.done = data[FLIGHT_COUNT:], count > self._before + 1


class Returns:
    """Whether the main thread of a process has run Python since it was asked. A question that it hasn't answered isn't
    asked again: then its number says that it has been in one and the same call since.
    """

    def __init__(self, pid: int) -> None:
        self._path = ""
        try:
            for path, bell in answers_of(pid, RETURNS):
                self._path = path
                if not self.call():
                    poke(bell)
        except (OSError, ValueError):
            pass

    def call(self) -> int:
        """The number of the question that is open; 0: none is, or none could be asked."""
        try:
            with open(self._path, "rb") as file:
                asked, came = file.read(8), file.read(8)
        except OSError:
            return 0
        return int.from_bytes(asked, "big") if asked != came else 0


class Calls:
    """Where in native code the processes are, from now on for ``seconds``; those that have no MPI aren't looked at."""

    def __init__(self, program: str, seconds: float, pids: list[int]) -> None:
        self._returns = {pid: Returns(pid) for pid in pids if MPI_LIBRARY.search(read(f"/proc/{pid}/maps"))}
        self._ticks = {pid: self._others(pid) for pid in self._returns}
        self._seconds = seconds
        words = [sys.executable, "-I", "-S", program, str(seconds), *map(str, self._returns)]
        self._child = (
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            if self._returns
            else None
        )

    @staticmethod
    def _others(pid: int) -> int:
        """Processor time of all threads but the main one."""
        return ticks_of(stat_of(pid)) - ticks_of(stat_of(f"{pid}/task/{pid}"))

    def in_mpi(self) -> dict[int, int]:
        """The processes that were in an MPI's libraries whenever they were looked at, with the number of their call."""
        if self._child is None:
            return {}
        try:
            counts = json.loads(self._child.communicate(timeout=CALLS_SECONDS)[0])
        except (subprocess.TimeoutExpired, ValueError):  # a thread didn't stop, or nothing is known of this machine
            self._child.kill()
            return {}
        found = {}
        for pid, returns in self._returns.items():
            inside, outside = counts[str(pid)]
            others = self._others(pid) - self._ticks[pid]
            if inside >= FEW_CALLS and not outside and others <= max(2.0, self._seconds * TICKS_PER_SECOND):
                found[pid] = returns.call()
        return found


def answers_of(pid: int, name: str) -> Iterator[tuple[str, str]]:
    """The files called ``name`` in which a process answers, and for each what is poked to ask it."""
    folder = f"/proc/{pid}/fd"
    for each in os.listdir(folder):
        target = link(f"{folder}/{each}").partition(" ")[0]
        if target.startswith(f"/memfd:{name}-"):
            yield f"{folder}/{each}", f"{folder}/{int(target.rpartition('-')[2])}"


def poke(path: str, byte: bytes = b"?") -> bool:
    """Writes a byte into a pipe that somebody reads; false where there is none."""
    try:
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            return False
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            return os.write(fd, byte) == 1
        finally:
            os.close(fd)
    except OSError:
        return False


def flights(ranks: dict[int, int]) -> dict[int, str]:
    """What torch's flight recorder knows of each rank, in base64; without ranks that don't answer in time."""
    children = children_of()
    asked = {rank: Flight(rank, tree(pid, children)) for rank, pid in ranks.items()}
    until = time.monotonic() + FLIGHT_SECONDS
    while (waiting := [flight for flight in asked.values() if not flight.done]) and time.monotonic() < until:
        threading.Event().wait(0.02)
        for flight in waiting:
            flight.look()
    return {rank: base64.b64encode(flight.found).decode() for rank, flight in asked.items() if flight.found}


def link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def short(file: str, folder: str) -> str:
    """A file from site-packages on, or below the process's working directory."""
    for packages in ("site-packages/", "dist-packages/"):
        if packages in file:
            return packages + file.rpartition(packages)[2]
    return file.removeprefix(folder)


def source_of(pid: int, innermost: list[list[Any]]) -> str:
    """The line of text that the innermost frame is at: functions in C, such as mpi4py's, have no frame of their own."""
    for _name, file, line in innermost:
        return linecache.getline(os.path.join(link(f"/proc/{pid}/cwd"), file), line).strip()[:200]
    return ""


Seen = dict[int, tuple[Facts, dict[int, set[int]]]]
"""Of each rank: its facts, and the threads of its processes that run Python, where they are known."""


def look(ranks: dict[int, int], py_spy: str) -> Seen:
    """Every rank's facts, with those of Python processes it started."""
    children = children_of()
    found: Seen = {}
    below = {rank: [one for one in tree(pid, children)[1:] if is_python(one)] for rank, pid in ranks.items()}
    asked = {rank: [pid, *below[rank][:MOST_CHILDREN]] for rank, pid in ranks.items()}
    stacks = stacks_of([one for pids in asked.values() for one in pids], py_spy)
    for rank, pid in ranks.items():
        read_of = {one: facts_of(one, *stacks[one]) for one in asked[rank]}
        python = {one: set(facts.pop("python")) for one, facts in read_of.items() if facts.get("python")}
        facts = read_of.pop(pid)
        facts["children"] = [*read_of.values()]
        found[rank] = facts, python
    return found


def works_of(ranks: dict[int, int], children: dict[int, list[int]], seen: Seen) -> dict[int, Work]:
    """What each rank and the processes it started have done so far. Ranks that answer a look write and compute for it,
    so this comes behind the first look and before the second.
    """
    return {rank: work_of(tree(pid, children), seen[rank][1]) for rank, pid in ranks.items()}


def main() -> None:
    seconds, py_spy, gpus, calls, result = float(sys.argv[1]), *sys.argv[2:6]
    ranks: dict[int, int] = {}
    for word in sys.argv[6:]:
        number, _, which = word.partition("=")
        process, _, written = which.partition(":")
        ranks[int(number)] = int(process)
        if written:
            SILENT[int(process)] = int(written)
    watched = subprocess.Popen(
        [sys.executable, "-I", "-S", gpus], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    first = look(ranks, py_spy)
    children = children_of()
    earlier = works_of(ranks, children, first)
    began = time.monotonic()
    turns = {rank: turns_of(tree(pid, children)) for rank, pid in ranks.items()}
    faults = {rank: faults_of(pid) for rank, pid in ranks.items()}
    native = Calls(calls, seconds, [one for pid in ranks.values() for one in tree(pid, children)])
    threading.Event().wait(seconds)
    in_mpi = native.in_mpi()
    passed = time.monotonic() - began
    starved = {
        rank: any(one.wanted(turns[rank][tid], passed) for tid, one in turns_of(pids).items() if tid in turns[rank])
        for rank, pids in ((rank, tree(pid, children)) for rank, pid in ranks.items())
    }
    faults = {rank: faults_of(pid) - faults[rank] for rank, pid in ranks.items()}
    later = works_of(ranks, children_of(), first)
    second = look(ranks, py_spy)
    busy = gpus_busy(watched)
    found = {}
    for rank, (facts, _python) in second.items():
        before = first[rank][0]
        ticks, size = later[rank].since(earlier[rank], seconds)
        worked = ticks > max(2.0, seconds * TICKS_PER_SECOND) or size > IDLE_BYTES
        computes = any(memory >= GPU_PERCENT for _kernels, memory in busy)
        waits_for_turn = starved[rank] and not worked  # a busy machine lets it do nothing: that is no wait for others
        facts["moving"] = worked or waits_for_turn or computes or before.get("threads") != facts.get("threads")
        facts["one_call"] = facts["mpi"] and "threads" in facts and size <= IDLE_BYTES and not computes
        facts["one_call"] &= main_thread(before) == main_thread(facts) and faults[rank] <= FEW_FAULTS
        waiting = [number for one, number in in_mpi.items() if one in tree(ranks[rank], children)]
        known = len(waiting) == 1 and facts["one_call"] and not waits_for_turn
        facts["mpi_call"] = waiting[0] if known else 0
        facts["gpus"] = busy
        if ranks[rank] in SILENT:
            facts["silent"] = SILENT[ranks[rank]]
        found[str(rank)] = facts
    for rank, record in flights(ranks).items():
        found[str(rank)]["flight"] = record
    with open(result, "w", encoding="utf-8") as file:
        json.dump(found, file)


def gpus_busy(watched: subprocess.Popen[bytes]) -> list[list[int]]:
    """The most that each GPU was busy so far, as ``gpu_activity`` says; empty where it says nothing."""
    try:
        said = watched.communicate(timeout=GPU_SECONDS)[0]
    except subprocess.TimeoutExpired:  # a call into the driver doesn't return
        watched.kill()
        return []
    lines = [json.loads(line) for line in said.splitlines()]
    return [[max(values) for values in zip(*each, strict=True)] for each in zip(*lines, strict=True)]


def end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_stdin, daemon=True).start()
    main()
