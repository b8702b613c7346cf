"""Watches a PID 1 that drops SIGTERM: the platform sends the stop to PID 1 of the container, not to us."""

from __future__ import annotations

import os
import sys
from typing import Callable, Mapping

from musterpoint.base.settings import LOCAL
from musterpoint.core.processes import tree
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.embedded.programs.registry import Texts

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
        fields = tree.read_status(1, proc)
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
    text = tree.read_status(1, proc).get("TracerPid", "0").strip()
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
        stat = tree.read_stat(pid, proc)
        pid = stat.parent if stat else 0
    return pid == 1


def _mask(fields: dict[str, str], name: str) -> int:
    """The mask of that name; SIGTERM's bit if it can't be read."""
    try:
        return int(fields[name], 16)
    except (KeyError, ValueError):
        return _TERM


class Pid1Watch:
    """Watches PID 1, called ``name``, until :meth:`close`; ``on_stop`` is called once, for the first SIGTERM to it.

    Both it and ``say`` are called in the loop's thread.
    """

    def __init__(
        self,
        sidecars: Sidecars,
        environ: Mapping[str, str],
        name: str,
        say: Callable[[str], None],
        on_stop: Callable[[], None],
    ) -> None:
        self._name, self._say, self._on_stop = name, say, on_stop
        self._stopped = self._warned = self._closed = False
        self._last_line = ""
        self._texts = Texts()
        self._local = bool(environ.get(LOCAL))
        try:
            argv = (sys.executable, "-I", "-S", self._texts.path("pid1_tracer"), "1")
            sidecars.start(argv, environ, self._on_line, self._on_end)
        except (CannotStart, OSError) as error:
            self._refused(str(error))

    def _on_line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "TERM" and not self._stopped:
            self._stopped = True
            self._on_stop()
        elif word == "watching":
            self._say(pid1_note(self._name, "auto"))
        elif word == "refused":
            # the hosts of a local job share PID 1: one of them traces it, and its stop reaches all
            self._warned = self._local and tracer_of_pid1() > 0
            self._refused(refusal(int(rest)))
        else:
            self._last_line = line

    def _refused(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            self._say(refused_note(self._name, why))

    def _on_end(self, code: int) -> None:
        if not self._closed and not self._stopped:
            self._refused(f"what watched it has ended with {code}{': ' if self._last_line else ''}{self._last_line}")

    def close(self) -> None:
        """Prints nothing from now on. The tracer ends with the other sidecars."""
        self._closed = True
        self._texts.close()
