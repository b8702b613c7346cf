"""Waits for torch's gloo threads before Python ends, in every Python process of a job under ``muster local``.

Since torch 2.10 the gloo thread of a collective frees its tensors under the GIL, after the program has seen the end of
the collective. If Python is already ending, taking the GIL ends the thread (CPython up to 3.13) inside C++ frames that
can't be unwound, and the process aborts with "terminate called without an active exception".

Old Pythons load this file too: no newer syntax.
"""

import atexit
import os
import sys
import time

THREAD = "Name:\tpt_gloo_runloop\n"
TASKS = "/proc/self/task"
LONGEST = 5.0
"""Seconds to wait for threads that keep running."""
LOOK = 0.01
"""Seconds between two checks: twice as long as a thread sleeps while it waits for the GIL."""


def at_rest(before: "dict[str, str]", now: "dict[str, str]") -> bool:
    """Whether every thread sleeps and none ran in between: one that waits for the GIL wakes every 5 ms."""
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
    """Releases the GIL until all gloo threads sleep. Does nothing without torch or such threads."""
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
