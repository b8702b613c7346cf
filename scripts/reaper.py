"""Runs a command so that nothing it starts outlives it: reaper.py COMMAND [ARGUMENTS…]

The exit code is the command's. An interrupt (SIGINT, SIGTERM) is given to the command, so that pytest says which tests
had failed by then. When the command has ended, what still runs below it is killed. This process adopts every orphan
below it, so none gets out of its sight, and it collects those that end.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 60.0
"""Seconds in which an interrupted command may end, and in which a killed ``muster local`` removes its containers."""
CLEANS_UP = b"musterpoint.local.docker_cleanup"
"""In the command line of the process that outlives a killed ``muster local`` to remove its containers and network."""
RUN = "MUSTER_TEST_RUN"
"""The variable that names a run of the tests; its containers have the name in the label :data:`LABEL`."""
LABEL = "musterpoint.test.run"

_PR_SET_CHILD_SUBREAPER = 36
_HEARD = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD}


def main(command: list[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    unblocked = lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)  # noqa: E731
    child = subprocess.Popen(command, start_new_session=True, preexec_fn=unblocked)
    code, until = None, float("inf")
    while code is None and time.monotonic() < until:
        heard = _wait(until)
        if heard in (signal.SIGINT, signal.SIGTERM):
            child.send_signal(signal.SIGINT)
            until = min(until, time.monotonic() + PATIENCE)
        code = _collect(child.pid)
    left = _kill(lambda words: CLEANS_UP not in words)
    until = time.monotonic() + PATIENCE
    while next(_below(os.getpid()), None) is not None and time.monotonic() < until:
        _wait(until)
        _collect(child.pid)
    _kill(lambda words: True)
    _remove_containers()
    if left and code is not None:
        print(f"reaper: still running at the end, and killed ({len(left)}):", *left, sep="\n  ", flush=True)
    return 128 + signal.SIGINT if code is None else code


def _wait(until: float) -> int:
    """The signal that comes next; 0 where none comes by ``until``."""
    heard = signal.sigtimedwait(_HEARD, max(0.0, min(until - time.monotonic(), 3600.0)))
    return heard.si_signo if heard else 0


def _collect(pid: int) -> int | None:
    """Collects every process that has ended; the exit code of ``pid`` if it is among them."""
    code = None
    try:
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if not ended:
                return code
            if ended == pid:
                code = os.waitstatus_to_exitcode(status) % 256
    except ChildProcessError:
        return code


def _below(ancestor: int) -> Iterator[int]:
    """The processes that descend from ``ancestor`` and still run."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            fields = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split() if entry.isdecimal() else []
        except OSError:
            continue  # it has ended
        if fields and fields[0] != b"Z":
            parents[int(entry)] = int(fields[1])
    for pid in parents:
        above = pid
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor and pid != ancestor:
            yield pid


def _kill(which: object) -> list[str]:
    """Kills the processes below this one whose command line ``which`` accepts, until there are none; what they were."""
    assert callable(which)
    killed: dict[int, str] = {}
    more = True
    while more:
        more = False
        for pid in _below(os.getpid()):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                if which(words):
                    os.kill(pid, signal.SIGKILL)
                    more = True
                    if words:  # else it is ending
                        killed[pid] = " ".join(words.replace(b"\0", b" ").decode(errors="replace").split())[:150]
            except OSError:
                continue
        if more:
            _wait(time.monotonic() + 1)
        _collect(0)
    return list(killed.values())


def _remove_containers() -> None:
    """Removes the containers and networks of this run's tests, where there is a Docker engine."""
    run = os.environ.get(RUN)
    for kind, remove in (("container", ("rm", "--force", "--volumes")), ("network", ("rm",))):
        words = ["docker", kind, "ls", "--quiet", "--filter", f"label={LABEL}={run}"]
        try:
            listed = subprocess.run(
                [*words, *(["--all"] if kind == "container" else [])], capture_output=True, text=True, check=False
            )
        except OSError:
            return
        if run and listed.stdout.split():
            subprocess.run(["docker", kind, *remove, *listed.stdout.split()], capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
