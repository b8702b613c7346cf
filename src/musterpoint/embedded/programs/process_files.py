"""What the kernel says of processes: their files below ``/proc``, and what they hold open."""

from __future__ import annotations

import os
import re
import stat
from typing import Iterator

MPI_LIBRARY = re.compile(r"/lib(?:mpi|mpich|mpi_cxx|pmpi|open-pal)[\w.-]*\.so", re.MULTILINE)


def read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


SLEEPS = {"x86_64": ("35", "230", "23 0x0", "270 0x0"), "aarch64": ("101", "115", "72 0x0")}
"""Calls of the system that sleep. Python before 3.11 does it in ``select``, without a file."""


def waits_in(pid: int) -> str:
    """Names the kernel's function in which a process waits; ``hrtimer_nanosleep`` if it sleeps."""
    call = read_text(f"/proc/{pid}/syscall").split()[:2]
    asleep = not {*call[:1], " ".join(call)}.isdisjoint(SLEEPS.get(os.uname().machine, ()))
    return "hrtimer_nanosleep" if asleep else read_text(f"/proc/{pid}/wchan").strip("\0 \n")


def stat_of(pid: int | str) -> list[str]:
    """The fields of a process's ``stat`` behind its name: its state, its parent, …; empty where it is gone."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


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


def size_of(io: str) -> int:
    """Bytes read and written, as a file ``io`` says."""
    size = 0
    for line in io.splitlines():
        name, _, number = line.partition(": ")
        size += int(number) if name in ("rchar", "wchar") and number.isdigit() else 0
    return size


def ticks_of(fields: list[str]) -> int:
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def is_python(pid: int) -> bool:
    """Whether a process has the Python interpreter mapped, as its program or its library."""
    return any(
        "python" in os.path.basename(line.rstrip("\n")) for line in read_text(f"/proc/{pid}/maps").splitlines()[:400]
    )


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
