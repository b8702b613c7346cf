"""A host's PID 1, as tini is one: starts the entry point, passes signals on, and tells in a file what it left behind.

Arguments: the file, then the entry point's words.
"""

import os
import signal
import sys
import time

PATIENCE = 20.0
"""Seconds that processes which were killed get to vanish on a busy machine."""


def left():
    """What still runs on this host, but for its PID 1, and what lies in its shared memory."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace").replace("\n", " ").strip()
        except OSError:
            continue
        if words:  # a zombie has none
            found.append(f"process {name}: {words[:200]}")
    found += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")]
    with open("/proc/sysvipc/shm") as file:
        found += [f"System V shared memory: {line.strip()}" for line in file.readlines()[1:]]
    with open("/proc/locks") as file:
        found += [f"file lock: {line.strip()}" for line in file if int(line.split()[4]) > 1]  # of a process here
    return found


def waits(line):
    """Whether what is left may still vanish."""
    return not line.startswith("/dev/shm")


def main(report, argv):
    child = os.fork()
    if child == 0:
        os.execv(argv[0], argv)
    passed = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
    for signo in passed:
        signal.signal(signo, lambda number, _: os.kill(child, number))
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    ended = time.time()
    until = time.monotonic() + PATIENCE
    while any(map(waits, found := left())) and time.monotonic() < until:
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        time.sleep(0.02)
    draft = f"{report}.draft"
    with open(draft, "w") as file:
        file.write("\n".join([repr(ended), *found]))
    os.rename(draft, report)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


main(sys.argv[1], sys.argv[2:])
