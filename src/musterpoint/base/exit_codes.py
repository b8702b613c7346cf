"""The exit codes musterpoint itself gives; every other code is the user's own.

Where the user's program ends with the same number, the ``muster:`` prefix of the failure reason and ``outcome.json``
tell the two apart.
"""

import signal

OK = 0
USAGE = 64
"""A file, key or option is wrong; an entry point is missing or not executable."""
ROLLCALL = 69
"""Not every host joined by the deadline."""
INTERNAL = 70
"""A bug of musterpoint's own."""
FETCH = 71
"""The user's code or its requirements could not be fetched or installed."""
LAUNCHER = 72
"""The launcher can't start: ``mpirun`` or torch missing, wrong world size."""
STALLED = 74
"""No rank printed anything for the stall timeout, and all stood still (``--stall-timeout``)."""
HOST_LOST = 76
"""A host was lost: it neither ended its part nor reported a failure."""
CHECK = 78
"""A check found what would make the job fail: ``muster check``, or ``MUSTER_CHECK=fail`` before a launch."""
STOPPED = 143
"""Stopped by the platform (SIGTERM), also when every rank then ended with 0."""


def of_signal(signo: int) -> int:
    """The code a shell reports for a process that died by signal ``signo``: 128 + n."""
    return 128 + signo


def of_status(returncode: int) -> int:
    """A ``waitstatus_to_exitcode`` value (negative: a signal) as the code the control plane gets (0–255)."""
    return of_signal(-returncode) if returncode < 0 else returncode & 0xFF


def of_job(failure: int, stop_signal: int, stop_code: int) -> int:
    """The exit code of a job whose root cause has the code ``failure`` (0: none).

    A stop comes before a failure: the code is then ``stop_code``, or 130 for Ctrl-C. ``stop_signal`` 0: no stop.
    """
    if not stop_signal:
        return failure
    return of_signal(stop_signal) if stop_signal == 2 else stop_code  # SIGINT


def signal_name(signo: int) -> str:
    """``SIGKILL`` for 9; ``signal 99`` for one without a name."""
    try:
        return signal.Signals(signo).name
    except ValueError:
        return f"signal {signo}"
