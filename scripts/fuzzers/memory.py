"""How much memory this process has taken since a moment.

Not ``ru_maxrss``: a process begins with the peak of the one that started it (``man 2 getrusage``), which for a worker
of pytest is a gibibyte.
"""

from __future__ import annotations


def forget_peak() -> None:
    """From now on :func:`peak` counts from what this process holds at this moment."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # man 5 proc_pid_clear_refs


def peak() -> int:
    """The most memory that this process has had in RAM since, in MiB."""
    with open("/proc/self/status", encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmHWM"].split()[0]) >> 10
