"""Looks at where in native code processes run: ``native_calls.py SECONDS PID...``, until SECONDS are over.

Prints a JSON object: for each PID how often its main thread was found running in the libraries of an MPI, and how often
elsewhere. A thread that waits in the kernel at that moment counts for neither.

A thread that runs is stopped by ptrace for the time in which its registers and the innermost part of its stack are
copied, as a debugger does; a call that waits in the kernel isn't touched. Where that isn't allowed (Yama, a seccomp
filter), nothing is counted. However this program ends, the kernel lets the thread go on.

Run beside ``stack_sampler``, from its text: a thread in the kernel's hands may not stop for a long time.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import threading
import time

SEIZE, INTERRUPT, DETACH, GETREGSET, PRSTATUS = 0x4206, 0x4207, 17, 0x4204, 1
EVENT_STOP = 128
WALL = 0x40000000
MACHINE = os.uname().machine if hasattr(os, "uname") else ""
REGISTERS = {"x86_64": (16, 19, None), "aarch64": (32, 31, 30)}.get(MACHINE)
"""Where the program counter, the stack pointer and, if there is one, the link register are among the registers."""
STACK_BYTES = 8192
"""Of the innermost part of a stack: an MPI's loop that looks for messages is a few calls deep."""
LOOKS = 40
SHORTEST = 0.05
MPI = re.compile(
    r"/(?:lib(?:mpi|pmpi|open-pal|open-rte|mca_|uc[ptsmgx]|fabric|psm|pmix|event|hwloc|ibverbs|rdmacm|mlx|efa)[\w.+-]*\.so"
    r"|mca_\w+\.so)|/(?:openmpi|ucx|libfabric|libibverbs|pmix)/[^/]*\.so"
)
"""The libraries of an MPI, and those by which it sends messages."""
C_LIBRARY = re.compile(r"/(?:libc|libpthread|librt|ld-linux[\w-]*|ld-musl[\w-]*|libc\.musl[\w-]*)[-.][\w.]*$|^\[vdso\]")
"""What all code calls: who has called it counts."""

Mapping = tuple[int, int, str]


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Tracer:
    """Copies the registers and the end of the stack of threads."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).ptrace
        self._call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        self._call.restype = ctypes.c_long

    def addresses(self, tid: int) -> list[int]:
        """Where the thread is in its code, then every word of the end of its stack; empty: it can't be stopped."""
        if REGISTERS is None or self._call(SEIZE, tid, None, None) == -1:
            return []
        signo = 0
        try:
            if self._call(INTERRUPT, tid, None, None) == -1:
                return []
            _, status = os.waitpid(tid, WALL)
            if not os.WIFSTOPPED(status):
                return []
            if status >> 16 != EVENT_STOP:  # a signal came first: it is passed on
                signo = os.WSTOPSIG(status)
            return self._read(tid)
        except OSError:
            return []
        finally:
            self._call(DETACH, tid, None, signo)

    def _read(self, tid: int) -> list[int]:
        assert REGISTERS is not None
        counter, stack, link = REGISTERS
        words = (ctypes.c_uint64 * 64)()
        vector = Vector(ctypes.addressof(words), ctypes.sizeof(words))
        if self._call(GETREGSET, tid, PRSTATUS, ctypes.addressof(vector)) == -1:
            return []
        with open(f"/proc/{tid}/mem", "rb", buffering=0) as file:
            file.seek(words[stack])
            data = file.read(STACK_BYTES)
        found = [words[counter], *([] if link is None else [words[link]])]
        return found + [int.from_bytes(data[at : at + 8], sys.byteorder) for at in range(0, len(data) - 7, 8)]


def code_of(pid: int) -> list[Mapping]:
    """The parts of a process's memory that hold code, with their files."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.rstrip("\n").split(None, 5)
            if "x" in fields[1]:
                first, _, last = fields[0].partition("-")
                found.append((int(first, 16), int(last, 16), fields[5] if len(fields) > 5 else ""))
    return found


def is_in_mpi(addresses: list[int], code: list[Mapping]) -> bool:
    """Whether the innermost code that isn't the C library's is an MPI's. Words of the stack that are no addresses of
    code are passed over.
    """
    for at, address in enumerate(addresses):
        name = next((name for first, last, name in code if first <= address < last), None)
        if name is None and at:
            continue
        if name is None or not C_LIBRARY.search(name):
            return name is not None and MPI.search(name) is not None
    return False


def runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/task/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] == [b"R"]
    except OSError:
        return False


def main() -> None:
    seconds, pids = float(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    tracer, counts = Tracer(), {pid: [0, 0] for pid in pids}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for pid in filter(runs, pids):
            addresses = tracer.addresses(pid)
            if addresses:
                counts[pid][not is_in_mpi(addresses, code_of(pid))] += 1
        threading.Event().wait(max(seconds / LOOKS, SHORTEST))
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
