"""A PID 1 that drops SIGTERM: the platform sends the stop to PID 1 of the container, not to us."""

from __future__ import annotations

import os

from musterpoint.core.processes import process_tree

_TERM = 1 << (15 - 1)
_LOOKS = 1000
"""At PID 1, until it sleeps at two in a row; a busy machine may keep it from that."""
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The machine's first PID namespace (``PROC_PID_INIT_INO`` in Linux's ``proc_ns.h``): its PID 1 is no container's."""

ADVICE = "let its script end with exec (exec train), or pass SIGTERM on by a trap"


def unstoppable_pid1(proc: str = "/proc", own_pid: int | None = None) -> str:
    """The name of PID 1 where it starts us, directly or not, and SIGTERM to it is lost; empty otherwise.

    The kernel drops a signal to PID 1 that it neither catches nor blocks (pid_namespaces(7)): a shell that waits for
    its last command, a script without a handler. Never the machine's own PID 1, nor one that didn't start us, nor one
    that waits for signals (tini, ``docker run --init``).
    """
    own, fields = os.getpid() if own_pid is None else own_pid, dict[str, str]()
    blocks, sleeps = False, 0
    try:
        if own == 1 or os.readlink(f"{proc}/self") != str(own):
            return ""
        if os.readlink(f"{proc}/self/ns/pid") == _FIRST_NAMESPACE or not _above(own, proc):
            return ""
    except OSError:
        return ""
    for _ in range(_LOOKS):  # one that has just been woken from its wait for signals shows nothing of it
        fields = process_tree.read_status(1, proc)
        if not fields or _mask(fields, "SigCgt") & _TERM or _waits_for_signals(proc):
            return ""
        before, blocks = blocks, bool(_mask(fields, "SigBlk") & _TERM)  # a shell blocks it while it forks
        is_awake = fields.get("State", "").strip().startswith(("R", "D"))
        sleeps = 0 if is_awake else sleeps + 1 if blocks == before else 1
        if sleeps == 2:
            break
        os.sched_yield()
    return "" if blocks else fields.get("Name", "").strip() or "without a name"


def tracer_of_pid1(proc: str = "/proc") -> int:
    """The pid of the process that traces PID 1; 0 if none does, or if it is unknown."""
    text = process_tree.read_status(1, proc).get("TracerPid", "0").strip()
    return int(text) if text.isdecimal() else 0


def refusal(errno: int, proc: str = "/proc") -> str:
    """Why ptrace refused PID 1, from its error number."""
    tracer = tracer_of_pid1(proc)
    if tracer:
        return f"process {tracer} traces it already"
    try:
        with open(f"{proc}/sys/kernel/yama/ptrace_scope", encoding="utf-8") as file:
            scope = file.read().strip()
    except OSError:
        scope = "0"
    return f"ptrace: {os.strerror(errno)}" + (f", kernel.yama.ptrace_scope is {scope}" if scope != "0" else "")


def pid1_note(name: str, watch: str) -> str:
    """The plan's note on a PID 1 called ``name`` that SIGTERM doesn't stop; ``watch`` is ``--pid1-watch``."""
    if watch == "off":
        return f"{_keeps(name)}: a stop will kill the job without a checkpoint; {ADVICE}"
    return f"{_keeps(name)}: it is watched, so that a stop reaches the job (--pid1-watch)"


def refused_note(name: str, why: str) -> str:
    """The warning where PID 1 can't be watched."""
    return (
        f"warning: {_keeps(name)}, and it can't be watched ({why}): a stop will kill the job without a checkpoint; "
        f"{ADVICE}, or allow ptrace (--cap-add SYS_PTRACE)"
    )


def _keeps(name: str) -> str:
    return f"PID 1 of this container is {name}, which keeps SIGTERM to itself"


def _waits_for_signals(proc: str) -> bool:
    """Whether PID 1 is in ``sigtimedwait``: the kernel shows the signals it waits for as neither caught nor blocked."""
    try:
        with open(f"{proc}/1/wchan", encoding="ascii") as file:
            return "sigtimedwait" in file.read()
    except OSError:
        return False


def _above(pid: int, proc: str) -> bool:
    """Whether PID 1 is an ancestor of ``pid``."""
    while pid > 1:
        stat = process_tree.read_stat(pid, proc)
        pid = stat.parent if stat else 0
    return pid == 1


def _mask(fields: dict[str, str], name: str) -> int:
    """The mask of that name; SIGTERM's bit if it can't be read."""
    try:
        return int(fields[name], 16)
    except (KeyError, ValueError):
        return _TERM
