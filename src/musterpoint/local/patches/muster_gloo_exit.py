"""Lets torch's gloo threads come to rest before Python ends, in every Python process of a job under ``muster local``.

Since torch 2.10 a finished collective gives back its tensors under the GIL. The gloo thread that ran it does so after
the program has heard of its end; once Python has begun to end, taking the GIL ends the thread instead (CPython up to
3.13), through C++ frames that can't be unwound: the process aborts with "terminate called without an active exception".

Loaded by interpreters of every age: no syntax of newer ones.
"""

import atexit
import os
import sys
import time

THREAD = "Name:\tpt_gloo_runloop\n"
TASKS = "/proc/self/task"
LONGEST = 5.0
"""Seconds that threads get which don't come to rest."""
LOOK = 0.01
"""Seconds between two looks; twice what a thread sleeps while it waits for the GIL."""


def at_rest(before: "dict[str, str]", now: "dict[str, str]") -> bool:
    """Whether every thread slept, and none has run in between: one that waits for the GIL wakes every 5 ms."""
    return before == now and all("State:\tS" in status for status in now.values())


def threads() -> "dict[str, str]":
    """gloo's threads in this process: id → the lines of its status that say whether it runs and how often it has."""
    found = {}
    for task in os.listdir(TASKS):
        try:
            with open(TASKS + "/" + task + "/status") as file:
                status = file.read()
        except OSError:  # it has ended
            continue
        if status.startswith(THREAD):
            found[task] = "".join(line for line in status.splitlines() if "State:" in line or "switches:" in line)
    return found


def wait() -> None:
    """Gives up the GIL until gloo's threads have come to rest. Without torch, or any such thread, it does nothing."""
    if "torch" not in sys.modules or not os.path.isdir(TASKS):
        return
    until = time.monotonic() + LONGEST
    before = threads()
    while before and time.monotonic() < until:
        time.sleep(LOOK)
        now = threads()
        if at_rest(before, now):
            return
        before = now


atexit.register(wait)
