"""Looks twice at ranks that print nothing: ``stack_sampler.py SECONDS PY_SPY RESULT RANK=PID...``.

Between the looks lie SECONDS. Writes to the file RESULT a JSON object: for each rank what
:func:`musterpoint.diagnosis.stalls.position` takes, the stacks those of the second look. PY_SPY is the program that
reads the stacks of Python processes, ``-`` where there is none. The job's processes are looked at, never stopped.

Run by musterpoint's own Python from its text, since a look may block for seconds. Ends with its stdin.
"""

from __future__ import annotations

import json
import linecache
import os
import subprocess
import sys
import threading
from typing import Any

Facts = dict[str, Any]

TICKS_PER_SECOND = 1.0
"""Hundredths of a second of processor time: 1 % of a processor is what idle helper threads use."""
IDLE_BYTES = 4096
PY_SPY_SECONDS = 20.0
MOST_CHILDREN = 16
MOST_FRAMES = 60


def read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def children_of() -> dict[int, list[int]]:
    """The children of every process, by its pid."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = read(f"/proc/{name}/stat").rpartition(")")[2].split()
            if len(fields) > 1:
                found.setdefault(int(fields[1]), []).append(int(name))
    return found


def tree(pid: int, children: dict[int, list[int]]) -> list[int]:
    """``pid`` and every process below it, parents first."""
    found = [pid]
    for one in found:
        found += sorted(children.get(one, ()))
    return found


def work_of(pids: list[int]) -> tuple[int, int]:
    """Processor ticks used, and bytes read and written, by these processes so far."""
    ticks = size = 0
    for pid in pids:
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0
        for line in read(f"/proc/{pid}/io").splitlines():
            name, _, number = line.partition(": ")
            size += int(number) if name in ("rchar", "wchar") and number.isdigit() else 0
    return ticks, size


def is_python(pid: int) -> bool:
    """Whether a process has the Python interpreter mapped, as its program or its library."""
    return any("python" in os.path.basename(line.rstrip("\n")) for line in read(f"/proc/{pid}/maps").splitlines()[:400])


def facts_of(pid: int, py_spy: str) -> Facts:
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    facts: Facts = {"state": fields[0] if fields else "X", "wchan": read(f"/proc/{pid}/wchan").strip()}
    if py_spy == "-":
        facts["error"] = "py-spy isn't installed"
        return facts
    try:
        done = subprocess.run(
            [py_spy, "dump", "--json", "--nonblocking", "-p", str(pid)], capture_output=True, timeout=PY_SPY_SECONDS
        )
        threads = json.loads(done.stdout) if not done.returncode else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        facts["error"] = f"{type(error).__name__} from py-spy"
        return facts
    if threads is None:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        facts["error"] = f"py-spy: {said[-1].removeprefix('Error: ')[:120]}" if said else "py-spy failed"
        return facts
    main = next((thread for thread in threads if thread.get("thread_name") == "MainThread"), (threads or [{}])[0])
    facts["source"] = source_of(pid, main.get("frames", [])[:1])
    facts["threads"] = [
        {
            "name": thread.get("thread_name") or "",
            "frames": [frame_of(frame) for frame in thread["frames"][:MOST_FRAMES]],
        }
        for thread in threads
    ]
    return facts


def source_of(pid: int, innermost: list[Facts]) -> str:
    """The line of text that the innermost frame is at: functions in C, such as mpi4py's, have no frame of their own."""
    for frame in innermost:
        try:
            folder = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            folder = "/"
        return linecache.getline(os.path.join(folder, frame["filename"]), frame["line"]).strip()[:200]
    return ""


def frame_of(frame: Facts) -> list[Any]:
    """Name, file and line; the file from site-packages on, else as py-spy shortens it."""
    file = frame["filename"]
    for packages in ("site-packages/", "dist-packages/"):
        if packages in file:
            return [frame["name"], packages + file.rpartition(packages)[2], frame["line"]]
    return [frame["name"], frame.get("short_filename") or file, frame["line"]]


def look(ranks: dict[int, int], py_spy: str) -> dict[int, tuple[Facts, tuple[int, int]]]:
    """Every rank's facts, with those of Python processes it started, and the work of all of them so far."""
    children = children_of()
    found = {}
    for rank, pid in ranks.items():
        pids = tree(pid, children)
        work = work_of(pids)
        facts = facts_of(pid, py_spy)
        below = [one for one in pids[1:] if is_python(one)][:MOST_CHILDREN] if py_spy != "-" else []
        facts["children"] = [facts_of(one, py_spy) for one in below]
        found[rank] = facts, work
    return found


def main() -> None:
    seconds, py_spy, result = float(sys.argv[1]), sys.argv[2], sys.argv[3]
    ranks = {int(rank): int(pid) for rank, _, pid in (word.partition("=") for word in sys.argv[4:])}
    first = look(ranks, py_spy)
    threading.Event().wait(seconds)
    second = look(ranks, py_spy)
    found = {}
    for rank, (facts, (ticks, size)) in second.items():
        before, (old_ticks, old_size) = first[rank]
        worked = ticks - old_ticks > max(2.0, seconds * TICKS_PER_SECOND) or size - old_size > IDLE_BYTES
        facts["moving"] = worked or before.get("threads") != facts.get("threads")
        found[str(rank)] = facts
    with open(result, "w", encoding="utf-8") as file:
        json.dump(found, file)


def end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_stdin, daemon=True).start()
    main()
